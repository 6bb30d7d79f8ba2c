#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/flash_attention.h"
#include "executor/cuda/kernels/flash_gradients.h"

namespace meshwright::cuda {

MESHWRIGHT_WARP_BODIES(MESHWRIGHT_DEFINE_WARP_LAUNCH)

}  // namespace meshwright::cuda
