// The emulated instructions against plain products and copies, and the faults that they find.
#include "executor/cuda/testing/warp_player.h"

#include <cmath>
#include <random>
#include <vector>

#include "executor/cuda/kernels/warp_tiles.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright::cuda::testing {
namespace {

std::vector<uint16_t> Random(size_t n, Elem type, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<uint16_t> values(n);
  for (uint16_t& value : values) {
    value = type == Elem::kBFloat16 ? BFloat16Of(uniform(generator)) : Float16Of(uniform(generator));
  }
  return values;
}
float Value(Elem type, uint16_t bits) {
  return type == Elem::kBFloat16 ? FromBits(static_cast<uint32_t>(bits) << 16) : FromFloat16(bits);
}

// One Mma from fragments that are filled by the ISA's table, element by element: D[i][j] = C[i][j] + sum over k.
template <Elem kElem>
void MmaIsAProduct(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<uint16_t> a = Random(16 * 16, kElem, seed), b = Random(16 * 8, kElem, seed + 1);
  std::vector<float> d(16 * 8, NAN);
  WarpPlayer player(32, 0);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    const int g = ctx.thread() / 4, t = ctx.thread() % 4;
    const auto two = [](uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; };
    const auto a_at = [&](int i, int k) { return two(a[i * 16 + k], a[i * 16 + k + 1]); };
    const auto b_at = [&](int k) { return two(b[k * 8 + g], b[(k + 1) * 8 + g]); };
    const uint32_t rows[4] = {a_at(g, 2 * t), a_at(g + 8, 2 * t), a_at(g, 2 * t + 8), a_at(g + 8, 2 * t + 8)};
    float c[4] = {1, 2, 3, 4};
    ctx.Mma<kElem>(c, rows, b_at(2 * t), b_at(2 * t + 8));
    for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + 2 * t + e % 2] = c[e] - static_cast<float>(e + 1);
  }));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double want = 0;
      for (int k = 0; k < 16; ++k) want += double{Value(kElem, a[i * 16 + k])} * Value(kElem, b[k * 8 + j]);
      EXPECT_NEAR(d[i * 8 + j], want, 1e-5) << i << " " << j;
    }
  }
}
TEST(WarpPlayerTest, MmaIsAProduct) {
  MmaIsAProduct<Elem::kBFloat16>(1);
  MmaIsAProduct<Elem::kFloat16>(2);
}

// Four matrices of 8 x 8 whose elements are their own numbers: matrix m has 64 m + 8 row + column.
TEST(WarpPlayerTest, MatricesComeInRowsOrColumns) {
  WarpPlayer player(32, 512);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    const auto lane = static_cast<uint32_t>(ctx.thread());
    for (uint32_t i = 0; i < 8; ++i) ctx.Put<uint16_t>(lane * 16 + 2 * i, static_cast<uint16_t>(lane * 8 + i));
    ctx.SyncWarp();
    uint32_t rows[4], columns[4];
    ctx.LoadMatrices(rows, lane * 16);
    ctx.LoadMatricesTransposed(columns, lane * 16);
    const uint32_t i = lane / 4, j = lane % 4 * 2;
    for (uint32_t m = 0; m < 4; ++m) {
      EXPECT_EQ(rows[m], (64 * m + 8 * i + j) | (64 * m + 8 * i + j + 1) << 16) << "lane " << lane;
      EXPECT_EQ(columns[m], (64 * m + 8 * j + i) | (64 * m + 8 * (j + 1) + i) << 16) << "lane " << lane;
    }
    EXPECT_EQ(ctx.ShuffleXor(static_cast<float>(lane), 2), static_cast<float>(lane ^ 2));
    EXPECT_TRUE(ctx.Any(lane == 9));
    EXPECT_FALSE(ctx.Any(false));
  }));
}

// Products of tiles by a warp, and their way out, against plain loops.
template <Elem kElem, int kWidth>
void TilesAreProducts(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int kRows = 32, kKeys = 32;
  const int64_t stride = kWidth + 8;
  const std::vector<uint16_t> x = Random(kRows * stride, kElem, seed), y = Random(kKeys * stride, kElem, seed + 1);
  std::vector<uint16_t> out(kRows * stride, 0);
  constexpr uint32_t kTile = kRows * kRowBytes<kWidth>;
  WarpPlayer player(128, 2 * kTile);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    CopyRows<kRows, kWidth, 128>(ctx, 0, x.data(), stride, kRows, kWidth);
    CopyRows<kKeys, kWidth, 128>(ctx, kTile, y.data(), stride, kKeys - 3, kWidth - 8);
    ctx.WaitCopies();
    ctx.Sync();
    if (ctx.thread() >= 32) return ctx.Sync();
    float scores[2][kKeys / 8][4], result[2][kWidth / 8][4];
    Clear(scores);
    Clear(result);
    MultiplyByRows<kElem, kWidth>(ctx, 0, kTile, scores);
    uint32_t packed[2][kKeys / 16][4];
    PackAll<kElem>(scores, packed);
    MultiplyByColumns<kElem, kWidth>(ctx, packed, kTile, result);
    const float factor[2][2] = {{2, 2}, {2, 2}};
    WriteRows<kElem, kWidth>(ctx, 0, result, factor, out.data(), stride, kRows - 1, kWidth, false);
    ctx.Sync();
  }));
  const auto y_of = [&](int j, int c) {
    return j < kKeys - 3 && c < kWidth - 8 ? double{Value(kElem, y[j * stride + c])} : 0.0;
  };
  for (int i = 0; i < kRows; ++i) {
    double scores[kKeys] = {};
    for (int j = 0; j < kKeys; ++j) {
      for (int c = 0; c < kWidth; ++c) scores[j] += Value(kElem, x[i * stride + c]) * y_of(j, c);
    }
    for (int c = 0; c < kWidth; ++c) {
      double want = 0, size = 1;
      for (int j = 0; j < kKeys; ++j) {
        want += 2 * scores[j] * y_of(j, c);
        size += std::abs(2 * scores[j] * y_of(j, c));
      }
      if (i == kRows - 1) want = 0;  // not to be written
      EXPECT_NEAR(Value(kElem, out[i * stride + c]), want, size * 0x1p-8) << i << " " << c;
    }
  }
}
TEST(WarpPlayerTest, TilesAreProducts) {
  TilesAreProducts<Elem::kBFloat16, 64>(3);
  TilesAreProducts<Elem::kFloat16, 128>(5);
}

TEST(WarpPlayerTest, CopiesArriveWhenWaitedFor) {
  alignas(16) const uint32_t from[4] = {1, 2, 3, 4};
  WarpPlayer player(32, 32);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    if (ctx.thread() == 0) {
      ctx.CopyAsync(0, from, true);
      ctx.CopyAsync(16, nullptr, false);
      EXPECT_EQ(ctx.Get<uint32_t>(4), 0xffffffffu);
      ctx.WaitCopies();
      EXPECT_EQ(ctx.Get<uint32_t>(4), 2u);
      EXPECT_EQ(ctx.Get<uint32_t>(16), 0u);
    }
    ctx.Sync();
  }));
}

// Two warps hand numbers to two others, one at a time, through one place.
TEST(WarpPlayerTest, NamedBarriers) {
  WarpPlayer player(128, 16);
  constexpr int kFull = 1, kEmpty = 2, kMany = 5;
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    for (int i = 0; i < kMany; ++i) {
      if (ctx.thread() < 64) {
        if (i > 0) ctx.Sync(kEmpty, 128);
        if (ctx.thread() == 0) ctx.Put<int32_t>(0, i);
        ctx.Arrive(kFull, 128);
      } else {
        ctx.Sync(kFull, 128);
        EXPECT_EQ(ctx.Get<int32_t>(0), i);
        if (i + 1 < kMany) ctx.Arrive(kEmpty, 128);
      }
    }
  }));
  const auto play = [](const std::function<void(PlayedContext&)>& body) { return WarpPlayer(64, 64).Play(0, 1, body); };
  const auto internal = absl::StatusCode::kInternal;
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.Arrive(3, 96); }), StatusIs(internal, "barrier 3 is left with 64"));
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.Sync(3, ctx.thread() < 32 ? 64 : 96); }),
              StatusIs(internal, "wants 96 threads at barrier 3, others 64"));
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.Sync(16, 64); }), StatusIs(internal, "is at barrier 16"));
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.Sync(ctx.thread(), 64); }),
              StatusIs(internal, "differs from its warp"));
}

// Groups of copies arrive in order; what is not in a group yet waits.
TEST(WarpPlayerTest, CopiesArriveByGroups) {
  alignas(16) const uint32_t from[4] = {1, 2, 3, 4};
  WarpPlayer player(32, 48);
  ASSERT_OK(player.Play(0, 1, [&](PlayedContext& ctx) {
    if (ctx.thread() != 0) return;
    for (uint32_t i = 0; i < 3; ++i) {
      ctx.CopyAsync(i * 16, from, true);
      if (i < 2) ctx.CommitCopies();
    }
    ctx.WaitCopies<1>();
    EXPECT_EQ(ctx.Get<uint32_t>(0), 1u);
    EXPECT_EQ(ctx.Get<uint32_t>(16), 0xffffffffu);
    ctx.WaitCopies<0>();
    EXPECT_EQ(ctx.Get<uint32_t>(16), 1u);
    EXPECT_EQ(ctx.Get<uint32_t>(32), 0xffffffffu);
    ctx.WaitCopies();
    EXPECT_EQ(ctx.Get<uint32_t>(32), 1u);
  }));
}

TEST(WarpPlayerTest, FindsFaults) {
  const auto play = [](const std::function<void(PlayedContext&)>& body) { return WarpPlayer(64, 64).Play(0, 1, body); };
  const auto internal = absl::StatusCode::kInternal;
  EXPECT_THAT(play([](PlayedContext& ctx) {
                if (ctx.thread() != 5) ctx.SyncWarp();
              }),
              StatusIs(internal, "not at the instruction"));
  EXPECT_THAT(play([](PlayedContext& ctx) {
                if (ctx.thread() < 32) ctx.Sync();
              }),
              StatusIs(internal, "not at the barrier"));
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.Put<uint32_t>(64, 0); }), StatusIs(internal, "shared memory at 64"));
  EXPECT_THAT(play([](PlayedContext& ctx) { ctx.CopyAsync(0, nullptr, false); }), StatusIs(internal, "under way"));
  EXPECT_THAT(play([](PlayedContext& ctx) {
                uint32_t r[4];
                ctx.LoadMatrices(r, 8);
              }),
              StatusIs(internal, "row of a matrix at 8"));
}

}  // namespace
}  // namespace meshwright::cuda::testing
