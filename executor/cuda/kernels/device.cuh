// A body as a kernel: the device's context, and the launch. For kernels/*.cu.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_

#include <cuda_runtime.h>

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

extern __shared__ __align__(16) unsigned char dynamic_shared[];

class DeviceContext {
 public:
  __device__ __forceinline__ int64_t block() const { return blockIdx.x; }
  __device__ __forceinline__ int64_t blocks() const { return gridDim.x; }
  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ void Sync() { __syncthreads(); }
  __device__ __forceinline__ void* shared() { return dynamic_shared; }

  // In a fixed order: the lanes of each warp, then the warps.
  template <class T>
  __device__ T Sum(T value) {
    return Combine(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T Max(T value) {
    return Combine(value, [](T a, T b) { return a != a || a > b ? a : b; });
  }

 private:
  template <class T, class F>
  __device__ T Combine(T value, F f) {
    __shared__ T warps[32];
    for (int offset = 16; offset > 0; offset /= 2) value = f(value, __shfl_down_sync(0xffffffffu, value, offset));
    __syncthreads();  // who reads what the last call left is done
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
    for (int w = 1; w < static_cast<int>((blockDim.x + 31) / 32); ++w) value = f(value, warps[w]);
    return value;
  }
};

template <class Body, class A>
__global__ void RunBody(const __grid_constant__ Body body) {
  DeviceContext context;
  body.template Run<A>(context);
}

template <class Body, class A>
int LaunchAs(const Body& body, const LaunchShape& shape, void* stream) {
  if (shape.shared > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(RunBody<Body, A>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared));
    if (error != cudaSuccess) return error;
  }
  RunBody<Body, A><<<static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads),
                     static_cast<size_t>(shape.shared), static_cast<cudaStream_t>(stream)>>>(body);
  return cudaGetLastError();
}

// What executor/cuda/device_launcher.cc calls; the result is a cudaError_t.
#define MESHWRIGHT_DEFINE_LAUNCH(Body)                                                                      \
  int LaunchOnDevice(const Body& body, const LaunchShape& shape, bool wide, void* stream) {                 \
    return wide ? LaunchAs<Body, double>(body, shape, stream) : LaunchAs<Body, float>(body, shape, stream); \
  }

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_
