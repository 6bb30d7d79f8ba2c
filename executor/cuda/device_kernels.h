// The kernels of every operator on a device: turns a call into bodies (kernels/), their places and launch shapes, and
// products into cuBLASLt's.
//
// Element types: float64, float32, float16, bfloat16 and int32, in any mixture; sums and functions are computed in
// float32, or float64 where an operand is of it. Deterministic: no atomics, sums in a fixed order.
//
// Errors as RunHostKernel (executor/host/kernels.h), but what stands in device memory is not looked at.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_DEVICE_KERNELS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_DEVICE_KERNELS_H_

#include "absl/status/status.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/launcher.h"
#include "executor/kernel_call.h"

namespace meshwright::cuda {

// Whether a device has the products of warpgroups for which kernels/hopper.cu is compiled: Hopper alone, whose
// instructions later generations have not kept.
inline bool HasWgmma(const DeviceInfo& info) { return info.major == 9 && info.minor == 0; }

class DeviceKernels : public Kernels {
 public:
  // Both must outlive this. `tf32`: products of float32 may round their operands. `wgmma`: kernels that need HasWgmma
  // may be launched.
  DeviceKernels(Driver& driver, KernelLauncher& launcher, bool tf32 = false, bool wgmma = false)
      : driver_(driver), launcher_(launcher), tf32_(tf32), wgmma_(wgmma) {}

  absl::Status Run(DeviceStream stream, const KernelCall& call, Scratch& scratch, StepValues* values) override;
  absl::Status Copy(DeviceStream stream, const StridedCopy& copy) override;

 private:
  Driver& driver_;
  KernelLauncher& launcher_;
  const bool tf32_, wgmma_;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_DEVICE_KERNELS_H_
