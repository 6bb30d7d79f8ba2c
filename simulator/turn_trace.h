// What a turn of a step does to all that runs, for turns in which the same happens in the same order.
// Private to the library of player.h.
//
// A player finds out from moment to moment what happens; where it has happened in the same order before, what begins,
// goes on at another rate and ends is known, and only when is not. A trace is the list of these steps. Going through it
// again from other times does the player's arithmetic to the nanosecond, and compares wherever the player would: each
// task ends at the moment that is its turn and no sooner. So a turn is gone through as the player would have played it,
// or not at all.
//
// The order that counts is that of each site: a class, or all classes where they share links. What happens at one is
// seen by another only where both meet, as where a transfer begins or ends; so each has a moment of its own, which a
// meeting compares and brings to that of both. Which of two sites that do not meet is ahead makes no difference.
//
// Thread safety: none.
#ifndef MESHWRIGHT_SIMULATOR_TURN_TRACE_H_
#define MESHWRIGHT_SIMULATOR_TURN_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/quantities.h"
#include "simulator/play_state.h"
#include "simulator/run_paces.h"

namespace meshwright {

// A clock is a stream of a class: what runs there. By clock and by site.
struct Clocks {
  std::vector<Running> running;
  std::vector<Nanos> moments;
};

class TurnTrace {
 public:
  // `paces` must outlive this.
  explicit TurnTrace(const RunPaces* paces) : paces_(*paces) {}
  void Clear(size_t num_clocks, size_t num_sites);

  // Steps, in the order in which the player takes them, at the moment `now`, of a clock at that site.
  void End(size_t clock, size_t site, Nanos now);
  // A piece or a folded stretch from its beginning on; and what runs goes on at another rate or pace.
  void Begin(size_t clock, size_t site, Nanos now, const Running& running);
  void GoOn(size_t clock, size_t site, Nanos now, const Running& running);
  // What happens at one of both, which something else has happened at now, happens at the other as well.
  void Meet(size_t site, size_t other, Nanos now);

  // Goes through it again, at most so many times, from `clocks`, whose moments are the same; says how often everything
  // happened in the same order, less one where that is needed: so much is known to be what the player would have come
  // to. Then `clocks` are those behind the last such time, where a site may be ahead of what is yet to happen at
  // others.
  int64_t Repeat(int64_t most, Clocks* clocks);

 private:
  enum class Kind : uint8_t { kEnd, kEndToo, kBegin, kBeginAndEnd, kGoOn, kMeet, kMeetToo };
  struct Step {
    // kEndToo, kMeetToo: at a moment at which something has happened there. kBeginAndEnd: what begins ends before
    // anything else happens to it, so that nobody asks for more than its end.
    Kind kind = Kind::kEnd;
    uint32_t site = 0;
    uint32_t clock = 0;  // kMeet, kMeetToo: the other site
    uint32_t to = 0;     // kBegin, kBeginAndEnd, kGoOn: in to_
  };
  // Of a clock: its last kBegin or kGoOn, and when that was.
  struct Last {
    Nanos now = kNotYet;
    uint32_t to = 0;
  };

  void Add(Kind kind, size_t clock, size_t site, Nanos now, const Running& running);
  void LeaveOutWhatNobodyAsks();
  int64_t TimesThrough(int64_t most, Clocks* clocks) const;
  bool GoThrough(Clocks* clocks) const;

  const RunPaces& paces_;
  std::vector<Step> steps_;
  std::vector<Running> to_;        // what runs behind a step, with `end` from the step's moment on
  std::vector<Last> last_;         // by clock
  std::vector<Nanos> at_;          // by site: its last step
  std::vector<size_t> never_end_;  // clocks of what runs from before the trace until behind it
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TURN_TRACE_H_
