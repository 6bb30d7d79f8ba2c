#include "executor/cuda/kernels/attention.h"
#include "executor/cuda/kernels/bodies.h"
#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/experts.h"
#include "executor/cuda/kernels/latent_heads.h"

namespace meshwright::cuda {

MESHWRIGHT_TILE_BODIES(MESHWRIGHT_DEFINE_LAUNCH)

}  // namespace meshwright::cuda
