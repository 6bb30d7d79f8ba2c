#include "tools/slowest_device.h"

#include "costmodel/variability.h"
#include "ir/status.h"

namespace meshwright {

absl::StatusOr<std::optional<Prediction>> PredictAtSlowest(Problem problem, const Strategy& strategy) {
  const int64_t ranks = strategy.mesh.num_ranks();
  Device& device = problem.cluster.device;
  if (ranks == 1 || device.generation == Generation::kHost) return std::nullopt;
  device.kernels.sustained_clock *= SlowestClock(ranks);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, Evaluate(problem, strategy));
  return evaluation.prediction;
}

}  // namespace meshwright
