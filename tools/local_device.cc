#include "tools/local_device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "tools/exit_code.h"

namespace meshwright {

absl::StatusOr<int64_t> LocalDevice(const manual::Environment& environment, int64_t rank, int64_t ranks,
                                    int64_t devices) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* const text = environment(name);
    if (text == nullptr || *text == 0) continue;
    int64_t number = -1;
    if (!absl::SimpleAtoi(text, &number) || number < 0) {
      return LaunchError(name, " is \"", text, "\"; wants a whole number from 0");
    }
    if (devices == 1) return 0;
    if (number < devices) return number;
    return LaunchError(name, " is ", number, ", this machine has ", devices,
                       " GPUs; start at most as many processes on it");
  }
  if (devices == 1) return 0;
  if (ranks <= devices) return rank;
  return LaunchError("rank ", rank, " of ", ranks, " cannot tell which of this machine's ", devices,
                     " GPUs is its own; set LOCAL_RANK, as torchrun does");
}

absl::Status NoGpu(absl::string_view why) {
  return WithExit(ExitCode::kNothingFits, absl::FailedPreconditionError(absl::StrCat(
                                              "--device=gpu: this machine has no GPU that can be used: ", why,
                                              "; run where there is one, or on the host without the flag")));
}

}  // namespace meshwright
