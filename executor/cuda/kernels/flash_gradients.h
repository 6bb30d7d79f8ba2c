// The gradients of flash_attention.h: first that of the queries, which also leaves what the other needs of each row,
// then that of keys and values.
//
//   p = 2^(score_scale q k^T - log)    ds = p * (dy v^T - dot)    dq = scale ds k    dk = scale ds^T q    dv = p^T dy
//
// where `log` is that of the row's sum, to base 2, and `dot` the sum of dy * y over the row.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_GRADIENTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_GRADIENTS_H_

#include "executor/cuda/kernels/flash_attention.h"

namespace meshwright::cuda {

// Logs and dots of all rows, in float32: head by head, rows filled up to whole tiles. Rows beyond the sequence, and
// those that see nothing, have the log infinity, so that all their p are 0.
struct RowSums {
  float* data = nullptr;
  int64_t rows = 0, heads = 0;  // `rows` is a multiple of kFlashTile

  static int64_t Bytes(int64_t rows, int64_t heads) { return 2 * rows * heads * 4; }
  MESHWRIGHT_DEVICE float* Log(int64_t head) const { return data + head * rows; }
  MESHWRIGHT_DEVICE float* Dot(int64_t head) const { return data + (heads + head) * rows; }
};

// dy, queries, keys, y, saved -> the gradient of queries, and `sums`: a block per (tile of queries, head).
struct FlashQueryGradient {
  FlashShape a;
  bool add = false;
  Ref dy, queries, keys, y, saved, gradient;
  RowSums sums;

  template <class F>
  auto Visit(const F& f) const;

 protected:
  // Logs and dots of the warp's rows, to memory for all, and those of this lane's rows.
  template <Elem kElem, int kWidth, int kM, class Ctx>
  MESHWRIGHT_DEVICE void Sums(Ctx& ctx, int32_t row, int32_t number, float (&log)[kM][2], float (&dot)[kM][2]) const {
    constexpr int kWarpRows = kM * 16, kPieces = kWidth / 8, kStep = 32 / kPieces;
    const FlashShape::Head head = a.HeadOf(number);
    const int lane = LaneOf(ctx), piece = lane % kPieces;
    float *const logs = sums.Log(number) + row, *const dots = sums.Dot(number) + row;
    MESHWRIGHT_UNROLL
    for (int i = 0; i < kWarpRows / kStep; ++i) {
      const int own = i * kStep + lane / kPieces;
      float sum = 0.0f;
      if (row + own < a.s && piece * 8 < a.d) {
        const int64_t at = a.Y(row + own, head.batch, head.group, head.head) + piece * 8;
        const Piece d = *reinterpret_cast<const Piece*>(At(dy, at)), r = *reinterpret_cast<const Piece*>(At(y, at));
        MESHWRIGHT_UNROLL
        for (int w = 0; w < 4; ++w) {
          sum += Low<kElem>(d.words[w]) * Low<kElem>(r.words[w]) + High<kElem>(d.words[w]) * High<kElem>(r.words[w]);
        }
      }
      MESHWRIGHT_UNROLL
      for (int mask = kPieces / 2; mask > 0; mask /= 2) sum += ctx.ShuffleXor(sum, mask);
      if (piece == 0) dots[own] = sum;
    }
    static_assert(kWarpRows <= 32, "a lane has a row");
    float of_row = INFINITY;
    if (lane < kWarpRows && row + lane < a.s)
      of_row = Load<float>(saved, a.Saved(row + lane, head.batch, head.group, head.head)) * kLog2E;
    if (lane < kWarpRows) logs[lane] = of_row == -INFINITY ? INFINITY : of_row;
    ctx.SyncWarp();
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) {
      MESHWRIGHT_UNROLL
      for (int half = 0; half < 2; ++half) {
        log[m][half] = logs[m * 16 + half * 8 + lane / 4];
        dot[m][half] = dots[m * 16 + half * 8 + lane / 4];
      }
    }
  }

  // Writes a warp's part of the gradient, from `row` on, by way of its own 16 * kM rows at `tile`.
  template <Elem kElem, int kWidth, int kM, class Ctx>
  MESHWRIGHT_DEVICE void Write(Ctx& ctx, uint32_t tile, const float (&dq)[kM][kWidth / 8][4], int32_t row,
                               FlashShape::Head head) const {
    float factor[kM][2];
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = static_cast<float>(a.scale);
    WriteRows<kElem, kWidth>(ctx, tile, dq, factor,
                             AtMutable(gradient, a.Query(row, head.batch, head.group, head.head)), a.query_stride,
                             a.s - row, a.d, add);
  }
};

template <Elem kElem, int kWidth>
struct FlashQueryGradientOf : FlashQueryGradient {
  static constexpr int kThreads = 128, kBlocksPerSm = 2;
  static constexpr int kM = 2, kWarpRows = kM * 16, kRows = 4 * kWarpRows;
  static constexpr int kKeys = kWidth == 64 ? 64 : 32, kN = kKeys / 8;
  static constexpr int64_t kShared = (2 * kRows + 4 * kKeys) * kRowBytes<kWidth>;
  int64_t Blocks() const { return (a.s + kRows - 1) / kRows * a.b * a.g * a.q; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t tiles = (a.s + kRows - 1) / kRows;
    const FlashShape::Place place = a.PlaceOf(ctx.block(), tiles, a.b * a.g * a.q);
    const auto first = static_cast<int32_t>((tiles - 1 - place.tile) * kRows);
    const FlashShape::Head head = a.HeadOf(place.head);
    const int32_t first_later = Opaque(first), head_later = Opaque(place.head);
    constexpr uint32_t kKeyTile = kKeys * kRowBytes<kWidth>, kDyAt = kRows * kRowBytes<kWidth>, kKeysAt = 2 * kDyAt;
    const uint16_t* const k = At(keys, a.Key(0, head.batch, head.group, 0));
    CopyRows<kRows, kWidth, kThreads>(ctx, 0, At(queries, a.Query(first, head.batch, head.group, head.head)),
                                      a.query_stride, a.s - first, a.d);
    CopyRows<kRows, kWidth, kThreads>(ctx, kDyAt, At(dy, a.Y(first, head.batch, head.group, head.head)), a.y_stride,
                                      a.s - first, a.d);
    float log[kM][2], dot[kM][2], dq[kM][kWidth / 8][4];
    Sums<kElem, kWidth>(ctx, first + WarpOf(ctx) * kWarpRows, place.head, log, dot);
    Clear(dq);
    OverTiles(
        ctx, static_cast<int32_t>(a.KeysFrom(first, kKeys)), static_cast<int32_t>(a.KeysUntil(first + kRows)), kKeys,
        kRows, [&](int32_t key) { return a.Offset(first, key); },
        [&](int32_t key, uint32_t stage) {
          const uint32_t to = kKeysAt + stage * 2 * kKeyTile;
          const uint16_t* const from = k + key * a.key_stride;
          CopyRows<kKeys, kWidth, kThreads>(ctx, to, from, a.key_stride, a.keys - key, a.d);
          CopyRows<kKeys, kWidth, kThreads>(ctx, to + kKeyTile, from + a.d, a.key_stride, a.keys - key, a.d);
        },
        [&](int32_t key, int offset, uint32_t stage) {
          const int warp_row = WarpOf(ctx) * kWarpRows;
          if (offset + warp_row <= -kWarpRows) return;
          const uint32_t own_rows = warp_row * kRowBytes<kWidth>, at = kKeysAt + stage * 2 * kKeyTile;
          float s[kM][kN][4], ds[kM][kN][4];
          Clear(s);
          MultiplyByRows<kElem, kWidth>(ctx, own_rows, at, s);
          Hide(LaneOf(ctx), offset + warp_row, a.reach, a.keys - key, s);
          Clear(ds);
          MultiplyByRows<kElem, kWidth>(ctx, kDyAt + own_rows, at + kKeyTile, ds);
          MESHWRIGHT_UNROLL
          for (int m = 0; m < kM; ++m) {
            MESHWRIGHT_UNROLL
            for (int n = 0; n < kN; ++n) {
              MESHWRIGHT_UNROLL
              for (int e = 0; e < 4; ++e) {
                ds[m][n][e] = Exp2(s[m][n][e] * a.score_scale - log[m][e / 2]) * (ds[m][n][e] - dot[m][e / 2]);
              }
            }
          }
          uint32_t packed[kM][kN / 2][4];
          PackAll<kElem>(ds, packed);
          MultiplyByColumns<kElem, kWidth>(ctx, packed, at, dq);
        });
    const int32_t warp_row = WarpOf(ctx) * kWarpRows;
    Write<kElem, kWidth>(ctx, warp_row * kRowBytes<kWidth>, dq, first_later + warp_row, a.HeadOf(head_later));
  }
};

// dy, queries, keys, sums -> the gradient of keys and values: a block per (tile of keys, group), over all its heads.
struct FlashKeyGradient {
  FlashShape a;  // its sections count groups
  bool add = false;
  Ref dy, queries, keys, gradient;
  RowSums sums;

  template <class F>
  auto Visit(const F& f) const;

 protected:
  struct alignas(8) Pair {
    float of[2];
  };

  // As Hide, but rows of `acc` are keys and its columns queries: key i is seen by query j if j + offset - reach < i <=
  // j + offset.
  template <int kM, int kN>
  static MESHWRIGHT_DEVICE void HideRows(int lane, int offset, int reach, float (&acc)[kM][kN][4]) {
    if (offset >= kM * 16 - 1 && kN * 8 - 1 + offset < reach) return;
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) {
      MESHWRIGHT_UNROLL
      for (int n = 0; n < kN; ++n) {
        MESHWRIGHT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int key = m * 16 + e / 2 * 8 + lane / 4, row = n * 8 + lane % 4 * 2 + e % 2;
          const int before = row + offset - key;
          if (before < 0 || before >= reach) acc[m][n][e] = -INFINITY;
        }
      }
    }
  }

  template <Elem kElem, int kWidth, int kM, class Ctx>
  MESHWRIGHT_DEVICE void Write(Ctx& ctx, uint32_t tile, const float (&acc)[kM][kWidth / 8][4], float scale, int32_t key,
                               int64_t at) const {
    float factor[kM][2];
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = scale;
    WriteRows<kElem, kWidth>(ctx, tile, acc, factor, AtMutable(gradient, at), a.key_stride, a.keys - key, a.d, add);
  }
};

template <Elem kElem, int kWidth>
struct FlashKeyGradientOf : FlashKeyGradient {
  static constexpr int kThreads = 128, kBlocksPerSm = 2;
  static constexpr int kM = kWidth == 64 ? 2 : 1, kWarpKeys = kM * 16, kKeys = 4 * kWarpKeys;
  static constexpr int kRows = kWidth == 64 ? 32 : 64, kN = kRows / 8;
  static constexpr int64_t kShared = (2 * kKeys + 4 * kRows) * kRowBytes<kWidth> + 2 * 2 * kRows * 4;
  int64_t Blocks() const { return (a.keys + kKeys - 1) / kKeys * a.b * a.g; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const FlashShape::Place place = a.PlaceOf(ctx.block(), (a.keys + kKeys - 1) / kKeys, a.b * a.g);
    const int32_t first = place.tile * kKeys, end = static_cast<int32_t>(a.RowsUntil(first + kKeys));
    const int32_t groups = static_cast<int32_t>(a.g), group = place.head % groups, batch = place.head / groups;
    const int32_t first_later = Opaque(first), place_later = Opaque(place.head);
    constexpr uint32_t kTile = kRows * kRowBytes<kWidth>, kValuesAt = kKeys * kRowBytes<kWidth>;
    constexpr uint32_t kRowsAt = 2 * kValuesAt, kSumsAt = kRowsAt + 4 * kTile, kSums = kRows * 4;
    const uint16_t* const k = At(keys, a.Key(first, batch, group, 0));
    CopyRows<kKeys, kWidth, kThreads>(ctx, 0, k, a.key_stride, a.keys - first, a.d);
    CopyRows<kKeys, kWidth, kThreads>(ctx, kValuesAt, k + a.d, a.key_stride, a.keys - first, a.d);
    float dk[kM][kWidth / 8][4], dv[kM][kWidth / 8][4];
    Clear(dk);
    Clear(dv);
    for (int32_t head = 0; head < a.q; ++head) {
      OverTiles(
          ctx, static_cast<int32_t>(a.RowsFrom(first, kRows)), end, kRows, kRows,
          [&](int32_t row) { return a.Offset(row, first); },
          [&](int32_t row, uint32_t stage) {
            const uint32_t to = kRowsAt + stage * 2 * kTile;
            CopyRows<kRows, kWidth, kThreads>(ctx, to, At(queries, a.Query(row, batch, group, head)), a.query_stride,
                                              a.s - row, a.d);
            CopyRows<kRows, kWidth, kThreads>(ctx, to + kTile, At(dy, a.Y(row, batch, group, head)), a.y_stride,
                                              a.s - row, a.d);
            const int thread = Opaque(ctx.thread()), piece = thread % (kRows / 4), which = thread / (kRows / 4);
            const int64_t number = place.head * a.q + head;
            const float* const from = (which == 0 ? sums.Log(number) : sums.Dot(number)) + row + piece * 4;
            if (which < 2) ctx.CopyAsync(kSumsAt + stage * 2 * kSums + thread * 16, from, true);
          },
          [&](int32_t, int offset, uint32_t stage) {
            const int warp_key = WarpOf(ctx) * kWarpKeys, lane = LaneOf(ctx);
            if (kRows - 1 + offset < warp_key) return;  // the last row does not see the warp's first key
            const uint32_t own_keys = warp_key * kRowBytes<kWidth>, at = kRowsAt + stage * 2 * kTile;
            const uint32_t sums_at = kSumsAt + stage * 2 * kSums + lane % 4 * 8;
            float p[kM][kN][4], ds[kM][kN][4];
            uint32_t packed[kM][kN / 2][4];
            Clear(p);
            MultiplyByRows<kElem, kWidth>(ctx, own_keys, at, p);
            HideRows(lane, offset - warp_key, a.reach, p);
            MESHWRIGHT_UNROLL
            for (int n = 0; n < kN; ++n) {
              const Pair log = ctx.template Get<Pair>(sums_at + n * 32);
              MESHWRIGHT_UNROLL
              for (int m = 0; m < kM; ++m) {
                MESHWRIGHT_UNROLL
                for (int e = 0; e < 4; ++e) p[m][n][e] = Exp2(p[m][n][e] * a.score_scale - log.of[e % 2]);
              }
            }
            PackAll<kElem>(p, packed);
            MultiplyByColumns<kElem, kWidth>(ctx, packed, at + kTile, dv);
            Clear(ds);
            MultiplyByRows<kElem, kWidth>(ctx, kValuesAt + own_keys, at + kTile, ds);
            MESHWRIGHT_UNROLL
            for (int n = 0; n < kN; ++n) {
              const Pair dot = ctx.template Get<Pair>(sums_at + kSums + n * 32);
              MESHWRIGHT_UNROLL
              for (int m = 0; m < kM; ++m) {
                MESHWRIGHT_UNROLL
                for (int e = 0; e < 4; ++e) ds[m][n][e] = p[m][n][e] * (ds[m][n][e] - dot.of[e % 2]);
              }
            }
            PackAll<kElem>(ds, packed);
            MultiplyByColumns<kElem, kWidth>(ctx, packed, at, dk);
          });
    }
    const int32_t warp_key = WarpOf(ctx) * kWarpKeys, key = first_later + warp_key;
    const uint32_t own_keys = warp_key * kRowBytes<kWidth>;
    const int64_t to = a.Key(key, place_later / groups, place_later % groups, 0);
    Write<kElem, kWidth>(ctx, own_keys, dk, static_cast<float>(a.scale), key, to);
    Write<kElem, kWidth>(ctx, kValuesAt + own_keys, dv, 1.0f, key, to + a.d);
  }
};

template <class F>
auto FlashQueryGradient::Visit(const F& f) const {
  return VisitFlash<FlashQueryGradientOf>(*this, f);
}
template <class F>
auto FlashKeyGradient::Visit(const F& f) const {
  return VisitFlash<FlashKeyGradientOf>(*this, f);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_GRADIENTS_H_
