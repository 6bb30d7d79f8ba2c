// Scatters gradients within the backward pass that makes them (S11.10), so that whole ones live in no other block.
//
//   before   backward: dw += a, dw += b                  every micro-batch
//            reduce:   reduce-scatter dw -> rows         once a step
//   after    backward: dw = a, dw' = b, dw = dw + dw', reduce-scatter dw -> piece, rows += piece
//
// dw is a temporary now, and the rank's rows are what is cleared, accumulated and updated. Slices that go with the
// reduce-scatter move too; an all-reduce of the rows (between groups) stays where it is, once a step. A gradient takes
// part where only one segment's passes use it.
//
// Values do not change. Runs after shard_optimizer and before bucket_gradients.
#ifndef MESHWRIGHT_PLANNER_PASSES_SCATTER_IN_BACKWARD_H_
#define MESHWRIGHT_PLANNER_PASSES_SCATTER_IN_BACKWARD_H_

#include "ir/program.h"

namespace meshwright {

void ScatterInBackward(RankClass& c);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SCATTER_IN_BACKWARD_H_
