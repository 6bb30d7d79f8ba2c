#include "tools/export/cpu_pace.h"

#include <algorithm>
#include <cmath>

#include "costmodel/library.h"
#include "ir/status.h"
#include "tools/export/trainer_prediction.h"

namespace meshwright {
namespace {

absl::StatusOr<Nanos> StepWith(double slowdown, const Trainer& trainer, Plan plan) {
  plan.session.problem.cluster.cpu_slowdown = slowdown;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainerPrediction under, PredictUnder(trainer, plan));
  return under.prediction.step;
}

// What is likely, held to published runs: one of them finds the slowdown, the others of its source are predicted with
// it (docs/accuracy.md).
constexpr double kHeldUp = 0.1;
constexpr double kMostTimes = 2.5;

// A third of what clusters of equal devices differ by (costmodel/variability.h): more exact is no measurement.
constexpr double kNear = 0.03;
bool IsNear(Nanos step, Nanos measured) { return std::abs(ToSeconds(step) / ToSeconds(measured) - 1) <= kNear; }

}  // namespace

absl::StatusOr<double> ShareOfCpu(const Trainer& trainer, const Plan& plan, Nanos step) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Nanos without, StepWith(kLeastCpuSlowdown, trainer, plan));
  return std::max(0.0, 1 - ToSeconds(without) / ToSeconds(step));
}

std::optional<double> CpuSlowdownFor(const Trainer& trainer, const Plan& plan, Nanos step, Nanos measured) {
  if (IsNear(step, measured)) return std::nullopt;
  const absl::StatusOr<double> held_up = ShareOfCpu(trainer, plan, step);
  if (!held_up.ok() || *held_up < kHeldUp) return std::nullopt;
  const double usual = plan.session.problem.cluster.cpu_slowdown.value_or(1);
  double least = std::max(kLeastCpuSlowdown, usual / kMostTimes), most = std::min(kMostCpuSlowdown, usual * kMostTimes);
  (measured > step ? least : most) = usual;
  // A step is no shorter where CPUs take longer.
  while (most - least > 0.01) {
    const double middle = (least + most) / 2;
    const absl::StatusOr<Nanos> there = StepWith(middle, trainer, plan);
    if (!there.ok()) return std::nullopt;
    (*there < measured ? least : most) = middle;
  }
  const double found = std::round((least + most) / 2 * 100) / 100;
  const absl::StatusOr<Nanos> there = StepWith(found, trainer, plan);
  return there.ok() && IsNear(*there, measured) ? std::optional(found) : std::nullopt;
}

}  // namespace meshwright
