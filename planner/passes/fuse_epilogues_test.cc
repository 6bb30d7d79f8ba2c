#include "planner/passes/fuse_epilogues.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// A feed-forward block of 8 tokens, h 16, f 32 split over tp = 2: rows of 16 elements on each rank.
constexpr char kBlock[] = R"(program mlp mesh tp=2
class all
  buffer h bfloat16 (8, 16) {- | -} temporary
  buffer w bfloat16 (16, 32) {- | tp} parameter
  buffer b bfloat16 (32) {tp} parameter
  buffer v bfloat16 (32, 16) {tp | -} parameter
  buffer x bfloat16 (8, 32) {- | tp} activation
  buffer y bfloat16 (8, 32) {- | tp} activation
  buffer z bfloat16 (8, 16) {- | -} temporary
  buffer dy bfloat16 (8, 32) {- | tp} temporary
  buffer dx bfloat16 (8, 32) {- | tp} temporary
  buffer dv float32 (32, 16) {tp | -} gradient
  event e
  block "forward" forward
    compute Fill "-> m n" writes h
    compute MatMul "m k!, k! n, n -> m n" reads h w b writes x @layers/mlp1
    compute GeLU "m n -> m n" reads x writes y @layers/activation
  block "backward" backward
    compute Fill "-> m n" writes z
    compute Fill "-> m n" writes dv
    compute MatMul "m k, n k -> m n" reads z v writes dy @layers/mlp2/grad
    compute MatMul "m n, m k -> n k" accumulate reads y z writes dv @layers/mlp2/grad
    compute GeLUGrad "m n, m n -> m n" reads dy x writes dx @layers/activation/grad
  slot "forward" mb 0 layer 0
  slot "backward" mb 0 layer 0
)";

Program Fused(const std::string& text) {
  Program program = Passed(text, [](Program before) { return FuseEpilogues(std::move(before)); });
  EXPECT_OK(VerifyProgram(PlanMemory(program)));
  return program;
}
Program Changed(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kBlock, {{from, to}});
  EXPECT_NE(text, kBlock) << from;
  return Fused(text);
}
bool HasFused(const Program& program, const std::string& op) {
  return ToText(program).find(op + " ") != std::string::npos;
}

TEST(FuseEpiloguesTest, ProductsTakeTheGeluBehindThem) {
  const Program program = Fused(kBlock);
  EXPECT_THAT(Lines(program, 0, "forward"),
              ElementsAre("compute Fill \" -> m n\" writes h",
                          "compute MatMulGeLU \"m k!, k! n, n -> m n, m n\" reads h w b writes y x "
                          "@\"layers/mlp1 + activation\""));
  EXPECT_THAT(Lines(program, 0, "backward"),
              ElementsAre("compute Fill \" -> m n\" writes z", "compute Fill \" -> m n\" writes dv",
                          "compute MatMulGeLUGrad \"m k!, n k!, m n -> m n\" reads z v x writes dx "
                          "@\"layers/mlp2/grad + activation/grad\"",
                          "compute MatMul \"m n, m k -> n k\" accumulate reads y z writes dv @layers/mlp2/grad"));
  // dy is gone: 8 x 16 elements of 2 bytes, one unit of alignment.
  const std::string text = ToText(program);
  EXPECT_EQ(text.find("buffer dy"), std::string::npos) << text;
}

// Without a backward pass that reads it, the product is not written.
TEST(FuseEpiloguesTest, AProductThatNobodyElseReadsIsNotKept) {
  const Program program =
      Changed("compute GeLUGrad \"m n, m n -> m n\" reads dy x writes dx @layers/activation/grad", "compute sync");
  EXPECT_EQ(Lines(program, 0, "forward")[1],
            "compute MatMulGeLU \"m k!, k! n, n -> m n\" reads h w b writes y @\"layers/mlp1 + activation\"");
  EXPECT_EQ(ToText(program).find("buffer x"), std::string::npos);
}

// float32 keeps its kernels, and so do rows of 4 elements, what waits, and what another reads in between.
TEST(FuseEpiloguesTest, WhatDoesNotFitStays) {
  EXPECT_FALSE(HasFused(Changed("bfloat16", "float32"), "MatMulGeLU"));
  EXPECT_TRUE(HasFused(Changed("bfloat16", "float16"), "MatMulGeLU"));
  EXPECT_FALSE(HasFused(Fused(absl::StrReplaceAll(kBlock, {{", 32)", ", 8)"}, {"(32", "(8"}})), "MatMulGeLU"));
  // The gradient of the product is read by somebody else, too.
  const Program twice = Changed("compute GeLUGrad \"m n, m n -> m n\" reads dy x writes dx",
                                "compute GeLUGrad \"m n, m n -> m n\" reads dy x writes dx\n"
                                "    compute ReLU \"m n -> m n\" reads dy writes y");
  EXPECT_TRUE(HasFused(twice, "MatMulGeLU"));
  EXPECT_FALSE(HasFused(twice, "MatMulGeLUGrad"));
  // x is overwritten between the product and the gradient.
  const Program between = Changed("    compute GeLUGrad", "    compute Fill \"-> m n\" writes x\n    compute GeLUGrad");
  EXPECT_FALSE(HasFused(between, "MatMulGeLUGrad"));
  // Another activation has no such epilogue.
  EXPECT_FALSE(HasFused(Changed("compute GeLU \"", "compute SiLU \""), "MatMulGeLU"));
}

TEST(FuseEpiloguesTest, NothingMovesOverAWait) {
  const Program program =
      Changed("    compute GeLU \"", "    compute sync records e\n    compute sync waits e\n    compute GeLU \"");
  EXPECT_FALSE(HasFused(program, "MatMulGeLU"));
  EXPECT_TRUE(HasFused(program, "MatMulGeLUGrad"));
}

// Between two blocks of a transformer: 8 tokens, h 16; a bias and the residual r are added to p, and the sum is normed.
constexpr char kNorms[] = R"(program norms mesh tp=2
class all
  buffer p bfloat16 (8, 16) {- | -} temporary
  buffer r bfloat16 (8, 16) {- | -} activation
  buffer b bfloat16 (16) {-} parameter
  buffer g bfloat16 (16) {-} parameter
  buffer c bfloat16 (16) {-} parameter
  buffer x bfloat16 (8, 16) {- | -} activation
  buffer n bfloat16 (8, 16) {- | -} activation
  buffer dn bfloat16 (8, 16) {- | -} temporary
  buffer dz bfloat16 (8, 16) {- | -} temporary
  buffer dx bfloat16 (8, 16) {- | -} temporary
  buffer dr bfloat16 (8, 16) {- | -} activation
  buffer dg float32 (16) {-} gradient
  buffer dc float32 (16) {-} gradient
  event e
  block "forward" forward
    compute Fill "-> m h, m h" writes p r
    compute Add "m h, h, m h -> m h" reads p b r writes x @layers/add1
    compute LayerNorm "m h!, h!, h! -> m h!" epsilon=1e-06 reads x g c writes n @layers/norm2
    compute Scale "m h -> m h" reads x writes r
  block "backward" backward
    compute Fill "-> m h, m h" writes dn dz
    compute Fill "-> h, h" writes dg dc
    compute LayerNormGrad "m h!, m h!, h! -> m h!, h!, h!" accumulate epsilon=1e-06 reads dn x g writes dx dg dc @layers/norm2/grad
    compute Add "m h, m h -> m h" reads dz dx writes dr @layers/dadd1
  slot "forward" mb 0 layer 0
  slot "backward" mb 0 layer 0
)";

Program FusedNorms(const std::string& from = "", const std::string& to = "") {
  std::string text = kNorms;
  if (!from.empty()) text = absl::StrReplaceAll(kNorms, {{from, to}});
  EXPECT_EQ(text == kNorms, from.empty()) << from;
  return Fused(text);
}

TEST(FuseEpiloguesTest, NormsTakeTheSumsAroundThem) {
  const Program program = FusedNorms();
  EXPECT_EQ(Lines(program, 0, "forward")[1],
            "compute AddLayerNorm \"m h!, h!, m h!, h!, h! -> m h!, m h!\" epsilon=1e-06 reads p b r g c writes n x "
            "@\"layers/add1 + norm2\"");
  EXPECT_EQ(
      Lines(program, 0, "backward")[2],
      "compute LayerNormGradAdd \"m h!, m h!, h!, m h! -> m h!, h!, h!\" accumulate epsilon=1e-06 reads dn x g dz "
      "writes dr dg dc @\"layers/norm2/grad + dadd1\"");
  EXPECT_EQ(Lines(program, 0, "backward").size(), 3);
  EXPECT_EQ(ToText(program).find("buffer dx"), std::string::npos);
}

TEST(FuseEpiloguesTest, NormsThatDoNotFitStay) {
  EXPECT_FALSE(HasFused(FusedNorms("bfloat16", "float32"), "AddLayerNorm"));
  // Nobody else reads the sum.
  const Program alone = FusedNorms("compute Scale \"m h -> m h\" reads x writes r", "compute sync");
  EXPECT_TRUE(HasFused(alone, "AddLayerNorm"));  // its gradient does
  // The norm's gradient is read by somebody else, too.
  const Program twice = FusedNorms("reads dz dx writes dr @layers/dadd1",
                                   "reads dz dx writes dr\n    compute ReLU \"m h -> m h\" reads dx writes dn");
  EXPECT_TRUE(HasFused(twice, "AddLayerNorm"));
  EXPECT_FALSE(HasFused(twice, "LayerNormGradAdd"));
  // Twice the gradient is not the sum with another.
  EXPECT_FALSE(HasFused(FusedNorms("reads dz dx writes dr", "reads dx dx writes dr"), "LayerNormGradAdd"));
  // What a layer ends with, and the norm of the next one in its run; the gradient of that norm is its own still.
  const Program borders = Passed(kNorms, [](Program before) { return FuseEpilogues(std::move(before), {"x"}); });
  EXPECT_FALSE(HasFused(borders, "AddLayerNorm"));
  EXPECT_TRUE(HasFused(borders, "LayerNormGradAdd"));
  // Eager frameworks' norms are several kernels.
  EXPECT_FALSE(HasFused(FusedNorms("epsilon=1e-06", "fused=false"), "AddLayerNorm"));
  // The sum with dz waits.
  const Program waits =
      FusedNorms("    compute Add \"m h, m h -> m h\"",
                 "    compute sync records e\n    compute sync waits e\n    compute Add \"m h, m h -> m h\"");
  EXPECT_FALSE(HasFused(waits, "LayerNormGradAdd"));
}

// Two dropouts by one mask: of p, which is added to the residual r, and of the gradient of that sum, which is added to
// a gradient that came past it.
constexpr char kDropouts[] = R"(program dropouts mesh tp=2
class all
  buffer p bfloat16 (8, 16) {tp | -} temporary
  buffer r bfloat16 (8, 16) {tp | -} activation
  buffer d bfloat16 (8, 16) {tp | -} temporary
  buffer x bfloat16 (8, 16) {tp | -} activation
  buffer n bfloat16 (8, 16) {tp | -} activation
  buffer g bfloat16 (16) {-} parameter
  buffer dx bfloat16 (8, 16) {tp | -} temporary
  buffer dz bfloat16 (8, 16) {tp | -} temporary
  buffer dd bfloat16 (8, 16) {tp | -} temporary
  buffer dp bfloat16 (8, 16) {tp | -} activation
  block "forward" forward
    compute Fill "-> m h, m h" writes p r
    compute Dropout "m h -> m h" rate=0.25 stream=7 reads p writes d @layers/drop
    compute Add "m h, m h -> m h" reads r d writes x @layers/add
    compute RMSNorm "m h!, h! -> m h!" reads x g writes n @layers/norm
  block "backward" backward
    compute Fill "-> m h, m h" writes dx dz
    compute Dropout "m h -> m h" rate=0.25 stream=7 reads dx writes dd @layers/drop/grad
    compute Add "m h, m h -> m h" reads dd dz writes dp @layers/dp
    compute RMSNorm "m h!, h! -> m h!" reads x g writes n @layers/norm
  slot "forward" mb 0 layer 0
  slot "backward" mb 0 layer 0
)";

Program FusedDropouts(const std::string& from = "", const std::string& to = "") {
  std::string text = kDropouts;
  if (!from.empty()) text = absl::StrReplaceAll(kDropouts, {{from, to}});
  EXPECT_EQ(text == kDropouts, from.empty()) << from;
  return Fused(text);
}

TEST(FuseEpiloguesTest, DropoutsTakeTheSumBehindThem) {
  const Program program = FusedDropouts();
  EXPECT_EQ(Lines(program, 0, "forward")[1],
            "compute DropoutAdd \"m h, m h -> m h\" rate=0.25 stream=7 reads p r writes x @\"layers/drop + add\"");
  EXPECT_EQ(Lines(program, 0, "backward")[1],
            "compute DropoutAdd \"m h, m h -> m h\" rate=0.25 stream=7 reads dx dz writes dp "
            "@\"layers/drop/grad + dp\"");
  EXPECT_EQ(ToText(program).find("buffer d "), std::string::npos);
  EXPECT_TRUE(HasFused(program, "RMSNorm"));
  EXPECT_FALSE(HasFused(program, "AddRMSNorm"));
}

TEST(FuseEpiloguesTest, DropoutsThatDoNotFitStay) {
  EXPECT_FALSE(HasFused(FusedDropouts("bfloat16", "float32"), "DropoutAdd"));
  // What is left of p is read by somebody else, too.
  const Program twice = FusedDropouts("reads r d writes x @layers/add",
                                      "reads r d writes x\n    compute ReLU \"m h -> m h\" reads d writes n");
  EXPECT_EQ(Lines(twice, 0, "forward")[1],
            "compute Dropout \"m h -> m h\" rate=0.25 stream=7 reads p writes d @layers/drop");
  // A sum of three, and with a row.
  const Program three =
      FusedDropouts("\"m h, m h -> m h\" reads r d writes x", "\"m h, m h, m h -> m h\" reads r d p writes x");
  EXPECT_TRUE(HasFused(three, "Dropout"));
  EXPECT_TRUE(HasFused(FusedDropouts("\"m h, m h -> m h\" reads r d writes x", "\"h, m h -> m h\" reads g d writes x"),
                       "Dropout"));
}

}  // namespace
}  // namespace meshwright
