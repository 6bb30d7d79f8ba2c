// Fused attention on tensor cores, forward and backward, after FlashAttention-2 (Dao, arXiv:2307.08691): for float16
// and bfloat16, heads of at most 128 elements, and what only saves the log of each row's sum. A block of four warps
// holds a tile of queries, each warp some of its rows, and goes over tiles of keys and values, of which the next one is
// on its way while one is worked on; the gradient of keys and values has a block of its own per tile of keys, which
// goes over queries. Scores stay in registers. Sums have a fixed order and there are no atomics, at the price of
// computing the scores once more backward: seven products instead of five.
//
// attention.h does the same in tiles of any type and width; lower_tiles.cc chooses.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_ATTENTION_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_ATTENTION_H_

#include "executor/cuda/kernels/attention.h"
#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/warp_tiles.h"

namespace meshwright::cuda {

inline constexpr int kFlashTile = 128;  // no tile has more rows; tiles begin at multiples of their own rows
inline constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// What the three bodies have in common. Positions of a tile's rows must follow each other, and so must those of its
// keys: order and blocks of a ring break them at multiples of kFlashTile only.
struct FlashShape : AttentionShape {
  static constexpr int kFar = 1 << 20;

  Elem type = Elem::kBFloat16;
  // Heads whose blocks follow each other, so that what they read together stays in the L2 cache.
  int64_t section = 1;
  float score_scale = 1;  // that of the scores, times log2(e): exponentials are powers of 2
  int64_t query_stride = 0, key_stride = 0, y_stride = 0;  // from one position to the next, in elements
  int32_t reach = 2 * kFar;                                // `window`, or more than there is
  int32_t part_rows = 0, part_keys = 0;  // of a ring, rows and keys of a part, which see nothing of other parts; else 0

  // Of a block: its tile, and the number of its head among `heads`. Of a section the longest tiles come first.
  struct Place {
    int32_t tile, head;
  };
  MESHWRIGHT_DEVICE Place PlaceOf(int64_t block, int64_t tiles, int64_t heads) const {
    const auto n = static_cast<uint32_t>(block), each = static_cast<uint32_t>(tiles * section);
    const uint32_t first = n / each * static_cast<uint32_t>(section), rest = n % each;
    const uint32_t left = static_cast<uint32_t>(heads) - first;
    const uint32_t of_section = left < section ? left : static_cast<uint32_t>(section);
    return {static_cast<int32_t>(rest / of_section), static_cast<int32_t>(first + rest % of_section)};
  }

  struct Head {
    int32_t batch, group, head;
  };
  MESHWRIGHT_DEVICE Head HeadOf(int32_t i) const {
    const auto per_group = static_cast<int32_t>(q), groups = static_cast<int32_t>(g);
    return {i / per_group / groups, i / per_group % groups, i % per_group};
  }

  // Row i of the tile that begins at row r sees key j of the one at k if i + Offset(r, k) - reach < j <= i +
  // Offset(r, k). kFar: all of them, or with a minus none.
  MESHWRIGHT_DEVICE int Offset(int32_t r, int32_t k) const {
    if (part_rows > 0 && r / part_rows != k / part_keys) return -kFar;
    if (!causal) return kFar;
    const int32_t offset = row_order.PositionOf(r) - key_order.PositionOf(k);
    return offset > kFar ? kFar : offset < -kFar ? -kFar : offset;
  }
};

// Calls f with the variant of a body for its type and width.
template <template <Elem, int> class Variant, class Body, class F>
auto VisitFlash(const Body& body, const F& f) {
  if (body.a.type == Elem::kBFloat16) {
    if (body.a.d <= 64) return f(Variant<Elem::kBFloat16, 64>{body});
    return f(Variant<Elem::kBFloat16, 128>{body});
  }
  if (body.a.d <= 64) return f(Variant<Elem::kFloat16, 64>{body});
  return f(Variant<Elem::kFloat16, 128>{body});
}

MESHWRIGHT_DEVICE const uint16_t* At(const Ref& ref, int64_t element) {
  return static_cast<const uint16_t*>(ref.data) + element;
}
MESHWRIGHT_DEVICE uint16_t* AtMutable(const Ref& ref, int64_t element) {
  return static_cast<uint16_t*>(ref.data) + element;
}

// The first tile from `tile` on, in steps of `step`, of which `rows` of queries see something, and its Offset.
template <class OffsetOf>
MESHWRIGHT_DEVICE int32_t NextTile(int32_t tile, int32_t end, int step, int rows, const OffsetOf& offset_of,
                                   int& offset) {
  for (; tile < end; tile += step) {
    offset = offset_of(tile);
    if (offset > -rows) break;
  }
  return tile;
}

// Goes over tiles from `begin` to `end`: load(tile, stage) begins to copy one while work(tile, offset, stage) is done
// on the one before, stage 0 or 1. Tiles of which nothing is seen, by their Offset and `rows` of queries, are left out.
// What was copied before is there with the first tile, and all of it afterwards.
template <class Ctx, class OffsetOf, class Load, class Work>
MESHWRIGHT_DEVICE void OverTiles(Ctx& ctx, int32_t begin, int32_t end, int step, int rows, const OffsetOf& offset_of,
                                 const Load& load, const Work& work) {
  int offset = 0, next_offset = 0;
  int32_t tile = NextTile(begin, end, step, rows, offset_of, offset);
  if (tile < end) load(tile, 0u);
  for (uint32_t stage = 0; tile < end; stage ^= 1) {
    const int32_t then = NextTile(tile + step, end, step, rows, offset_of, next_offset);
    ctx.WaitCopies();
    ctx.Sync();  // it has arrived for all, and nobody reads the other stage any more
    if (then < end) load(then, stage ^ 1);
    work(tile, offset, stage);
    tile = then;
    offset = next_offset;
  }
  ctx.WaitCopies();
  ctx.Sync();
}

// Minus infinity where a row does not see a column: `offset` and `reach` as in FlashShape, of the rows and columns of
// `acc`, and `columns` that there are.
template <int kM, int kN>
MESHWRIGHT_DEVICE void Hide(int lane, int offset, int reach, int64_t columns, float (&acc)[kM][kN][4]) {
  const int left = columns < kN * 8 ? static_cast<int>(columns) : kN * 8;
  if (offset >= kN * 8 - 1 && kM * 16 - 1 + offset < reach && left == kN * 8) return;
  MESHWRIGHT_UNROLL
  for (int m = 0; m < kM; ++m) {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n) {
      MESHWRIGHT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = m * 16 + e / 2 * 8 + lane / 4, column = n * 8 + lane % 4 * 2 + e % 2;
        const int before = row + offset - column;
        if (before < 0 || before >= reach || column >= left) acc[m][n][e] = -INFINITY;
      }
    }
  }
}

// Scores s of 16 rows become exponentials relative to each row's largest so far; what was summed before shrinks with
// it.
template <int kN, class Ctx>
MESHWRIGHT_DEVICE void Exponentials(Ctx& ctx, float scale, float (&s)[kN][4], float (&top)[2], float (&sum)[2],
                                    float (&shrink)[2]) {
  MESHWRIGHT_UNROLL
  for (int half = 0; half < 2; ++half) {
    float now = top[half];
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n) now = fmaxf(now, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    now = fmaxf(now, ctx.ShuffleXor(now, 1));
    now = fmaxf(now, ctx.ShuffleXor(now, 2));
    const float base = now == -INFINITY ? 0.0f : now * scale;  // a row that has seen nothing yet
    shrink[half] = Exp2(top[half] * scale - base);
    float added = 0.0f;
    MESHWRIGHT_UNROLL
    for (int n = 0; n < kN; ++n) {
      float &x = s[n][2 * half], &y = s[n][2 * half + 1];
      x = Exp2(x * scale - base);
      y = Exp2(y * scale - base);
      added += x + y;
    }
    sum[half] = sum[half] * shrink[half] + added;
    top[half] = now;
  }
}

template <int kN, class Ctx>
MESHWRIGHT_DEVICE void Shrink(Ctx& ctx, const float (&shrink)[2], float (&o)[kN][4]) {
  if (!ctx.Any(shrink[0] != 1.0f || shrink[1] != 1.0f)) return;  // mostly no row of the warp has a new largest score
  MESHWRIGHT_UNROLL
  for (int n = 0; n < kN; ++n) {
    MESHWRIGHT_UNROLL
    for (int e = 0; e < 4; ++e) o[n][e] *= shrink[e / 2];
  }
}

// queries, keys -> y, saved: a block per (tile of queries, head).
struct FlashForward {
  FlashShape a;
  Ref queries, keys, y, saved;

  template <class F>
  auto Visit(const F& f) const;

 protected:
  // Writes what a warp has summed for its rows, from `row` on, by way of its own 16 * kM rows at `tile`.
  template <Elem kElem, int kWidth, int kM, class Ctx>
  MESHWRIGHT_DEVICE void Finish(Ctx& ctx, uint32_t tile, const float (&o)[kM][kWidth / 8][4], const float (&top)[kM][2],
                                const float (&sum)[kM][2], int32_t row, FlashShape::Head head) const {
    using std::log;
    const int lane = LaneOf(ctx);
    float factor[kM][2];
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) {
      MESHWRIGHT_UNROLL
      for (int half = 0; half < 2; ++half) {
        float all = sum[m][half];
        all += ctx.ShuffleXor(all, 1);
        all += ctx.ShuffleXor(all, 2);
        // A row that sees no key of a ring's block: nothing, and the log of nothing is kept.
        factor[m][half] = all > 0.0f ? Inverse(all) : 0.0f;
        const int32_t i = row + m * 16 + half * 8 + lane / 4;
        if (lane % 4 == 0 && i < a.s) {
          Store(saved, a.Saved(i, head.batch, head.group, head.head), top[m][half] * a.score_scale * kLn2 + log(all));
        }
      }
    }
    WriteRows<kElem, kWidth>(ctx, tile, o, factor, AtMutable(y, a.Y(row, head.batch, head.group, head.head)),
                             a.y_stride, a.s - row, a.d, false);
  }
};

template <Elem kElem, int kWidth>
struct FlashForwardOf : FlashForward {
  static constexpr int kThreads = 128, kBlocksPerSm = 2;
  static constexpr int kM = 2, kWarpRows = kM * 16, kRows = 4 * kWarpRows, kKeys = kWidth == 64 ? 64 : 32,
                       kN = kKeys / 8;
  static constexpr int64_t kShared = (kRows + 4 * kKeys) * kRowBytes<kWidth>;
  int64_t Blocks() const { return (a.s + kRows - 1) / kRows * a.b * a.g * a.q; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t tiles = (a.s + kRows - 1) / kRows;
    const FlashShape::Place place = a.PlaceOf(ctx.block(), tiles, a.b * a.g * a.q);
    const auto first = static_cast<int32_t>((tiles - 1 - place.tile) * kRows);
    const FlashShape::Head head = a.HeadOf(place.head);
    const int32_t first_later = Opaque(first), head_later = Opaque(place.head);
    constexpr uint32_t kKeyTile = kKeys * kRowBytes<kWidth>, kKeysAt = kRows * kRowBytes<kWidth>;
    const uint16_t* const k = At(keys, a.Key(0, head.batch, head.group, 0));
    const auto load = [&](int32_t key, uint32_t stage) {
      const uint32_t to = kKeysAt + stage * 2 * kKeyTile;
      const uint16_t* const from = k + key * a.key_stride;
      CopyRows<kKeys, kWidth, kThreads>(ctx, to, from, a.key_stride, a.keys - key, a.d);
      CopyRows<kKeys, kWidth, kThreads>(ctx, to + kKeyTile, from + a.d, a.key_stride, a.keys - key, a.d);
    };
    float o[kM][kWidth / 8][4], top[kM][2], sum[kM][2];
    Clear(o);
    MESHWRIGHT_UNROLL
    for (int m = 0; m < kM; ++m) {
      top[m][0] = top[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0.0f;
    }
    CopyRows<kRows, kWidth, kThreads>(ctx, 0, At(queries, a.Query(first, head.batch, head.group, head.head)),
                                      a.query_stride, a.s - first, a.d);
    OverTiles(
        ctx, static_cast<int32_t>(a.KeysFrom(first, kKeys)), static_cast<int32_t>(a.KeysUntil(first + kRows)), kKeys,
        kRows, [&](int32_t key) { return a.Offset(first, key); }, load,
        [&](int32_t key, int offset, uint32_t stage) {
          const int warp_row = WarpOf(ctx) * kWarpRows;
          if (offset + warp_row <= -kWarpRows) return;
          const uint32_t own_rows = warp_row * kRowBytes<kWidth>, at = kKeysAt + stage * 2 * kKeyTile;
          float s[kM][kN][4];
          Clear(s);
          MultiplyByRows<kElem, kWidth>(ctx, own_rows, at, s);
          Hide(LaneOf(ctx), offset + warp_row, a.reach, a.keys - key, s);
          uint32_t p[kM][kN / 2][4];
          MESHWRIGHT_UNROLL
          for (int m = 0; m < kM; ++m) {
            float shrink[2];
            Exponentials(ctx, a.score_scale, s[m], top[m], sum[m], shrink);
            PackRows<kElem>(s[m], p[m]);
            Shrink(ctx, shrink, o[m]);
          }
          MultiplyByColumns<kElem, kWidth>(ctx, p, at + kKeyTile, o);
        });
    const int warp_row = WarpOf(ctx) * kWarpRows;
    Finish<kElem, kWidth>(ctx, warp_row * kRowBytes<kWidth>, o, top, sum, first_later + warp_row, a.HeadOf(head_later));
  }
};

template <class F>
auto FlashForward::Visit(const F& f) const {
  return VisitFlash<FlashForwardOf>(*this, f);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_ATTENTION_H_
