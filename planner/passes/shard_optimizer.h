// Splits the optimizer over the replicas of each parameter (the parallel optimizer, S11.4 and S11.5; ZeRO-1).
//
//   before   all-reduce g;  update p, state from g                       on every replica
//   after    reduce-scatter g;  update the rank's rows of p, state
//            start of the next step: all-gather p                        before its first use
//
// A parameter is split where its gradient is reduced over R > 1 ranks, it has at least `threshold` bytes, and R divides
// dim 0 of what a rank holds; others stay as they are. Values do not change.
#ifndef MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_
#define MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_

#include "ir/program.h"

namespace meshwright {

Program ShardOptimizer(Program program, Bytes threshold);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_
