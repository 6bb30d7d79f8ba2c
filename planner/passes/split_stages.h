// Splits the blocks into pipeline stages and micro-batches.
//
//   before   one class, blocks 2s and 2s+1 for segment s, no slots
//   after    a class per stage, with the blocks and buffers it needs (those of single layers once for each of its
//            chunks, planner/passes/pipeline_parts.h); slots in the schedule's order; sends and receives
//            of what crosses stages, on streams of their own; at the end of the step one gradient reduction and one
//            update per layer, and the report of the loss
//
// What the slots of a class are, in order:
//   zero        every gradient accumulator and the loss
//   per pass    [receive] blocks of the chunk's segments [send]
//   per layer   reduce, update
//   report      the loss, whole
//
// Buffers that live from forward to backward get one instance per micro-batch in flight in their chunk. Receives are
// issued in the order in which the peer sends, ahead of the pass that reads them where that is another one.
#ifndef MESHWRIGHT_PLANNER_PASSES_SPLIT_STAGES_H_
#define MESHWRIGHT_PLANNER_PASSES_SPLIT_STAGES_H_

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "planner/passes/follow_stages.h"
#include "planner/passes/step_end.h"

namespace meshwright {

// With `followers`, stages that are like the one before are noted there, and their classes stay empty.
// kInvalidArgument: as PartsOf.
absl::StatusOr<Program> SplitStages(const Program& program, const Graph& graph, const Strategy& strategy,
                                    const UpdateRule& optimizer, Followers* followers = nullptr,
                                    const Matrices& matrices = Matrices());

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SPLIT_STAGES_H_
