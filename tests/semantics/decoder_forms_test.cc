// Decoders of other forms than GPT's and Llama's: norms of queries and keys, norms behind attention and the
// feed-forward layer, both side by side, positions of a part of each head, other activations. However the model is
// split, it trains as on one rank.
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view
    // Qwen 3's, with fewer heads of keys than ranks in one case below.
    kQueryNorms = "kv_heads: 4, norm: rms_norm, activation: swiglu, positions: rotary, qk_norm: true",
    kExperts =
        "kv_heads: 4, norm: rms_norm, activation: swiglu, positions: rotary, qk_norm: true, ffn: 16, experts: 4, "
        "experts_per_token: 2, capacity_factor: 2, norm_places: after",
    // Gemma 3's.
    kBoth =
        "kv_heads: 4, norm: rms_norm, activation: geglu, positions: rotary, qk_norm: true, norm_places: both, "
        "sliding_window: 5, full_attention_every: 2, tied_embeddings: true",
    // Norms behind biases.
    kAfter = "norm: layer_norm, norm_places: after, bias: true",
    // GPT-NeoX's, GPT-J's and Falcon's.
    kParallel = "norm: layer_norm, bias: true, positions: rotary, rotary_factor: 0.5, layer_form: parallel",
    kOneNorm = "kv_heads: 1, norm: layer_norm, positions: rotary, layer_form: parallel_one_norm",
    // DeepSeek-V3's further tokens, of the same embedding, and of one that is the output layer's, too.
    kFurther =
        "norm: rms_norm, activation: swiglu, positions: rotary, ffn: 16, experts: 4, experts_per_token: 2, "
        "capacity_factor: 2, dense_layers: 1, dense_ffn: 32, mtp_layers: 1",
    kTwoFurther = "norm: rms_norm, activation: swiglu, positions: rotary, tied_embeddings: true, mtp_layers: 2",
    // Qwen3-Next's, with two values to a key, fewer KV heads than ranks in one case below, and a gate of the expert
    // that every token goes to.
    kDelta =
        "kv_heads: 2, norm: rms_norm, activation: swiglu, positions: rotary, qk_norm: true, attention_gate: true, "
        "full_attention_every: 2, linear_attention: {key_heads: 4, value_heads: 8, key_dim: 3, value_dim: 4}, ffn: 16, "
        "experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: 16, shared_expert_gate: true",
    // Granite 4's: attention first in a run.
    kSpace =
        "kv_heads: 4, norm: rms_norm, activation: swiglu, positions: none, full_attention_every: 2, full_attention_at: "
        "1, linear_attention: {form: state_space, key_heads: 4, value_heads: 8, key_dim: 3, value_dim: 4, "
        "convolution_bias: true}, tied_embeddings: true",
    // Nemotron 3's, whose experts take fewer elements, with a further token; and Nemotron-H's.
    kHalves =
        "kv_heads: 4, norm: rms_norm, activation: squared_relu, positions: none, layer_pattern: MEMEMEM*E, "
        "linear_attention: {form: state_space, key_heads: 4, value_heads: 8, key_dim: 3, value_dim: 4, "
        "convolution_bias: true}, ffn: 16, experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: "
        "16, "
        "expert_hidden: 16, mtp_layers: 1",
    kDenseHalves =
        "norm: rms_norm, activation: squared_relu, positions: none, layer_pattern: M-M-M*-M-, ffn: 64, "
        "linear_attention: {form: state_space, key_heads: 4, value_heads: 8, key_dim: 3, value_dim: 4, convolution: 0}",
    // K-EXAONE's: windows from the first layer on, which is dense.
    kWindows =
        "kv_heads: 4, norm: rms_norm, activation: swiglu, positions: rotary, qk_norm: true, sliding_window: 5, "
        "full_attention_every: 3, ffn: 16, experts: 4, experts_per_token: 2, capacity_factor: 2, dense_layers: 1, "
        "dense_ffn: 32, mtp_layers: 1",
    // Kimi Linear's: latent attention in the second and the last layer, and gates through a narrow vector.
    kKimi =
        "kv_lora_rank: 8, rope_head_dim: 2, norm: rms_norm, activation: swiglu, positions: rotary, "
        "full_attention_layers: [1, 3], linear_attention: {form: kimi_delta, value_heads: 8, key_dim: 3, value_dim: 4, "
        "gate_rank: 5}, ffn: 16, experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: 16, "
        "dense_layers: 1, dense_ffn: 32",
    // A first dense layer beside linear attention.
    kDenseDelta =
        "kv_heads: 4, norm: rms_norm, activation: swiglu, positions: rotary, full_attention_every: 2, "
        "linear_attention: {key_heads: 4, value_heads: 8, key_dim: 3, value_dim: 4}, ffn: 16, experts: 4, "
        "experts_per_token: 2, capacity_factor: 2, dense_layers: 1, dense_ffn: 32",
    // Gemma 4's: more and narrower heads where there is a window; and layers in no period.
    kHeadsByKind =
        "kv_heads: 4, norm: rms_norm, norm_places: both, activation: geglu, positions: rotary, qk_norm: true, "
        "rotary_factor: 0.5, sliding_window: 5, full_attention_layers: [0, 3], full_attention_heads: {heads: 4, "
        "kv_heads: 2, head_dim: 8}, ffn: 16, experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: "
        "32, tied_embeddings: true",
    // MiMo-V2's: values narrower than keys, more keys in layers with a window; with biases and a gate.
    kNarrowValues =
        "kv_heads: 4, value_head_dim: 2, norm: rms_norm, activation: swiglu, positions: rotary, rotary_factor: 0.5, "
        "qkv_bias: true, attention_gate: true, sliding_window: 5, full_attention_layers: [0, 3], full_attention_heads: "
        "{kv_heads: 2}",
    // Nemotron's.
    kSquared = "kv_heads: 4, norm: layer_norm, activation: squared_relu, positions: rotary, rotary_factor: 0.5";

std::string Model(absl::string_view form, absl::string_view training, absl::string_view parallel, int64_t devices) {
  return absl::StrReplaceAll(
      R"(name: tiny
architecture:
  decoder: {LAYERS, hidden: 32, heads: 8, head_dim: 4, vocab: 128, FORM}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: {adamw: {learning_rate: 0.01}}, TRAINING}
parallel: {PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)",
      {{"LAYERS", absl::StrContains(form, "layer_pattern") ? "layers: 9" : "layers: 4"},
       {"FORM", form},
       {"TRAINING", training},
       {"PARALLEL", parallel},
       {"DEVICES", absl::StrCat(devices)}});
}

TEST(DecoderFormsTest, SplitEqualsWhole) {
  struct Case {
    absl::string_view form;
    int64_t devices;
    absl::string_view degrees;
  };
  constexpr absl::string_view kZeroBubble =
      "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: zero_bubble_v}";
  const Case cases[] = {
      {kQueryNorms, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      {kQueryNorms, 8, "data_parallel: 1, tensor_parallel: 8, pipeline_stages: 1, sequence_parallel: true"},
      {kQueryNorms, 4,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, tensor_parallel: 1, pipeline_stages: 1"},
      {kQueryNorms, 8,
       "data_parallel: 1, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 2, pipeline_stages: 2, "
       "sequence_parallel: true"},
      {kQueryNorms, 2, kZeroBubble},
      {kExperts, 4, "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kExperts, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, expert_parallel: 4, tensor_parallel: 2, "
       "pipeline_stages: 1, sequence_parallel: true"},
      {kBoth, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kBoth, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      // Runs of two layers, cut.
      {kBoth, 2, "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, layers_per_stage: [1, 3]"},
      {kDelta, 8,
       "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 4, sequence_parallel: true, layers_per_stage: [1, 2, 1, "
       "0]"},
      {kHalves, 4,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, layers_per_stage: [3, 6]"},
      {kBoth, 2, kZeroBubble},
      {kBoth, 2,
       "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, layers_per_stage: [1, 3], pipeline_config: "
       "{pipeline_scheduler: dualpipe}"},
      {kDelta, 4,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, layers_per_stage: [1, 1, 1, 1], "
       "pipeline_config: {pipeline_interleave: true}"},
      {kHalves, 4,
       "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true, pipeline_config: "
       "{pipeline_scheduler: dualpipe_v}"},
      {kNarrowValues, 4, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 1, sequence_parallel: true"},
      {kNarrowValues, 8,
       "data_parallel: 1, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 2, pipeline_stages: 2, "
       "sequence_parallel: true"},
      {kHeadsByKind, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kKimi, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kKimi, 8, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2"},
      {kKimi, 4,
       "data_parallel: 1, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 2, pipeline_stages: 1"},
      {kDenseDelta, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
      {kHeadsByKind, 8, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2"},
      {kHeadsByKind, 4,
       "data_parallel: 1, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 1, pipeline_stages: 2, "
       "layers_per_stage: [3, 1]"},
      {kAfter, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kAfter, 4, "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: false"},
      {kParallel, 4, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kParallel, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kParallel, 2, kZeroBubble},
      {kOneNorm, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      {kOneNorm, 4,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, tensor_parallel: 1, pipeline_stages: 1"},
      {kFurther, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
      {kFurther, 8,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kFurther, 2, kZeroBubble},
      {kWindows, 4, "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
      {kWindows, 8,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true, "
       "layers_per_stage: [2, 2]"},
      {kFurther, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, expert_parallel: 4, tensor_parallel: 2, "
       "pipeline_stages: 1, sequence_parallel: true"},
      {kTwoFurther, 4, "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kTwoFurther, 8,
       "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 4, sequence_parallel: false, virtual_pipeline_stages: "
       "1"},
      {kDelta, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kDelta, 8,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: false"},
      {kDelta, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, expert_parallel: 4, tensor_parallel: 2, "
       "pipeline_stages: 1, sequence_parallel: true"},
      {kDelta, 2,
       "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: "
       "zero_bubble_h1}"},
      {kSpace, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kSpace, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kSpace, 8,
       "data_parallel: 1, context_parallel: 2, context_exchange: all_gather, tensor_parallel: 2, pipeline_stages: 2, "
       "sequence_parallel: true"},
      {kHalves, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kHalves, 8,
       "data_parallel: 2, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: false"},
      {kHalves, 8,
       "data_parallel: 2, context_parallel: 2, context_exchange: ring, expert_parallel: 4, tensor_parallel: 2, "
       "pipeline_stages: 1, sequence_parallel: true"},
      {kDenseHalves, 8, "data_parallel: 2, tensor_parallel: 2, pipeline_stages: 2, sequence_parallel: true"},
      {kDenseHalves, 2,
       "data_parallel: 1, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: "
       "zero_bubble_h1}"},
      {kSquared, 8, "data_parallel: 2, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
  };
  for (const Case& c : cases) {
    ASSERT_OK_AND_ASSIGN(const RunResult expected,
                         RunModel(Model(c.form, "seed: 1", "recompute: none, micro_batches: 4", 1), 3));
    EXPECT_LT(expected.losses[2], expected.losses[0]);
    for (const absl::string_view more :
         {"recompute: none, enable_parallel_optimizer: false",
          "recompute: full, enable_parallel_optimizer: true, shard_parameters: false",
          "recompute: selective, enable_parallel_optimizer: true, shard_parameters: true"}) {
      SCOPED_TRACE(absl::StrCat(c.form, ", ", c.degrees, ", ", more));
      const std::string parallel = absl::StrCat(
          c.degrees, ", micro_batches: 4, parallel_optimizer_config: {parallel_optimizer_threshold: 0}, ", more);
      ExpectTrainsAs(expected, Model(c.form, "seed: 1", parallel, c.devices));
    }
  }
}

// Each product of a half leaves a partial sum on tensor-parallel ranks. Side by side both are summed at once: of each
// layer and pass one all-reduce, where halves one behind the other take two.
TEST(DecoderFormsTest, SideBySideIsOneSum) {
  const auto sums = [](absl::string_view form) -> int64_t {
    const absl::StatusOr<PlannedRun> run = PlanModel(Model(
        form, "seed: 1",
        "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false, recompute: none", 4));
    EXPECT_OK(run.status());
    if (!run.ok()) return 0;
    int64_t count = 0;
    for (const Block& block : run->program.classes[0].blocks) {
      if (!absl::StartsWith(block.name, "layers ")) continue;
      for (const Instruction& instruction : block.instructions) {
        const auto* collective = std::get_if<Collective>(&instruction.work);
        if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce) continue;
        count += collective->purpose == Purpose::kActivation ? 1 : 0;
      }
    }
    return count;
  };
  EXPECT_EQ(sums("norm: layer_norm, positions: rotary, layer_form: parallel_one_norm"), 2);
  EXPECT_EQ(sums("norm: layer_norm, positions: rotary"), 4);
}

}  // namespace
}  // namespace meshwright
