// The gradients of flash_hopper.h, computed as in flash_gradients.h: by blocks that are built as the forward pass's.
// Each of two warpgroups holds 64 rows of queries, or 64 keys, and goes over slots that hold a tile of all that passes.
// While one makes exponentials, the other's products run.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_GRADIENTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_GRADIENTS_H_

#include "executor/cuda/kernels/flash_gradients.h"
#include "executor/cuda/kernels/flash_hopper.h"

namespace meshwright::cuda {

struct HopperQueryGradient : FlashQueryGradient {
  template <class F>
  auto Visit(const F& f) const;
};

template <Elem kElem, int kWidth>
struct HopperQueryGradientOf : HopperQueryGradient {
  using Slots = Handover<2, 3>;
  static constexpr int kThreads = Slots::kThreads, kGroups = Slots::kGroups, kRows = kGroups * kGroupRows;
  static constexpr int kKeys = kWidth == 64 ? 128 : 64, kN = kKeys / 8;
  // Queries and dy of each warpgroup, then slots of keys and values.
  static constexpr uint32_t kQueryTile = kGroupRows * kRowBytes<kWidth>, kKeyTile = kKeys * kRowBytes<kWidth>;
  static constexpr uint32_t kDyAt = kGroups * kQueryTile, kSlotsAt = 2 * kDyAt;
  static constexpr int64_t kShared = kSlotsAt + Slots::kSlots * 2 * kKeyTile;
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
      Compute(ctx, first, place.head);
    }
  }

 private:
  static MESHWRIGHT_DEVICE uint32_t SlotAt(int slot) { return kSlotsAt + static_cast<uint32_t>(slot) * 2 * kKeyTile; }

  MESHWRIGHT_DEVICE int32_t Next(int32_t first, int32_t key, int& offset) const {
    const auto end = static_cast<int32_t>(a.KeysUntil(first + kRows));
    const int32_t next = NextTile(
        key, end, kKeys, kRows, [&](int32_t k) { return a.Offset(first, k); }, offset);
    return next < end ? next : -1;
  }

  template <class Ctx>
  MESHWRIGHT_DEVICE void CopyAll(Ctx& ctx, int32_t first, FlashShape::Head head) const {
    const uint16_t* const k = At(keys, a.Key(0, head.batch, head.group, 0));
    Slots slots;
    int number = 0, offset = 0;
    int32_t key = Next(first, static_cast<int32_t>(a.KeysFrom(first, kKeys)), offset);
    if (key < 0) return;
    MESHWRIGHT_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const int32_t row = first + group * kGroupRows;
      CopyTile<kGroupRows, kWidth>(ctx, group * kQueryTile,
                                   At(queries, a.Query(row, head.batch, head.group, head.head)), a.query_stride,
                                   a.s - row, a.d);
      CopyTile<kGroupRows, kWidth>(ctx, kDyAt + group * kQueryTile, At(dy, a.Y(row, head.batch, head.group, head.head)),
                                   a.y_stride, a.s - row, a.d);
    }
    for (; key >= 0; key = Next(first, key + kKeys, offset), ++number) {
      const int slot = number % Slots::kSlots;
      slots.Fill(ctx, slot, number >= Slots::kSlots, [&] {
        const uint16_t* const from = k + key * a.key_stride;
        CopyTile<kKeys, kWidth>(ctx, SlotAt(slot), from, a.key_stride, a.keys - key, a.d);
        CopyTile<kKeys, kWidth>(ctx, SlotAt(slot) + kKeyTile, from + a.d, a.key_stride, a.keys - key, a.d);
      });
    }
    slots.FillNoMore(ctx);
    slots.TakeBackAll(ctx, number);
  }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Compute(Ctx& ctx, int32_t first, int32_t number_of_head) const {
    const int group = Opaque(ctx.thread()) / kWarpgroup - 1, warp_row = WarpOf(ctx) * 16 - kGroupRows;
    const uint32_t own = group * kQueryTile;
    float log[1][2], dot[1][2], dq[1][kWidth / 8][4], s[1][kN][4], ds[1][kN][4];
    uint32_t packed[kN / 2][4] = {};
    Sums<kElem, kWidth>(ctx, first + warp_row, number_of_head, log, dot);
    Clear(dq);
    Clear(s);
    Clear(ds);
    int offset = 0, slot = 0;
    int32_t key = Next(first, static_cast<int32_t>(a.KeysFrom(first, kKeys)), offset);
    while (key >= 0) {
      Slots::Await(ctx, slot, group);
      ctx.BeginProducts(s[0], ds[0]);
      StartByRows<kElem, kWidth, kKeys>(ctx, own, SlotAt(slot), s[0]);
      ctx.CommitProducts();
      StartByRows<kElem, kWidth, kKeys>(ctx, kDyAt + own, SlotAt(slot) + kKeyTile, ds[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<1>(s[0]);
      Hide(LaneOf(ctx), offset + warp_row, a.reach, a.keys - key, s);
      MESHWRIGHT_UNROLL
      for (int n = 0; n < kN; ++n) {
        MESHWRIGHT_UNROLL
        for (int e = 0; e < 4; ++e) s[0][n][e] = Exp2(s[0][n][e] * a.score_scale - log[0][e / 2]);
      }
      ctx.Settle(s[0]);
      key = Next(first, key + kKeys, offset);  // a branch, as in the forward pass
      ctx.template WaitProducts<0>(ds[0]);
      MESHWRIGHT_UNROLL
      for (int n = 0; n < kN; ++n) {
        MESHWRIGHT_UNROLL
        for (int e = 0; e < 4; ++e) ds[0][n][e] = s[0][n][e] * (ds[0][n][e] - dot[0][e / 2]);
      }
      PackRows<kElem>(ds[0], packed);
      ctx.BeginProducts(dq[0], packed);
      StartByColumns<kElem, kWidth>(ctx, packed, SlotAt(slot), dq[0]);
      ctx.CommitProducts();
      ctx.template WaitProducts<0>(dq[0], packed);
      Slots::GiveBack(ctx, slot);
      slot = slot + 1 < Slots::kSlots ? slot + 1 : 0;
    }
    ctx.Sync(Slots::Own(group), kWarpgroup);  // no warp of the group reads its queries any more
    Write<kElem, kWidth>(ctx, own + WarpOf(ctx) % 4 * 16 * kRowBytes<kWidth>, dq, first + warp_row,
                         a.HeadOf(number_of_head));
  }
};

struct HopperKeyGradient : FlashKeyGradient {
  template <class F>
  auto Visit(const F& f) const;
};

template <Elem kElem, int kWidth>
struct HopperKeyGradientOf : HopperKeyGradient {
  using Slots = Handover<2, 3>;
  static constexpr int kThreads = Slots::kThreads, kGroups = Slots::kGroups, kKeys = kGroups * kGroupRows;
  static constexpr int kRows = 64, kN = kRows / 8;
  // Keys and values of each warpgroup, then slots of queries, dy, and the rows' logs and dots.
  static constexpr uint32_t kKeyTile = kGroupRows * kRowBytes<kWidth>, kRowTile = kRows * kRowBytes<kWidth>;
  static constexpr uint32_t kValuesAt = kGroups * kKeyTile, kSlotsAt = 2 * kValuesAt, kSumsAt = 2 * kRowTile;
  static constexpr uint32_t kSums = kRows * 4, kSlot = kSumsAt + 1024;
  static_assert(2 * kSums <= 1024);
  static constexpr int64_t kShared = kSlotsAt + Slots::kSlots * kSlot;
  int64_t Blocks() const { return (a.keys + kKeys - 1) / kKeys * a.b * a.g; }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const FlashShape::Place place = a.PlaceOf(ctx.block(), (a.keys + kKeys - 1) / kKeys, a.b * a.g);
    const auto groups = static_cast<int32_t>(a.g);
    if (ctx.thread() < kWarpgroup) {
      ctx.template KeepRegisters<Slots::kCopyRegisters>();
      CopyAll(ctx, place.tile * kKeys, place.head / groups, place.head % groups);
    } else {
      ctx.template TakeRegisters<Slots::kRegisters>();
      Compute(ctx, place.tile * kKeys, place.head / groups, place.head % groups);
    }
  }

 private:
  static MESHWRIGHT_DEVICE uint32_t SlotAt(int slot) { return kSlotsAt + static_cast<uint32_t>(slot) * kSlot; }

  MESHWRIGHT_DEVICE int32_t Next(int32_t first, int32_t row, int& offset) const {
    const auto end = static_cast<int32_t>(a.RowsUntil(first + kKeys));
    const int32_t next = NextTile(
        row, end, kRows, kRows, [&](int32_t r) { return a.Offset(r, first); }, offset);
    return next < end ? next : -1;
  }
  MESHWRIGHT_DEVICE int32_t FirstOf(int32_t first, int& offset) const {
    return Next(first, static_cast<int32_t>(a.RowsFrom(first, kRows)), offset);
  }

  template <class Ctx>
  MESHWRIGHT_DEVICE void CopyAll(Ctx& ctx, int32_t first, int32_t batch, int32_t group) const {
    Slots slots;
    int number = 0, offset = 0;
    if (FirstOf(first, offset) < 0) return;
    MESHWRIGHT_UNROLL
    for (int part = 0; part < kGroups; ++part) {
      const int32_t key = first + part * kGroupRows;
      const uint16_t* const k = At(keys, a.Key(key, batch, group, 0));
      CopyTile<kGroupRows, kWidth>(ctx, part * kKeyTile, k, a.key_stride, a.keys - key, a.d);
      CopyTile<kGroupRows, kWidth>(ctx, kValuesAt + part * kKeyTile, k + a.d, a.key_stride, a.keys - key, a.d);
    }
    for (int32_t head = 0; head < a.q; ++head) {
      for (int32_t row = FirstOf(first, offset); row >= 0; row = Next(first, row + kRows, offset), ++number) {
        const int slot = number % Slots::kSlots;
        slots.Fill(ctx, slot, number >= Slots::kSlots, [&] {
          CopyTile<kRows, kWidth>(ctx, SlotAt(slot), At(queries, a.Query(row, batch, group, head)), a.query_stride,
                                  a.s - row, a.d);
          CopyTile<kRows, kWidth>(ctx, SlotAt(slot) + kRowTile, At(dy, a.Y(row, batch, group, head)), a.y_stride,
                                  a.s - row, a.d);
          const int thread = Opaque(ctx.thread()), piece = thread % (kRows / 4), which = thread / (kRows / 4);
          const int64_t of = (static_cast<int64_t>(batch) * a.g + group) * a.q + head;
          const float* const from = (which == 0 ? sums.Log(of) : sums.Dot(of)) + row + piece * 4;
          if (which < 2) ctx.CopyAsync(SlotAt(slot) + kSumsAt + thread * 16, from, true);
        });
      }
    }
    slots.FillNoMore(ctx);
    slots.TakeBackAll(ctx, number);
  }

  template <class Ctx>
  MESHWRIGHT_DEVICE void Compute(Ctx& ctx, int32_t first, int32_t batch, int32_t group) const {
    const int part = Opaque(ctx.thread()) / kWarpgroup - 1, warp_key = WarpOf(ctx) * 16 - kGroupRows;
    const uint32_t own = part * kKeyTile;
    float dk[1][kWidth / 8][4], dv[1][kWidth / 8][4], p[1][kN][4], ds[1][kN][4];
    uint32_t packed[kN / 2][4] = {};
    Clear(dk);
    Clear(dv);
    Clear(p);
    Clear(ds);
    int slot = 0, offset = 0;
    for (int32_t head = 0; head < a.q; ++head) {
      for (int32_t row = FirstOf(first, offset); row >= 0; row = Next(first, row + kRows, offset)) {
        const uint32_t at = SlotAt(slot), sums_at = at + kSumsAt + LaneOf(ctx) % 4 * 8;
        Slots::Await(ctx, slot, part);
        ctx.BeginProducts(p[0], ds[0]);
        StartByRows<kElem, kWidth, kRows>(ctx, own, at, p[0]);
        ctx.CommitProducts();
        StartByRows<kElem, kWidth, kRows>(ctx, kValuesAt + own, at + kRowTile, ds[0]);
        ctx.CommitProducts();
        ctx.template WaitProducts<1>(p[0]);
        HideRows(LaneOf(ctx), offset - warp_key, a.reach, p);
        MESHWRIGHT_UNROLL
        for (int n = 0; n < kN; ++n) {
          const Pair log = ctx.template Get<Pair>(sums_at + n * 32);
          MESHWRIGHT_UNROLL
          for (int e = 0; e < 4; ++e) p[0][n][e] = Exp2(p[0][n][e] * a.score_scale - log.of[e % 2]);
        }
        PackRows<kElem>(p[0], packed);
        ctx.BeginProducts(dv[0], packed);
        StartByColumns<kElem, kWidth>(ctx, packed, at + kRowTile, dv[0]);
        ctx.CommitProducts();
        ctx.template WaitProducts<0>(ds[0], dv[0], packed);
        MESHWRIGHT_UNROLL
        for (int n = 0; n < kN; ++n) {
          const Pair dot = ctx.template Get<Pair>(sums_at + kSums + n * 32);
          MESHWRIGHT_UNROLL
          for (int e = 0; e < 4; ++e) ds[0][n][e] = p[0][n][e] * (ds[0][n][e] - dot.of[e % 2]);
        }
        PackRows<kElem>(ds[0], packed);
        ctx.BeginProducts(dk[0], packed);
        StartByColumns<kElem, kWidth>(ctx, packed, at, dk[0]);
        ctx.CommitProducts();
        ctx.template WaitProducts<0>(dk[0], packed);
        Slots::GiveBack(ctx, slot);
        slot = slot + 1 < Slots::kSlots ? slot + 1 : 0;
      }
    }
    ctx.Sync(Slots::Own(part), kWarpgroup);  // no warp of the group reads its keys and values any more
    const int32_t key = first + warp_key;
    const uint32_t own_rows = own + WarpOf(ctx) % 4 * 16 * kRowBytes<kWidth>;
    const int64_t to = a.Key(key, batch, group, 0);
    Write<kElem, kWidth>(ctx, own_rows, dk, static_cast<float>(a.scale), key, to);
    Write<kElem, kWidth>(ctx, kValuesAt + own_rows, dv, 1.0f, key, to + a.d);
  }
};

template <class F>
auto HopperQueryGradient::Visit(const F& f) const {
  return VisitFlash<HopperQueryGradientOf>(*this, f);
}
template <class F>
auto HopperKeyGradient::Visit(const F& f) const {
  return VisitFlash<HopperKeyGradientOf>(*this, f);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_FLASH_HOPPER_GRADIENTS_H_
