// The devices of a row and what joins them.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_ROW_CLUSTER_H_
#define MESHWRIGHT_TOOLS_VALIDATE_ROW_CLUSTER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/decoder.h"
#include "tools/validate/csv.h"
#include "tools/validate/framework.h"
#include "tools/validate/overrides.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// Where a source names neither devices nor layout: the fewest on which the model trains, tensor parallelism over a
// node and as many stages as divide the layers, with half of the memory for parameters and their optimizer.
// kUnimplemented where nobody says which devices.
absl::StatusOr<int64_t> DefaultDevices(const CsvCells& cells, const RowOverrides& overrides,
                                       const DecoderConfig& model);

// Sets the cluster of a run on `gpus` devices. kUnimplemented, "reason: detail": a device that nobody knows.
absl::Status ReadRowCluster(const CsvCells& cells, const RowOverrides& overrides, const Framework& framework,
                            int64_t gpus, TrainingRun* run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_ROW_CLUSTER_H_
