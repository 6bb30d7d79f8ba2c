// Watches a play for turns that need not be played: those that take what turns before them took, since the state of
// play has come back (simulator/repetition.h), and those in which the same happens in the same order as in turns before
// them, which are gone through by a trace (simulator/turn_trace.h). Private to the library of player.h.
//
// Thread safety: none.
#ifndef MESHWRIGHT_SIMULATOR_TURN_WATCH_H_
#define MESHWRIGHT_SIMULATOR_TURN_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/quantities.h"
#include "simulator/play_state.h"
#include "simulator/player.h"
#include "simulator/repetition.h"
#include "simulator/run_paces.h"
#include "simulator/turn_trace.h"

namespace meshwright {

class TurnWatch {
 public:
  // By class; all must outlive this. `turns`: that each class takes. `one_site`: whether what happens on a class may
  // change what happens on any other.
  TurnWatch(const std::vector<Course>& courses, const std::vector<Period>& periods, const RunPaces* paces,
            bool one_site, std::vector<ClassState>* classes, int32_t* turns)
      : courses_(courses),
        periods_(periods),
        one_site_(one_site),
        classes_(*classes),
        turns_(*turns),
        watch_at_(periods[0].begin),
        orders_of_(courses.size()),
        trace_(paces) {}

  // What the player does, in the order in which it does so, at the moment `now`.
  //
  // Something ends, begins, or goes on at another rate.
  void End(size_t c, size_t stream, Nanos now) {
    Note(c, stream);
    if (tracing_) trace_.End(ClockOf(c, stream), SiteOf(c), now);
  }
  void Begin(size_t c, size_t stream, Nanos now) {
    if (tracing_) trace_.Begin(ClockOf(c, stream), SiteOf(c), now, classes_[c].running[stream]);
  }
  void GoOn(size_t c, size_t stream, Nanos now) {
    if (tracing_) trace_.GoOn(ClockOf(c, stream), SiteOf(c), now, classes_[c].running[stream]);
  }
  // A run is stepped through piece by piece from here on.
  void StepThrough(size_t c, const Running& running) {
    Note(c, kNumStreams + 1 + static_cast<size_t>(running.layer * running.of->run->num_pieces + running.piece));
  }
  // What happens on one class changes something on another.
  void Meet(size_t c, size_t other, Nanos now) {
    Note(c, kNumStreams);
    Note(other, kNumStreams);
    if (tracing_) trace_.Meet(SiteOf(c), SiteOf(other), now);
  }
  // Once everything has happened that happens now: whether turns have been left out. What runs then goes on at other
  // times.
  bool Watch(Nanos now) {
    if (watch_at_ == kNeverAgain) return false;
    constexpr size_t kCompute = static_cast<size_t>(Stream::kCompute);
    const int32_t head = classes_[0].head[kCompute];
    if (head == courses_[0].size[kCompute]) return false;
    const int64_t next = courses_[0].queue[kCompute][head] + int64_t{classes_[0].turn[kCompute]} * periods_[0].tasks;
    return next >= watch_at_ && WatchPeriod((next - periods_[0].begin) / periods_[0].tasks, now);
  }

  // Without what is played.
  const LongerStep& left_out() const { return left_out_; }

 private:
  struct State {
    Nanos time;
    int64_t period = 0;  // of the first class
    std::vector<ClassState> classes;
  };
  // States of so many periods before are compared with, for turns of few periods; and one of longer ago, taken anew at
  // each power of two, for those of many (Brent's search for cycles).
  static constexpr size_t kRecent = 4;
  static constexpr size_t kMostTraced = 8;
  static constexpr int64_t kNeverAgain = std::numeric_limits<int64_t>::max();

  static size_t ClockOf(size_t c, size_t stream) { return c * kNumStreams + stream; }
  size_t SiteOf(size_t c) const { return one_site_ ? 0 : c; }
  static uint64_t Mixed(uint64_t order, uint64_t with) {
    order = (order ^ with) * 0x9E3779B97F4A7C15u;
    return order ^ (order >> 32);
  }
  void Note(size_t c, uint64_t what) {
    if (!noting_) return;
    uint64_t& order = orders_of_[SiteOf(c)];
    order = Mixed(order, one_site_ ? ClockOf(c, what) : what);
  }

  bool WatchPeriod(int64_t period, Nanos now);
  void StopWatching();
  bool LeaveOut(const State& before, int64_t period, Nanos now);
  bool WatchOrder(int64_t period, Nanos now);
  uint64_t TakeOrder();
  int32_t RepeatedTurns() const;
  bool Repeat(int32_t turns, Nanos now);
  int32_t TurnsLeft() const;
  bool WaitsForNothing(size_t c, size_t stream, int32_t turn) const;
  void CutTurns(int32_t turns);
  bool IsAlike(const State& before, int32_t back) const;
  bool ComesBack(const State& before, int32_t back, Nanos now) const;

  const std::vector<Course>& courses_;
  const std::vector<Period>& periods_;
  const bool one_site_;
  std::vector<ClassState>& classes_;
  int32_t& turns_;
  LongerStep left_out_;
  int64_t watch_at_;           // from which task of the first class on to look again
  std::vector<State> recent_;  // the latest last
  State long_ago_;
  std::vector<uint64_t> orders_of_;  // by site: of what has happened since the last period began, as a hash
  std::vector<uint64_t> orders_;     // of all sites in the last periods, as many as are compared
  bool noting_ = false;              // from the first period on, as long as turns are left
  bool tracing_ = false;
  int32_t traced_turns_ = 0;
  State traced_from_;
  TurnTrace trace_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TURN_WATCH_H_
