// Fused attention for Hopper's tensor cores, forward, after FlashAttention-3 (Shah et al., arXiv:2407.08608). A block
// has a warpgroup that copies and two that compute, each of them 64 rows of queries. Slots in shared memory, two for
// tiles of keys and two for tiles of values, go from one to the others and back by named barriers. A warpgroup starts
// the scores of the next tile and the weighted values of this one, and makes exponentials of the former while the
// latter are computed; the two take turns in starting, so that one's exponentials fall into the other's products.
//
// flash_attention.h does the same on any tensor cores; lower_tiles.cc chooses.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_H_

#include "executor/cuda/kernels/flash_attention.h"
#include "executor/cuda/kernels/warpgroup_tiles.h"

namespace meshwright::cuda {

struct HopperForward : FlashForward {
  template <class F>
  auto Visit(const F& f) const;
};

template <Elem kElem, int kWidth>
struct HopperForwardOf : HopperForward {
  static constexpr int kGroups = 2, kComputing = kGroups * kWarpgroup, kThreads = kWarpgroup + kComputing;
  static constexpr int kRows = kGroups * kGroupRows, kKeys = 128, kN = kKeys / 8, kStages = 2;
  static constexpr int kCopyRegisters = 40, kRegisters = 232;
  static_assert(kWarpgroup * kCopyRegisters + kComputing * kRegisters <= 65536, "more registers than an SM has");
  static constexpr uint32_t kQueryTile = kGroupRows * kRowBytes<kWidth>, kKeyTile = kKeys * kRowBytes<kWidth>;
  static constexpr uint32_t kSlotsAt = kGroups * kQueryTile;
  static constexpr int64_t kShared = kSlotsAt + 2 * kStages * kKeyTile;
  int64_t Blocks() const { return (a.s + kRows - 1) / kRows * a.b * a.g * a.q; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t tiles = (a.s + kRows - 1) / kRows;
    const FlashShape::Place place = a.PlaceOf(ctx.block(), tiles, a.b * a.g * a.q);
    const auto first = static_cast<int32_t>((tiles - 1 - place.tile) * kRows);
    if (ctx.thread() < kWarpgroup) {
      ctx.template KeepRegisters<kCopyRegisters>();
      CopyAll(ctx, first, a.HeadOf(place.head));
    } else {
      ctx.template TakeRegisters<kRegisters>();
      Compute(ctx, first, a.HeadOf(place.head));
    }
  }

 private:
  enum Which : int { kOfKeys, kOfValues };

  // Of tile `number` of those that are seen. The barriers: a slot is full for a warpgroup, a slot is empty, it is a
  // warpgroup's turn.
  static MESHWRIGHT_DEVICE int Slot(Which which, int number) { return which * kStages + number % kStages; }
  static MESHWRIGHT_DEVICE uint32_t SlotAt(int slot) { return kSlotsAt + static_cast<uint32_t>(slot) * kKeyTile; }
  static constexpr int kSlots = 2 * kStages;
  static MESHWRIGHT_DEVICE int Full(int slot, int group) { return 1 + group * kSlots + slot; }
  static MESHWRIGHT_DEVICE int Empty(int slot) { return 1 + kGroups * kSlots + slot; }
  static MESHWRIGHT_DEVICE int Turn(int group) { return 1 + (kGroups + 1) * kSlots + group; }
  static_assert(1 + (kGroups + 1) * kSlots + kGroups <= 16, "more barriers than a block has");

  MESHWRIGHT_DEVICE int32_t Next(int32_t first, int32_t key, int& offset) const {
    const auto end = static_cast<int32_t>(a.KeysUntil(first + kRows));
    const int32_t next = NextTile(
        key, end, kKeys, kRows, [&](int32_t k) { return a.Offset(first, k); }, offset);
    return next < end ? next : -1;
  }

  // Keys are ahead of values by a tile, as their use is.
  template <class Ctx>
  MESHWRIGHT_DEVICE void CopyAll(Ctx& ctx, int32_t first, FlashShape::Head head) const {
    const uint16_t* const k = At(keys, a.Key(0, head.batch, head.group, 0));
    int under_way = -1, number = 0, offset = 0;
    const auto arrived = [&] {
      ctx.FenceCopies();
      MESHWRIGHT_UNROLL
      for (int group = 0; group < kGroups; ++group) ctx.Arrive(Full(under_way, group), 2 * kWarpgroup);
    };
    const auto copy = [&](Which which, int tile, int32_t key) {
      const int slot = Slot(which, tile);
      if (tile >= kStages) ctx.Sync(Empty(slot), kThreads);
      CopyTile<kKeys, kWidth>(ctx, SlotAt(slot), k + key * a.key_stride + which * a.d, a.key_stride, a.keys - key, a.d);
      ctx.CommitCopies();
      if (under_way >= 0) {
        ctx.template WaitCopies<1>();
        arrived();
      }
      under_way = slot;
    };
    int32_t key = Next(first, 0, offset);
    if (key < 0) return;
    MESHWRIGHT_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const int32_t row = first + group * kGroupRows;
      CopyTile<kGroupRows, kWidth>(ctx, group * kQueryTile,
                                   At(queries, a.Query(row, head.batch, head.group, head.head)), a.query_stride,
                                   a.s - row, a.d);
    }
    copy(kOfKeys, 0, key);
    for (; key >= 0; ++number) {
      const int32_t then = Next(first, key + kKeys, offset);
      if (then >= 0) copy(kOfKeys, number + 1, then);
      copy(kOfValues, number, key);
      key = then;
    }
    ctx.template WaitCopies<0>();
    arrived();
    // What is given back last is not used any more.
    for (int tile = number > kStages ? number - kStages : 0; tile < number; ++tile) {
      ctx.Sync(Empty(Slot(kOfKeys, tile)), kThreads);
      ctx.Sync(Empty(Slot(kOfValues, tile)), kThreads);
    }
  }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Compute(Ctx& ctx, int32_t first, FlashShape::Head head) const {
    const int group = Opaque(ctx.thread()) / kWarpgroup - 1, warp_row = WarpOf(ctx) * 16 - kGroupRows;
    const uint32_t own = group * kQueryTile;
    float o[1][kWidth / 8][4], s[1][kN][4], top[1][2] = {{-INFINITY, -INFINITY}}, sum[1][2] = {}, shrink[2];
    uint32_t p[kN / 2][4] = {};
    Clear(o);
    Clear(s);
    int offset = 0, number = 0;
    int32_t key = Next(first, 0, offset);
    if (key >= 0) {
      ctx.Sync(Full(Slot(kOfKeys, 0), group), 2 * kWarpgroup);
      ctx.BeginProducts(s[0]);
      StartByRows<kElem, kWidth, kKeys>(ctx, own, SlotAt(Slot(kOfKeys, 0)), s[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<0>(s[0]);
      ctx.Arrive(Empty(Slot(kOfKeys, 0)), kThreads);
      Hide(LaneOf(ctx), offset + warp_row, a.keys - key, s);
      Exponentials(ctx, a.score_scale, s[0], top[0], sum[0], shrink);
      PackRows<kElem>(s[0], p);
      if (group == 1) ctx.Arrive(Turn(0), kComputing);
      key = Next(first, key + kKeys, offset);
      while (key >= 0) {
        const int now = Slot(kOfValues, number), next = Slot(kOfKeys, ++number);
        ctx.Sync(Full(next, group), 2 * kWarpgroup);
        ctx.Sync(Turn(group), kComputing);
        ctx.BeginProducts(s[0], o[0], p);
        StartByRows<kElem, kWidth, kKeys>(ctx, own, SlotAt(next), s[0]);
        ctx.CommitProducts();
        ctx.Sync(Full(now, group), 2 * kWarpgroup);
        StartByColumns<kElem, kWidth>(ctx, p, SlotAt(now), o[0]);
        ctx.CommitProducts();
        ctx.Arrive(Turn(1 - group), kComputing);
        ctx.template WaitProducts<1>(s[0]);
        ctx.Arrive(Empty(next), kThreads);
        Hide(LaneOf(ctx), offset + warp_row, a.keys - key, s);
        Exponentials(ctx, a.score_scale, s[0], top[0], sum[0], shrink);
        // Between the exponentials and the wait stands a branch: the assembler would move the wait before them.
        ctx.Settle(s[0]);
        key = Next(first, key + kKeys, offset);
        ctx.template WaitProducts<0>(o[0], p);
        ctx.Arrive(Empty(now), kThreads);
        Shrink(ctx, shrink, o[0]);
        PackRows<kElem>(s[0], p);
      }
      const int last = Slot(kOfValues, number);
      ctx.Sync(Full(last, group), 2 * kWarpgroup);
      ctx.BeginProducts(o[0], p);
      StartByColumns<kElem, kWidth>(ctx, p, SlotAt(last), o[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<0>(o[0], p);
      ctx.Arrive(Empty(last), kThreads);
      if (group == 0) ctx.Sync(Turn(0), kComputing);  // the other's last
    }
    ctx.Sync(Turn(group), kWarpgroup);  // no warp of the group reads its queries any more
    Finish<kElem, kWidth>(ctx, own + WarpOf(ctx) % 4 * 16 * kRowBytes<kWidth>, o, top, sum, first + warp_row, head);
  }
};

template <class F>
auto HopperForward::Visit(const F& f) const {
  return VisitFlash<HopperForwardOf>(*this, f);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_H_
