// What bodies for tensor cores are written in: tiles of 16-bit elements in shared memory, and products of them by
// warps.
//
// Such a body has a fixed number of threads, and its context offers, beside what simt.h says,
//   CopyAsync(to, from, there)     16 bytes from global to shared memory, or zeros: cp.async
//   WaitCopies()                   this thread's copies have arrived; with Sync behind it, those of all threads have
//   LoadMatrices(r, at)            ldmatrix.x4, and LoadMatricesTransposed: ldmatrix.x4.trans
//   Mma<kElem>(acc, a, b0, b1)     mma.sync.m16n8k16, 16-bit elements, accumulated in float32
//   ShuffleXor(x, mask), Any(x), SyncWarp()
//   Get<T>(at), Put(at, x)         an element of shared memory
// Places in shared memory are in bytes from its beginning. All lanes of a warp call these alike, but for CopyAsync, Get
// and Put.
//
// Fragments are as the PTX ISA has them (9.7.14.5.8, "Matrix fragments for mma.m16n8k16", and 9.7.14.5.15, "ldmatrix").
// With g = lane / 4 and t = lane % 4, an accumulator's four elements are (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t
// + 1). Two accumulators side by side are, packed in twos, the left operand of a product: a tile of scores never leaves
// the registers (FlashAttention-2, Dao, arXiv:2307.08691).
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARP_TILES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARP_TILES_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// 2^x, to 2 units in the last place; 0 of minus infinity.
MESHWRIGHT_DEVICE float Exp2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// 1 / x, to 1 unit in the last place.
MESHWRIGHT_DEVICE float Inverse(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// x, of which the compiler knows nothing: what is made of it is made again where it is needed. Else all places of a
// tile are computed before the loop over tiles, and there are no registers left for them.
MESHWRIGHT_DEVICE int32_t Opaque(int32_t x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}
template <class Ctx>
MESHWRIGHT_DEVICE int LaneOf(const Ctx& ctx) {
  return Opaque(ctx.thread()) % 32;
}
template <class Ctx>
MESHWRIGHT_DEVICE int WarpOf(const Ctx& ctx) {
  return Opaque(ctx.thread()) / 32;
}

// A tile has rows of kWidth elements, 64 or 128, and lies at a multiple of their size. The pieces of each row are
// exchanged by the row's number, so that a piece of eight rows one below the other is in all banks.
template <int kWidth>
inline constexpr uint32_t kRowBytes = kWidth * 2;
template <int kWidth>
MESHWRIGHT_DEVICE uint32_t PieceAt(uint32_t tile, int row, int piece) {
  return tile + static_cast<uint32_t>(row) * kRowBytes<kWidth> + (static_cast<uint32_t>(piece ^ (row & 7)) << 4);
}

// Begins to copy `rows` rows of `width` elements (a multiple of 8), `stride` elements apart, into a tile of kRows; what
// it has beyond them becomes 0.
template <int kRows, int kWidth, int kThreads, class Ctx>
MESHWRIGHT_DEVICE void CopyRows(Ctx& ctx, uint32_t tile, const uint16_t* from, int64_t stride, int64_t rows,
                                int64_t width) {
  constexpr int kPieces = kWidth / 8, kStep = kThreads / kPieces;  // rows at a time; a multiple of 8
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int thread = Opaque(ctx.thread()), piece = thread % kPieces, first = thread / kPieces;
  const uint32_t to = PieceAt<kWidth>(tile, first, piece);
  const bool inside = piece * 8 < width;
  const int there = static_cast<int>(rows < kRows ? rows : kRows) - first;
  from += first * stride + piece * 8;
  MESHWRIGHT_UNROLL
  for (int i = 0; i < kRows / kStep; ++i) {
    ctx.CopyAsync(to + i * kStep * kRowBytes<kWidth>, from + i * kStep * stride, inside && i * kStep < there);
  }
}

// acc[m][n] += (16 rows of x, the m-th from `x` on) times (8 rows of y, the n-th)^T, over the width.
template <Elem kElem, int kWidth, int kM, int kN, class Ctx>
MESHWRIGHT_DEVICE void MultiplyByRows(Ctx& ctx, uint32_t x, uint32_t y, float (&acc)[kM][kN][4]) {
  static_assert(kN % 2 == 0);
  const int lane = LaneOf(ctx);
  const uint32_t x_at = PieceAt<kWidth>(x, lane % 16, lane / 16);
  const uint32_t y_at = PieceAt<kWidth>(y, lane % 8 + lane / 16 * 8, lane / 8 % 2);
  MESHWRIGHT_UNROLL_BY(4)
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kM][4];
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) ctx.LoadMatrices(a[m], (x_at ^ k << 5) + m * 16 * kRowBytes<kWidth>);
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      ctx.LoadMatrices(b, (y_at ^ k << 5) + n * 8 * kRowBytes<kWidth>);
      MESHWRIGHT_UNROLL
      for (int m = 0; m < kM; ++m) {
        ctx.template Mma<kElem>(acc[m][n], a[m], b[0], b[1]);
        ctx.template Mma<kElem>(acc[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// acc[m] += a[m] times y, of which kK * 16 rows are taken.
template <Elem kElem, int kWidth, int kM, int kK, class Ctx>
MESHWRIGHT_DEVICE void MultiplyByColumns(Ctx& ctx, const uint32_t (&a)[kM][kK][4], uint32_t y,
                                         float (&acc)[kM][kWidth / 8][4]) {
  const int lane = LaneOf(ctx);
  const uint32_t y_at = PieceAt<kWidth>(y, lane % 16, lane / 16);
  MESHWRIGHT_UNROLL
  for (int k = 0; k < kK; ++k) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[4];
      ctx.LoadMatricesTransposed(b, (y_at ^ n << 4) + k * 16 * kRowBytes<kWidth>);
      MESHWRIGHT_UNROLL
      for (int m = 0; m < kM; ++m) {
        ctx.template Mma<kElem>(acc[m][n], a[m][k], b[0], b[1]);
        ctx.template Mma<kElem>(acc[m][n + 1], a[m][k], b[2], b[3]);
      }
    }
  }
}

// Accumulators as left operands of the next product.
template <Elem kElem, int kN>
MESHWRIGHT_DEVICE void PackRows(const float (&acc)[kN][4], uint32_t (&a)[kN / 2][4]) {
  MESHWRIGHT_UNROLL
  for (int n = 0; n < kN; ++n) {
    a[n / 2][n % 2 * 2] = Pack<kElem>(acc[n][0], acc[n][1]);
    a[n / 2][n % 2 * 2 + 1] = Pack<kElem>(acc[n][2], acc[n][3]);
  }
}
template <Elem kElem, int kM, int kN>
MESHWRIGHT_DEVICE void PackAll(const float (&acc)[kM][kN][4], uint32_t (&a)[kM][kN / 2][4]) {
  MESHWRIGHT_UNROLL
  for (int m = 0; m < kM; ++m) PackRows<kElem>(acc[m], a[m]);
}

template <int kM, int kN>
MESHWRIGHT_DEVICE void Clear(float (&acc)[kM][kN][4]) {
  MESHWRIGHT_UNROLL
  for (int m = 0; m < kM; ++m) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n) acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0.0f;
  }
}

// Writes a warp's accumulators, times `factor` of each of its rows, to `rows` rows of `width` elements; by way of
// `tile`, shared memory for the warp's own 16 * kM rows, whole pieces at a time.
template <Elem kElem, int kWidth, int kM, class Ctx>
MESHWRIGHT_DEVICE void WriteRows(Ctx& ctx, uint32_t tile, const float (&acc)[kM][kWidth / 8][4],
                                 const float (&factor)[kM][2], uint16_t* to, int64_t stride, int64_t rows,
                                 int64_t width, bool add) {
  const int lane = LaneOf(ctx);
  ctx.SyncWarp();  // who reads the tile is done
  MESHWRIGHT_UNROLL
  for (int m = 0; m < kM; ++m) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kWidth / 8; ++n) {
      MESHWRIGHT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = PieceAt<kWidth>(tile, m * 16 + half * 8 + lane / 4, n) + lane % 4 * 4;
        ctx.Put(at, Pack<kElem>(acc[m][n][2 * half] * factor[m][half], acc[m][n][2 * half + 1] * factor[m][half]));
      }
    }
  }
  ctx.SyncWarp();
  constexpr int kPieces = kWidth / 8, kStep = 32 / kPieces;
  const int piece = lane % kPieces;
  MESHWRIGHT_UNROLL
  for (int i = 0; i < kM * 16 / kStep; ++i) {
    const int row = i * kStep + lane / kPieces;
    if (row >= rows || piece * 8 >= width) continue;
    Piece value = ctx.template Get<Piece>(PieceAt<kWidth>(tile, row, piece));
    Piece* const place = reinterpret_cast<Piece*>(to + row * stride + piece * 8);
    if (add) {
      const Piece before = *place;
      for (int w = 0; w < 4; ++w) {
        value.words[w] = Pack<kElem>(Low<kElem>(before.words[w]) + Low<kElem>(value.words[w]),
                                     High<kElem>(before.words[w]) + High<kElem>(value.words[w]));
      }
    }
    *place = value;
  }
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARP_TILES_H_
