// Runs a Program on GPUs: all ranks as threads of this process, a device each; or this process's rank of a job.
//
// Where there is no CUDA toolkit these are built all the same: CountDevices is 0, and the others say so.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_RUN_ON_GPUS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_RUN_ON_GPUS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "executor/cuda/cuda_backend.h"
#include "executor/cuda/driver.h"
#include "executor/data.h"
#include "executor/host/communicator.h"
#include "executor/runner.h"
#include "ir/program.h"

namespace meshwright::cuda {

// How many devices this process may use; kFailedPrecondition where there are some that cannot be used.
absl::StatusOr<int64_t> CountDevices();

// What `device` is.
absl::StatusOr<DeviceInfo> DescribeDevice(int64_t device);

// kFailedPrecondition where there are fewer devices than ranks. Errors as in executor/runner.h.
absl::StatusOr<RunResult> RunOnGpus(const Program& program, const RunOptions& options, const DataSource& data,
                                    const CudaOptions& cuda = {});

// The rank of `endpoint`, on `device` of this machine.
absl::StatusOr<RankResult> RunRankOnGpu(const Program& program, const RunOptions& options, const DataSource& data,
                                        Endpoint& endpoint, int64_t device, const CudaOptions& cuda = {});

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_RUN_ON_GPUS_H_
