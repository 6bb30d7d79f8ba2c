// How much longer kernels take where all ranks of a job compute at once: several ranks on one machine share its cores
// (KernelConstants::core_sharing).
//
// Rank 0 plays kernels while the others wait, then all ranks play them at once, for longer than the slices in which a
// system hands out its cores; a few times in turn.
//
// Thread safety: the rank's own thread.
#ifndef MESHWRIGHT_TOOLS_MEASURE_CORE_SHARING_H_
#define MESHWRIGHT_TOOLS_MEASURE_CORE_SHARING_H_

#include "absl/status/statusor.h"
#include "executor/host/communicator.h"
#include "tools/measure/experiments.h"

namespace meshwright {

// Products and, between them, writing that leaves no cache warm: some tenths of a second in all.
absl::StatusOr<Experiment> SharingExperiment(const MeasurePlan& plan);

// The time of all kernels at once, on the slowest rank, for which a collective would wait (a system may give a rank
// more of the cores than another) / alone, at least 1, and 1 for a job of one rank; on rank 0, elsewhere 1. All ranks
// of the job call. `play` runs a program of one rank.
absl::StatusOr<double> MeasureCoreSharing(const Experiment& experiment, const PlayProgram& play, Endpoint& world);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_CORE_SHARING_H_
