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
  static constexpr int kStages = 2;  // slots 0 and 1 are for keys, the others for values
  using Slots = Handover<2, 2 * kStages>;
  static constexpr int kThreads = Slots::kThreads, kGroups = Slots::kGroups;
  static constexpr int kRows = kGroups * kGroupRows, kKeys = 128, kN = kKeys / 8;
  static constexpr uint32_t kQueryTile = kGroupRows * kRowBytes<kWidth>, kKeyTile = kKeys * kRowBytes<kWidth>;
  static constexpr uint32_t kSlotsAt = kGroups * kQueryTile;
  static constexpr int64_t kShared = kSlotsAt + Slots::kSlots * kKeyTile;
  int64_t Blocks() const { return (a.s + kRows - 1) / kRows * a.b * a.g * a.q; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t tiles = (a.s + kRows - 1) / kRows;
    const FlashShape::Place place = a.PlaceOf(ctx.block(), tiles, a.b * a.g * a.q);
    const auto first = static_cast<int32_t>((tiles - 1 - place.tile) * kRows);
    if (ctx.thread() < kWarpgroup) {
      ctx.template KeepRegisters<Slots::kCopyRegisters>();
      CopyAll(ctx, first, a.HeadOf(place.head));
    } else {
      ctx.template TakeRegisters<Slots::kRegisters>();
      Compute(ctx, first, a.HeadOf(place.head));
    }
  }

 private:
  enum Which : int { kOfKeys, kOfValues };
  static MESHWRIGHT_DEVICE int Slot(Which which, int number) { return which * kStages + number % kStages; }
  static MESHWRIGHT_DEVICE uint32_t SlotAt(int slot) { return kSlotsAt + static_cast<uint32_t>(slot) * kKeyTile; }

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
    Slots slots;
    int number = 0, offset = 0;
    const auto copy = [&](Which which, int tile, int32_t key) {
      slots.Fill(ctx, Slot(which, tile), tile >= kStages, [&] {
        CopyTile<kKeys, kWidth>(ctx, SlotAt(Slot(which, tile)), k + key * a.key_stride + which * a.d, a.key_stride,
                                a.keys - key, a.d);
      });
    };
    int32_t key = Next(first, static_cast<int32_t>(a.KeysFrom(first, kKeys)), offset);
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
    slots.FillNoMore(ctx);
    for (int slot = 0; slot < Slots::kSlots; ++slot) {
      if (slot % kStages < number) ctx.Sync(Slots::Empty(slot), kThreads);
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
    int32_t key = Next(first, static_cast<int32_t>(a.KeysFrom(first, kKeys)), offset);
    if (key >= 0) {
      Slots::Await(ctx, Slot(kOfKeys, 0), group);
      ctx.BeginProducts(s[0]);
      StartByRows<kElem, kWidth, kKeys>(ctx, own, SlotAt(Slot(kOfKeys, 0)), s[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<0>(s[0]);
      Slots::GiveBack(ctx, Slot(kOfKeys, 0));
      Hide(LaneOf(ctx), offset + warp_row, a.reach, a.keys - key, s);
      Exponentials(ctx, a.score_scale, s[0], top[0], sum[0], shrink);
      PackRows<kElem>(s[0], p);
      // They begin in turns: each barrier is passed by one, and come to by the other when it has begun.
      if (group == 1) ctx.Arrive(Slots::Own(0), Slots::kComputing);
      key = Next(first, key + kKeys, offset);
      while (key >= 0) {
        const int now = Slot(kOfValues, number), next = Slot(kOfKeys, ++number);
        Slots::Await(ctx, next, group);
        ctx.Sync(Slots::Own(group), Slots::kComputing);
        ctx.BeginProducts(s[0], o[0], p);
        StartByRows<kElem, kWidth, kKeys>(ctx, own, SlotAt(next), s[0]);
        ctx.CommitProducts();
        Slots::Await(ctx, now, group);
        StartByColumns<kElem, kWidth>(ctx, p, SlotAt(now), o[0]);
        ctx.CommitProducts();
        ctx.Arrive(Slots::Own(1 - group), Slots::kComputing);
        ctx.template WaitProducts<1>(s[0]);
        Slots::GiveBack(ctx, next);
        Hide(LaneOf(ctx), offset + warp_row, a.reach, a.keys - key, s);
        Exponentials(ctx, a.score_scale, s[0], top[0], sum[0], shrink);
        // Between the exponentials and the wait stands a branch: the assembler would move the wait before them.
        ctx.Settle(s[0]);
        key = Next(first, key + kKeys, offset);
        ctx.template WaitProducts<0>(o[0], p);
        Slots::GiveBack(ctx, now);
        Shrink(ctx, shrink, o[0]);
        PackRows<kElem>(s[0], p);
      }
      const int last = Slot(kOfValues, number);
      Slots::Await(ctx, last, group);
      ctx.BeginProducts(o[0], p);
      StartByColumns<kElem, kWidth>(ctx, p, SlotAt(last), o[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<0>(o[0], p);
      Slots::GiveBack(ctx, last);
      if (group == 0) ctx.Sync(Slots::Own(0), Slots::kComputing);  // the other's last
    }
    ctx.Sync(Slots::Own(group), kWarpgroup);  // no warp of the group reads its queries any more
    Finish<kElem, kWidth>(ctx, own + WarpOf(ctx) % 4 * 16 * kRowBytes<kWidth>, o, top, sum, first + warp_row, head);
  }
};

template <class F>
auto HopperForward::Visit(const F& f) const {
  return VisitFlash<HopperForwardOf>(*this, f);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_H_
