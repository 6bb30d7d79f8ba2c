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

// The share of a step that is saved where CPUs take a tenth of what is usual (kLeastCpuSlowdown). `step`: as
// PredictUnder has it. Errors: those of PredictUnder.
absl::StatusOr<double> ShareOfCpu(const Trainer& trainer, const Plan& plan, Nanos step);

// From one measured step, what to say of the cluster: the `cpu_slowdown`, in hundredths, with which the plan takes as
// long. That it is the CPUs which make the difference is taken for likely where they hold up a tenth of `step` and the
// factor is no more than two and a half either way; docs/accuracy.md, "One run of yours", has what that is worth.
// Nothing elsewhere, and where `step` is within 3 % of `measured` as it is.
std::optional<double> CpuSlowdownFor(const Trainer& trainer, const Plan& plan, Nanos step, Nanos measured);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_CPU_PACE_H_
