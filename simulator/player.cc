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

namespace meshwright {
namespace {

constexpr Nanos kNever = Nanos(std::numeric_limits<int64_t>::max());
constexpr Nanos kNotYet = Nanos(-1);

// What a stream is running.
struct Running {
  int32_t task = -1;  // none
  const Task* of = nullptr;
  const Piece* pieces = nullptr;  // of its run
  bool folded = false;
  int64_t layer = 0;          // of task.count
  int32_t piece = 0;          // the one that runs, or where a folded stretch begins
  int64_t remaining = 0;      // of the piece, in nanoseconds x kWhole; not kept up while folded
  Nanos updated;              // when `remaining` held; the beginning of the folded stretch
  int32_t own_rate = kWhole;  // what this rank would allow, in kWhole-ths
  int32_t shared = kWhole;    // what the links that it shares with other classes allow
  int32_t rate = kWhole;      // the lower one; of transfers, of both ranks
  Nanos end = kNever;  // of the piece or the folded stretch; the receiving half of a transfer never ends by itself

  // The same at another moment, in the same task or one that is alike.
  bool SameBut(const Running& other, int32_t tasks, Nanos time) const {
    if (task < 0 || other.task < 0) return task == other.task;
    return task + tasks == other.task && folded == other.folded && layer == other.layer && piece == other.piece &&
           remaining == other.remaining && updated + time == other.updated && own_rate == other.own_rate &&
           shared == other.shared && rate == other.rate &&
           (end == kNever ? other.end == kNever : end + time == other.end);
  }
};

struct ClassState {
  std::array<Running, kNumStreams> running;
  uint32_t busy = 0;                          // streams that run something, as a bit set
  std::array<size_t, kNumStreams> head = {};  // the next task of each stream to start
};

// The streams of a bit set, in ascending order.
class Streams {
 public:
  explicit Streams(uint32_t bits) : bits_(bits) {}
  struct Iterator {
    uint32_t bits;
    size_t operator*() const { return static_cast<size_t>(std::countr_zero(bits)); }
    Iterator& operator++() {
      bits &= bits - 1;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
  };
  Iterator begin() const { return {bits_}; }
  Iterator end() const { return {0}; }

 private:
  uint32_t bits_;
};

// Classes, visited in ascending order.
class ClassSet {
 public:
  ClassSet(size_t num_classes, bool all) : size_(num_classes), words_((num_classes + 63) / 64) {
    for (size_t c = 0; all && c < num_classes; ++c) Insert(c);
  }
  void Insert(size_t c) { words_[c / 64] |= uint64_t{1} << (c % 64); }
  void Erase(size_t c) { words_[c / 64] &= ~(uint64_t{1} << (c % 64)); }
  // The first member at or after `c`, or the number of classes.
  size_t From(size_t c) const {
    for (size_t w = c / 64; w < words_.size(); ++w) {
      const uint64_t rest = w == c / 64 ? words_[w] & (~uint64_t{0} << (c % 64)) : words_[w];
      if (rest != 0) return w * 64 + static_cast<size_t>(std::countr_zero(rest));
    }
    return size_;
  }

 private:
  size_t size_;
  std::vector<uint64_t> words_;
};

class Player {
 public:
  Player(const Program& program, const std::vector<TaskList>& lists, const Watched* watched)
      : program_(program),
        lists_(lists),
        watched_(watched),
        classes_(lists.size()),
        next_(lists.size(), kNever),
        may_start_(lists.size(), true),
        rates_stale_(lists.size(), false) {
    result_.times.resize(lists.size());
    for (const TaskList& list : lists) {
      for (size_t s = num_streams_; s < kNumStreams; ++s) {
        if (!list.streams[s].empty()) num_streams_ = s + 1;
      }
      for (const UnrolledBlock& block : list.blocks) {
        for (const Run& run : block.runs) num_shared_links_ = std::max(num_shared_links_, run.shared);
      }
    }
    for (size_t c = 0; c < lists.size(); ++c) result_.times[c].assign(lists[c].tasks.size(), {kNotYet, kNotYet});
  }

  absl::StatusOr<PlayedTimes> PlayAll() {
    while (true) {
      StartWhatCan();
      for (size_t c = rates_stale_.From(0); c < classes_.size(); c = rates_stale_.From(c + 1)) UpdateRates(c);
      if (num_shared_links_ > 0) ShareLinks();
      if (watched_ != nullptr && !result_.recurrence.has_value()) Watch();
      Nanos next = kNever;
      for (const Nanos of_class : next_) next = std::min(next, of_class);
      if (next == kNever) break;
      now_ = next;
      for (size_t c = 0; c < classes_.size(); ++c) {
        if (next_[c] == now_) EndWhatEnds(c);
      }
    }
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        if (const int32_t task = Head(c, s); task >= 0) return Stuck({c, task});
      }
    }
    result_.makespan = now_;
    return std::move(result_);
  }

 private:
  const Task& TaskOf(size_t c, int32_t task) const { return lists_[c].tasks[static_cast<size_t>(task)]; }
  TaskTimes& TimesOf(size_t c, int32_t task) { return result_.times[c][static_cast<size_t>(task)]; }
  bool Done(size_t c, int32_t task) const { return result_.times[c][static_cast<size_t>(task)].end != kNotYet; }

  // The task at the head of a stream that is idle, or -1.
  int32_t Head(size_t c, size_t stream) const {
    const ClassState& state = classes_[c];
    const auto& queue = lists_[c].streams[stream];
    return state.running[stream].task >= 0 || state.head[stream] == queue.size() ? -1 : queue[state.head[stream]];
  }

  bool Ready(size_t c, int32_t id) const {
    const Task& task = TaskOf(c, id);
    const auto first = lists_[c].waits.begin() + task.first_wait;
    return std::all_of(first, first + task.num_waits, [&](int32_t wait) { return Done(c, wait); });
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
    if (id < 0 || !Ready(c, id)) return;
    const Task& task = TaskOf(c, id);
    if (!task.run->is_transfer) {
      Begin(c, stream, id, task.time());
      return;
    }
    const size_t peer = static_cast<size_t>(task.run->peer);
    const Task& partner = TaskOf(peer, task.partner);
    const size_t peer_stream = static_cast<size_t>(partner.run->stream);
    if (Head(peer, peer_stream) != task.partner || !Ready(peer, task.partner)) return;
    const Nanos time = std::max(task.time(), partner.time());
    Begin(c, stream, id, time);
    Begin(peer, peer_stream, task.partner, time);
  }

  void Begin(size_t c, size_t stream, int32_t id, Nanos time) {
    TaskTimes& times = TimesOf(c, id);
    times.begin = now_;
    ClassState& state = classes_[c];
    ++state.head[stream];
    if (time == Nanos()) {
      times.end = now_;
      may_start_.Insert(c);
      return;
    }
    Running& running = state.running[stream];
    state.busy |= uint32_t{1} << stream;
    const Task& task = TaskOf(c, id);
    running = Running();
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
    TimesOf(c, state.running[stream].task).end = now_;
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
    std::vector<ClassState> classes;
  };

  // Once a period of the first class: whether all was like this before.
  void Watch() {
    const Period& first = watched_->periods[0];
    const auto& queue = lists_[0].streams[static_cast<size_t>(Stream::kCompute)];
    const size_t head = classes_[0].head[static_cast<size_t>(Stream::kCompute)];
    if (head == queue.size() || queue[head] < first.begin) return;
    const int32_t period = (queue[head] - first.begin) / first.tasks;
    if (period <= watched_period_) return;
    watched_period_ = period;
    states_.push_back({now_, classes_});
    const int64_t most = std::min<int64_t>(watched_->turns, static_cast<int64_t>(states_.size()) - 1);
    for (int64_t back = 1; back <= most; ++back) {
      const State& before = states_[states_.size() - 1 - static_cast<size_t>(back)];
      if (watched_->turns % back != 0 || !ComesBack(before, static_cast<int32_t>(back))) continue;
      result_.recurrence = Recurrence{static_cast<int32_t>(back), now_ - before.time};
      return;
    }
  }

  bool ComesBack(const State& before, int32_t periods) const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      const Period& period = watched_->periods[c];
      for (size_t s = 0; s < num_streams_; ++s) {
        const size_t head = before.classes[c].head[s];
        const int32_t running = before.classes[c].running[s].task;
        const size_t done = running < 0 ? head : head - 1;
        if (static_cast<size_t>(period.long_ago[s]) > done) return false;
        const auto& queue = lists_[c].streams[s];
        if (head + static_cast<size_t>(period.on_stream[s] * periods) != classes_[c].head[s]) return false;
        if (!before.classes[c].running[s].SameBut(classes_[c].running[s], period.tasks * periods, now_ - before.time)) {
          return false;
        }
        if (period.on_stream[s] == 0) continue;
        if (classes_[c].head[s] == queue.size()) return false;
        const int32_t first = running < 0 ? queue[head] : running;
        if (first < period.begin || queue[classes_[c].head[s]] >= period.end) return false;
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

  // What a waiting task waits for: the first of its events that has not happened, or else its partner.
  Waiting BlockerOf(const Waiting& waiting) const {
    const Task& task = TaskOf(waiting.c, waiting.task);
    for (int32_t i = 0; i < task.num_waits; ++i) {
      const int32_t wait = lists_[waiting.c].waits[static_cast<size_t>(task.first_wait + i)];
      if (!Done(waiting.c, wait)) return {waiting.c, wait};
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
  const Watched* const watched_;
  std::vector<State> states_;  // one of each period
  int32_t watched_period_ = -1;
  std::vector<ClassState> classes_;
  std::vector<Nanos> next_;  // by class: the first end
  ClassSet may_start_;       // something has happened that a class may have waited for
  ClassSet rates_stale_;
  PlayedTimes result_;
  Nanos now_;
  size_t num_streams_ = 0;  // up to the last one that anybody uses
  int32_t num_shared_links_ = 0;
  std::vector<Claim> claims_;                         // of ShareLinks
  std::vector<std::pair<size_t, size_t>> claimants_;  // their classes and streams
};

}  // namespace

absl::StatusOr<PlayedTimes> Play(const Program& program, const std::vector<TaskList>& lists, const Watched* watched) {
  return Player(program, lists, watched).PlayAll();
}

}  // namespace meshwright
