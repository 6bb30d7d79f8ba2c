// Pipeline schedules: in which order a stage runs the forward and backward passes of its micro-batches.
//
//   gpipe    F0 F1 .. F(M-1)  B0 B1 .. B(M-1)
//   1f1b     min(M, S-s) forwards, then backward and forward in turn, then the remaining backwards  (S12.8)
//
// A schedule is a row: a name and a function. Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_SCHEDULE_H_
#define MESHWRIGHT_PLANNER_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct Pass {
  Phase phase = Phase::kForward;
  int64_t microbatch = 0;
  friend bool operator==(const Pass&, const Pass&) = default;
};

// REQUIRES: 0 <= stage < stages, microbatches >= 1.
std::vector<Pass> PassesOf(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches);

// How many micro-batches have run forward and not yet backward, at most.
int64_t MaxInFlight(const std::vector<Pass>& passes);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SCHEDULE_H_
