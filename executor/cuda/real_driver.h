// The driver over the CUDA runtime, cuBLASLt and NCCL: see executor/cuda/driver.h. And the launcher of our kernels on
// it.
//
// Products: cuBLASLt's heuristic offers a few algorithms for a shape; when the shape comes for the first time outside
// of a capture, each is run and timed, and the fastest is kept. That takes part in no step but the first.
//
// NCCL: communicators do not block; the caller polls AsyncError. Environment variables of NCCL hold (NCCL_DEBUG and the
// like; NCCL_HOSTID lets several ranks share one GPU, for tests).
#ifndef MESHWRIGHT_EXECUTOR_CUDA_REAL_DRIVER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_REAL_DRIVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels/launcher.h"

namespace meshwright::cuda {

// How many devices this process may use; 0 where there is no driver. kFailedPrecondition says why one that is there
// cannot be used.
absl::StatusOr<int64_t> CountDevices();

// Waits for the calling thread's device: OK where it works. An error that a kernel has left behind stays as long as the
// process.
absl::Status CheckDevice();

// The calling thread's device from here on is `device`, from 0.
absl::StatusOr<std::unique_ptr<Driver>> OpenDevice(int64_t device);

std::unique_ptr<KernelLauncher> MakeDeviceLauncher();

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_REAL_DRIVER_H_
