// Starts kernels: one overload for each body. On a device it is executor/cuda/device_launcher.h; tests play the threads
// on the host.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LAUNCHER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LAUNCHER_H_

#include "absl/status/status.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels/attention.h"
#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/causal_conv.h"
#include "executor/cuda/kernels/experts.h"
#include "executor/cuda/kernels/flash_attention.h"
#include "executor/cuda/kernels/flash_gradients.h"
#include "executor/cuda/kernels/flash_hopper.h"
#include "executor/cuda/kernels/flash_hopper_gradients.h"
#include "executor/cuda/kernels/gated_norm.h"
#include "executor/cuda/kernels/latent_heads.h"
#include "executor/cuda/kernels/linear_attention.h"
#include "executor/cuda/kernels/pointwise.h"
#include "executor/cuda/kernels/rows.h"
#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/updates.h"

namespace meshwright::cuda {

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;
  // `wide`: computed in double.
#define MESHWRIGHT_LAUNCH(Body) \
  virtual absl::Status Launch(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body) = 0;
  MESHWRIGHT_BODIES(MESHWRIGHT_LAUNCH)
#undef MESHWRIGHT_LAUNCH
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LAUNCHER_H_
