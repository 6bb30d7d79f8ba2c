// Which segments and layers of a graph lie on which part of the pipeline.
//
// S stages of V chunks make S V parts, in the order in which a micro-batch goes through them forward: part p is chunk
// p / S of stage p % S (S12.10), or, where a V is laid, of the stage that planner/schedule.h says. Without chunks a
// part is a stage. dualpipe has every part a second time, which is not looked at here. Segments go to their own part
// (Segment::stage) or to that of the segment before; the layers of a chain (ir/graph.h) are spread over all parts as
// one sequence. Where layers_per_stage says so, the first and the last part may have none: embedding and loss are
// there, and frameworks count them as layers.
//
//   8 layers, S = 4, V = 2                    stage 0: layers 0 and 4, stage 1: 1 and 5, stage 2: 2 and 6, ..
//
// Where a run of a segment is several layers, as they alternate, and a part begins within one, the graph is cut there
// first (planner/passes/cut_runs.h).
#ifndef MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_
#define MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// The runs [first, first + count) of a segment, in one part: layers, where a run is one.
struct LayerRange {
  size_t segment = 0;
  int64_t first = 0, count = 1;
};
using Part = std::vector<LayerRange>;  // in the order of segments

// A segment of a chain: how often it runs, and how many layers of the model a run is.
struct Stack {
  size_t segment = 0;
  int64_t repeat = 1, layers = 1;
};
// The chain that begins with the segment, or the one that it is by itself.
std::vector<Stack> ChainFrom(const Graph& graph, size_t segment);
// Of the model, in all stacks.
int64_t LayersOf(const std::vector<Stack>& chain);

// How many layers each of so many parts has where nobody says: as nearly equal numbers as may be, the more on the
// first. With fewer layers than parts the last ones have none.
std::vector<int64_t> EvenLayers(int64_t layers, int64_t parts);

// kInvalidArgument: more parts than layers; a part without operators; segments whose parts decrease along the graph;
// layers_per_stage that do not add up; chunks without a pipeline. kInternal: a part begins within a run.
absl::StatusOr<std::vector<Part>> PartsOf(const Graph& graph, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PIPELINE_PARTS_H_
