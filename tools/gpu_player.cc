#include "tools/gpu_player.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "executor/cuda/run_on_gpus.h"
#include "executor/host/run_in_job.h"
#include "executor/manual/launch.h"
#include "ir/status.h"
#include "tools/exit_code.h"
#include "tools/local_device.h"

namespace meshwright {
namespace {

// 13000 is 13.0, 12040 is 12.4.
std::string CudaVersion(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }
// 22809 is 2.28.9.
std::string NcclVersion(int number) { return absl::StrCat(number / 10000, ".", number / 100 % 100, ".", number % 100); }

}  // namespace

absl::StatusOr<RankPlayer> OpenGpus() {
  const absl::StatusOr<int64_t> devices = cuda::CountDevices();
  if (!devices.ok()) return WithExit(ExitCode::kNothingFits, devices.status());
  if (*devices == 0) return NoGpu("CUDA finds none");
  MESHWRIGHT_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::DescribeDevice(0));
  cuda::CudaOptions with;
  with.notice = [](const std::string& notice) { std::fprintf(stderr, "note: %s\n", notice.c_str()); };
  RankPlayer player;
  const absl::StatusOr<Device> known = FindDevice(info.name);
  player.device = known.ok() ? known->name : info.name;  // the planner says so where it has to know
  player.memory = info.memory;
  player.devices = *devices;
  player.description = absl::StrCat(info.name, ", driver for CUDA ", CudaVersion(info.driver_version), ", CUDA ",
                                    CudaVersion(info.runtime_version), ", NCCL ", NcclVersion(info.nccl_version));
  player.threads = [with](const Program& program, const RunOptions& options, const DataSource& data) {
    return cuda::RunOnGpus(program, options, data, with);
  };
  player.process = [with, devices = *devices](const Program& program, const RunOptions& options, const DataSource& data,
                                              Endpoint& self) -> absl::StatusOr<RunResult> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t device,
                                LocalDevice(manual::OwnEnvironment(), self.rank(), self.num_ranks(), devices));
    return RunInJob(program, options, self, [&](Endpoint& endpoint) {
      return cuda::RunRankOnGpu(program, options, data, endpoint, device, with);
    });
  };
  return player;
}

}  // namespace meshwright
