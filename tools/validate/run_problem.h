// What is asked of the planner about a run that a table's row describes.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_RUN_PROBLEM_H_
#define MESHWRIGHT_TOOLS_VALIDATE_RUN_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "planner/search/problem.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// The problem and graph of a run, for planner/search/evaluate.h.
Problem ProblemOf(const TrainingRun& run);

// Layers of each stage where they are dealt out by cost (tools/validate/pipeline_text.h; by nanotron, build_model, a
// stage takes layers until the cost up to there is above its share of the whole), or of each part where embedding and
// loss count as layers. Empty: evenly.
std::vector<int64_t> LayersPerStage(const TrainingRun& run);

// The same run with a data parallel degree that divides the parameters' rows, where `run`'s does not: frameworks pad a
// flat buffer, ours would leave parameters whole. Batch and nodes are scaled, so that a rank has as many rows; the
// nearest degree in ratio.
TrainingRun WithDividingDegree(const TrainingRun& run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_RUN_PROBLEM_H_
