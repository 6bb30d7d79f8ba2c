// Gives all ranks the parameters of rank 0 before the first step (parameter_broadcast, S8.10).
//
// One broadcast per element type, of every parameter and master that all ranks hold whole; a parameter of which every
// rank has its own (layerwise_parallel) is left out. It stands in RankClass::start: no step takes longer for it.
#ifndef MESHWRIGHT_PLANNER_PASSES_START_EQUAL_H_
#define MESHWRIGHT_PLANNER_PASSES_START_EQUAL_H_

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace meshwright {

// kInvalidArgument: the mesh has no axes for all ranks of a stage.
absl::StatusOr<Program> StartEqual(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_START_EQUAL_H_
