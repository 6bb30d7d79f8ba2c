// Products of warpgroups against plain ones, with operands placed by hand, and the faults that are found in them.
#include "executor/cuda/testing/warpgroup_products.h"

#include <cmath>
#include <random>
#include <vector>

#include "executor/cuda/kernels/warpgroup_tiles.h"
#include "executor/cuda/testing/warp_player.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::cuda::testing {
namespace {

constexpr Elem kType = Elem::kBFloat16;

std::vector<uint16_t> Random(size_t n, Elem type, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<uint16_t> values(n);
  for (uint16_t& value : values) {
    value = type == kType ? BFloat16Of(uniform(generator)) : Float16Of(uniform(generator));
  }
  return values;
}
float Value(Elem type, uint16_t bits) {
  return type == kType ? FromBits(static_cast<uint32_t>(bits) << 16) : FromFloat16(bits);
}

// An identity of 64 x 16 as left operand shows the right one as it is read. In pieces of 16 bytes, CUTLASS writes the
// two layouts as
//   by rows      Swizzle<3,4,3> o ((8,n),2):((8,SBO),1)
//   by columns   Swizzle<3,4,3> o ((8,n),(8,k)):((1,LBO),(8,SBO))
// (include/cute/atom/mma_traits_sm90_gmma.hpp). Strides are such that none stands for another.
template <int kN>
void OperandsAreReadByTheirLayout(bool by_columns) {
  constexpr uint32_t kLeading = 7 * 1024, kStride = 2 * 1024, kPieces = 2560, kAt = 1024;
  const auto number = [](int i, int k) { return static_cast<float>(i * 16 + k) / 16; };  // exact in float16
  WarpPlayer player(128, kPieces * 16);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    if (ctx.thread() == 0) {
      for (int i = 0; i < kN; ++i) {
        for (int k = 0; k < 16; ++k) {
          const uint32_t piece = by_columns ? i / 8 % 8 + i / 64 * kLeading / 16 + k % 8 * 8 + k / 8 * kStride / 16
                                            : i % 8 * 8 + i / 8 * kStride / 16 + k / 8;
          const uint32_t at = kAt + piece * 16;
          const uint32_t swizzled = at ^ (at >> 7 & 7) << 4;
          ctx.Put(swizzled + (by_columns ? i % 8 : k % 8) * 2, Float16Of(number(i, k)));
        }
      }
      ctx.FenceCopies();
    }
    ctx.Sync();
    // Fragments of an identity in every 16 rows: row g has its one at column g, row g + 8 at g + 8.
    const int g = ctx.thread() % 32 / 4, t = ctx.thread() % 4;
    const uint32_t one = g / 2 == t ? uint32_t{Float16Of(1)} << g % 2 * 16 : 0;
    uint32_t a[1][4] = {{one, 0, 0, one}};
    float d[kN / 8][4] = {};
    constexpr uint64_t kFields = uint64_t{kLeading >> 4} << 16 | uint64_t{kStride >> 4} << 32 | 1ull << 62;
    ctx.BeginProducts(d, a);
    if (by_columns) {
      ctx.MultiplyColumns<Elem::kFloat16>(d, a[0], kFields | ctx.AddressOf(kAt) >> 4);
    } else {
      // By rows the left operand is in shared memory, too: the first 64 rows of the right one.
      ctx.Multiply<Elem::kFloat16>(d, kFields | ctx.AddressOf(kAt) >> 4, kFields | ctx.AddressOf(kAt) >> 4, false);
    }
    ctx.CommitProducts();
    EXPECT_TRUE(std::isnan(d[0][0]));
    ctx.WaitProducts<0>(d, a);
    for (int n = 0; n < kN / 8; ++n) {
      for (int e = 0; e < 4; ++e) {
        const int row = ctx.thread() / 32 * 16 + g + e / 2 * 8, column = n * 8 + t * 2 + e % 2;
        float want = by_columns ? number(column, row % 16) : 0;
        for (int k = 0; k < 16 && !by_columns; ++k) want += number(row, k) * number(column, k);
        EXPECT_FLOAT_EQ(d[n][e], want) << row << " " << column;
      }
    }
  }));
}
TEST(WarpgroupProductsTest, OperandsAreReadByTheirLayout) {
  OperandsAreReadByTheirLayout<64>(false);
  OperandsAreReadByTheirLayout<128>(false);
  OperandsAreReadByTheirLayout<64>(true);
  OperandsAreReadByTheirLayout<128>(true);
}

// Tiles are copied, multiplied, and the result multiplied again.
template <Elem kElem, int kWidth>
void TilesAreProducts(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int kKeys = 128;
  constexpr uint32_t kKeysAt = kGroupRows * kRowBytes<kWidth>;
  const int64_t stride = kWidth + 8;
  const std::vector<uint16_t> x = Random(kGroupRows * stride, kElem, seed), y = Random(kKeys * stride, kElem, seed + 1);
  std::vector<float> scores(kGroupRows * kKeys), result(kGroupRows * kWidth);
  WarpPlayer player(128, kKeysAt + kKeys * kRowBytes<kWidth>);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    CopyTile<kGroupRows, kWidth>(ctx, 0, x.data(), stride, kGroupRows, kWidth);
    ctx.CommitCopies();
    CopyTile<kKeys, kWidth>(ctx, kKeysAt, y.data(), stride, kKeys - 3, kWidth - 8);
    ctx.CommitCopies();
    ctx.WaitCopies<0>();
    ctx.FenceCopies();
    ctx.Sync();
    float s[kKeys / 8][4] = {}, o[kWidth / 8][4] = {};
    uint32_t p[kKeys / 16][4];
    ctx.BeginProducts(s);
    StartByRows<kElem, kWidth, kKeys>(ctx, 0, kKeysAt, s);
    ctx.CommitProducts();
    ctx.WaitProducts<0>(s);
    PackRows<kElem>(s, p);
    ctx.BeginProducts(o, p);
    StartByColumns<kElem, kWidth>(ctx, p, kKeysAt, o);
    ctx.CommitProducts();
    ctx.WaitProducts<0>(o, p);
    const auto each = [&]<size_t kN>(const float(&acc)[kN][4], std::vector<float>& to) {
      constexpr int kColumns = kN * 8;
      for (size_t n = 0; n < kN; ++n) {
        for (int e = 0; e < 4; ++e) {
          const int row = ctx.thread() / 32 * 16 + ctx.thread() % 32 / 4 + e / 2 * 8;
          to[row * kColumns + n * 8 + ctx.thread() % 4 * 2 + e % 2] = acc[n][e];
        }
      }
    };
    each(s, scores);
    each(o, result);
  }));
  const auto y_of = [&](int j, int c) {
    return j < kKeys - 3 && c < kWidth - 8 ? double{Value(kElem, y[j * stride + c])} : 0.0;
  };
  for (int i = 0; i < kGroupRows; ++i) {
    std::vector<double> want(kKeys);
    for (int j = 0; j < kKeys; ++j) {
      for (int c = 0; c < kWidth; ++c) want[j] += Value(kElem, x[i * stride + c]) * y_of(j, c);
      ASSERT_NEAR(scores[i * kKeys + j], want[j], 1e-4) << i << " " << j;
    }
    for (int c = 0; c < kWidth; ++c) {
      double sum = 0, size = 1;
      for (int j = 0; j < kKeys; ++j) {
        sum += want[j] * y_of(j, c);
        size += std::abs(want[j] * y_of(j, c));
      }
      ASSERT_NEAR(result[i * kWidth + c], sum, size * 0x1p-8) << i << " " << c;
    }
  }
}
TEST(WarpgroupProductsTest, TilesAreProducts) {
  TilesAreProducts<Elem::kBFloat16, 64>(3);
  TilesAreProducts<Elem::kFloat16, 128>(5);
}

// What is right as it stands, and wrong in one respect each.
enum class Mistake {
  kNone,
  kNoFenceOfCopies,
  kFenceBeforeArrival,
  kNoBegin,
  kOperandAfterBegin,
  kAccumulatorNotLeft,
  kNoCommit,
  kNotWaitedFor,
  kNotNamed,
  kAccumulatorWritten,
  kOperandWritten,
  kMemoryWritten,
  kSwizzle,
  kWithinPattern,
  kOutside,
  kOneWarpElsewhere,
  kDifferentDescriptors,
};
absl::Status Play(Mistake mistake) {
  static const std::vector<uint16_t> ones(64 * 64, BFloat16Of(1));
  const auto is = [&](Mistake m) { return m == mistake; };
  WarpPlayer player(128, 64 * 128);
  return player.Play(0, 1, [&](PlayedContext& ctx) {
    CopyTile<64, 64>(ctx, 0, ones.data(), 64, 64, 64);
    if (is(Mistake::kFenceBeforeArrival)) ctx.FenceCopies();
    ctx.WaitCopies();
    if (!is(Mistake::kNoFenceOfCopies) && !is(Mistake::kFenceBeforeArrival)) ctx.FenceCopies();
    ctx.Sync();
    float d[8][4] = {};
    uint32_t a[1][4] = {};
    uint64_t b = Descriptor(ctx.AddressOf(is(Mistake::kOutside) ? 64 * 128 - 1024 : 0), 16);
    if (is(Mistake::kSwizzle)) b ^= 3ull << 62;
    if (is(Mistake::kWithinPattern)) b += 256 >> 4;
    if (is(Mistake::kDifferentDescriptors)) b += ctx.thread() / 32 * 1024 >> 4;
    if (is(Mistake::kAccumulatorNotLeft)) {
      ctx.BeginProducts(a);
    } else if (!is(Mistake::kNoBegin)) {
      ctx.BeginProducts(d, a);
    }
    if (is(Mistake::kOperandAfterBegin)) a[0][1] = 1;
    if (is(Mistake::kOneWarpElsewhere) && ctx.thread() < 32) return ctx.Sync();
    ctx.MultiplyColumns<kType>(d, a[0], b);
    if (!is(Mistake::kNoCommit)) ctx.CommitProducts();
    if (is(Mistake::kAccumulatorWritten)) d[3][1] = 0;
    if (is(Mistake::kOperandWritten)) a[0][2] = 1;
    if (is(Mistake::kMemoryWritten) && ctx.thread() == 77) ctx.Put<uint16_t>(0, 0);
    if (is(Mistake::kNotWaitedFor)) return ctx.WaitProducts<1>(d, a);
    if (is(Mistake::kNotNamed)) return ctx.WaitProducts<0>(d);
    ctx.WaitProducts<0>(d, a);
  });
}
TEST(WarpgroupProductsTest, FindsFaults) {
  EXPECT_OK(Play(Mistake::kNone));
  const auto is_found = [](Mistake mistake, const char* as) {
    EXPECT_THAT(Play(mistake), StatusIs(absl::StatusCode::kInternal, as)) << static_cast<int>(mistake);
  };
  is_found(Mistake::kNoFenceOfCopies, "written and not fenced");
  is_found(Mistake::kFenceBeforeArrival, "written and not fenced");
  is_found(Mistake::kNoBegin, "operand is in registers that were not left to it");
  is_found(Mistake::kOperandAfterBegin, "operand is in registers that were not left to it");
  is_found(Mistake::kAccumulatorNotLeft, "accumulators are in registers that were not left to it");
  is_found(Mistake::kNoCommit, "ends with products under way");
  is_found(Mistake::kNotWaitedFor, "ends with products under way");
  is_found(Mistake::kNotNamed, "does not name the registers");
  is_found(Mistake::kAccumulatorWritten, "accumulators of a product under way have been written");
  is_found(Mistake::kOperandWritten, "operands of a product under way have been written");
  is_found(Mistake::kMemoryWritten, "shared memory at 0 has changed under a product");
  is_found(Mistake::kSwizzle, "wanted swizzling of 128 bytes");
  is_found(Mistake::kWithinPattern, "within the pattern of its swizzling");
  is_found(Mistake::kOutside, "reads shared memory at 8192");
  is_found(Mistake::kOneWarpElsewhere, "not at the barrier");
  is_found(Mistake::kDifferentDescriptors, "differ in what they want");
}

}  // namespace
}  // namespace meshwright::cuda::testing
