#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/rows.h"

namespace meshwright::cuda {

MESHWRIGHT_ROW_BODIES(MESHWRIGHT_DEFINE_LAUNCH)

}  // namespace meshwright::cuda
