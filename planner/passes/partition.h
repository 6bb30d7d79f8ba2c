// Turns a sharded graph into instructions: one block per segment and phase, with the collectives that layouts need.
//
//   before   ops on global tensors, each with its label assignment
//   after    a Program of one class with buffers and, for segment s, the blocks 2s (forward) and 2s+1 (backward); no
//            slots yet. Everything on the compute stream, in order, but for the collectives of `pieces`, below.
//            Gradients and the loss are left partial, in accumulators.
//
// A redistribution stands just before the op that needs it, found by search (planner/redistribute.h) from what the
// block already holds. What backward reads of the forward pass is the smallest whole version of it that the forward
// pass made (of equal ones that which its first reader wants); if backward wants it wider, it is gathered again (as
// sequence-parallel training does) and not kept.
#ifndef MESHWRIGHT_PLANNER_PASSES_PARTITION_H_
#define MESHWRIGHT_PLANNER_PASSES_PARTITION_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "planner/passes/complete_layouts.h"
#include "planner/redistribute.h"

namespace meshwright {

// Collectives on what the ops named in `pieces` and their backward ops make (planner/passes/interleave.h) run beside
// the kernels, on the communication stream: after what they read is made, and before it or what they write is used.
// `kept`, which may be null, has the redistributions that were found with the same prices.
absl::StatusOr<Program> Partition(const ShardedGraph& sharded, const StepPrice& price,
                                  const std::set<std::string>& pieces = {}, KeptRedistributions* kept = nullptr);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PARTITION_H_
