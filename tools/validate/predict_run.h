// The prediction of one run: its program lowered, priced and simulated as any plan is, and what its framework holds
// beside it in memory.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_PREDICT_RUN_H_
#define MESHWRIGHT_TOOLS_VALIDATE_PREDICT_RUN_H_

#include "absl/status/statusor.h"
#include "planner/search/evaluate.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// One run whose layout and micro-batch are given. Errors: those of EvaluateGraph.
absl::StatusOr<Prediction> PredictRun(const TrainingRun& run);

// The same with what the run leaves open (`tensor_given` and so on) set to the fastest that fits, or else to what needs
// the least memory; `defaults` says to what.
absl::StatusOr<Prediction> PredictFastest(TrainingRun* run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_PREDICT_RUN_H_
