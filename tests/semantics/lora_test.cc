// Adapters beside frozen products (`training: {lora: ..}`, Hu et al. 2021): y = x W + (alpha / rank) (x A) B, where A
// and B train alone. However the model is split, it trains as on one rank.
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view kDense = "bias: true", kGated = "activation: swiglu, norm: rms_norm, positions: rotary",
                            kExperts = "experts: 4, experts_per_token: 2, capacity_factor: 2, activation: swiglu",
                            kShared = "experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: 32";

std::string Model(absl::string_view sizes, absl::string_view training, absl::string_view parallel, int64_t devices) {
  return absl::StrReplaceAll(
      R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn: 64, vocab: 128, SIZES}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}, TRAINING}
parallel: {recompute: none, PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)",
      {{"SIZES", sizes}, {"TRAINING", training}, {"PARALLEL", parallel}, {"DEVICES", absl::StrCat(devices)}});
}

TEST(LoraTest, SplitEqualsWhole) {
  struct Case {
    absl::string_view sizes;
    int64_t devices;
    absl::string_view degrees;
  };
  const Case cases[] = {
      {kDense, 4, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kDense, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      {kGated, 8, "data_parallel: 2, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kGated, 4, "data_parallel: 2, context_parallel: 2, tensor_parallel: 1, pipeline_stages: 1"},
      {kGated, 4, "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
      {kDense, 4,
       "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline_config: "
       "{pipeline_interleave: true}"},
      {kGated, 4,
       "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: "
       "zero_bubble_v}"},
      {kExperts, 4, "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kExperts, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
      {kShared, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
      {kShared, 4, "data_parallel: 2, context_parallel: 2, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
  };
  for (const Case& c : cases) {
    for (const absl::string_view lora : {"lora: {rank: 4, alpha: 8}", "lora: {rank: 2, targets: [qkv, mlp2]}"}) {
      ASSERT_OK_AND_ASSIGN(const RunResult expected, RunModel(Model(c.sizes, lora, "micro_batches: 4", 1), 3));
      EXPECT_LT(expected.losses[2], expected.losses[0]);
      for (const absl::string_view sharded :
           {"enable_parallel_optimizer: false", "enable_parallel_optimizer: true, shard_parameters: false",
            "enable_parallel_optimizer: true, shard_parameters: true"}) {
        SCOPED_TRACE(absl::StrCat(c.sizes, ", ", c.degrees, ", ", lora, ", ", sharded));
        const std::string parallel = absl::StrCat(
            c.degrees, ", micro_batches: 4, parallel_optimizer_config: {parallel_optimizer_threshold: 0}, ", sharded);
        ExpectTrainsAs(expected, Model(c.sizes, lora, parallel, c.devices));
      }
    }
  }
}

// B is 0 at first, so that the first step's loss is that of the model without adapters; only A and B move.
TEST(LoraTest, OnlyAdaptersMove) {
  const auto losses_of = [](absl::string_view training) -> absl::StatusOr<RunResult> {
    MESHWRIGHT_ASSIGN_OR_RETURN(const PlannedRun run, PlanModel(Model(kGated, training, "micro_batches: 2", 1)));
    return RunSteps(run.program, 2);
  };
  ASSERT_OK_AND_ASSIGN(const RunResult without, losses_of("seed: 3"));
  ASSERT_OK_AND_ASSIGN(const RunResult with, losses_of("seed: 3, lora: {rank: 4}"));
  EXPECT_EQ(with.losses[0], without.losses[0]);
  EXPECT_NE(with.losses[1], without.losses[1]);

  const std::string text = Model(kGated, "seed: 3, lora: {rank: 4, alpha: 16}", "micro_batches: 2", 1);
  ASSERT_OK_AND_ASSIGN(const RunResult one, RunModel(text, 1));
  ASSERT_OK_AND_ASSIGN(const RunResult two, RunModel(text, 3));
  ASSERT_EQ(one.parameters.size(), two.parameters.size());
  int frozen = 0, moved = 0;
  for (const auto& [key, tensor] : one.parameters) {
    const bool adapter = absl::StrContains(key.first, "lora_");
    EXPECT_EQ(tensor.values == two.parameters.at(key).values, !adapter) << key.first;
    (adapter ? moved : frozen) += 1;
  }
  EXPECT_GT(frozen, 0);
  EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace meshwright
