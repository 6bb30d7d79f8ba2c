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
#include "simulator/run_paces.h"

namespace meshwright {
namespace {

class Player {
 public:
  Player(const Program& program, const std::vector<TaskList>& lists)
      : program_(program),
        lists_(lists),
        courses_(lists.begin(), lists.end()),
        classes_(lists.size()),
        next_(lists.size()),
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
      courses_[c].period = periods[c].tasks;
      courses_[c].length = periods[c].on_stream;
      for (size_t s = 0; s < kNumStreams; ++s) {
        const auto& queue = lists_[c].streams[s];
        courses_[c].end[s] =
            static_cast<int32_t>(std::lower_bound(queue.begin(), queue.end(), periods[c].end) - queue.begin());
        if (courses_[c].end[s] == 0) classes_[c].turn[s] = turns_;
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
      const Nanos next = next_.First();
      if (next == kNever || unclear_) return;
      now_ = next;
      next_.ForEachAt(now_, [this](size_t c) { EndWhatEnds(c); });
    }
  }

  const Task& TaskOf(size_t c, int32_t task) const { return courses_[c].tasks[task]; }
  TaskTimes& TimesOf(size_t c, int32_t task) { return (*times_)[c][static_cast<size_t>(task)]; }
  // Whether it has happened, of a task in that turn.
  bool Done(size_t c, const Wait& wait, int32_t turn) const {
    const size_t s = static_cast<size_t>(wait.stream);
    return wait.place + turn * courses_[c].length[s] < classes_[c].done[s];
  }

  // Whether the stream runs something, or is known to wait for another.
  bool IsHeldUp(size_t c, size_t stream) const {
    const ClassState& state = classes_[c];
    return (state.busy >> stream & 1) != 0 || state.done[state.needs_of[stream]] < state.needs[stream];
  }

  // The task at the head of a stream that is idle, or -1.
  int32_t Head(size_t c, size_t stream) const {
    const ClassState& state = classes_[c];
    const Course& course = courses_[c];
    const bool idle = (state.busy >> stream & 1) == 0;
    return idle && state.head[stream] < course.size[stream] ? course.queue[stream][state.head[stream]] : -1;
  }

  // Of the task at the head of a stream.
  bool Ready(size_t c, size_t stream, int32_t id) {
    ClassState& state = classes_[c];
    if ((state.ready >> stream & 1) != 0) return true;
    const Course& course = courses_[c];
    const Task& task = course.tasks[id];
    const int32_t turn = state.turn[stream];
    for (const Wait* wait = course.waits + task.first_wait; wait != course.waits + task.first_wait + task.num_waits;
         ++wait) {
      if (Done(c, *wait, turn)) continue;
      // What is waited for in truth lies between what it is without turns and what it is with all of them.
      const bool irregular = turn > 0 && IsIrregular(c, id, *wait);
      unclear_ = unclear_ || (irregular && Done(c, *wait, 0));
      const size_t s = static_cast<size_t>(wait->stream);
      state.needs[stream] = wait->place + (irregular ? 0 : turn * course.length[s]) + 1;
      state.needs_of[stream] = static_cast<uint8_t>(s);
      return false;
    }
    state.ready |= uint32_t{1} << stream;
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
    if (IsHeldUp(c, stream)) return;
    const int32_t id = Head(c, stream);
    const int32_t turn = classes_[c].turn[stream];
    if (id < 0 || !Ready(c, stream, id)) return;
    const Task& task = TaskOf(c, id);
    if (!task.run->is_transfer) {
      Begin(c, stream, id, task.time());
      return;
    }
    const size_t peer = static_cast<size_t>(task.run->peer);
    const Task& partner = TaskOf(peer, task.partner);
    const size_t peer_stream = static_cast<size_t>(partner.run->stream);
    if (IsHeldUp(peer, peer_stream)) return;
    const int32_t head = Head(peer, peer_stream);
    const int32_t peer_turn = classes_[peer].turn[peer_stream];
    if (head < 0 || head - task.partner != (turn - peer_turn) * courses_[peer].period) return;
    if (!Ready(peer, peer_stream, head)) return;
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
    const Course& course = courses_[c];
    state.needs[stream] = 0;
    state.ready &= ~(uint32_t{1} << stream);
    if (++state.head[stream] != course.end[stream] || state.turn[stream] == turns_) return;
    if (course.length[stream] == 0) {
      state.turn[stream] = turns_;
    } else {
      state.head[stream] -= course.length[stream];
      ++state.turn[stream];
    }
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
    constexpr size_t kCompute = static_cast<size_t>(Stream::kCompute);
    ClassState& state = classes_[c];
    rates_stale_.Erase(c);
    Taken taken;
    for (const size_t s : Streams(state.busy)) {
      const Piece& piece = PieceOf(c, s);
      if (s != kCompute && piece.communicates) taken.Add(*piece.price);
    }
    FoldOrUnfold(c, taken);
    if (state.running[kCompute].task >= 0 && !state.running[kCompute].folded) {
      const Piece& piece = PieceOf(c, kCompute);
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
    next_.Set(c, next);
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
    Nanos next = kNever;
    for (const size_t s : Streams(classes_[c].busy)) next = std::min(next, classes_[c].running[s].end);
    next_.Set(c, next);
  }

  // --- folding -----------------------------------------------------------------------------------------------------

  // Runs of kernels, which only the compute stream has, are stepped through only while a piece's length depends on what
  // other streams do meanwhile, or theirs on it.
  void FoldOrUnfold(size_t c, const Taken& others) {
    Running& running = classes_[c].running[static_cast<size_t>(Stream::kCompute)];
    if (running.task < 0) return;
    const Task& task = *running.of;
    if (task.run->num_pieces * task.count == 1) return;
    const bool steady = task.run->shared == 0 && IsSteady(c, *task.run, others);
    const int32_t pace = steady ? paces_.Beside(task, others) : -1;
    if (running.folded && steady && running.pace == pace) return;
    if (running.folded) paces_.Unfold(task, now_, &running);
    if (steady) paces_.Fold(task, pace, now_, &running);
  }

  // Whether the run's communication and what is beside it do not slow each other down.
  bool IsSteady(size_t c, const Run& run, const Taken& others) const {
    if (!run.takes) return true;
    if (!LeaveEachOtherAll(run, others)) return false;
    for (const size_t s : Streams(classes_[c].busy)) {
      if (s == static_cast<size_t>(Stream::kCompute)) continue;
      const Piece& piece = PieceOf(c, s);
      if (!piece.communicates && piece.price->slowed_by != SlowedBy::kNothing) return false;
    }
    return true;
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
        if (courses_[c].length[s] > 0) most = std::min(most, turns_ - classes_[c].turn[s]);
      }
    }
    const int32_t times = most / back;
    for (size_t c = 0; c < classes_.size(); ++c) {
      classes_[c].needs.fill(0);
      for (size_t s = 0; s < num_streams_; ++s) {
        if (courses_[c].length[s] == 0 && classes_[c].turn[s] == turns_) classes_[c].turn[s] -= times * back;
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
        if (then.head[s] >= courses_[c].end[s] || state.head[s] >= courses_[c].end[s]) return false;
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
  std::vector<Course> courses_;                   // by class
  const std::vector<Period>* periods_ = nullptr;  // of a longer step
  int32_t turns_ = 0;                             // that each class takes
  bool unclear_ = false;                          // whether something that a turn waits for has happened
  int64_t watch_at_ = 0;                          // from which task of the first class on to look again
  std::vector<State> recent_;                     // the latest last
  State long_ago_;
  Nanos left_out_;
  RunPaces paces_;
  std::vector<ClassState> classes_;
  FirstEnds next_;
  ClassSet may_start_;  // something has happened that a class may have waited for
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
