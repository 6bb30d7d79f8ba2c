#include "simulator/player.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "simulator/fair_shares.h"
#include "simulator/play_state.h"

namespace meshwright {
namespace {

class Player {
 public:
  Player(const Program& program, const std::vector<TaskList>& lists)
      : program_(program),
        lists_(lists),
        loops_(lists.size(), Loop::None()),
        classes_(lists.size()),
        next_(lists.size(), kNever),
        may_start_(lists.size(), true),
        rates_stale_(lists.size(), false) {
    for (const TaskList& list : lists) {
      for (size_t s = num_streams_; s < kNumStreams; ++s) {
        if (!list.streams[s].empty()) num_streams_ = s + 1;
      }
      for (const UnrolledBlock& block : list.blocks) {
        for (const Run& run : block.runs) num_shared_links_ = std::max(num_shared_links_, run.shared);
      }
    }
  }

  absl::StatusOr<PlayedTimes> PlayAll() {
    PlayedTimes result;
    result.times.resize(lists_.size());
    for (size_t c = 0; c < lists_.size(); ++c) result.times[c].assign(lists_[c].tasks.size(), {kNotYet, kNotYet});
    times_ = &result.times;
    PlayToTheEnd();
    if (const Waiting left = FirstLeft(); left.task >= 0) return Stuck(left);
    result.makespan = now_;
    return result;
  }

  std::optional<Nanos> PlayLonger(const std::vector<Period>& periods, int64_t more) {
    periods_ = &periods;
    turns_ = static_cast<int32_t>(more);
    for (size_t c = 0; c < lists_.size(); ++c) {
      loops_[c].tasks = periods[c].tasks;
      loops_[c].length = periods[c].on_stream;
      for (size_t s = 0; s < kNumStreams; ++s) {
        const auto& queue = lists_[c].streams[s];
        loops_[c].end[s] =
            static_cast<int32_t>(std::lower_bound(queue.begin(), queue.end(), periods[c].end) - queue.begin());
        if (loops_[c].end[s] == 0) classes_[c].turn[s] = turns_;
      }
    }
    watch_at_ = periods[0].begin;
    PlayToTheEnd();
    if (unclear_ || FirstLeft().task >= 0) return std::nullopt;
    return now_ + left_out_;
  }

 private:
  void PlayToTheEnd() {
    while (true) {
      StartWhatCan();
      for (size_t c = rates_stale_.From(0); c < classes_.size(); c = rates_stale_.From(c + 1)) UpdateRates(c);
      if (num_shared_links_ > 0) ShareLinks();
      if (periods_ != nullptr) Watch();
      Nanos next = kNever;
      for (const Nanos of_class : next_) next = std::min(next, of_class);
      if (next == kNever || unclear_) return;
      now_ = next;
      for (size_t c = 0; c < classes_.size(); ++c) {
        if (next_[c] == now_) EndWhatEnds(c);
      }
    }
  }

  const Task& TaskOf(size_t c, int32_t task) const { return lists_[c].tasks[static_cast<size_t>(task)]; }
  TaskTimes& TimesOf(size_t c, int32_t task) { return (*times_)[c][static_cast<size_t>(task)]; }
  // Whether it has happened, of a task in that turn.
  bool Done(size_t c, const Wait& wait, int32_t turn) const {
    const size_t s = static_cast<size_t>(wait.stream);
    return wait.place + turn * loops_[c].length[s] < classes_[c].done[s];
  }

  // The task at the head of a stream that is idle, or -1.
  int32_t Head(size_t c, size_t stream) const {
    const ClassState& state = classes_[c];
    const auto& queue = lists_[c].streams[stream];
    const size_t head = static_cast<size_t>(state.head[stream]);
    return state.running[stream].task >= 0 || head == queue.size() ? -1 : queue[head];
  }

  bool Ready(size_t c, int32_t id, int32_t turn) {
    const Task& task = TaskOf(c, id);
    const Wait* const first = lists_[c].waits.data() + task.first_wait;
    for (const Wait* wait = first; wait != first + task.num_waits; ++wait) {
      if (Done(c, *wait, turn)) continue;
      if (turn > 0 && Done(c, *wait, 0) && IsIrregular(c, id, *wait)) unclear_ = true;
      return false;
    }
    return true;
  }

  // Whether what is waited for in a later turn may lie less than as many periods later.
  bool IsIrregular(size_t c, int32_t id, const Wait& wait) const {
    const Period& period = (*periods_)[c];
    return wait.task < period.begin || std::binary_search(period.irregular.begin(), period.irregular.end(), id);
  }

  void StartWhatCan() {
    while (may_start_.From(0) < classes_.size()) {
      for (size_t c = may_start_.From(0); c < classes_.size(); c = may_start_.From(c)) {
        may_start_.Erase(c);
        for (size_t s = 0; s < num_streams_; ++s) StartHead(c, s);
      }
    }
  }

  void StartHead(size_t c, size_t stream) {
    const int32_t id = Head(c, stream);
    const int32_t turn = classes_[c].turn[stream];
    if (id < 0 || !Ready(c, id, turn)) return;
    const Task& task = TaskOf(c, id);
    if (!task.run->is_transfer) {
      Begin(c, stream, id, task.time());
      return;
    }
    const size_t peer = static_cast<size_t>(task.run->peer);
    const Task& partner = TaskOf(peer, task.partner);
    const size_t peer_stream = static_cast<size_t>(partner.run->stream);
    const int32_t head = Head(peer, peer_stream);
    const int32_t peer_turn = classes_[peer].turn[peer_stream];
    if (head < 0 || head - task.partner != (turn - peer_turn) * loops_[peer].tasks) return;
    if (!Ready(peer, head, peer_turn)) return;
    const Nanos time = std::max(task.time(), partner.time());
    Begin(c, stream, id, time);
    Begin(peer, peer_stream, head, time);
  }

  void Begin(size_t c, size_t stream, int32_t id, Nanos time) {
    if (times_ != nullptr) TimesOf(c, id).begin = now_;
    ClassState& state = classes_[c];
    Running& running = state.running[stream];
    running.turn = state.turn[stream];
    GoOn(c, stream);
    if (time == Nanos()) {
      if (times_ != nullptr) TimesOf(c, id).end = now_;
      ++state.done[stream];
      may_start_.Insert(c);
      return;
    }
    state.busy |= uint32_t{1} << stream;
    const Task& task = TaskOf(c, id);
    running.task = id;
    running.of = &task;
    running.pieces = &task.piece(0);
    running.updated = now_;
    running.remaining = (task.run->is_transfer ? time : running.pieces->price->time).raw() * kWhole;
    // A piece without duration is over at once.
    if (running.remaining == 0) NextPiece(task, &running);
    if (!task.run->is_transfer || task.run->send) running.end = EndOf(running);
    rates_stale_.Insert(c);
  }

  // To the next task of a stream, which may be that of another turn.
  void GoOn(size_t c, size_t stream) {
    ClassState& state = classes_[c];
    const Loop& loop = loops_[c];
    if (++state.head[stream] != loop.end[stream] || state.turn[stream] == turns_) return;
    if (loop.length[stream] == 0) {
      state.turn[stream] = turns_;
    } else {
      state.head[stream] -= loop.length[stream];
      ++state.turn[stream];
    }
  }

  static Nanos EndOf(const Running& running) {
    return running.updated + Nanos((running.remaining + running.rate - 1) / running.rate);
  }

  // Goes on to the next piece that has a duration; false when there is none.
  bool NextPiece(const Task& task, Running* running) const {
    do {
      if (++running->piece == task.run->num_pieces) {
        running->piece = 0;
        if (++running->layer == task.count) return false;
      }
      running->remaining = running->pieces[running->piece].price->time.raw() * kWhole;
    } while (running->remaining == 0);
    running->updated = now_;
    running->end = EndOf(*running);
    return true;
  }

  void EndWhatEnds(size_t c) {
    for (const size_t s : Streams(classes_[c].busy)) {
      Running& running = classes_[c].running[s];
      if (running.task < 0 || running.end != now_) continue;
      const Task& task = *running.of;
      if (!running.folded && !task.run->is_transfer && NextPiece(task, &running)) {
        rates_stale_.Insert(c);
        continue;
      }
      if (task.run->is_transfer) {
        const size_t peer = static_cast<size_t>(task.run->peer);
        End(peer, static_cast<size_t>(TaskOf(peer, task.partner).run->stream));
      }
      End(c, s);
    }
  }

  void End(size_t c, size_t stream) {
    ClassState& state = classes_[c];
    if (times_ != nullptr) TimesOf(c, state.running[stream].task).end = now_;
    ++state.done[stream];
    state.running[stream] = Running();
    state.busy &= ~(uint32_t{1} << stream);
    may_start_.Insert(c);
    rates_stale_.Insert(c);
  }

  // What is running on that stream now. REQUIRES: it is busy.
  const Piece& PieceOf(size_t c, size_t stream) const {
    const Running& running = classes_[c].running[stream];
    return running.pieces[running.piece];
  }

  void UpdateRates(size_t c) {
    ClassState& state = classes_[c];
    rates_stale_.Erase(c);
    FoldOrUnfold(c);
    Taken taken;
    for (const size_t s : Streams(state.busy)) {
      const Piece& piece = PieceOf(c, s);
      if (piece.communicates) taken.Add(*piece.price);
    }
    Nanos next = kNever;
    for (const size_t s : Streams(state.busy)) {
      Running& running = state.running[s];
      if (!running.folded) {
        const int32_t rate = RateOf(running.pieces[running.piece], taken);
        if (rate != running.own_rate) SetRate(c, s, rate);
      }
      next = std::min(next, running.end);
    }
    next_[c] = next;
  }

  // What the communication of a class takes of its device.
  struct Taken {
    void Add(const InstructionPrice& price) {
      for (size_t l = 0; l < kNumLinks; ++l) links[l] += price.links[l];
      multiprocessors += price.multiprocessors;
      memory += price.memory;
    }
    std::array<int32_t, kNumLinks> links = {};
    int32_t multiprocessors = 0, memory = 0;
  };

  static int32_t RateOf(const Piece& piece, const Taken& taken) {
    int32_t rate = kWhole;
    if (piece.communicates) {
      for (size_t l = 0; l < kNumLinks; ++l) {
        if (taken.links[l] > kWhole && piece.price->links[l] > 0) {
          rate = std::min(rate, kWhole * kWhole / taken.links[l]);
        }
      }
      return rate;
    }
    switch (piece.price->slowed_by) {
      case SlowedBy::kNothing:
        return rate;
      case SlowedBy::kMultiprocessors:
        return std::max(rate - taken.multiprocessors, kLeastRate);
      case SlowedBy::kMemory:
        return std::max(rate - taken.memory, kLeastRate);
    }
    return rate;
  }

  // Of what runs on a stream; of a transfer both halves, kept by the sending one.
  Claim ClaimOf(size_t c, size_t stream) const {
    const Running& running = classes_[c].running[stream];
    const Task& task = *running.of;
    Claim claim{PieceOf(c, stream).price->shared, {}, running.own_rate};
    if (!task.run->is_transfer) return claim;
    const size_t peer = static_cast<size_t>(task.run->peer);
    const Task& partner = TaskOf(peer, task.partner);
    claim.more_uses = partner.piece(0).price->shared;
    claim.most = std::min(claim.most, classes_[peer].running[static_cast<size_t>(partner.run->stream)].own_rate);
    return claim;
  }

  // All communication of all classes that crosses a link which is not one device's own.
  void ShareLinks() {
    claims_.clear();
    claimants_.clear();
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        const Running& running = classes_[c].running[s];
        if (running.task < 0 || running.folded) continue;
        const Run& run = *running.of->run;
        if (run.is_transfer && !run.send) continue;
        const Claim claim = ClaimOf(c, s);
        if (claim.uses.empty() && claim.more_uses.empty()) {
          SetShared(c, s, kWhole);
          continue;
        }
        claims_.push_back(claim);
        claimants_.push_back({c, s});
      }
    }
    ShareFairly(num_shared_links_, absl::MakeSpan(claims_));
    for (size_t i = 0; i < claims_.size(); ++i) SetShared(claimants_[i].first, claimants_[i].second, claims_[i].rate);
  }

  void SetShared(size_t c, size_t stream, int32_t rate) {
    Running& running = classes_[c].running[stream];
    if (running.shared == rate) return;
    running.shared = rate;
    SetRate(c, stream, running.own_rate);
    UpdateNext(c);
  }

  // A transfer's clock is kept by its sending half.
  void SetRate(size_t c, size_t stream, int32_t own_rate) {
    Running* running = &classes_[c].running[stream];
    running->own_rate = own_rate;
    int32_t rate = std::min(own_rate, running->shared);
    const Task& task = *running->of;
    if (task.run->is_transfer) {
      ClassState& peer = classes_[static_cast<size_t>(task.run->peer)];
      const Task& partner = TaskOf(static_cast<size_t>(task.run->peer), task.partner);
      Running* other = &peer.running[static_cast<size_t>(partner.run->stream)];
      rate = std::min({rate, other->own_rate, other->shared});
      if (!task.run->send) running = other;
    }
    if (running->rate == rate) return;
    running->remaining -= (now_ - running->updated).raw() * running->rate;
    running->updated = now_;
    running->rate = rate;
    running->end = EndOf(*running);
    if (task.run->is_transfer && !task.run->send) UpdateNext(static_cast<size_t>(task.run->peer));
  }

  void UpdateNext(size_t c) {
    next_[c] = kNever;
    for (const size_t s : Streams(classes_[c].busy)) next_[c] = std::min(next_[c], classes_[c].running[s].end);
  }

  // Runs of kernels, which only the compute stream has, are stepped through only while their pieces' lengths depend on
  // others, or others' on them.
  void FoldOrUnfold(size_t c) {
    constexpr size_t kCompute = static_cast<size_t>(Stream::kCompute);
    Running& running = classes_[c].running[kCompute];
    if (running.task < 0) return;
    const Task& task = *running.of;
    if (task.run->num_pieces * task.count == 1) return;
    const bool alone = task.run->shared == 0 && Alone(c, kCompute, *task.run);
    if (alone && !running.folded) Fold(task, &running);
    if (!alone && running.folded) Unfold(task, &running);
  }

  bool Alone(size_t c, size_t stream, const Run& run) const {
    for (const size_t s : Streams(classes_[c].busy)) {
      if (s == stream) continue;
      if (classes_[c].running[s].of->run->takes) return false;
      const Piece& piece = PieceOf(c, s);
      if (run.takes && !piece.communicates && piece.price->slowed_by != SlowedBy::kNothing) return false;
    }
    return true;
  }

  // Only from the beginning of a piece on: the rest of one that others have slowed down is not a whole number.
  void Fold(const Task& task, Running* running) const {
    const Piece& piece = task.piece(running->piece);
    if (running->updated != now_ || running->remaining != piece.price->time.raw() * kWhole) return;
    running->folded = true;
    running->own_rate = running->rate = kWhole;
    running->end = now_ + task.time() - task.run->time * running->layer - piece.before;
  }

  void Unfold(const Task& task, Running* running) const {
    const Run& run = *task.run;
    const Nanos position = now_ - running->updated + run.time * running->layer + task.piece(running->piece).before;
    running->layer = position.raw() / run.time.raw();
    const Nanos within = position - run.time * running->layer;
    // The last piece that begins at or before this moment: it has a duration, for it ends later.
    const Piece* first = &task.piece(0);
    const Piece* after = std::upper_bound(first, first + run.num_pieces, within,
                                          [](Nanos time, const Piece& piece) { return time < piece.before; });
    running->piece = static_cast<int32_t>(after - first) - 1;
    const Piece& piece = task.piece(running->piece);
    running->folded = false;
    running->own_rate = running->rate = kWhole;
    running->remaining = (piece.before + piece.price->time - within).raw() * kWhole;
    running->updated = now_;
    running->end = EndOf(*running);
  }

  // --- repetition --------------------------------------------------------------------------------------------------

  struct State {
    Nanos time;
    int64_t period = 0;  // of the first class
    std::vector<ClassState> classes;
  };
  // States of so many periods before are compared with, for turns of few periods; and one of longer ago, taken anew at
  // each power of two, for those of many (Brent's search for cycles).
  static constexpr size_t kRecent = 4;

  // Once a period of the first class: whether all was like this before.
  void Watch() {
    const auto& queue = lists_[0].streams[static_cast<size_t>(Stream::kCompute)];
    const size_t head = static_cast<size_t>(classes_[0].head[static_cast<size_t>(Stream::kCompute)]);
    const Period& first = (*periods_)[0];
    if (head == queue.size()) return;
    const int64_t next = queue[head] + int64_t{classes_[0].turn[static_cast<size_t>(Stream::kCompute)]} * first.tasks;
    if (next < watch_at_) return;
    const int64_t period = (next - first.begin) / first.tasks;
    watch_at_ = first.begin + (period + 1) * first.tasks;
    for (auto before = recent_.rbegin(); before != recent_.rend(); ++before) {
      if (LeaveOut(*before, period)) return;
    }
    if (LeaveOut(long_ago_, period)) return;
    if (recent_.size() == kRecent) std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
    if (recent_.size() < kRecent) recent_.emplace_back();
    recent_.back() = {now_, period, classes_};
    if (std::has_single_bit(static_cast<uint64_t>(period))) long_ago_ = recent_.back();
  }

  // Leaves out all turns that take what this one took; false where the state is another one.
  bool LeaveOut(const State& before, int64_t period) {
    const int32_t back = static_cast<int32_t>(period - before.period);
    if (before.classes.empty() || !ComesBack(before, back)) return false;
    int32_t most = turns_;
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        if (loops_[c].length[s] > 0) most = std::min(most, turns_ - classes_[c].turn[s]);
      }
    }
    const int32_t times = most / back;
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        if (loops_[c].length[s] == 0 && classes_[c].turn[s] == turns_) classes_[c].turn[s] -= times * back;
      }
    }
    turns_ -= times * back;
    left_out_ += (now_ - before.time) * times;
    watch_at_ = std::numeric_limits<int64_t>::max();
    return true;
  }

  bool ComesBack(const State& before, int32_t back) const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      const Period& period = (*periods_)[c];
      const ClassState &then = before.classes[c], &state = classes_[c];
      for (size_t s = 0; s < num_streams_; ++s) {
        const int32_t length = period.on_stream[s];
        if (period.long_ago[s] > then.done[s] || then.done[s] + back * length != state.done[s]) return false;
        if (then.head[s] + (then.turn[s] + back) * length != state.head[s] + state.turn[s] * length) return false;
        if (!then.running[s].SameBut(state.running[s], back, period.tasks, now_ - before.time)) return false;
        if (length == 0) continue;
        // Both within the periods.
        if (then.head[s] >= loops_[c].end[s] || state.head[s] >= loops_[c].end[s]) return false;
        const int32_t running = then.running[s].task;
        const int32_t first = running < 0 ? lists_[c].streams[s][static_cast<size_t>(then.head[s])] : running;
        if (first < period.begin) return false;
      }
    }
    return true;
  }

  // The next task of a stream that never began.
  struct Waiting {
    size_t c = 0;
    int32_t task = -1;
    friend bool operator==(const Waiting&, const Waiting&) = default;
  };

  // The first stream that has tasks left; of those of a list, when nothing goes on.
  Waiting FirstLeft() const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        if (const int32_t task = Head(c, s); task >= 0) return {c, task};
      }
    }
    return {};
  }

  // What a waiting task waits for: the first of its events that has not happened, or else its partner.
  Waiting BlockerOf(const Waiting& waiting) const {
    const Task& task = TaskOf(waiting.c, waiting.task);
    for (int32_t i = 0; i < task.num_waits; ++i) {
      const Wait& wait = lists_[waiting.c].waits[static_cast<size_t>(task.first_wait + i)];
      if (!Done(waiting.c, wait, 0)) return {waiting.c, wait.task};
    }
    return {static_cast<size_t>(task.run->peer), task.partner};
  }

  Waiting HeadBefore(const Waiting& blocker) const {
    return {blocker.c, Head(blocker.c, static_cast<size_t>(TaskOf(blocker.c, blocker.task).run->stream))};
  }

  // From any stream that is stuck, whoever waits for whom leads into a circle, which is the message.
  absl::Status Stuck(const Waiting& first) const {
    std::vector<Waiting> path = {first};
    while (std::count(path.begin(), path.end(), path.back()) == 1) {
      path.push_back(HeadBefore(BlockerOf(path.back())));
    }
    std::string message =
        absl::StrCat("instructions wait for each other, nothing goes on after ", ToSeconds(now_) * 1e3, " ms:");
    for (auto waiting = std::find(path.begin(), path.end(), path.back()); waiting + 1 != path.end(); ++waiting) {
      const Waiting blocker = BlockerOf(*waiting);
      absl::StrAppend(&message, "\n  ", Describe(program_, waiting->c, TaskOf(waiting->c, waiting->task)),
                      " waits for ", Describe(program_, blocker.c, TaskOf(blocker.c, blocker.task)));
      if (HeadBefore(blocker) == blocker) continue;
      absl::StrAppend(&message, ", which stands on the ", NameOf(TaskOf(blocker.c, blocker.task).run->stream),
                      " stream behind the next line's");
    }
    return absl::FailedPreconditionError(message);
  }

  const Program& program_;
  const std::vector<TaskList>& lists_;
  std::vector<Loop> loops_;                       // by class
  const std::vector<Period>* periods_ = nullptr;  // of a longer step
  int32_t turns_ = 0;                             // that each class takes
  bool unclear_ = false;                          // whether something that a turn waits for has happened
  int64_t watch_at_ = 0;                          // from which task of the first class on to look again
  std::vector<State> recent_;                     // the latest last
  State long_ago_;
  Nanos left_out_;
  std::vector<ClassState> classes_;
  std::vector<Nanos> next_;  // by class: the first end
  ClassSet may_start_;       // something has happened that a class may have waited for
  ClassSet rates_stale_;
  std::vector<std::vector<TaskTimes>>* times_ = nullptr;  // of a step that is played task by task
  Nanos now_;
  size_t num_streams_ = 0;  // up to the last one that anybody uses
  int32_t num_shared_links_ = 0;
  std::vector<Claim> claims_;                         // of ShareLinks
  std::vector<std::pair<size_t, size_t>> claimants_;  // their classes and streams
};

}  // namespace

absl::StatusOr<PlayedTimes> Play(const Program& program, const std::vector<TaskList>& lists) {
  return Player(program, lists).PlayAll();
}

std::optional<Nanos> PlayLonger(const Program& program, const std::vector<TaskList>& lists,
                                const std::vector<Period>& periods, int64_t more) {
  return Player(program, lists).PlayLonger(periods, more);
}

}  // namespace meshwright
