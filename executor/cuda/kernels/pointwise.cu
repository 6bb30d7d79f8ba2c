#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/pointwise.h"
#include "executor/cuda/kernels/updates.h"

namespace meshwright::cuda {

MESHWRIGHT_POINTWISE_BODIES(MESHWRIGHT_DEFINE_LAUNCH)

}  // namespace meshwright::cuda
