// The kernels of devices, with their threads played on the host: every operator of the table against the host's
// kernels, by one thread a block, and by real threads with barriers. What this leaves out is the device itself:
// tests/gpu.
#include "executor/cuda/device_kernels.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/testing/emulated_launcher.h"
#include "executor/cuda/testing/op_checks.h"
#include "executor/cuda/testing/stand_in.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"

namespace meshwright::cuda {
namespace {

using testing::AttentionCheck;
using testing::CanAccumulate;
using testing::CheckAttention;
using testing::CheckedOps;
using testing::CheckOp;
using ::testing::ElementsAre;
using testing::EmulatedLauncher;
using testing::OpCheck;
using testing::StandInMachine;

class DeviceKernelsTest : public ::testing::TestWithParam<OpKind> {
 protected:
  absl::Status Check(const OpCheck& check, int threads) {
    StandInMachine machine(1);
    EmulatedLauncher launcher(machine.driver(0), threads);
    DeviceKernels kernels(machine.driver(0), launcher);
    return CheckOp(machine.driver(0), kernels, GetParam(), check);
  }
};

TEST_P(DeviceKernelsTest, EqualsTheHostInEveryType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_OK(Check({dtype, seed}, 1));
  }
  // By numbers that 8 bits hold: Route's choices and comparisons for equality must not hang on a rounding.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) EXPECT_OK(Check({dtype, 1}, 1));
}

TEST_P(DeviceKernelsTest, AddsToWhatIsThere) {
  if (!CanAccumulate(GetParam())) return;
  EXPECT_OK(Check({DType::kFloat64, 4, true}, 1));
}

TEST_P(DeviceKernelsTest, ManyThreadsInABlock) {
  EXPECT_OK(Check({DType::kFloat64, 5}, 4));
  EXPECT_OK(Check({DType::kFloat64, 6, false, true}, 3));
}

TEST_P(DeviceKernelsTest, WorksInPlace) {
  if (!WorksInPlace(GetParam())) return;
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16}) {
    for (const bool large : {false, true}) {
      EXPECT_OK(Check({.dtype = dtype, .seed = 7, .large = large, .in_place = true}, large ? 3 : 1));
    }
  }
}

// Eight elements at a time, and what is left of them.
TEST_P(DeviceKernelsTest, VectorsEqualTheHost) {
  // The stand-in multiplies float32 and float64. The other two have no vectors, and examples whose sums want float64.
  const OpKind op = GetParam();
  if (op == OpKind::kMatMul || op == OpKind::kGatherGrad || op == OpKind::kAttentionGrad) return;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_OK(Check({dtype, 8, false, true}, 1));
  }
  EXPECT_OK(Check({DType::kFloat32, 9, false, true}, 3));
}

class FlashAttentionTest : public ::testing::Test {
 protected:
  // Which bodies were launched, if all is as the host has it.
  absl::StatusOr<std::vector<std::string>> Check(const AttentionCheck& attention, const OpCheck& check,
                                                 bool wgmma = false) {
    StandInMachine machine(1);
    EmulatedLauncher launcher(machine.driver(0));
    DeviceKernels kernels(machine.driver(0), launcher, /*tf32=*/false, wgmma);
    MESHWRIGHT_RETURN_IF_ERROR(CheckAttention(machine.driver(0), kernels, attention, check));
    return launcher.launched();
  }
  void CheckOnTensorCores(const AttentionCheck& attention) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      ASSERT_OK_AND_ASSIGN(auto launched, Check(attention, {dtype, 7}));
      EXPECT_THAT(launched, ElementsAre("FlashForward", "FlashQueryGradient", "FlashKeyGradient"));
      ASSERT_OK_AND_ASSIGN(launched, Check(attention, {dtype, 7}, /*wgmma=*/true));
      EXPECT_THAT(launched, ElementsAre("HopperForward", "HopperQueryGradient", "HopperKeyGradient"));
    }
  }
};

// Two tiles of queries, of which the second is not full, three of keys, and two heads for each of two groups.
TEST_F(FlashAttentionTest, CausalHeadsOf64) { CheckOnTensorCores({.s = 150, .g = 2, .q = 2, .d = 64}); }
TEST_F(FlashAttentionTest, CausalHeadsOf128) { CheckOnTensorCores({.s = 150, .b = 2, .g = 1, .q = 2, .d = 128}); }
TEST_F(FlashAttentionTest, NotCausal) {
  CheckOnTensorCores({.s = 150, .q = 2, .d = 64, .causal = false});
  CheckOnTensorCores({.s = 70, .d = 128, .causal = false});
}
// Rows of a tile that are not full.
TEST_F(FlashAttentionTest, OtherWidths) {
  CheckOnTensorCores({.s = 80, .d = 16});
  CheckOnTensorCores({.s = 80, .d = 40, .causal = false});
  CheckOnTensorCores({.s = 80, .d = 96});
}
// Keys of another length than queries; the order for two ranks, whose pieces are 128 rows; a ring of two blocks.
TEST_F(FlashAttentionTest, KeysApart) {
  CheckOnTensorCores({.s = 100, .d = 64, .causal = false, .apart = true, .keys = 170});
  CheckOnTensorCores({.s = 512, .d = 32, .apart = true, .keys = 512, .context = 2});
  CheckOnTensorCores({.s = 256, .d = 64, .causal = false, .apart = true, .keys = 256, .context = 2, .shift = 1});
}
// On Hopper a tile of keys goes where one before it was; a section of heads that share them; the last tile not full.
TEST_F(FlashAttentionTest, ManyTilesOnHopper) {
  for (const bool causal : {true, false}) {
    EXPECT_OK(Check({.s = 420, .q = 2, .d = 128, .causal = causal}, {DType::kBFloat16, 3},
                    /*wgmma=*/true));
    EXPECT_OK(Check({.s = 400, .b = 2, .d = 64, .causal = causal}, {DType::kFloat16, 4}, /*wgmma=*/true));
  }
}
// A token alone; less than a tile, so that whole tiles on both sides are not looked at; about a tile; more.
TEST_F(FlashAttentionTest, Windows) {
  for (const int64_t window : {1, 20, 64, 100, 200}) {
    CheckOnTensorCores({.s = 300, .q = 2, .d = 64, .window = window});
    CheckOnTensorCores({.s = 300, .d = 128, .window = window});
    ASSERT_OK_AND_ASSIGN(const auto launched,
                         Check({.s = 90, .q = 2, .d = 20, .window = window}, {DType::kFloat64, 1}));
    EXPECT_THAT(launched, ElementsAre("AttentionForward", "AttentionBackward", "AttentionBackward"));
  }
  CheckOnTensorCores({.s = 512, .d = 32, .apart = true, .keys = 512, .context = 2, .window = 150});
}
TEST_F(FlashAttentionTest, AddsGradientsToWhatIsThere) {
  ASSERT_OK_AND_ASSIGN(auto launched, Check({.s = 70, .q = 2, .d = 64}, {DType::kFloat16, 9, true}));
  EXPECT_THAT(launched, ElementsAre("FlashQueryGradient", "FlashKeyGradient"));
  ASSERT_OK_AND_ASSIGN(launched, Check({.s = 70, .q = 2, .d = 64}, {DType::kFloat16, 9, true}, /*wgmma=*/true));
  EXPECT_THAT(launched, ElementsAre("HopperQueryGradient", "HopperKeyGradient"));
}
TEST_F(FlashAttentionTest, TilesForWhatDoesNotFit) {
  const auto tiles = ElementsAre("AttentionForward", "AttentionBackward", "AttentionBackward");
  ASSERT_OK_AND_ASSIGN(auto launched, Check({.s = 40, .d = 64}, {DType::kFloat32, 1}));
  EXPECT_THAT(launched, tiles);
  ASSERT_OK_AND_ASSIGN(launched, Check({.s = 40, .d = 20}, {DType::kBFloat16, 1}));
  EXPECT_THAT(launched, tiles);
  // Two ranks' pieces of 20 rows: positions jump within a tile.
  ASSERT_OK_AND_ASSIGN(launched,
                       Check({.s = 80, .d = 32, .apart = true, .keys = 80, .context = 2}, {DType::kBFloat16, 1}));
  EXPECT_THAT(launched, tiles);
}

INSTANTIATE_TEST_SUITE_P(OpTable, DeviceKernelsTest, ::testing::ValuesIn(CheckedOps()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Of Hopper's generation alone: Ampere and Ada have no wgmma, and Blackwell has another instruction.
TEST(DeviceKernelsOptionsTest, OnlyHopperHasWgmma) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}}) {
    DeviceInfo info;
    info.major = major;
    info.minor = minor;
    EXPECT_EQ(HasWgmma(info), major == 9) << major << "." << minor;
  }
}

// 1 + 2^-9 rounds to even in bfloat16, half's smallest number is 2^-24, and what is too large becomes infinite.
TEST(ElementTest, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16Of(1.0f), 0x3f80);
  EXPECT_EQ(BFloat16Of(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(BFloat16Of(1.0f + 0x1.8p-8f), 0x3f81);
  EXPECT_EQ(Float16Of(1.0f), 0x3c00);
  EXPECT_EQ(Float16Of(0x1p-24f), 1);
  EXPECT_EQ(Float16Of(65504.0f), 0x7bff);
  EXPECT_EQ(Float16Of(65520.0f), 0x7c00);
  EXPECT_EQ(Float16Of(-2.0f), 0xc000);
  for (int bits = 0; bits < 0x7c00; ++bits) {
    EXPECT_EQ(Float16Of(FromFloat16(static_cast<uint16_t>(bits))), bits);
  }
}

// How many kernels a product of 16 x `inner` by `inner` x `width` elements of bfloat16 takes with its epilogue.
int64_t KernelsFor(OpKind op, const std::string& text, int64_t width) {
  StandInMachine machine(1);
  auto& driver = machine.driver(0);
  EmulatedLauncher launcher(driver);
  DeviceKernels kernels(driver, launcher);
  Scratch scratch(driver);
  const IndexRule rule = *ParseRule(text);
  const OpAttrs attrs;
  std::vector<TensorView> inputs, outputs;
  const auto add = [&](const OperandRule& operand, std::vector<TensorView>& views) {
    TensorView view;
    for (const DimRule& dim : operand) {
      const std::string& name = rule.labels[dim.label].name;
      view.shape.push_back(name == "n" ? width : 16);
    }
    view.dtype = DType::kBFloat16;
    view.data = *driver.Allocate(Bytes(view.bytes()));
    views.push_back(view);
  };
  for (const OperandRule& operand : rule.inputs) add(operand, inputs);
  for (const OperandRule& operand : rule.outputs) add(operand, outputs);
  KernelCall call;
  call.op = op;
  call.attrs = &attrs;
  call.rule = &rule;
  call.inputs = inputs;
  call.outputs = outputs;
  const absl::StatusOr<DeviceStream> stream = driver.MakeStream();
  const int64_t before = machine.counts().kernels;
  EXPECT_OK(kernels.Run(*stream, call, scratch, nullptr));
  return machine.counts().kernels - before;
}

TEST(DeviceProductsTest, EpiloguesAreTheLibrarysWhereItHasThem) {
  const OpKind gelu = OpKind::kMatMulGelu, gradient = OpKind::kMatMulGeluGrad;
  EXPECT_EQ(KernelsFor(gelu, "m k!, k! n -> m n", 24), 1);
  EXPECT_EQ(KernelsFor(gelu, "m k!, k! n, n -> m n, m n", 24), 1);
  EXPECT_EQ(KernelsFor(gelu, "e m k!, e k! n -> e m n, e m n", 24), 1);
  EXPECT_EQ(KernelsFor(gradient, "m k!, n k!, m n -> m n", 24), 1);
  // Rows of 12 elements, a result that lies the other way, and one bias for all of a batch: product and GELU, and
  // before them a kernel for the bias.
  EXPECT_EQ(KernelsFor(gelu, "m k!, k! n -> m n", 12), 2);
  EXPECT_EQ(KernelsFor(gelu, "m k!, k! n -> n m", 24), 2);
  EXPECT_EQ(KernelsFor(gradient, "m k!, n k!, m n -> m n", 12), 2);
  EXPECT_EQ(KernelsFor(gelu, "e m k!, e k! n, n -> e m n", 24), 3);
}

TEST(DeviceNormsTest, SumsAroundThemTakeNoKernelOfTheirOwn) {
  EXPECT_EQ(KernelsFor(OpKind::kAddLayerNorm, "m n!, n!, m n!, n!, n! -> m n!, m n!", 24), 1);
  EXPECT_EQ(KernelsFor(OpKind::kAddRmsNorm, "m n!, m n!, n! -> m n!, m n!", 24), 1);
  // The row's gradient, sums over parts of the rows, and the sum of these.
  EXPECT_EQ(KernelsFor(OpKind::kRmsNormGrad, "m n!, m n!, n! -> m n!, n!", 24), 3);
  EXPECT_EQ(KernelsFor(OpKind::kRmsNormGradAdd, "m n!, m n!, n!, m n! -> m n!, n!", 24), 3);
  // A summand that lies the other way, or is one too many: the sum, and the norm.
  EXPECT_EQ(KernelsFor(OpKind::kAddRmsNorm, "m k n!, k m n!, n! -> m k n!, m k n!", 24), 2);
  EXPECT_EQ(KernelsFor(OpKind::kAddRmsNorm, "m n!, m n!, m n!, m n!, n! -> m n!, m n!", 24), 3);
}

// Logits of which many are masked, in two parts of rows of an odd width. Row 0: all of part 0 are, so that it adds
// nothing. Row 1: all but the label, whose loss is 0. Row 2: none, all alike, so that the loss is that of a guess.
TEST(DeviceLossTest, MaskedLogits) {
  constexpr int64_t kRows = 3, kWidth = 521, kClasses = 2 * kWidth;
  const float masked = -std::numeric_limits<float>::infinity();
  std::vector<float> logits(kRows * kClasses, masked), tops(2 * kRows), sums(2 * kRows), picks(2 * kRows), top(kRows),
      sum(kRows), pick(kRows);
  std::vector<int32_t> labels = {kWidth + 3, 5, 7};
  logits[kWidth + 3] = 1e4F;
  logits[kWidth + 9] = 1e4F;
  logits[kClasses + 5] = -1e4F;
  std::fill(logits.begin() + 2 * kClasses, logits.end(), 2.0F);

  StandInMachine machine(1);
  EmulatedLauncher launcher(machine.driver(0), 3);
  DeviceKernels kernels(machine.driver(0), launcher);
  Scratch scratch(machine.driver(0));
  ASSERT_OK_AND_ASSIGN(const DeviceStream stream, machine.driver(0).MakeStream());
  const auto view = [](auto& values, const Shape& shape, DType dtype = DType::kFloat32) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), dtype, shape, shape, Shape(shape.size(), 0)};
  };
  const auto run = [&](OpKind op, const std::string& text, std::vector<TensorView> in, std::vector<TensorView> out) {
    ASSERT_OK_AND_ASSIGN(const IndexRule rule, ParseRule(text));
    const OpAttrs attrs;
    ASSERT_OK(kernels.Run(stream, {op, &attrs, &rule, 0, 1, in, out}, scratch, nullptr));
    for (absl::StatusOr<bool> idle = false; idle.ok() && !*idle;) idle = machine.driver(0).IsIdle(stream);
  };
  std::vector<float> one = {1}, loss = {0};
  const TensorView x = view(logits, {kRows, kClasses}), l = view(labels, {kRows}, DType::kInt32);
  const TensorView m = view(top, {kRows}), s = view(sum, {kRows}), p = view(pick, {kRows});
  const TensorView ms = view(tops, {kRows, 2}), ss = view(sums, {kRows, 2}), ps = view(picks, {kRows, 2});
  run(OpKind::kRowPartials, "r v, r -> r =v, r =v, r =v", {x, l}, {ms, ss, ps});
  EXPECT_THAT(tops, ElementsAre(masked, 1e4F, -1e4F, masked, 2, 2));
  EXPECT_THAT(sums, ElementsAre(0, 2, 1, 0, kWidth, kWidth));
  EXPECT_THAT(picks, ElementsAre(0, 1e4F, -1e4F, 0, 2, 0));
  run(OpKind::kRowMax, "r v -> r", {ms}, {m});
  run(OpKind::kJoinPartials, "r v, r v, r v, r -> r, r", {ms, ss, ps, m}, {s, p});
  EXPECT_THAT(top, ElementsAre(1e4F, -1e4F, 2));
  EXPECT_THAT(sum, ElementsAre(2, 1, kClasses));
  EXPECT_THAT(pick, ElementsAre(1e4F, -1e4F, 2));
  run(OpKind::kCrossEntropy, "r v!, r -> ", {x, l}, {view(loss, {})});
  EXPECT_NEAR(loss[0], std::log(2.0) + std::log(1.0 * kClasses), 1e-3);  // 1e4 + log 2 in float32 has steps of 1e-3
  run(OpKind::kPartialsGrad, ", r v, r, r, r -> r v", {view(one, {}), x, m, s, l}, {x});
  for (int64_t c = 0; c < kClasses; ++c) {
    EXPECT_EQ(logits[c], c == kWidth + 3 ? -0.5F : c == kWidth + 9 ? 0.5F : 0.0F) << c;
    EXPECT_EQ(logits[kClasses + c], 0.0F) << c;
    EXPECT_NEAR(logits[2 * kClasses + c], 1.0 / kClasses - (c == 7 ? 1 : 0), 1e-7) << c;
  }
}

TEST(DeviceKernelsErrorTest, WhatItCannotDoIsSaid) {
  StandInMachine machine(1);
  EmulatedLauncher launcher(machine.driver(0));
  DeviceKernels kernels(machine.driver(0), launcher);
  Scratch scratch(machine.driver(0));
  ASSERT_OK_AND_ASSIGN(const DeviceStream stream, machine.driver(0).MakeStream());
  KernelCall feed;
  feed.op = OpKind::kFeed;
  EXPECT_THAT(kernels.Run(stream, feed, scratch, nullptr), StatusIs(absl::StatusCode::kInvalidArgument, "Feed: "));

  // A block has at most 256 threads, of which each has 32 rows of a state.
  const absl::StatusOr<IndexRule> rule = ParseRule("s! b y w!, s! b y p!, y n!, y n! -> s! b y n! u!");
  ASSERT_OK(rule.status());
  const OpAttrs attrs;
  std::vector<TensorView> in, out;
  for (const Shape& shape : {Shape{2, 1, 1, 604}, Shape{2, 1, 1, 2}, Shape{1, 1}, Shape{1, 1}}) {
    in.push_back({nullptr, DType::kFloat32, shape, shape, Shape(shape.size(), 0)});
  }
  const Shape y = {2, 1, 1, 1, 4};
  out.push_back({nullptr, DType::kFloat32, y, y, Shape(y.size(), 0)});
  EXPECT_THAT(kernels.Run(stream, {OpKind::kLinearAttention, &attrs, &*rule, 0, 1, in, out}, scratch, nullptr),
              StatusIs(absl::StatusCode::kUnimplemented, "LinearAttention: queries and keys of 300 elements"));
}

}  // namespace
}  // namespace meshwright::cuda
