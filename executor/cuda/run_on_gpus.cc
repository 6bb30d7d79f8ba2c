#include "executor/cuda/run_on_gpus.h"

#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/cuda/device_kernels.h"
#include "executor/cuda/real_driver.h"
#include "executor/cuda/setup_deadline.h"
#include "executor/host/thread_fabric.h"
#include "ir/status.h"
#include "ir/verify.h"

namespace meshwright::cuda {

absl::StatusOr<DeviceInfo> DescribeDevice(int64_t device) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver, OpenDevice(device));
  return driver->Info();
}

absl::StatusOr<RankResult> RunRankOnGpu(const Program& program, const RunOptions& options, const DataSource& data,
                                        Endpoint& endpoint, int64_t device, const CudaOptions& cuda) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver, OpenDevice(device));
  const std::unique_ptr<KernelLauncher> launcher = MakeDeviceLauncher();
  MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceInfo info, driver->Info());
  const bool wgmma = HasWgmma(info) && std::getenv("MESHWRIGHT_NO_WGMMA") == nullptr;
  DeviceKernels kernels(*driver, *launcher, /*tf32=*/false, wgmma);
  CudaOptions with = cuda;
  if (with.predicted_step == absl::ZeroDuration()) with.predicted_step = options.predicted_step;
  with.setup_deadline = SetupDeadline(with.setup_deadline);
  with.graphs = with.graphs && options.graphs;
  with.register_arena = with.register_arena || options.register_arena;
  MESHWRIGHT_ASSIGN_OR_RETURN(const auto backend, CudaBackend::Make(*driver, kernels, endpoint, program, with));
  return RunRank(program, options, data, endpoint.rank(), *backend);
}

absl::StatusOr<RunResult> RunOnGpus(const Program& program, const RunOptions& options, const DataSource& data,
                                    const CudaOptions& cuda) {
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  const int64_t n = program.mesh.num_ranks();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t devices, CountDevices());
  if (devices < n) {
    return absl::FailedPreconditionError(absl::StrCat("the program has ", n, " ranks, this machine ", devices,
                                                      " GPUs; start a process for each on more machines"));
  }
  ThreadFabric fabric(n, {.deadline = options.deadline});
  std::vector<absl::Status> statuses(n);
  std::vector<RankResult> results(n);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      absl::StatusOr<RankResult> result = RunRankOnGpu(program, options, data, fabric.endpoint(rank), rank, cuda);
      statuses[rank] = result.status();
      if (result.ok()) {
        results[rank] = *std::move(result);
      } else {
        fabric.endpoint(rank).Abort(result.status());  // a device that could not be opened
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MESHWRIGHT_RETURN_IF_ERROR(FirstError(statuses));
  return JoinResults(std::move(results));
}

}  // namespace meshwright::cuda
