// Which segments and layers of a graph lie on which part of the pipeline.
//
// S stages of V chunks make S V parts, in the order in which a micro-batch goes through them forward: part p is chunk
// p / S of stage p % S (S12.10), or, where a V is laid, of the stage that planner/schedule.h says. Without chunks a
// part is a stage. dualpipe has every part a second time, which is not looked at here. Segments go to their own part
// (Segment::stage) or to that of the segment before; the layers of a stack are spread over all parts. Where
// layers_per_stage says so, the first and the last part may have none: embedding and loss are there, and frameworks
// count them as layers.
//
//   8 layers, S = 4, V = 2    stage 0: layers 0 and 4, stage 1: 1 and 5, stage 2: 2 and 6, stage 3: 3 and 7
#ifndef MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_
#define MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// The layers [first, first + count) of a segment, in one part.
struct LayerRange {
  size_t segment = 0;
  int64_t first = 0, count = 1;
};
using Part = std::vector<LayerRange>;  // in the order of segments

// kInvalidArgument: more parts than layers; a part without operators; segments whose parts decrease along the graph;
// chunks without a pipeline.
absl::StatusOr<std::vector<Part>> PartsOf(const Graph& graph, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_
