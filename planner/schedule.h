// Pipeline schedules: in which order a stage runs the forward and backward passes of its micro-batches.
//
//   gpipe    F0 F1 .. F(M-1)  B0 B1 .. B(M-1)
//   1f1b     min(M, S-s) forwards, then backward and forward in turn, then the remaining backwards  (S12.8)
//
// With V > 1 chunks per stage (interleaved, S12.10) the model is cut into S V parts, of which stage s has the parts
// s, S+s, 2S+s, ... A stage takes micro-batches in groups of S through its first chunk, then through its second, and so
// on; backward in the opposite order of chunks:
//
//   S = 2, M = 4, V = 2, stage 1   F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0
//
// 1f1b runs 2 (S-s-1) + (V-1) S + 1 forwards first, as Megatron-LM does. Where S does not divide M, the last group has
// the M % S that are left too, and V-1 times the largest group counts above; Megatron-LM refuses most such M. With
// transfers that take no time (S-1) / (M V + S-1) of a step is idle if S divides M, and seldom more if not and M > S.
// With M < S there is one group, and more idle time.
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
  int64_t chunk = 0;  // of the stage
  friend bool operator==(const Pass&, const Pass&) = default;
};

// REQUIRES: 0 <= stage < stages, microbatches >= 1, chunks >= 1.
std::vector<Pass> PassesOf(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks = 1);

// When each pass of each stage ends, if a forward pass takes 1, a backward pass 2 and a transfer nothing: an order of
// all passes that every stage's agrees with. Empty if stages wait for each other.
std::vector<std::vector<int64_t>> EndsOf(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks);

// How many micro-batches have run forward and not yet backward through this chunk, at most.
int64_t MaxInFlight(const std::vector<Pass>& passes, int64_t chunk = 0);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SCHEDULE_H_
