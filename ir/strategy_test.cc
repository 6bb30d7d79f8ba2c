#include "ir/strategy.h"

#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

constexpr char kEverything[] = R"(mesh: "pp=2 x4=2 x2=2 x1=2"
rules:
  - {label: batch, axes: [x4, x2]}
  - {label: "true", axes: []}
ops:
  layers/matmul: {inputs: ["{x4 | x2.x1}", "{x2.x1 | -}"], output: "{x4.x2.x1 | -}"}
  loss: {inputs: ["{- | -}"], interleaved: {label: d0, pieces: 2, axes_before: 0}}
inputs:
  x: "{x4.x2.x1 | -}"
stages: 2
layers_per_stage: [5, 3]
microbatches: 8
schedule: gpipe
recompute: selective
recompute_ops: [gelu, relu]
parallel_optimizer: true
parallel_optimizer_threshold: 64 KiB
gradient_accumulation_shard: true
bucket: 1025 B
scatter_bucket: 2 MiB
gather_bucket: 0 B
bucket_ends: [20, 35]
fusion_ids:
  w: 2
gradients_mean: true
gradient_dtype: bfloat16
loss_divisor: 0.1
gradient_scale: 8
)";

TEST(StrategyTest, EveryFieldRoundTrips) {
  ASSERT_OK_AND_ASSIGN(const Strategy s, ParseStrategy(kEverything, "plan.yaml"));
  EXPECT_EQ(ToText(s), kEverything);
  EXPECT_EQ(s.mesh, Mesh::Factored(2, 8));
  const AxisId x4 = s.mesh.Find("x4"), x2 = s.mesh.Find("x2"), x1 = s.mesh.Find("x1");
  ASSERT_EQ(s.rules.size(), 2u);
  EXPECT_EQ(s.rules[0].label, "batch");
  EXPECT_EQ(s.rules[0].axes, (AxisList{x4, x2}));
  EXPECT_EQ(s.rules[1].label, "true");
  ASSERT_EQ(s.ops.size(), 2u);
  EXPECT_EQ(s.ops.at("loss").interleaved, (Interleaving{"d0", 2, 0}));
  EXPECT_FALSE(s.ops.at("layers/matmul").interleaved.has_value());
  EXPECT_EQ(s.ops.at("layers/matmul").inputs[1].dims[0], (AxisList{x2, x1}));
  EXPECT_TRUE(s.ops.at("layers/matmul").output.has_value());
  EXPECT_FALSE(s.ops.at("loss").output.has_value());
  EXPECT_EQ(s.inputs.at("x").dims[0], (AxisList{x4, x2, x1}));
  EXPECT_EQ(s.stages, 2);
  EXPECT_EQ(s.layers_per_stage, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(s.microbatches, 8);
  EXPECT_EQ(s.schedule, Schedule::kGpipe);
  EXPECT_EQ(s.recompute, Recompute::kSelective);
  EXPECT_EQ(s.recompute_ops, (std::set<std::string>{"gelu", "relu"}));
  EXPECT_TRUE(s.parallel_optimizer);
  EXPECT_TRUE(s.gradient_accumulation_shard);
  EXPECT_EQ(s.parallel_optimizer_threshold, KiB(64));
  EXPECT_EQ(s.bucket, Bytes(1025));
  EXPECT_EQ(s.scatter_bucket, MiB(2));
  EXPECT_EQ(s.gather_bucket, Bytes());
  EXPECT_EQ(s.bucket_ends, (std::vector<int64_t>{20, 35}));
  EXPECT_EQ(s.fusion_ids.at("w"), 2);
  EXPECT_TRUE(s.gradients_mean);
  EXPECT_EQ(s.gradient_dtype, DType::kBFloat16);
  EXPECT_EQ(s.loss_divisor, 0.1);
  EXPECT_EQ(s.gradient_scale, 8);
}

TEST(StrategyTest, WhatIsNotSaidIsAsInAFreshStrategy) {
  ASSERT_OK_AND_ASSIGN(const Strategy read, ParseStrategy("mesh: one", "s.yaml"));
  EXPECT_EQ(ToText(read), ToText(Strategy()));
  EXPECT_EQ(ToText(Strategy()), R"(mesh: one
stages: 1
microbatches: 1
schedule: 1f1b
recompute: none
parallel_optimizer: false
parallel_optimizer_threshold: 0 B
bucket: 64 MiB
gradients_mean: false
gradient_dtype: float32
loss_divisor: 1
)");
}

// Axes of 6 ranks, whose names begin with a digit; numbers that only their shortest text says exactly.
TEST(StrategyTest, AwkwardValuesRoundTrip) {
  Strategy s;
  s.mesh = Mesh::Factored(1, 6);
  s.rules = {{"m", {AxisId(0), AxisId(2)}}, {"x: y", {}}};
  s.ops["a b#\"c"].inputs = {Layout::Replicated(0)};
  s.inputs["null"] = Layout{{}, {AxisId(1)}, Reduction::kMax};
  s.parallel_optimizer_threshold = Bytes(int64_t{1} << 52);
  for (double divisor : {1.0 / 3, 1e-7, 1e22, 123456789.0}) {
    s.loss_divisor = divisor;
    ASSERT_OK_AND_ASSIGN(const Strategy read, ParseStrategy(ToText(s), "s.yaml"));
    EXPECT_EQ(read.loss_divisor, divisor);
    EXPECT_EQ(read.parallel_optimizer_threshold, s.parallel_optimizer_threshold);
    EXPECT_EQ(read.inputs.at("null"), s.inputs.at("null"));
    EXPECT_EQ(ToText(read), ToText(s));
  }
}

TEST(StrategyTest, ErrorsSayWhereAndWhat) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"mesh: \"pp=2 x4=2 x2=2 x1=2\"",
       {"mesh: pp=2 x4", "s.yaml:1:7: mesh: mesh \"pp=2 x4\": found \"x4\", wanted name="}},
      {"axes: [x4, x2]", {"axes: [x4, x3]", "s.yaml:3:31: rules[0].axes[1]: found \"x3\", wanted an axis of the mesh"}},
      {"axes: [x4, x2]",
       {"axis: [x4, x2]", "s.yaml:3:20: rules[0].axis: found an unknown key, wanted one of label, axes"}},
      {"\"{x2.x1 | -}\"", {"\"{x9 | -}\"", "s.yaml:6:44: ops.\"layers/matmul\".inputs[1]: no axis \"x9\" in the mesh"}},
      {"output:",
       {"outputs:", "s.yaml:6:60: ops.\"layers/matmul\".outputs: found an unknown key, wanted one of inputs, output"}},
      {"stages: 2",
       {"stages: 4",
        "s.yaml:10:9: stages: found 4, wanted the size of the mesh's first axis, pp, and 1 without; the mesh is pp=2"}},
      {"stages: 2", {"stages: 3", "s.yaml:10:9: stages: found 3, wanted a divisor of the mesh's 16 ranks"}},
      {"[5, 3]", {"[5, 3, 1]", "s.yaml:11:19: layers_per_stage: found 3 numbers, wanted one for each of the 2 stages"}},
      {"microbatches: 8", {"microbatches: 0", "s.yaml:12:15: microbatches: found \"0\", wanted"}},
      {"schedule: gpipe", {"schedule: 1f1b2", "s.yaml:13:11: schedule: found \"1f1b2\", wanted one of gpipe, 1f1b"}},
      {"recompute: selective",
       {"recompute: some", "s.yaml:14:12: recompute: found \"some\", wanted one of none, selective"}},
      {"parallel_optimizer: true\n",
       {"parallel_optimizer: false\n",
        "s.yaml:18:30: gradient_accumulation_shard: found true, wanted it with parallel_optimizer: true"}},
      {"bucket: 1025 B", {"bucket: 1025", "s.yaml:19:9: bucket: found"}},
      {"dtype: bfloat16",
       {"dtype: int32", "s.yaml:26:17: gradient_dtype: found int32, wanted a floating type, as float32"}},
      {"divisor: 0.1", {"divisor: 0", "s.yaml:27:15: loss_divisor: found 0, wanted a number above 0"}},
  };
  for (const auto& [from, change] : cases) {
    SCOPED_TRACE(change.first);
    const std::string text = absl::StrReplaceAll(kEverything, {{from, change.first}});
    ASSERT_NE(text, kEverything);
    const absl::StatusOr<Strategy> strategy = ParseStrategy(text, "s.yaml");
    EXPECT_EQ(strategy.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(strategy.status().message()), testing::StartsWith(change.second));
  }
  EXPECT_THAT(ParseStrategy("stages: 1", "s.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, "mesh: found nothing"));
}

TEST(StrategyTest, NamesAreThoseOfTheFiles) {
  EXPECT_EQ(NameOf(Schedule::kOneFOneB), "1f1b");
  EXPECT_EQ(ScheduleFromName("gpipe"), Schedule::kGpipe);
  EXPECT_EQ(ScheduleFromName("1F1B"), std::nullopt);
  EXPECT_EQ(NameOf(Recompute::kFull), "full");
}

}  // namespace
}  // namespace meshwright
