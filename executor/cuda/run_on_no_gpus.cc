// run_on_gpus.h where there is no CUDA toolkit.
#include "absl/status/status.h"
#include "executor/cuda/run_on_gpus.h"

namespace meshwright::cuda {
namespace {

absl::Status NotBuilt() {
  return absl::FailedPreconditionError("this was built without CUDA; set CUDA_HOME to a toolkit and build again");
}

}  // namespace

absl::StatusOr<int64_t> CountDevices() { return 0; }

absl::StatusOr<DeviceInfo> DescribeDevice(int64_t) { return NotBuilt(); }

absl::StatusOr<RunResult> RunOnGpus(const Program&, const RunOptions&, const DataSource&, const CudaOptions&) {
  return NotBuilt();
}

absl::StatusOr<RankResult> RunRankOnGpu(const Program&, const RunOptions&, const DataSource&, Endpoint&, int64_t,
                                        const CudaOptions&) {
  return NotBuilt();
}

}  // namespace meshwright::cuda
