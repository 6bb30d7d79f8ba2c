// Which GPU of its machine a process of a job takes, and what is said where there is none.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_LOCAL_DEVICE_H_
#define MESHWRIGHT_TOOLS_LOCAL_DEVICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/manual/launch.h"

namespace meshwright {

// The launcher's number of the process on its machine: LOCAL_RANK (torchrun, tools:launch), OMPI_COMM_WORLD_LOCAL_RANK
// (mpirun) or SLURM_LOCALID (srun); the rank where none is set and all ranks fit on this machine. A process that sees
// one device takes that one, whatever its number: launchers may show each process its own.
// E-LAUNCH where the number is none, or is not below `devices`.
absl::StatusOr<int64_t> LocalDevice(const manual::Environment& environment, int64_t rank, int64_t ranks,
                                    int64_t devices);

// "--device=gpu: this machine has no GPU: WHY; ...", marked kNothingFits.
absl::Status NoGpu(absl::string_view why);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_LOCAL_DEVICE_H_
