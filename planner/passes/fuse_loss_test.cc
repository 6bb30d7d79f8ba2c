#include "planner/passes/fuse_loss.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/plan_memory.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

// 4 x 2 rows of 16 classes: 256 bytes of logits.
constexpr char kWhole[] = R"(program p mesh tp=1
class all
  buffer x bfloat16 (4, 2, 16) {- | - | -} activation
  buffer l int32 (2, 4) {- | -} input
  buffer m float32 (4, 2) {- | -} activation
  buffer s float32 (4, 2) {- | -} activation
  buffer p float32 (4, 2) {- | -} temporary
  buffer loss float32 () {} loss
  buffer d float32 () {} temporary
  buffer dx bfloat16 (4, 2, 16) {- | - | -} temporary
  buffer r bfloat16 (4, 2) {- | -} temporary
  block "forward" forward
    compute Fill "-> " scale=0 writes loss
    compute Fill "-> s b v" writes x
    compute RowMax "s b v -> s b" reads x writes m @head/max
    compute Feed "-> b s" writes l
    compute ExpSumAndPick "s b v, s b, b s -> s b, s b" reads x m l writes s p @head/sums
    compute LossFromPartials "s b, s b, s b -> " accumulate reads m s p writes loss
  block "backward" backward
    compute Fill "-> " writes d
    compute PartialsGrad ", s b v, s b, s b, b s -> s b v" reads d x m s l writes dx
    compute ReduceSum "s b v -> s b" reads dx writes r
  slot "forward" mb 0 layer 0
  slot "backward" mb 0 layer 0
)";

// The same with the classes split over two ranks.
std::string Split() {
  return absl::StrReplaceAll(
      kWhole,
      {{"tp=1", "tp=2"},
       {"(4, 2, 16) {- | - | -}", "(4, 2, 16) {- | - | tp}"},
       {"buffer m float32 (4, 2) {- | -} activation",
        "buffer n float32 (4, 2) {- | -} partial max tp temporary\n  buffer m float32 (4, 2) {- | -} activation"},
       {"buffer s float32 (4, 2) {- | -} activation",
        "buffer t float32 (4, 2) {- | -} partial sum tp temporary\n  buffer s float32 (4, 2) {- | -} activation"},
       {"buffer p float32 (4, 2) {- | -} temporary",
        "buffer q float32 (4, 2) {- | -} partial sum tp temporary\n  buffer p float32 (4, 2) {- | -} temporary"},
       {"buffer r bfloat16 (4, 2) {- | -}", "buffer r bfloat16 (4, 2) {- | -} partial sum tp"},
       {"writes m @head/max", "writes n @head/max\n    compute all_reduce max (tp) activation reads n writes m"},
       {"writes s p @head/sums",
        "writes t q @head/sums\n    compute all_reduce sum (tp) activation reads t writes s\n    compute all_reduce "
        "sum (tp) activation reads q writes p"}});
}

Program Fused(const std::string& text) {
  const absl::StatusOr<Program> before = ParseProgram(text);
  EXPECT_OK(before);
  if (!before.ok()) return {};
  EXPECT_OK(VerifyProgram(*before));
  Program program = FuseLoss(*before);
  EXPECT_OK(VerifyProgram(program));
  EXPECT_EQ(ToText(FuseLoss(program)), ToText(program));
  EXPECT_OK(VerifyProgram(PlanMemory(program)));
  return program;
}
Program Changed(const std::string& text, const std::string& from, const std::string& to) {
  const std::string changed = absl::StrReplaceAll(text, {{from, to}});
  EXPECT_NE(changed, text) << from;
  return Fused(changed);
}
std::vector<std::string> Ops(const Program& program, size_t block) {
  std::vector<std::string> ops;
  if (program.classes.empty()) return ops;
  for (const Instruction& instruction : program.classes[0].blocks[block].instructions) {
    ops.push_back(ToText(instruction, program.classes[0], program.mesh));
  }
  return ops;
}
bool ReadsOnce(const Program& program) {
  return absl::StrJoin(Ops(program, 0), " ").find("RowPartials") != std::string::npos;
}
bool WritesOver(const Program& program) {
  for (const Buffer& buffer : program.classes[0].buffers) {
    if (buffer.name == "dx") return buffer.alias.valid();
  }
  return false;
}

TEST(FuseLossTest, OnePassOverAWholeVocabulary) {
  EXPECT_THAT(Ops(Fused(kWhole), 0),
              ElementsAre("compute Fill \" -> \" scale=0 writes loss", "compute Fill \" -> s b v\" writes x",
                          "compute Feed \" -> b s\" writes l",
                          "compute RowPartials \"s b v!, b s -> s b, s b, s b\" reads x l writes m s p @head/sums",
                          "compute LossFromPartials \"s b, s b, s b -> \" accumulate reads m s p writes loss"));
}

TEST(FuseLossTest, OnePassOverASplitVocabularyAndTheSameCommunication) {
  EXPECT_THAT(
      Ops(Fused(Split()), 0),
      ElementsAre(
          "compute Fill \" -> \" scale=0 writes loss", "compute Fill \" -> s b v\" writes x",
          "compute Feed \" -> b s\" writes l",
          "compute RowPartials \"s b v, b s -> s b =v, s b =v, s b =v\" reads x l writes x/tops x/sums x/picks "
          "@head/sums",
          "compute RowMax \"s b v -> s b\" reads x/tops writes n @head/max",
          "compute all_reduce max (tp) activation reads n writes m",
          "compute JoinPartials \"s b v, s b v, s b v, s b -> s b, s b\" reads x/tops x/sums x/picks m writes t q "
          "@head/sums",
          "compute all_reduce sum (tp) activation reads t writes s",
          "compute all_reduce sum (tp) activation reads q writes p",
          "compute LossFromPartials \"s b, s b, s b -> \" accumulate reads m s p writes loss"));
}

// Of the temporaries r alone needs room besides d: 256 bytes each, as everything is at least. Before, dx stood there.
TEST(FuseLossTest, TheGradientLiesWhereTheLogitsLay) {
  const Program program = PlanMemory(Fused(kWhole));
  ASSERT_OK_AND_ASSIGN(const Program before, ParseProgram(kWhole));
  EXPECT_EQ(PlanMemory(before).classes[0].arena - program.classes[0].arena, Bytes(256));
  EXPECT_TRUE(WritesOver(Fused(Split())));
  // Logits of several micro-batches: that of each lies where they lay.
  const Program several =
      Changed(kWhole, "(4, 2, 16) {- | - | -} activation", "(4, 2, 16) {- | - | -} activation microbatches 3");
  EXPECT_TRUE(WritesOver(several));
}

TEST(FuseLossTest, WhatHasToStay) {
  // Other types are read as they were, and written over.
  const Program wide = Changed(kWhole, "bfloat16 (4, 2, 16)", "float32 (4, 2, 16)");
  EXPECT_FALSE(ReadsOnce(wide));
  EXPECT_TRUE(WritesOver(wide));
  // Kernels of each step, as some trainers have them.
  const Program steps = Changed(kWhole, "b s -> s b, s b\"", "b s -> s b, s b\" fused=false");
  EXPECT_FALSE(ReadsOnce(steps));
  // Somebody reads the logits behind their gradient.
  EXPECT_FALSE(WritesOver(Changed(kWhole, "reads dx writes r", "reads x writes r")));
  // The gradient is of another type, or kept for another block.
  EXPECT_FALSE(WritesOver(Changed(kWhole, "buffer dx bfloat16", "buffer dx float32")));
  EXPECT_FALSE(WritesOver(Changed(kWhole, "buffer dx bfloat16 (4, 2, 16) {- | - | -} temporary",
                                  "buffer dx bfloat16 (4, 2, 16) {- | - | -} activation")));
  // The largest is of other logits.
  EXPECT_FALSE(
      ReadsOnce(Changed(kWhole, "    compute RowMax \"s b v -> s b\" reads x",
                        "    compute Fill \"-> s b v\" writes dx\n    compute RowMax \"s b v -> s b\" reads dx")));
}

}  // namespace
}  // namespace meshwright
