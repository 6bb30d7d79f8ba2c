// What bodies for Hopper's tensor cores are written in: products by warpgroups, four warps together, that read shared
// memory by themselves while the warps go on.
//
// Beside what warp_tiles.h says, a context offers
//   AddressOf(at)               as descriptors have it; tiles lie at multiples of 1024 there
//   CommitCopies(), WaitCopies<n>()   copies so far are a group; all groups but the latest n have arrived
//   FenceCopies()               products may read what this thread has written: fence.proxy.async
//   Arrive(barrier, threads), Sync(barrier, threads)   named barriers, of which a block has 16
//   KeepRegisters<n>(), TakeRegisters<n>()   setmaxnreg: n registers a thread from here on
//   BeginProducts(x...)         the registers x are left to products: wgmma.fence
//   Multiply<kElem>(acc, a, b, add)   wgmma.mma_async m64nNk16 of two descriptors; without `add` acc is not read
//   MultiplyColumns<kElem>(acc, a, b)   acc += a b, a in registers; b's rows follow the sum, which is trans-b
//   CommitProducts()            products so far are a group
//   WaitProducts<n>(x...)       all groups but the latest n are done, among them the products of the registers x
//   Settle(x...)                x is computed before what follows, beside products and not behind them
// All warps of a warpgroup call the last six alike. Until it is waited for, nobody touches what a product uses.
//
// A tile is as the PTX ISA has it for 128-byte swizzling (9.7.15.5.1.2, "Shared memory matrix layout"): 64 elements of
// each row in 128 bytes, rows one below the other, and their pieces of 16 bytes exchanged by the row's number; what
// rows have beyond 64 elements is a second such half behind the first. Accumulators and left operands in registers are,
// for each warp with 16 of the 64 rows, as those of mma.m16n8k16 (9.7.15.5.1.1, "Register fragments").
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUP_TILES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUP_TILES_H_

#include "executor/cuda/kernels/warp_tiles.h"

namespace meshwright::cuda {

inline constexpr int kWarpgroup = 128, kGroupRows = 64;  // threads, and rows of a product

// Of half a tile.
template <int kRows>
inline constexpr uint32_t kHalfBytes = kRows * 128;

// A tile for the tensor cores, at `address`. `leading`: bytes from half to half, where they are looked at; eight rows
// are 1024 bytes.
MESHWRIGHT_DEVICE uint64_t Descriptor(uint32_t address, uint32_t leading) {
  constexpr uint64_t kSwizzle128 = 1, kStride = 1024;
  return (address & 0x3ffffu) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 | kStride >> 4 << 32 | kSwizzle128 << 62;
}

// As CopyRows, by a warpgroup.
template <int kRows, int kWidth, class Ctx>
MESHWRIGHT_DEVICE void CopyTile(Ctx& ctx, uint32_t tile, const uint16_t* from, int64_t stride, int64_t rows,
                                int64_t width) {
  MESHWRIGHT_UNROLL
  for (int half = 0; half < kWidth / 64; ++half) {
    CopyRows<kRows, 64, kWarpgroup>(ctx, tile + half * kHalfBytes<kRows>, from + half * 64, stride, rows,
                                    width - half * 64);
  }
}

// acc = (64 rows of the tile x) times (kRows of y)^T, over the width.
template <Elem kElem, int kWidth, int kRows, class Ctx>
MESHWRIGHT_DEVICE void StartByRows(Ctx& ctx, uint32_t x, uint32_t y, float (&acc)[kRows / 8][4]) {
  const uint64_t a = Descriptor(ctx.AddressOf(x), 16), b = Descriptor(ctx.AddressOf(y), 16);
  MESHWRIGHT_UNROLL
  for (int k = 0; k < kWidth / 16; ++k) {
    const uint32_t half = k / 4, in_half = k % 4 * 32;
    ctx.template Multiply<kElem>(acc, a + ((half * kHalfBytes<kGroupRows> + in_half) >> 4),
                                 b + ((half * kHalfBytes<kRows> + in_half) >> 4), k > 0);
  }
}

// acc += a times the tile y, whose rows are kK * 16.
template <Elem kElem, int kWidth, int kK, class Ctx>
MESHWRIGHT_DEVICE void StartByColumns(Ctx& ctx, const uint32_t (&a)[kK][4], uint32_t y, float (&acc)[kWidth / 8][4]) {
  const uint64_t b = Descriptor(ctx.AddressOf(y), kHalfBytes<kK * 16>);
  MESHWRIGHT_UNROLL
  for (int k = 0; k < kK; ++k) ctx.template MultiplyColumns<kElem>(acc, a[k], b + (k * 16 * 128 >> 4));
}

// How a block of 1 + kGroups warpgroups hands tiles from the first, which copies, to the others, which compute: slots
// in shared memory that are filled, used by all of the others, and given back. Named barriers say when a slot is full
// for a warpgroup, and when it is empty.
template <int kComputingGroups, int kSlotCount>
struct Handover {
  static constexpr int kGroups = kComputingGroups, kSlots = kSlotCount;
  static constexpr int kComputing = kGroups * kWarpgroup, kThreads = kWarpgroup + kComputing;
  // Registers of a thread: those that copy leave theirs to those that compute, who wait for them. There are no more
  // than a block starts with, as many for each thread, in eights.
  static constexpr int kCopyRegisters = 24, kRegisters = 240, kFirstRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kWarpgroup * kCopyRegisters + kComputing * kRegisters <= kThreads * kFirstRegisters);
  static MESHWRIGHT_DEVICE int Full(int slot, int group) { return 1 + group * kSlots + slot; }
  static MESHWRIGHT_DEVICE int Empty(int slot) { return 1 + kGroups * kSlots + slot; }
  static MESHWRIGHT_DEVICE int Own(int group) { return 1 + (kGroups + 1) * kSlots + group; }  // for what else there is
  static_assert(1 + (kGroups + 1) * kSlots + kGroups <= 16, "more barriers than a block has");

  // Of those that copy: fills a slot, when it is empty if it was `used`, and says that the one filled before is full.
  // What was copied before the first is there with it.
  template <class Ctx, class F>
  MESHWRIGHT_DEVICE void Fill(Ctx& ctx, int slot, bool used, const F& copy) {
    if (used) ctx.Sync(Empty(slot), kThreads);
    copy();
    ctx.CommitCopies();
    if (under_way >= 0) {
      ctx.template WaitCopies<1>();
      Arrived(ctx);
    }
    under_way = slot;
  }
  template <class Ctx>
  MESHWRIGHT_DEVICE void FillNoMore(Ctx& ctx) {
    ctx.template WaitCopies<0>();
    Arrived(ctx);
  }
  // After `filled` in turn: all are given back.
  template <class Ctx>
  static MESHWRIGHT_DEVICE void TakeBackAll(Ctx& ctx, int filled) {
    for (int slot = 0; slot < kSlots && slot < filled; ++slot) ctx.Sync(Empty(slot), kThreads);
  }

  // Of those that compute.
  template <class Ctx>
  static MESHWRIGHT_DEVICE void Await(Ctx& ctx, int slot, int group) {
    ctx.Sync(Full(slot, group), 2 * kWarpgroup);
  }
  template <class Ctx>
  static MESHWRIGHT_DEVICE void GiveBack(Ctx& ctx, int slot) {
    ctx.Arrive(Empty(slot), kThreads);
  }

 private:
  template <class Ctx>
  MESHWRIGHT_DEVICE void Arrived(Ctx& ctx) const {
    ctx.FenceCopies();
    MESHWRIGHT_UNROLL
    for (int group = 0; group < kGroups; ++group) ctx.Arrive(Full(under_way, group), 2 * kWarpgroup);
  }

  int under_way = -1;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_WARPGROUP_TILES_H_
