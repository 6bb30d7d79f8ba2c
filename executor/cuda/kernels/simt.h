// What kernels are written in: bodies that run on every thread of a grid, from a context that says which thread it is.
// nvcc compiles them for the device (kernels/*.cu); g++ compiles the same text for tests, which play the threads on the
// host (executor/cuda/testing/emulated_launcher.h).
//
// A context offers  block(), blocks(), thread(), threads()   where this thread is
//                   Sum(x), Max(x)                           over the threads of the block, the same for all of them
//                   Sync(), shared()                         a barrier, and memory of the block
//                   kPlays                                   of how many of a launch's threads one plays at most
// kPlays is 1 on a device; tests play launches with fewer threads than they ask for, which matters to bodies that keep
// something for each thread over a barrier (linear_attention.h). All threads of a block must call Sum, Max and Sync
// alike.
//
// Elements are of any floating type, and are computed in `A`: float, or double where an operand is. No Abseil here:
// nvcc is slow enough.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_SIMT_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_SIMT_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define MESHWRIGHT_DEVICE __device__ __forceinline__
#define MESHWRIGHT_UNROLL _Pragma("unroll")
#define MESHWRIGHT_PRAGMA(text) _Pragma(#text)
#define MESHWRIGHT_UNROLL_BY(n) MESHWRIGHT_PRAGMA(unroll n)
#else
#define MESHWRIGHT_DEVICE inline
#define MESHWRIGHT_UNROLL
#define MESHWRIGHT_UNROLL_BY(n)
#endif

namespace meshwright::cuda {

enum class Elem : uint8_t { kFloat64, kFloat32, kFloat16, kBFloat16, kInt32 };

// Where an operand's elements are.
struct Ref {
  void* data = nullptr;
  Elem type = Elem::kFloat32;
};

struct alignas(16) Piece {  // what one instruction moves
  uint32_t words[4];
};

MESHWRIGHT_DEVICE float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
MESHWRIGHT_DEVICE uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// To nearest, ties to even; NaN stays NaN.
MESHWRIGHT_DEVICE uint16_t BFloat16Of(float value) {
  const uint32_t bits = ToBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
MESHWRIGHT_DEVICE float FromFloat16(uint16_t half) {
#ifdef __CUDACC__
  return __half2float(__ushort_as_half(half));
#else
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu,
                 fraction = half & 0x3ffu;
  if (exponent == 31) return FromBits(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  return FromBits(sign | (exponent + 112) << 23 | fraction << 13);
#endif
}
MESHWRIGHT_DEVICE uint16_t Float16Of(float value) {
#ifdef __CUDACC__
  return __half_as_ushort(__float2half_rn(value));
#else
  const uint32_t bits = ToBits(value), sign = bits >> 16 & 0x8000u;
  const float magnitude = FromBits(bits & 0x7fffffffu);
  if (magnitude != magnitude) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x1p-14f)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24f)));
  const uint32_t rounded = ToBits(magnitude) + 0xfffu + (ToBits(magnitude) >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
#endif
}

// Two elements in a word; the first is the lower half.
template <Elem kElem>
MESHWRIGHT_DEVICE uint32_t Pack(float low, float high) {
#ifdef __CUDACC__
  uint32_t word;
  if constexpr (kElem == Elem::kBFloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
#else
  if constexpr (kElem == Elem::kBFloat16) return BFloat16Of(low) | static_cast<uint32_t>(BFloat16Of(high)) << 16;
  return Float16Of(low) | static_cast<uint32_t>(Float16Of(high)) << 16;
#endif
}
template <Elem kElem>
MESHWRIGHT_DEVICE float Low(uint32_t word) {
  if constexpr (kElem == Elem::kBFloat16) return FromBits(word << 16);
  return FromFloat16(static_cast<uint16_t>(word & 0xffffu));
}
template <Elem kElem>
MESHWRIGHT_DEVICE float High(uint32_t word) {
  if constexpr (kElem == Elem::kBFloat16) return FromBits(word & 0xffff0000u);
  return FromFloat16(static_cast<uint16_t>(word >> 16));
}

template <class A>
MESHWRIGHT_DEVICE A Load(const Ref& ref, int64_t i) {
  switch (ref.type) {
    case Elem::kFloat64:
      return static_cast<A>(static_cast<const double*>(ref.data)[i]);
    case Elem::kFloat32:
      return static_cast<A>(static_cast<const float*>(ref.data)[i]);
    case Elem::kFloat16:
      return static_cast<A>(FromFloat16(static_cast<const uint16_t*>(ref.data)[i]));
    case Elem::kBFloat16:
      return static_cast<A>(FromBits(static_cast<uint32_t>(static_cast<const uint16_t*>(ref.data)[i]) << 16));
    case Elem::kInt32:
      return static_cast<A>(static_cast<const int32_t*>(ref.data)[i]);
  }
  return A(0);
}

template <class A>
MESHWRIGHT_DEVICE void Store(const Ref& ref, int64_t i, A value) {
  switch (ref.type) {
    case Elem::kFloat64:
      static_cast<double*>(ref.data)[i] = static_cast<double>(value);
      return;
    case Elem::kFloat32:
      static_cast<float*>(ref.data)[i] = static_cast<float>(value);
      return;
    case Elem::kFloat16:
      static_cast<uint16_t*>(ref.data)[i] = Float16Of(static_cast<float>(value));
      return;
    case Elem::kBFloat16:
      static_cast<uint16_t*>(ref.data)[i] = BFloat16Of(static_cast<float>(value));
      return;
    case Elem::kInt32:
      static_cast<int32_t*>(ref.data)[i] = static_cast<int32_t>(value);
      return;
  }
}

// Writes, or adds to what is there.
template <class A>
MESHWRIGHT_DEVICE void Put(const Ref& ref, int64_t i, A value, bool add) {
  Store(ref, i, add ? Load<A>(ref, i) + value : value);
}

// The points that some labels span, and where each operand has its element of a point, points being below `total`.
// Outermost dim first.
struct Places {
  static constexpr int kMaxDims = 8, kMaxOperands = 6;
  int32_t dims = 0;
  int64_t total = 1;
  int64_t extent[kMaxDims] = {};
  int64_t stride[kMaxDims][kMaxOperands] = {};

  template <int N>
  MESHWRIGHT_DEVICE void At(int64_t point, int64_t (&at)[N]) const {
    if (total <= UINT32_MAX) {  // whose divisions take a third of the time
      Find(static_cast<uint32_t>(point), at);
    } else {
      Find(static_cast<uint64_t>(point), at);
    }
  }
  // Whether an operand has one element for all neighbours.
  MESHWRIGHT_DEVICE bool Spreads(int operand) const { return dims > 0 && stride[dims - 1][operand] == 0; }

 private:
  template <class I, int N>
  MESHWRIGHT_DEVICE void Find(I point, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = dims - 1; d > 0; --d) {
      const I size = static_cast<I>(extent[d]), next = point / size;
      const auto i = static_cast<int64_t>(point - next * size);
      for (int k = 0; k < N; ++k) at[k] += i * stride[d][k];
      point = next;
    }
    for (int k = 0; k < N && dims > 0; ++k) at[k] += static_cast<int64_t>(point) * stride[0][k];
  }
};

// How a piece of a sequence is stored: its first place, and the order for so many ranks (ir/context_order.h, which is
// host code).
struct SequenceOrder {
  int64_t begin = 0, sequence = 1, ranks = 1;

  // In int32_t where the sequence fits: its divisions are fast.
  template <class I>
  MESHWRIGHT_DEVICE I PositionOf(I i) const {
    I place = static_cast<I>(begin) + i;
    if (ranks <= 1) return place;
    const I all = static_cast<I>(sequence), n = static_cast<I>(ranks);
    if (place < 0) place += all;
    const I length = all / (2 * n), stored = place / length;
    return (stored % 2 == 0 ? stored / 2 : 2 * n - 1 - stored / 2) * length + place % length;
  }
  // Where in a whole sequence what has that position is.
  MESHWRIGHT_DEVICE int64_t PlaceOf(int64_t position) const {
    if (ranks <= 1) return position;
    const int64_t length = sequence / (2 * ranks), piece = position / length;
    return (piece < ranks ? 2 * piece : 2 * (2 * ranks - 1 - piece) + 1) * length + position % length;
  }
};

struct LaunchShape {
  int64_t blocks = 1;
  int32_t threads = 256;
  int64_t shared = 0;  // bytes
};

// The points of a grid that this thread takes: from First, in steps of Step.
template <class Ctx>
MESHWRIGHT_DEVICE int64_t First(const Ctx& ctx) {
  return ctx.block() * ctx.threads() + ctx.thread();
}
template <class Ctx>
MESHWRIGHT_DEVICE int64_t Step(const Ctx& ctx) {
  return ctx.blocks() * ctx.threads();
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_SIMT_H_
