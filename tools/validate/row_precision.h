// The types of numbers that a row trains in.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ROW_PRECISION_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ROW_PRECISION_H_

#include "absl/status/status.h"
#include "tools/validate/csv.h"
#include "tools/validate/framework.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// Sets the run's types and, where products are narrower than tensors, what its device does with them. The run has its
// model and its cluster. kUnimplemented, "reason: detail": a type that nobody knows, or that the device does not have.
absl::Status ReadRowPrecision(const CsvCells& cells, const Framework& framework, TrainingRun* run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ROW_PRECISION_H_
