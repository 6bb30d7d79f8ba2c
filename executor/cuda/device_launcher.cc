// The launcher of kernels on the device: kernels/*.cu, by way of one function each.
#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "executor/cuda/kernels/launcher.h"
#include "executor/cuda/real_driver.h"

namespace meshwright::cuda {

// In kernels/*.cu; the result is a cudaError_t.
#define MESHWRIGHT_DECLARE(Body) \
  int LaunchOnDevice(const Body& body, const LaunchShape& shape, bool wide, void* stream);
MESHWRIGHT_BODIES(MESHWRIGHT_DECLARE)
#undef MESHWRIGHT_DECLARE

namespace {

class DeviceLauncher : public KernelLauncher {
 public:
#define MESHWRIGHT_LAUNCH(Body)                                                                              \
  absl::Status Launch(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body) override { \
    return ToStatus(LaunchOnDevice(body, shape, wide, stream.raw), #Body, shape);                            \
  }
  MESHWRIGHT_BODIES(MESHWRIGHT_LAUNCH)
#undef MESHWRIGHT_LAUNCH

 private:
  static absl::Status ToStatus(int code, const char* kernel, const LaunchShape& shape) {
    if (code == cudaSuccess) return absl::OkStatus();
    cudaGetLastError();  // not for whoever asks next
    const auto error = static_cast<cudaError_t>(code);
    return absl::InternalError(absl::StrCat(
        "launching ", kernel, " in ", shape.blocks, " blocks of ", shape.threads, " threads with ", shape.shared,
        " bytes of shared memory: ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
  }
};

}  // namespace

std::unique_ptr<KernelLauncher> MakeDeviceLauncher() { return std::make_unique<DeviceLauncher>(); }

}  // namespace meshwright::cuda
