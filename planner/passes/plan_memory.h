// Gives every buffer its place in the arena (design decision 5).
//
// Buffers that live across blocks (parameters, gradients, state, activations in flight) lie one after the other, all
// instances. Temporaries live from their first to their last use in one block: within a block they share one region by
// first fit, the largest first; the blocks share the region, as their kernels never run at the same time. What runs
// beside the kernels uses its operands from what it waits for to what waits for it.
//
// Must run last: offsets hold for the final order only. The arena's size is what an executor allocates and what the
// plan reports as peak.
#ifndef MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_
#define MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_

#include "ir/program.h"

namespace meshwright {

Program PlanMemory(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_
