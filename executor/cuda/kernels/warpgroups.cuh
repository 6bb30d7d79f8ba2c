// The device's context of bodies for Hopper's tensor cores (warpgroup_tiles.h), and their launch. For kernels/*.cu.
//
// wgmma is of compute capability 9.0a alone. For others a kernel is compiled that ends in a trap, and is never launched
// (lower_tiles.cc).
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUPS_CUH_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUPS_CUH_

#include "executor/cuda/kernels/device.cuh"
#include "executor/cuda/kernels/warpgroup_tiles.h"

namespace meshwright::cuda {

// The 32 or 64 accumulators of a thread: as operands, and in the text.
#define MESHWRIGHT_FOUR(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define MESHWRIGHT_SIXTEEN(d, n) \
  MESHWRIGHT_FOUR(d, n), MESHWRIGHT_FOUR(d, n + 1), MESHWRIGHT_FOUR(d, n + 2), MESHWRIGHT_FOUR(d, n + 3)
#define MESHWRIGHT_32(d) MESHWRIGHT_SIXTEEN(d, 0), MESHWRIGHT_SIXTEEN(d, 4)
#define MESHWRIGHT_64(d) MESHWRIGHT_32(d), MESHWRIGHT_SIXTEEN(d, 8), MESHWRIGHT_SIXTEEN(d, 12)
#define MESHWRIGHT_TEXT_32                                                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31}, "
#define MESHWRIGHT_TEXT_64                                                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "  \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "

// Both operands in shared memory, K-major.
#define MESHWRIGHT_WGMMA(shape, type, text, registers, a_at, b_at, add_at)                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at                                          \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " text a_at ", " b_at \
               ", p, 1, 1, 0, 0;\n}"                                                               \
               : registers                                                                         \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
// The left operand in registers, the right one MN-major.
#define MESHWRIGHT_WGMMA_COLUMNS(shape, type, text, registers, a_at, b_at)                                   \
  asm volatile(                                                                                              \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                             \
      "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " text a_at ", " b_at ", p, 1, 1, 1;\n}" \
      : registers                                                                                            \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

class WarpgroupContext : public WarpContext {
 public:
  using WarpContext::WaitCopies;
  __device__ __forceinline__ uint32_t AddressOf(uint32_t at) { return base() + at; }
  __device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kPending>
  __device__ __forceinline__ void WaitCopies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  }
  __device__ __forceinline__ void FenceCopies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  __device__ __forceinline__ void Arrive(int barrier, int threads) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  }
  __device__ __forceinline__ void Sync(int barrier, int threads) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
  }
  template <int kRegisters>
  __device__ __forceinline__ void KeepRegisters() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
  template <int kRegisters>
  __device__ __forceinline__ void TakeRegisters() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
  template <class... Registers>
  __device__ __forceinline__ void BeginProducts(Registers&... registers) {
    (Hold(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  template <int kPending, class... Registers>
  __device__ __forceinline__ void WaitProducts(Registers&... registers) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    (Hold(registers), ...);
  }
  template <class... Registers>
  __device__ __forceinline__ void Settle(Registers&... registers) {
    (Hold(registers), ...);
  }
  template <Elem kElem>
  __device__ __forceinline__ void Multiply(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
    if constexpr (kElem == Elem::kBFloat16) {
      MESHWRIGHT_WGMMA("m64n128k16", "bf16", MESHWRIGHT_TEXT_64, MESHWRIGHT_64(d), "%64", "%65", "%66");
    } else {
      MESHWRIGHT_WGMMA("m64n128k16", "f16", MESHWRIGHT_TEXT_64, MESHWRIGHT_64(d), "%64", "%65", "%66");
    }
  }
  template <Elem kElem>
  __device__ __forceinline__ void Multiply(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
    if constexpr (kElem == Elem::kBFloat16) {
      MESHWRIGHT_WGMMA("m64n64k16", "bf16", MESHWRIGHT_TEXT_32, MESHWRIGHT_32(d), "%32", "%33", "%34");
    } else {
      MESHWRIGHT_WGMMA("m64n64k16", "f16", MESHWRIGHT_TEXT_32, MESHWRIGHT_32(d), "%32", "%33", "%34");
    }
  }
  template <Elem kElem>
  __device__ __forceinline__ void MultiplyColumns(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (kElem == Elem::kBFloat16) {
      MESHWRIGHT_WGMMA_COLUMNS("m64n128k16", "bf16", MESHWRIGHT_TEXT_64, MESHWRIGHT_64(d), "{%64, %65, %66, %67}",
                               "%68");
    } else {
      MESHWRIGHT_WGMMA_COLUMNS("m64n128k16", "f16", MESHWRIGHT_TEXT_64, MESHWRIGHT_64(d), "{%64, %65, %66, %67}",
                               "%68");
    }
  }
  template <Elem kElem>
  __device__ __forceinline__ void MultiplyColumns(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (kElem == Elem::kBFloat16) {
      MESHWRIGHT_WGMMA_COLUMNS("m64n64k16", "bf16", MESHWRIGHT_TEXT_32, MESHWRIGHT_32(d), "{%32, %33, %34, %35}",
                               "%36");
    } else {
      MESHWRIGHT_WGMMA_COLUMNS("m64n64k16", "f16", MESHWRIGHT_TEXT_32, MESHWRIGHT_32(d), "{%32, %33, %34, %35}", "%36");
    }
  }

 private:
  // The compiler moves nothing of x across.
  template <int kN>
  static __device__ __forceinline__ void Hold(float (&x)[kN][4]) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n) asm volatile("" : MESHWRIGHT_FOUR(x, n)::"memory");
  }
  template <int kN>
  static __device__ __forceinline__ void Hold(uint32_t (&x)[kN][4]) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n)
      asm volatile("" : "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])::"memory");
  }
};

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, 1) RunWarpgroups(const __grid_constant__ Body body) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  WarpgroupContext context;
  if (context.AddressOf(0) % 1024 != 0) __trap();  // tiles would not be where their swizzling has them
  body.Run(context);
#elif defined(__CUDA_ARCH__)
  __trap();
#endif
}

#define MESHWRIGHT_DEFINE_WARPGROUP_LAUNCH(Body)                                            \
  int LaunchOnDevice(const Body& body, const LaunchShape& shape, bool, void* stream) {      \
    return body.Visit([&](const auto& variant) {                                            \
      return Start(RunWarpgroups<std::decay_t<decltype(variant)>>, variant, shape, stream); \
    });                                                                                     \
  }

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUPS_CUH_
