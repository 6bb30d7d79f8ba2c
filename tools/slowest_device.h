// A strategy at the pace of the slowest of its devices, which the search leaves out: it slows all strategies down
// alike (costmodel/variability.h).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_SLOWEST_DEVICE_H_
#define MESHWRIGHT_TOOLS_SLOWEST_DEVICE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "planner/search/evaluate.h"

namespace meshwright {

// Nothing for one device, or for the host. Errors: those of Evaluate.
absl::StatusOr<std::optional<Prediction>> PredictAtSlowest(Problem problem, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_SLOWEST_DEVICE_H_
