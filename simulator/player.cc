#include "simulator/player.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "simulator/fair_shares.h"
#include "simulator/play_state.h"
#include "simulator/run_paces.h"
#include "simulator/standstill.h"
#include "simulator/turn_trace.h"

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
    const Standstill standstill(lists_, courses_, classes_);
    if (standstill.AnyLeft()) return standstill.Describe(program_, now_);
    result.makespan = now_;
    return result;
  }

  std::optional<LongerStep> PlayLonger(const std::vector<Period>& periods, int64_t more) {
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
    if (unclear_ || Standstill(lists_, courses_, classes_).AnyLeft()) return std::nullopt;
    longer_.makespan += now_;
    return longer_;
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
      order_ = Mixed(order_, 0);
      next_.ForEachAt(now_, [this](size_t c) { EndWhatEnds(c); });
    }
  }

  const Task& TaskOf(size_t c, int32_t task) const { return courses_[c].tasks[task]; }
  TaskTimes& TimesOf(size_t c, int32_t task) { return (*times_)[c][static_cast<size_t>(task)]; }
  int32_t IdOf(size_t c, const Running& running) const { return static_cast<int32_t>(running.of - courses_[c].tasks); }
  bool Done(size_t c, const Wait& wait, int32_t turn) const { return courses_[c].Done(classes_[c], wait, turn); }

  // Whether the stream runs something, or is known to wait for another.
  bool IsHeldUp(size_t c, size_t stream) const {
    const ClassState& state = classes_[c];
    return (state.busy >> stream & 1) != 0 || state.done[state.needs_of[stream]] < state.needs[stream];
  }

  int32_t Head(size_t c, size_t stream) const { return courses_[c].Head(classes_[c], stream); }

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
        const uint32_t all = (uint32_t{1} << num_streams_) - 1;
        for (const size_t s : Streams(all & ~classes_[c].busy & ~classes_[c].ready)) StartHead(c, s);
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
    GoOn(c, stream);
    if (time == Nanos()) {
      if (times_ != nullptr) TimesOf(c, id).end = now_;
      ++state.done[stream];
      may_start_.Insert(c);
      return;
    }
    state.busy |= uint32_t{1} << stream;
    const Task& task = TaskOf(c, id);
    running.of = &task;
    running.pieces = &task.piece(0);
    running.updated = now_;
    running.remaining = (task.run->is_transfer ? time : running.pieces->price->time).raw() * kWhole;
    // A piece without duration is over at once.
    if (running.remaining == 0) NextPiece(task, &running);
    if (!task.run->is_transfer || task.run->send) running.end = EndOf(running);
    if (tracing_) trace_.Begin(ClockOf(c, stream), running);
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
      if (running.of == nullptr || running.end != now_) continue;
      const Task& task = *running.of;
      order_ = Mixed(order_, 1 + ClockOf(c, s));
      if (tracing_) trace_.End(ClockOf(c, s), now_);
      if (!running.folded() && !task.run->is_transfer && NextPiece(task, &running)) {
        if (tracing_) trace_.Begin(ClockOf(c, s), running);
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
    if (times_ != nullptr) TimesOf(c, IdOf(c, state.running[stream])).end = now_;
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
    if (state.running[kCompute].of != nullptr && !state.running[kCompute].folded()) {
      const Piece& piece = PieceOf(c, kCompute);
      if (piece.communicates) taken.Add(*piece.price);
    }
    Nanos next = kNever;
    for (const size_t s : Streams(state.busy)) {
      Running& running = state.running[s];
      if (!running.folded()) {
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
        if (running.of == nullptr || running.folded()) continue;
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
    size_t clock = ClockOf(c, stream);
    running->own_rate = own_rate;
    int32_t rate = std::min(own_rate, running->shared);
    const Task& task = *running->of;
    if (task.run->is_transfer) {
      ClassState& peer = classes_[static_cast<size_t>(task.run->peer)];
      const Task& partner = TaskOf(static_cast<size_t>(task.run->peer), task.partner);
      Running* other = &peer.running[static_cast<size_t>(partner.run->stream)];
      rate = std::min({rate, other->own_rate, other->shared});
      if (!task.run->send) {
        running = other;
        clock = ClockOf(static_cast<size_t>(task.run->peer), static_cast<size_t>(partner.run->stream));
      }
    }
    if (running->rate == rate) return;
    const int32_t rate_before = running->rate;
    running->remaining -= (now_ - running->updated).raw() * running->rate;
    running->updated = now_;
    running->rate = rate;
    running->end = EndOf(*running);
    if (tracing_) trace_.GoOn(clock, rate_before, *running);
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
    if (running.of == nullptr) return;
    const Task& task = *running.of;
    if (task.run->num_pieces * task.count == 1) return;
    const bool steady = task.run->shared == 0 && IsSteady(c, *task.run, others);
    const int32_t pace = steady ? paces_.Beside(task, others) : -1;
    if (running.folded() && steady && running.pace == pace) return;
    const size_t clock = ClockOf(c, static_cast<size_t>(Stream::kCompute));
    int32_t rate_before = running.rate;
    if (running.folded()) {
      const Nanos first_end = EndOf(running);
      paces_.Unfold(task, now_, &running);
      order_ = Mixed(order_, static_cast<uint64_t>(running.layer * task.run->num_pieces + running.piece));
      if (tracing_ && now_ < first_end) trace_.GoOn(clock, rate_before, running);
      if (tracing_ && now_ >= first_end) trace_.GoOnLater(clock, first_end, now_, running);
      rate_before = running.rate;
    }
    if (!steady) return;
    paces_.Fold(task, pace, now_, &running);
    if (tracing_) trace_.GoOn(clock, rate_before, running);
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
    if (WatchOrder(period)) return;
    if (recent_.size() == kRecent) std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
    if (recent_.size() < kRecent) recent_.emplace_back();
    recent_.back() = {now_, period, classes_};
    if (std::has_single_bit(static_cast<uint64_t>(period))) long_ago_ = recent_.back();
  }

  static size_t ClockOf(size_t c, size_t stream) { return c * kNumStreams + stream; }
  static uint64_t Mixed(uint64_t order, uint64_t with) {
    order = (order ^ with) * 0x9E3779B97F4A7C15u;
    return order ^ (order >> 32);
  }

  // Where the last turns had the order of those before them, traces as many, and then goes through the trace as long as
  // it goes; whether it did.
  bool WatchOrder(int64_t period) {
    if (orders_.size() == 2 * kMostTraced) orders_.erase(orders_.begin());
    orders_.push_back(std::exchange(order_, 0));
    if (!tracing_) {
      const int32_t turns = RepeatedTurns();
      if (turns == 0) return false;
      tracing_ = true;
      traced_turns_ = turns;
      traced_from_ = {now_, period, classes_};
      trace_.Clear();
      return false;
    }
    if (period - traced_from_.period < traced_turns_) return false;
    tracing_ = false;
    orders_.clear();
    if (!IsAlike(traced_from_, traced_turns_) || !Repeat(traced_turns_)) return false;
    recent_.clear();
    long_ago_ = State();
    return true;
  }

  // The fewest turns, if any, whose order the last ones share with as many before them.
  int32_t RepeatedTurns() const {
    for (size_t turns = 1; turns <= kMostTraced && 2 * turns <= orders_.size(); ++turns) {
      const auto last = orders_.end() - static_cast<std::ptrdiff_t>(turns);
      if (std::equal(last, orders_.end(), last - static_cast<std::ptrdiff_t>(turns))) {
        return static_cast<int32_t>(turns);
      }
    }
    return 0;
  }

  // By the trace of so many turns.
  bool Repeat(int32_t turns) {
    std::vector<Clock> clocks(classes_.size() * kNumStreams);
    const auto for_each = [&](const auto& visit) {
      for (size_t c = 0; c < classes_.size(); ++c) {
        for (const size_t s : Streams(classes_[c].busy)) visit(&classes_[c].running[s], &clocks[ClockOf(c, s)]);
      }
    };
    for_each([](Running* running, Clock* clock) {
      const bool ends = running->end != kNever;
      *clock = {true, running->updated, running->remaining, ends ? EndOf(*running) : kNever, running->end};
    });
    const int64_t most = TurnsLeft() / turns;
    const int64_t times = trace_.Repeat(most, &now_, &clocks);
    longer_.traced += times * turns;
    longer_.cut_short += times < most;
    if (times == 0) return false;
    CutTurns(static_cast<int32_t>(times) * turns);
    for_each([](Running* running, Clock* clock) {
      running->updated = clock->updated;
      running->remaining = clock->remaining;
      running->end = clock->end;
    });
    for (size_t c = 0; c < classes_.size(); ++c) UpdateNext(c);
    return true;
  }

  // Leaves out all turns that take what this one took; false where the state is another one.
  bool LeaveOut(const State& before, int64_t period) {
    const int32_t back = static_cast<int32_t>(period - before.period);
    if (before.classes.empty() || !ComesBack(before, back)) return false;
    const int32_t times = TurnsLeft() / back;
    CutTurns(times * back);
    longer_.makespan += (now_ - before.time) * times;
    longer_.counted += times * back;
    watch_at_ = std::numeric_limits<int64_t>::max();
    tracing_ = false;
    return true;
  }

  // That every class can still take.
  int32_t TurnsLeft() const {
    int32_t most = turns_;
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (size_t s = 0; s < num_streams_; ++s) {
        if (courses_[c].length[s] > 0) most = std::min(most, turns_ - classes_[c].turn[s]);
      }
    }
    return most;
  }

  // All classes take so many less.
  void CutTurns(int32_t turns) {
    for (size_t c = 0; c < classes_.size(); ++c) {
      classes_[c].needs.fill(0);
      for (size_t s = 0; s < num_streams_; ++s) {
        if (courses_[c].length[s] == 0 && classes_[c].turn[s] == turns_) classes_[c].turn[s] -= turns;
      }
    }
    turns_ -= turns;
  }

  // Whether all is where it was so many turns before, at the same times or others.
  bool IsAlike(const State& before, int32_t back) const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      const Period& period = (*periods_)[c];
      const ClassState &then = before.classes[c], &state = classes_[c];
      for (size_t s = 0; s < num_streams_; ++s) {
        const int32_t length = period.on_stream[s];
        if (period.long_ago[s] > then.done[s] || then.done[s] + back * length != state.done[s]) return false;
        if (then.head[s] + (then.turn[s] + back) * length != state.head[s] + state.turn[s] * length) return false;
        if (!then.running[s].AlikeBut(state.running[s])) return false;
        if (length == 0) continue;
        // Both within the periods.
        if (then.head[s] >= courses_[c].end[s] || state.head[s] >= courses_[c].end[s]) return false;
        const Running& running = then.running[s];
        const int32_t first = running.of == nullptr ? courses_[c].queue[s][then.head[s]] : IdOf(c, running);
        if (first < period.begin) return false;
      }
    }
    return true;
  }

  bool ComesBack(const State& before, int32_t back) const {
    for (size_t c = 0; c < classes_.size(); ++c) {
      if (before.classes[c].busy != classes_[c].busy) return false;
      for (const size_t s : Streams(classes_[c].busy)) {
        if (!before.classes[c].running[s].SameTimesBut(classes_[c].running[s], now_ - before.time)) return false;
      }
    }
    return IsAlike(before, back);
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
  LongerStep longer_;  // without what is played
  static constexpr size_t kMostTraced = 8;
  uint64_t order_ = 0;            // of the ends since the last period began, as a hash
  std::vector<uint64_t> orders_;  // of the last periods, as many as are compared
  bool tracing_ = false;
  int32_t traced_turns_ = 0;
  State traced_from_;
  TurnTrace trace_;
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

std::optional<LongerStep> PlayLonger(const Program& program, const std::vector<TaskList>& lists,
                                     const std::vector<Period>& periods, int64_t more) {
  return Player(program, lists).PlayLonger(periods, more);
}

}  // namespace meshwright
