#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/causal_conv.h"
#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/gated_norm.h"
#include "executor/cuda/kernels/linear_attention.h"

namespace meshwright::cuda {

MESHWRIGHT_RECURRENT_BODIES(MESHWRIGHT_DEFINE_LAUNCH)

}  // namespace meshwright::cuda
