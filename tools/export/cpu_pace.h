// What the pace of the nodes' CPUs (Cluster::cpu_slowdown) makes of a plan's step under a trainer, which issues its
// kernels one by one: a step of few tokens waits for them.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_EXPORT_CPU_PACE_H_
#define MESHWRIGHT_TOOLS_EXPORT_CPU_PACE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "ir/quantities.h"
#include "tools/export/writers.h"
#include "tools/plan_file.h"

namespace meshwright {

// The share of a step that is saved where CPUs take a tenth of what they take (kLeastCpuSlowdown). `step`: as
// PredictUnder has it. Errors: those of PredictUnder.
absl::StatusOr<double> ShareOfCpu(const Trainer& trainer, const Plan& plan, Nanos step);

// From one measured step, what to say of the cluster: the `cpu_slowdown`, in hundredths, with which the plan takes as
// long. That it is the CPUs which make the difference is for others to tell. Nothing where `step` is near enough to
// `measured` as it is, within 3 %, or where no slowdown from a quarter of the plan's to four times that comes so near.
std::optional<double> CpuSlowdownFor(const Trainer& trainer, const Plan& plan, Nanos step, Nanos measured);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_CPU_PACE_H_
