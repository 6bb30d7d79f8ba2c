#include "tools/gpu_player.h"

#include <cstdio>
#include <string>

#include "costmodel/library.h"
#include "executor/cuda/run_on_gpus.h"
#include "executor/host/run_in_job.h"
#include "executor/manual/launch.h"
#include "ir/status.h"
#include "tools/exit_code.h"
#include "tools/local_device.h"

namespace meshwright {

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
