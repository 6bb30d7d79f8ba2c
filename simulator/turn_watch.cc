#include "simulator/turn_watch.h"

#include <algorithm>
#include <bit>

namespace meshwright {

// Once a period of the first class: whether all was like this before.
bool TurnWatch::WatchPeriod(int64_t period, Nanos now) {
  if (TurnsLeft() == 0) {
    StopWatching();
    return false;
  }
  noting_ = true;
  watch_at_ = periods_[0].begin + (period + 1) * periods_[0].tasks;
  for (auto before = recent_.rbegin(); before != recent_.rend(); ++before) {
    if (LeaveOut(*before, period, now)) return false;
  }
  if (LeaveOut(long_ago_, period, now)) return false;
  if (WatchOrder(period, now)) return true;
  if (recent_.size() == kRecent) std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
  if (recent_.size() < kRecent) recent_.emplace_back();
  recent_.back() = {now, period, classes_};
  if (std::has_single_bit(static_cast<uint64_t>(period))) long_ago_ = recent_.back();
  return false;
}

// Nothing can be left out any more.
void TurnWatch::StopWatching() {
  watch_at_ = kNeverAgain;
  noting_ = tracing_ = false;
}

// Where the last turns had the order of those before them, traces as many, and then goes through the trace as long as
// it goes; whether it did.
bool TurnWatch::WatchOrder(int64_t period, Nanos now) {
  if (orders_.size() == 2 * kMostTraced) orders_.erase(orders_.begin());
  orders_.push_back(TakeOrder());
  if (!tracing_) {
    const int32_t turns = RepeatedTurns();
    if (turns == 0) return false;
    tracing_ = true;
    traced_turns_ = turns;
    traced_from_ = {now, period, classes_};
    trace_.Clear(classes_.size() * kNumStreams, orders_of_.size());
    return false;
  }
  if (period - traced_from_.period < traced_turns_) return false;
  tracing_ = false;
  orders_.clear();
  if (!IsAlike(traced_from_, traced_turns_) || !Repeat(traced_turns_, now)) return false;
  recent_.clear();
  long_ago_ = State();
  return true;
}

uint64_t TurnWatch::TakeOrder() {
  uint64_t order = 0;
  for (uint64_t& of_site : orders_of_) {
    order = Mixed(order, of_site);
    of_site = 0;
  }
  return order;
}

// The fewest turns, if any, whose order the last ones share with as many before them.
int32_t TurnWatch::RepeatedTurns() const {
  for (size_t turns = 1; turns <= kMostTraced && 2 * turns <= orders_.size(); ++turns) {
    const auto last = orders_.end() - static_cast<std::ptrdiff_t>(turns);
    if (std::equal(last, orders_.end(), last - static_cast<std::ptrdiff_t>(turns))) return static_cast<int32_t>(turns);
  }
  return 0;
}

// By the trace of so many turns.
bool TurnWatch::Repeat(int32_t turns, Nanos now) {
  Clocks clocks;
  clocks.running.resize(classes_.size() * kNumStreams);
  clocks.moments.assign(orders_of_.size(), now);
  const auto for_each = [&](const auto& visit) {
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (const size_t s : Streams(classes_[c].busy)) visit(&classes_[c].running[s], &clocks.running[ClockOf(c, s)]);
    }
  };
  for_each([](Running* running, Running* clock) { *clock = *running; });
  const int64_t most = TurnsLeft() / turns;
  const int64_t times = trace_.Repeat(most, &clocks);
  left_out_.traced += times * turns;
  left_out_.cut_short += times < most;
  if (times == 0) return false;
  CutTurns(static_cast<int32_t>(times) * turns);
  for_each([](Running* running, Running* clock) {
    running->updated = clock->updated;
    running->remaining = clock->remaining;
    running->end = clock->end;
    if (!running->folded()) return;
    running->layer = clock->layer;
    running->piece = clock->piece;
    running->own_rate = clock->own_rate;
    running->rate = clock->rate;
  });
  return true;
}

// Leaves out all turns that take what this one took; false where the state is another one.
bool TurnWatch::LeaveOut(const State& before, int64_t period, Nanos now) {
  const int32_t back = static_cast<int32_t>(period - before.period);
  if (before.classes.empty() || !ComesBack(before, back, now)) return false;
  const int32_t times = TurnsLeft() / back;
  CutTurns(times * back);
  left_out_.makespan += (now - before.time) * times;
  left_out_.counted += times * back;
  StopWatching();
  return true;
}

// That every class can still take, without those in which something begins behind them.
int32_t TurnWatch::TurnsLeft() const {
  int32_t most = turns_;
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (courses_[c].length[s] > 0) most = std::min(most, turns_ - classes_[c].turn[s]);
    }
  }
  for (size_t c = 0; c < classes_.size(); ++c) {
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (courses_[c].length[s] > 0) continue;
      while (most > 0 && WaitsForNothing(c, s, turns_ - most)) --most;
    }
  }
  return most;
}

// Whether the next task of a stream would wait for nothing any more if that turn were the last.
bool TurnWatch::WaitsForNothing(size_t c, size_t stream, int32_t turn) const {
  const Course& course = courses_[c];
  const int32_t head = course.Head(classes_[c], stream);
  if (head < 0) return false;
  const Wait* const first = course.waits + course.tasks[head].first_wait;
  return std::all_of(first, first + course.tasks[head].num_waits,
                     [&](const Wait& wait) { return course.Done(classes_[c], wait, turn); });
}

// All classes take so many less.
void TurnWatch::CutTurns(int32_t turns) {
  for (size_t c = 0; c < classes_.size(); ++c) {
    classes_[c].ForgetHeldUp();
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (courses_[c].length[s] == 0 && classes_[c].turn[s] == turns_) classes_[c].turn[s] -= turns;
    }
  }
  turns_ -= turns;
}

// Whether all is where it was so many turns before, at the same times or others.
bool TurnWatch::IsAlike(const State& before, int32_t back) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    const Period& period = periods_[c];
    const ClassState &then = before.classes[c], &state = classes_[c];
    for (size_t s = 0; s < kNumStreams; ++s) {
      const int32_t length = period.on_stream[s];
      if (period.long_ago[s] > then.done[s] || then.done[s] + back * length != state.done[s]) return false;
      if (then.head[s] + (then.turn[s] + back) * length != state.head[s] + state.turn[s] * length) return false;
      if (!then.running[s].AlikeBut(state.running[s])) return false;
      if (length == 0) {
        // Whoever a transfer waits for here does nothing with it in these turns, and may come at any moment.
        if ((state.ready >> s & 1) != 0) return false;
        continue;
      }
      // Both within the periods.
      if (then.head[s] >= courses_[c].end[s] || state.head[s] >= courses_[c].end[s]) return false;
      const Running& running = then.running[s];
      const auto first = running.of == nullptr ? courses_[c].queue[s][then.head[s]] : running.of - courses_[c].tasks;
      if (first < period.begin) return false;
    }
  }
  return true;
}

bool TurnWatch::ComesBack(const State& before, int32_t back, Nanos now) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    if (before.classes[c].busy != classes_[c].busy) return false;
    for (const size_t s : Streams(classes_[c].busy)) {
      if (!before.classes[c].running[s].SameTimesBut(classes_[c].running[s], now - before.time)) return false;
    }
  }
  return IsAlike(before, back);
}

}  // namespace meshwright
