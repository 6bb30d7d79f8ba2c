// Latent attention (DeepSeek-V2, section 2.1): queries, keys and values come from narrow vectors, and a part of the
// keys is the same in all heads. However the model is split, it trains as on one rank.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view kNarrowQueries = "q_lora_rank: 12, kv_lora_rank: 8, ffn: 64",
                            kWholeQueries = "kv_lora_rank: 8, value_head_dim: 6, ffn: 64",
                            kWindows = "kv_lora_rank: 8, ffn: 64, sliding_window: 5, full_attention_every: 2",
                            kExperts =
                                "q_lora_rank: 12, kv_lora_rank: 8, ffn: 16, experts: 4, experts_per_token: 2, "
                                "capacity_factor: 2, shared_expert_ffn: 16";

std::string Model(absl::string_view sizes, absl::string_view training, absl::string_view parallel, int64_t devices) {
  return absl::StrReplaceAll(
      R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, heads: 8, head_dim: 4, rope_head_dim: 2, vocab: 128, activation: swiglu,
            norm: rms_norm, positions: rotary, SIZES}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}, TRAINING}
parallel: {PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)",
      {{"SIZES", sizes}, {"TRAINING", training}, {"PARALLEL", parallel}, {"DEVICES", absl::StrCat(devices)}});
}

TEST(LatentAttentionTest, SplitEqualsWhole) {
  struct Case {
    absl::string_view sizes;
    int64_t devices;
    absl::string_view degrees;
  };
  const Case cases[] = {
      {kNarrowQueries, 4, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kNarrowQueries, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      {kWholeQueries, 8, "data_parallel: 2, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kNarrowQueries, 8, "data_parallel: 1, tensor_parallel: 8, pipeline_stages: 1, sequence_parallel: true"},
      {kNarrowQueries, 4,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, tensor_parallel: 1, pipeline_stages: 1"},
      {kWholeQueries, 4,
       "data_parallel: 1, context_parallel: 4, context_exchange: ring, tensor_parallel: 1, pipeline_stages: 1"},
      {kWholeQueries, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 2, pipeline_stages: 1, "
       "sequence_parallel: true"},
      {kNarrowQueries, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kWholeQueries, 2,
       "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: "
       "zero_bubble_v}"},
      {kWindows, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kWindows, 4,
       "data_parallel: 2, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 1, pipeline_stages: 1"},
      {kExperts, 4, "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kExperts, 8, "data_parallel: 4, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
      {kExperts, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, expert_parallel: 4, tensor_parallel: 2, "
       "pipeline_stages: 1, sequence_parallel: true"},
  };
  for (const Case& c : cases) {
    ASSERT_OK_AND_ASSIGN(const RunResult expected,
                         RunModel(Model(c.sizes, "seed: 1", "recompute: none, micro_batches: 4", 1), 3));
    EXPECT_LT(expected.losses[2], expected.losses[0]);
    for (const absl::string_view more :
         {"recompute: none, enable_parallel_optimizer: false",
          "recompute: full, enable_parallel_optimizer: true, shard_parameters: false",
          "recompute: selective, enable_parallel_optimizer: true, shard_parameters: true"}) {
      SCOPED_TRACE(absl::StrCat(c.sizes, ", ", c.degrees, ", ", more));
      const std::string parallel = absl::StrCat(
          c.degrees, ", micro_batches: 4, parallel_optimizer_config: {parallel_optimizer_threshold: 0}, ", more);
      ExpectTrainsAs(expected, Model(c.sizes, "seed: 1", parallel, c.devices));
    }
  }
}

TEST(LatentAttentionTest, UnfusedAttentionTrainsTheSame) {
  for (const absl::string_view sizes : {kWholeQueries, kWindows}) {
    ASSERT_OK_AND_ASSIGN(const PlannedRun fused, PlanModel(Model(sizes, "seed: 1", "recompute: none", 1)));
    ASSERT_OK_AND_ASSIGN(const PlannedRun unfused,
                         PlanModel(Model(sizes, "seed: 1, attention: unfused", "recompute: none", 1)));
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunSteps(fused.program, 3));
    ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(unfused.program, 3));
    ExpectSameTraining(found, expected, 1e-9);
  }
}

TEST(LatentAttentionTest, KeysThatGoRoundHaveNoWindow) {
  EXPECT_THAT(PlanModel(Model(kWindows, "seed: 1", "data_parallel: 1, context_parallel: 2, context_exchange: ring", 2))
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("use context_exchange all_gather")));
}

}  // namespace
}  // namespace meshwright
