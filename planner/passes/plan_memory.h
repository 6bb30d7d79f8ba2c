// Gives every buffer its place in the arena (design decision 5).
//
// Buffers that live across blocks (parameters, gradients, state, activations in flight) lie one after the other, all
// instances. Temporaries live from their first to their last use in one block: within a block they share one region by
// first fit, the largest first; the blocks share the region, as their kernels never run at the same time. What runs
// beside the kernels uses its operands from what it waits for to what waits for it.
//
// Must run behind all that change the order: offsets hold for the final one only. The arena's size is what an executor
// allocates and what the plan reports as peak.
#ifndef MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_
#define MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace meshwright {

Program PlanMemory(Program program);

// Of a class that is planned, with room for other numbers of micro-batches in its first buffers: where PlanMemory would
// place them.
void ResizeMemory(RankClass& rank_class, const std::vector<int64_t>& microbatches);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PLAN_MEMORY_H_
