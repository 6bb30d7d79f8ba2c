#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/flash_hopper.h"
#include "executor/cuda/kernels/flash_hopper_gradients.h"
#include "executor/cuda/kernels/warpgroups.cuh"

namespace meshwright::cuda {

MESHWRIGHT_WARPGROUP_BODIES(MESHWRIGHT_DEFINE_WARPGROUP_LAUNCH)

}  // namespace meshwright::cuda
