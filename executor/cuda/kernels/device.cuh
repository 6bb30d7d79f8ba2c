// A body as a kernel: the device's context, and the launch. For kernels/*.cu.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_

#include <cuda_runtime.h>

#include <type_traits>

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

class DeviceContext {
 public:
  static constexpr int kPlays = 1;
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

// For bodies on tensor cores: see warp_tiles.h.
class WarpContext : public DeviceContext {
 public:
  __device__ __forceinline__ void CopyAsync(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(base() + to), "l"(from),
                 "r"(there ? 16 : 0));
  }
  __device__ __forceinline__ void WaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
  __device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(base() + at));
  }
  __device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(base() + at));
  }
  template <Elem kElem>
  __device__ __forceinline__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (kElem == Elem::kBFloat16) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
  }
  __device__ __forceinline__ float ShuffleXor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
  __device__ __forceinline__ bool Any(bool x) { return __any_sync(0xffffffffu, x) != 0; }
  __device__ __forceinline__ void SyncWarp() { __syncwarp(); }
  template <class T>
  __device__ __forceinline__ T Get(uint32_t at) {
    return *reinterpret_cast<const T*>(dynamic_shared + at);
  }
  template <class T>
  __device__ __forceinline__ void Put(uint32_t at, const T& value) {
    *reinterpret_cast<T*>(dynamic_shared + at) = value;
  }

 protected:
  static __device__ __forceinline__ uint32_t base() {
    return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared));
  }
};

// Of at most 256 threads; bodies that wait for memory name the blocks that an SM should hold to have enough on its way.
template <class Body, class A>
constexpr int BlocksPerSm() {
  if constexpr (std::is_same_v<A, float> && requires { Body::kBlocksPerSm; }) return Body::kBlocksPerSm;
  return 1;
}

template <class Body, class A>
__global__ void __launch_bounds__(256, BlocksPerSm<Body, A>()) RunBody(const __grid_constant__ Body body) {
  DeviceContext context;
  body.template Run<A>(context);
}

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kBlocksPerSm) RunWarps(const __grid_constant__ Body body) {
  WarpContext context;
  body.Run(context);
}

template <class Body>
int Start(void (*kernel)(Body), const Body& body, const LaunchShape& shape, void* stream) {
  if (shape.shared > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared));
    if (error != cudaSuccess) return error;
  }
  // Not with <<<>>>, whose error is the thread's last one: that may be of another call.
  void* arguments[] = {const_cast<Body*>(&body)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(shape.blocks)),
                          dim3(static_cast<unsigned>(shape.threads)), arguments, static_cast<size_t>(shape.shared),
                          static_cast<cudaStream_t>(stream));
}

// What executor/cuda/device_launcher.cc calls; the result is a cudaError_t.
#define MESHWRIGHT_DEFINE_LAUNCH(Body)                                                      \
  int LaunchOnDevice(const Body& body, const LaunchShape& shape, bool wide, void* stream) { \
    return wide ? Start(RunBody<Body, double>, body, shape, stream)                         \
                : Start(RunBody<Body, float>, body, shape, stream);                         \
  }
#define MESHWRIGHT_DEFINE_WARP_LAUNCH(Body)                                            \
  int LaunchOnDevice(const Body& body, const LaunchShape& shape, bool, void* stream) { \
    return body.Visit([&](const auto& variant) {                                       \
      return Start(RunWarps<std::decay_t<decltype(variant)>>, variant, shape, stream); \
    });                                                                                \
  }

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_DEVICE_CUH_
