// F26: recompute (S13.1, S13.2) and gradient accumulation (S13.4).
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "simulator/simulate.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

Strategy With(Recompute recompute, int64_t stages = 1) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(stages, 1);
  strategy.stages = stages;
  strategy.microbatches = 4;
  strategy.gradient_dtype = DType::kFloat64;
  strategy.recompute = recompute;
  return strategy;
}

// S13.1: the same bits, no higher peak, more time. A layer is in + relu(in v) u; `selective` runs the ReLU a second
// time, `full` and `layer` what backward reads of a layer, or all of it.
TEST(F26, RecomputeKeepsLossesBitForBitAndLowersThePeak) {
  for (const int64_t stages : {1, 2}) {
    ASSERT_OK_AND_ASSIGN(const Graph graph, Stack(4, 64));
    ASSERT_OK_AND_ASSIGN(const Program plain, LowerVerified(graph, With(Recompute::kNone, stages)));
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain, 2));
    ASSERT_OK_AND_ASSIGN(const SimulationResult plain_time, Simulate(plain, UnitPrices(plain)));
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull, Recompute::kLayer}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", NameOf(recompute)));
      ASSERT_OK_AND_ASSIGN(const Program program, LowerVerified(graph, With(recompute, stages)));
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(program, 2));
      EXPECT_EQ(found.losses, expected.losses);
      for (const auto& [key, tensor] : expected.parameters) {
        EXPECT_EQ(found.parameters.at(key).values, tensor.values) << key.first << ", layer " << key.second;
      }
      for (size_t rank = 0; rank < found.arenas.size(); ++rank) EXPECT_LT(found.arenas[rank], expected.arenas[rank]);
      ASSERT_OK_AND_ASSIGN(const SimulationResult time, Simulate(program, UnitPrices(program)));
      EXPECT_GT(time.makespan, plain_time.makespan);
    }
  }
}

// S13.2: of a cell (here a layer) all operators are run again but the output operator, whose value is kept: the next
// layer's input. The second run is part of the backward pass, which starts when its gradient has arrived.
TEST(F26, TheOutputOfACellIsKept) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, Stack(4, 4));
  ASSERT_OK_AND_ASSIGN(const Program program, LowerVerified(graph, With(Recompute::kFull, 2)));
  for (const RankClass& c : program.classes) {
    std::vector<std::string> again;
    for (const Block& block : c.blocks) {
      for (const Instruction& instruction : block.instructions) {
        const auto* compute = std::get_if<Compute>(&instruction.work);
        if (compute == nullptr || !compute->recompute) continue;
        EXPECT_EQ(block.name, "layers backward");
        again.push_back(instruction.origin);
      }
    }
    EXPECT_FALSE(again.empty());
    for (const std::string& origin : again) EXPECT_FALSE(absl::StartsWith(origin, "layers/sum")) << origin;
  }
  // On stage 0 the gradient of a micro-batch is received, and waited for, before the pass that computes again.
  int64_t received = -1;
  for (const Slot& slot : program.classes[0].slots) {
    const Block& block = program.classes[0].blocks[slot.block.index()];
    if (absl::StartsWith(block.name, "receive layers/gradient")) {
      EXPECT_TRUE(std::holds_alternative<Sync>(block.instructions.back().work));
      received = slot.microbatch;
    }
    if (block.name == "layers backward") {
      EXPECT_EQ(received, slot.microbatch);
    }
  }
}

// The knob, on a decoder.
TEST(F26, TheKnobRecompute) {
  const auto decoder = [](absl::string_view recompute) {
    return PlanModel(absl::StrCat(R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 16, heads: 2, vocab: 128, ffn: 64, positions: learned, tied_embeddings: true}
training: {batch: 8, sequence: 16, dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {pipeline_stages: 2, micro_batches: 4, data_parallel: 1, tensor_parallel: 1, recompute: )",
                                  recompute, "}\ncluster: {device: host, nodes: 1, devices_per_node: 2}\n"));
  };
  ASSERT_OK_AND_ASSIGN(const PlannedRun plain, decoder("none"));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain.program, 3));
  for (const char* recompute : {"selective", "full"}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, decoder(recompute));
    EXPECT_EQ(NameOf(planned.strategy.recompute), recompute);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
    EXPECT_EQ(found.losses, expected.losses);
    for (size_t rank = 0; rank < 2; ++rank) EXPECT_LT(found.arenas[rank], expected.arenas[rank]) << recompute;
  }
}

int GradientCalls(const Program& program, CollectiveKind kind) {
  int calls = 0;
  for (const Slot& slot : program.classes[0].slots) {
    for (const Instruction& instruction : program.classes[0].blocks[slot.block.index()].instructions) {
      const auto* collective = std::get_if<Collective>(&instruction.work);
      if (collective != nullptr && collective->purpose == Purpose::kGradient && collective->kind == kind) ++calls;
    }
  }
  return calls;
}

// S13.4: K = 4 micro-batches on one set of devices give the pipeline's sums (S18.1), with one optimizer step and one
// reduction for all of them.
TEST(F26, AccumulationEqualsThePipelinesSum) {
  const std::vector<double> as_mean = {0.294782409, 0.286509286, 0.270991507};
  ASSERT_OK_AND_ASSIGN(const PlannedRun pipeline,
                       PlanModel(OracleB("pipeline_stages: 2, micro_batches: 4", 2,
                                         {.matmul = "pipeline_stage: 0", .matmul2 = "pipeline_stage: 1"})));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(pipeline.program, 3));
  struct Row {
    int64_t devices;
    std::string parallel, matmul;
  };
  for (const Row& row : {Row{1, "", ""}, Row{4, "", "shard: [[4, 1], [1, 1]]"}, Row{8, "", "shard: [[2, 4], [4, 1]]"},
                         Row{4,
                             ", enable_parallel_optimizer: true, parallel_optimizer_config: "
                             "{parallel_optimizer_threshold: 0}",
                             "shard: [[4, 1], [1, 1]]"}}) {
    SCOPED_TRACE(absl::StrCat(row.devices, " devices", row.parallel));
    ASSERT_OK_AND_ASSIGN(
        const PlannedRun planned,
        PlanModel(OracleB(absl::StrCat("grad_accumulation_step: 4, dataset_strategy: full_batch", row.parallel),
                          row.devices, {.matmul = row.matmul})));
    EXPECT_EQ(planned.strategy.microbatches, 4);
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
    EXPECT_NEAR(found.losses[0], 1.179129635, 1e-9);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found.losses[i] / 4, as_mean[i], 1e-9) << "step " << i + 1;
    for (const auto& [key, tensor] : expected.parameters) {
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        ASSERT_NEAR(found.parameters.at(key).values[i], tensor.values[i], 1e-12) << key.first;
      }
    }
    if (row.devices == 1) continue;
    EXPECT_EQ(GradientCalls(planned.program, CollectiveKind::kAllReduce) +
                  GradientCalls(planned.program, CollectiveKind::kReduceScatter),
              row.devices == 8 ? 2 : 1);  // w and w2 have the same replicas, or different ones
  }
}

}  // namespace
}  // namespace meshwright
