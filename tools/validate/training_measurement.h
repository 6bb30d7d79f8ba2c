// What a row of a table of training runs measured: a step's time, under whichever column has it, and memory.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TRAINING_MEASUREMENT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TRAINING_MEASUREMENT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ir/quantities.h"
#include "tools/validate/csv.h"
#include "tools/validate/training_run.h"

namespace meshwright {

struct TrainingMeasurement {
  std::optional<double> step_seconds;
  std::string from;            // the column
  std::optional<Bytes> peak;   // most memory used on a device
  bool reserved = false;       // `peak` is what a caching allocator took
  bool whole_process = false;  // `peak` counts context and communication buffers too
  bool out_of_memory = false;  // status oom: there is no time
};

// `run`: what the row says, for rates. kUnimplemented, "reason: detail": nothing in the row can be compared with a
// prediction.
absl::StatusOr<TrainingMeasurement> ReadTrainingMeasurement(const CsvCells& cells, const TrainingRun& run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TRAINING_MEASUREMENT_H_
