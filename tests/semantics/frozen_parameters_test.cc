// Layers of which a parameter is frozen, as adapters' are, with the parallel optimizer (S11.10): where that is split it
// has the values, and those beside it train and are saved, as where it is whole.
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "executor/checkpoint.h"
#include "executor/data.h"
#include "executor/runner.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"
#include "tests/semantics/schedules.h"

namespace meshwright {
namespace {

// What is split: nothing, the optimizer's state, gradients too, parameters too.
Strategy Split(Strategy strategy, int sharded) {
  strategy.parallel_optimizer = sharded > 0;
  strategy.gradient_accumulation_shard = sharded == 2;
  strategy.shard_parameters = sharded == 3;
  return strategy;
}

absl::StatusOr<Graph> FrozenStack(int64_t layers) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, Stack(layers, 16));
  for (Tensor& tensor : graph.tensors) tensor.trainable &= tensor.name != "v";
  return graph;
}

int64_t LayersOf(const RankClass& c, absl::string_view suffix) {
  int64_t layers = 0;
  for (const Buffer& buffer : c.buffers) {
    if (!buffer.trainable && absl::EndsWith(buffer.name, suffix)) layers += buffer.layers;
  }
  return layers;
}

struct Row {
  Schedule schedule;
  int64_t stages, microbatches;
};
const Row kRows[] = {{Schedule::kOneFOneB, 1, 1},
                     {Schedule::kOneFOneB, 1, 2},
                     {Schedule::kOneFOneB, 2, 2},
                     {Schedule::kDualPipeV, 2, 4},
                     {Schedule::kDualPipe, 2, 4}};

TEST(FrozenParametersTest, SplitEqualsWhole) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, FrozenStack(12));
  for (const Row& row : kRows) {
    const Strategy strategy = Pipeline(row.schedule, row.stages, row.microbatches, 4, "m");
    for (int sharded = 1; sharded <= 3; ++sharded) {
      SCOPED_TRACE(
          absl::StrCat(NameOf(row.schedule), ", S ", row.stages, ", M ", row.microbatches, ", sharded ", sharded));
      Strategy whole = Split(strategy, sharded);  // which adds up gradients in the same order
      whole.optimizer_whole = {"v"};
      ASSERT_OK_AND_ASSIGN(const Program plain, LowerVerified(graph, whole, OpKind::kAdamW));
      ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(plain, 3));
      ASSERT_OK_AND_ASSIGN(const Program split, LowerVerified(graph, Split(strategy, sharded), OpKind::kAdamW));
      // Of its layers a rank has a fourth each, and in each part two whole.
      const int64_t parts = strategy.chunks, layers = 12 / row.stages;
      for (const RankClass& c : split.classes) {
        if (row.schedule == Schedule::kDualPipe) break;  // the other direction's are not updated here, and stay whole
        EXPECT_EQ(LayersOf(c, "@shard"), sharded == 3 ? layers : 0) << c.name;
        EXPECT_EQ(LayersOf(c, ""), sharded == 3 ? layers + 2 * parts : layers) << c.name;
      }
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(split, 3));
      ExpectSameTraining(found, expected, 0);
      ExpectPlannedArenas(found, split);
    }
  }
}

// Only the scale of each layer's first norm trains, whose gradient is added up over other ranks than those of products
// and experts would be: with sequence parallelism those of tensor parallelism, too.
TEST(FrozenParametersTest, SplitEqualsWholeInDecoders) {
  constexpr char kModel[] = R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn: 64, vocab: 128, activation: swiglu, norm: rms_norm, positions: rotary, tied_embeddings: false, EXPERTS}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}}
parallel: {recompute: none, enable_parallel_optimizer: true, DEGREES, parallel_optimizer_config: {parallel_optimizer_threshold: 0, optimizer_weight_shard_size: SIZE}}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)";
  const auto freeze = [](Graph& graph) {
    for (Tensor& tensor : graph.tensors) tensor.trainable &= tensor.name == "norm1.gamma";
  };
  const auto plan = [&](const std::string& experts, const std::string& devices, const std::string& degrees,
                        const std::string& size) {
    return PlanModel(
        absl::StrReplaceAll(kModel, {{"EXPERTS", experts}, {"DEVICES", devices}, {"DEGREES", degrees}, {"SIZE", size}}),
        freeze);
  };
  struct Case {
    const char *experts, *devices, *degrees;
    const char* size = "-1";  // of a group of ranks that share
  };
  constexpr char kDense[] = "bias: false", kExperts[] = "experts: 4, experts_per_token: 2, capacity_factor: 2";
  for (const Case& c :
       {Case{kDense, "4", "data_parallel: 4, tensor_parallel: 1"},
        Case{kDense, "8", "data_parallel: 4, tensor_parallel: 2, sequence_parallel: true", "2"},
        Case{kExperts, "8", "data_parallel: 8, expert_parallel: 2, tensor_parallel: 1, dispatcher: all_to_all", "4"},
        Case{kDense, "4", "data_parallel: 2, tensor_parallel: 2, sequence_parallel: false"},
        Case{kDense, "4", "data_parallel: 2, tensor_parallel: 2, sequence_parallel: true"},
        Case{kDense, "4", "data_parallel: 2, context_parallel: 2, tensor_parallel: 1"},
        Case{kExperts, "4", "data_parallel: 4, expert_parallel: 2, tensor_parallel: 1, dispatcher: all_to_all"},
        Case{kExperts, "4", "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, dispatcher: all_to_all"}}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun alone, plan(c.experts, "1", "pipeline_stages: 1", "-1"));
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(alone.program, 3));
    for (const char* const sharded : {"shard_parameters: false", "shard_parameters: true"}) {
      SCOPED_TRACE(absl::StrCat(c.experts, ", ", c.degrees, ", ", sharded));
      ASSERT_OK_AND_ASSIGN(const PlannedRun planned,
                           plan(c.experts, c.devices,
                                absl::StrCat(c.degrees, ", pipeline_stages: 1, micro_batches: 2, ", sharded), c.size));
      ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(planned.program, 3));
      ExpectSameTraining(found, expected, 1e-9);
      ExpectPlannedArenas(found, planned.program);
      EXPECT_EQ(LayersOf(planned.program.classes[0], "@shard") > 0, planned.strategy.shard_parameters);
    }
  }
}

TEST(FrozenParametersTest, AreSaved) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, FrozenStack(6));
  const Strategy strategy = Pipeline(Schedule::kOneFOneB, 1, 2, 4, "m");
  ASSERT_OK_AND_ASSIGN(const Program split, LowerVerified(graph, Split(strategy, 3), OpKind::kAdamW));
  Strategy frozen_whole = Split(strategy, 3);
  frozen_whole.optimizer_whole = {"v"};
  ASSERT_OK_AND_ASSIGN(const Program whole, LowerVerified(graph, frozen_whole, OpKind::kAdamW));
  ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(whole, 4));
  const auto train = [](const Program& program, RunOptions options) {
    options.keep_parameters = true;
    return Play(program, options, SyntheticData(1));
  };
  for (const bool integrated : {true, false}) {
    const std::string folder = absl::StrCat(testing::TempDir(), "/frozen_", integrated ? "whole" : "pieces");
    std::filesystem::remove_all(folder);
    RunOptions first;
    first.steps = 2;
    first.checkpoint = CheckpointOptions{.directory = folder + "/{rank_id}", .integrated = integrated};
    ASSERT_OK(train(split, first));
    ASSERT_OK_AND_ASSIGN(const SavedState state,
                         LoadState(absl::StrCat(folder, "/", integrated ? "0" : "{rank_id}", "/CKP-1_2.ckpt")));
    for (const Program* const next : {&split, &whole}) {
      SCOPED_TRACE(next == &split ? "into pieces" : "into whole parameters");
      RunOptions rest;
      rest.steps = 2;
      rest.initial = &state;
      rest.first_step = state.steps_done;
      ASSERT_OK_AND_ASSIGN(const RunResult found, train(*next, rest));
      RunResult tail = expected;
      tail.losses.erase(tail.losses.begin(), tail.losses.begin() + 2);
      ExpectSameTraining(found, tail, 0);
    }
  }
}

}  // namespace
}  // namespace meshwright
