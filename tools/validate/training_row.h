// One row of a table of training runs, understood: which model, on what, and split how. What was measured is
// training_measurement.h's.
//
// A cell that is empty gets a default, and `defaults` says which. What the row says and we can only come near to is
// named in `approximations`. What we cannot express is an error.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_

#include "absl/status/statusor.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// kInvalidArgument: a damaged cell, with file and line. kUnimplemented, "reason: detail": what cannot be expressed.
absl::StatusOr<TrainingRun> ReadTrainingRun(const CsvCells& cells, const RowOverrides& overrides);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_
