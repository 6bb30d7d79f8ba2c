#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/mesh.h"
#include "ir/status.h"
#include "ir/strategy.h"
#include "ir/testing.h"
#include "tools/export/writers.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMatMul[] = R"(
name: o
inputs: {x: {shape: [16, 32]}, y: {shape: [16, 8]}}
parameters: {w: {shape: [32, 8]}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w], shard: SHARD}
  - {name: loss, op: MSELoss, inputs: [matmul, y]}
cluster: h100-sxm
parallel: {parallel_mode: semi_auto_parallel, enable_parallel_optimizer: true}
)";

// A plan that says the matmul's strategy on a mesh of 8.
absl::StatusOr<Plan> OperatorPlan(const OpStrategy& strategy, const Mesh& mesh) {
  std::string text = kMatMul;
  text.replace(text.find("SHARD"), 5, "[[2, 4], [4, 1]]");
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel({"m.yaml", text}, Flags()));
  plan.strategy.mesh = mesh;
  plan.strategy.ops["matmul"] = strategy;
  plan.strategy.parallel_optimizer = true;
  return plan;
}

TEST(MindSporeTest, OperatorsHaveTuplesWhereTheseMeanTheSame) {
  const Mesh mesh = Mesh::Factored(1, 8);
  const AxisId x4 = mesh.Find("x4"), x2 = mesh.Find("x2"), x1 = mesh.Find("x1");
  OpStrategy strategy;
  strategy.inputs.resize(2);
  strategy.inputs[0].dims = {{x4}, {x2, x1}};
  strategy.inputs[1].dims = {{x2, x1}, {}};
  ASSERT_OK_AND_ASSIGN(const Plan plan, OperatorPlan(strategy, mesh));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, HasSubstr("    \"matmul\": (((2, 4), (4, 1)),),\n"));
  EXPECT_THAT(exported.text, HasSubstr("parallel_mode=\"semi_auto_parallel\",\n    device_num=8,"));
  EXPECT_THAT(exported.text, HasSubstr("enable_parallel_optimizer=True"));
  EXPECT_THAT(exported.text, Not(HasSubstr("Layout")));
}

// What MindSpore does without a word is not said: thresholds of 64 KiB, all replicas.
TEST(MindSporeTest, GroupsAndThresholdOfTheParallelOptimizer) {
  const Mesh mesh = Mesh::Factored(1, 8);
  OpStrategy strategy;
  strategy.inputs.resize(2);
  strategy.inputs[0].dims = strategy.inputs[1].dims = {{}, {}};
  ASSERT_OK_AND_ASSIGN(Plan plan, OperatorPlan(strategy, mesh));
  plan.strategy.parallel_optimizer_threshold = KiB(64);
  ASSERT_OK_AND_ASSIGN(Exported exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, Not(HasSubstr("parallel_optimizer_config")));
  plan.strategy.parallel_optimizer_threshold = KiB(3);
  plan.strategy.optimizer_shard_size = 4;
  ASSERT_OK_AND_ASSIGN(exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, HasSubstr(",\n    parallel_optimizer_config={\"parallel_optimizer_threshold\": 3, "
                                       "\"optimizer_weight_shard_size\": 4}"));
  plan.strategy.parallel_optimizer = false;
  ASSERT_OK_AND_ASSIGN(exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, Not(HasSubstr("parallel_optimizer_config")));
}

TEST(MindSporeTest, AndLayoutsElse) {
  // The contracted dim on the slower axis: no tuple says that.
  const Mesh mesh = Mesh::Factored(1, 8);
  const AxisId x4 = mesh.Find("x4"), x2 = mesh.Find("x2"), x1 = mesh.Find("x1");
  OpStrategy strategy;
  strategy.inputs.resize(2);
  strategy.inputs[0].dims = {{x1}, {x4, x2}};
  strategy.inputs[1].dims = {{x4, x2}, {}};
  ASSERT_OK_AND_ASSIGN(const Plan plan, OperatorPlan(strategy, mesh));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, HasSubstr("layout = Layout((2, 2, 2), (\"x4\", \"x2\", \"x1\"))\n"));
  EXPECT_THAT(exported.text,
              HasSubstr("\"matmul\": ((layout(\"x1\", (\"x4\", \"x2\")), layout((\"x4\", \"x2\"), \"None\")),),\n"));
}

// MindSpore's cells of micro-batches: PipelineCell where there are stages, GradAccumulationCell else.
TEST(MindSporeTest, StagesAndMicroBatches) {
  ASSERT_OK_AND_ASSIGN(Plan plan, OperatorPlan({}, Mesh::Factored(1, 8)));
  plan.strategy.ops.clear();
  plan.strategy.microbatches = 4;
  ASSERT_OK_AND_ASSIGN(Exported exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text, AllOf(HasSubstr("    return mindspore.nn.GradAccumulationCell(network_with_loss, 4)\n"),
                                   Not(HasSubstr("pipeline_stage"))));

  const std::string staged = R"(
name: o
inputs: {x: {shape: [16, 32]}, y: {shape: [16, 8]}}
parameters: {w: {shape: [32, 8]}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w], pipeline_stage: 0}
  - {name: loss, op: MSELoss, inputs: [matmul, y], pipeline_stage: 1}
cluster: h100-sxm
parallel: {parallel_mode: semi_auto_parallel, pipeline_stages: 2, micro_batches: 4}
)";
  ASSERT_OK_AND_ASSIGN(plan.session, OpenModel({"m.yaml", staged}, Flags()));
  plan.strategy.stages = 2;
  ASSERT_OK_AND_ASSIGN(exported, ToMindSpore(plan));
  EXPECT_THAT(exported.text,
              AllOf(HasSubstr("    network.matmul.pipeline_stage = 0\n    network.loss.pipeline_stage = 1\n"),
                    HasSubstr("    return mindspore.nn.PipelineCell(network_with_loss, 4)\n")));
}

TEST(MindSporeTest, WhatIsNotWrittenIsTold) {
  const Mesh mesh = Mesh::Factored(1, 8);
  OpStrategy strategy;
  strategy.inputs.resize(2);
  strategy.inputs[0].dims = strategy.inputs[1].dims = {{}, {}};
  strategy.interleaved.emplace();
  ASSERT_OK_AND_ASSIGN(const Plan plan, OperatorPlan(strategy, mesh));
  ASSERT_OK_AND_ASSIGN(const Exported exported, ToMindSpore(plan));
  EXPECT_THAT(exported.differences, Contains(HasSubstr("computes matmul piece by piece")));
}

TEST(MindSporeTest, OperatorsAreForIt) {
  ASSERT_OK_AND_ASSIGN(Plan plan, OperatorPlan({}, Mesh::Factored(1, 8)));
  EXPECT_THAT(ToMegatron(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--to=mindspore")));
  const std::string decoder =
      "name: d\narchitecture: {decoder: {hidden: 64, layers: 2, heads: 8, vocab: 1024}}\n"
      "training: {batch: 16, sequence: 32}\ncluster: h100-sxm\n";
  ASSERT_OK_AND_ASSIGN(plan.session, OpenModel({"m.yaml", decoder}, Flags()));
  EXPECT_THAT(ToMindSpore(plan).status(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("--to=megatron")));
}

}  // namespace
}  // namespace meshwright
