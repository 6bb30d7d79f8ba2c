// What a turn of a step does to the clocks of all that runs, for turns in which the same happens in the same order.
// Private to the library of player.h.
//
// What runs on a stream has a clock: the work that is left and when it ends. A player finds out from moment to moment
// what happens; where it has happened in the same order before, which clocks begin, go on at another rate and end is
// known, and only when is not. A trace is the list of these steps. Going through it again from other times does the
// player's arithmetic to the nanosecond, and compares wherever the player would: each clock ends at the moment that is
// its turn and no sooner, each piece of a run of kernels is the one it was. So a turn is gone through as the player
// would have played it, or not at all.
//
// Thread safety: none.
#ifndef MESHWRIGHT_SIMULATOR_TURN_TRACE_H_
#define MESHWRIGHT_SIMULATOR_TURN_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/quantities.h"
#include "simulator/play_state.h"

namespace meshwright {

struct Clock {
  bool runs = false;
  Nanos updated;          // when `remaining` held
  int64_t remaining = 0;  // of the piece, in nanoseconds x kWhole
  Nanos piece_end, end;   // kNever: it never ends by itself
};

class TurnTrace {
 public:
  void Clear() { steps_.clear(); }

  // Steps, in the order in which the player takes them. `clock`: any number for each clock.
  //
  // Its end, which is `now`.
  void End(size_t clock, Nanos now);
  // A piece from its beginning on; and it goes on, in the piece that it was in, as `running` says now.
  void Begin(size_t clock, const Running& running);
  void GoOn(size_t clock, int32_t rate_before, const Running& running);
  // It goes on, at the moment `now`, in a later piece of a stretch that was folded, whose first one ended then.
  void GoOnLater(size_t clock, Nanos first_end, Nanos now, const Running& running);

  // Goes through it again, at most so many times, from the times of `clocks` at the moment `now`; says how often
  // everything happened in the same order. `now` and `clocks` are then those behind the last such time.
  int64_t Repeat(int64_t most, Nanos* now, std::vector<Clock>* clocks) const;

 private:
  enum class Kind : uint8_t { kEnd, kEndToo, kBegin, kGoOn, kGoOnLater };
  struct Step {
    Kind kind = Kind::kEnd;  // kEndToo: at the moment of the end before it
    uint32_t clock = 0;
    int32_t rate_before = 0, rate = 0;
    int64_t work = 0;              // of the piece that it goes on in
    Nanos after = {}, lasts = {};  // of that piece; kBegin: `lasts` is that of all its work at the rate
    Nanos more = {};               // of a folded stretch behind the piece
    bool ends = true;              // by itself
  };

  // A step of a clock that stands still since its last one replaces what that says of the rate.
  void Add(const Step& step, const Running& running);
  bool GoThrough(Nanos* now, std::vector<Clock>* clocks) const;

  std::vector<Step> steps_;
  Nanos last_end_ = kNever;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_TURN_TRACE_H_
