// nanotron: the sections of its YAML file that a plan decides.
#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/export/writers.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// As YAML 1.1 reads numbers, which PyYAML does: "1e-08" would be a text, "1.0e-08" is none.
std::string YamlNumber(double value) {
  std::string text = ShortestNumber(value);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

absl::string_view True(bool value) { return value ? "true" : "false"; }

// Megabytes of a bucket, as torch's DDP counts them.
int64_t BucketMegabytes(const Recipe& recipe) {
  return std::max<int64_t>(1, recipe.bucket_elements * SizeOf(recipe.training.gradient_dtype).raw() / (1 << 20));
}

absl::Status Check(const Recipe& recipe, std::vector<std::string>& differences) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckLlama("nanotron", recipe));
  MESHWRIGHT_RETURN_IF_ERROR(RefuseAdapters("nanotron", recipe));
  MESHWRIGHT_RETURN_IF_ERROR(CheckCommon("nanotron", recipe, differences));
  if (recipe.shard_parameters) return HasNo("nanotron", "ZeRO-3", "--noshard_parameters");
  if (recipe.copies > 1) {
    return HasNo("nanotron", "ZeRO-1 over groups of replicas", "--optimizer_weight_shard_size=-1");
  }
  if (recipe.chunks > 1) return HasNo("nanotron", "interleaved pipeline", "--virtual_pipeline_stages=1");
  if (recipe.pipeline > 1 && recipe.schedule != Schedule::kOneFOneB && recipe.schedule != Schedule::kGpipe) {
    return HasNo("nanotron", absl::StrCat("schedule ", NameOf(recipe.schedule)), "--schedule=1f1b");
  }
  if (recipe.microbatches < recipe.pipeline - 1) {
    return HasNo("nanotron", "pipeline with fewer micro-batches than stages less one",
                 absl::StrCat("--microbatches=", recipe.pipeline, " or more"));
  }
  // LlamaConfig (config/models_config.py) has no field for any of these three, and its attention looks at a rank's own
  // part of a sequence; heads of keys and values are not repeated (config.py, `num_key_value_heads >= tp`).
  if (recipe.model.experts > 0) {
    return absl::UnimplementedError("nanotron's Llama has no experts; take megatron");
  }
  if (recipe.model.sliding_window > 0) {
    return absl::UnimplementedError("nanotron's Llama has no attention windows; take megatron");
  }
  if (recipe.model.kv_lora_rank > 0) {
    return absl::UnimplementedError("nanotron's Llama has no latent attention; take megatron");
  }
  if (HasNarrowValues(recipe.model)) {
    return absl::UnimplementedError("nanotron's Llama has no values narrower than keys; take torchtitan");
  }
  if (recipe.model.head_dim * recipe.model.heads != recipe.model.hidden) {
    return absl::UnimplementedError(absl::StrCat("nanotron's Llama has heads of hidden / heads, not of ",
                                                 recipe.model.head_dim, "; take megatron"));
  }
  if (recipe.context > 1) return HasNo("nanotron's Llama", "context parallelism", "--context_parallel=1");
  if (recipe.model.kv_heads % recipe.tensor != 0) {
    return HasNo("nanotron", "tensor parallelism above the heads of keys and values",
                 absl::StrCat("--tensor_parallel=", std::gcd(recipe.model.kv_heads, recipe.tensor)));
  }
  if (recipe.product_bits() > 0) return HasNo("nanotron's Llama", NameOfProducts(recipe), "--products=bfloat16");
  TellOfUnfused("nanotron", recipe, differences);
  if (recipe.training.optimizer.kind != OpKind::kAdamW) {
    return absl::UnimplementedError("nanotron has adamW; change training.optimizer of the model");
  }
  if (recipe.pipeline > 1) {
    differences.push_back(
        "nanotron deals layers out to stages by their cost, embedding and head included, the plan by their number");
  }
  if (recipe.recompute == Recompute::kSelective) {
    differences.push_back("nanotron runs whole layers again or nothing: nothing here, which needs more memory");
  }
  if (recipe.recompute == Recompute::kFull) {
    differences.push_back("nanotron runs all of a layer again, the plan only what backward reads of it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Exported> ToNanotron(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  Exported out;
  MESHWRIGHT_RETURN_IF_ERROR(Check(recipe, out.differences));
  AddLeftOut(plan, out.differences);
  const DecoderConfig& m = recipe.model;
  const Training& t = recipe.training;
  const bool again = recipe.recompute == Recompute::kFull || recipe.recompute == Recompute::kLayer;
  out.text =
      absl::StrCat(Heading(plan, out.differences),
                   "#\n# Sections for your file, which has checkpoints, data_stages, general, logging, tokenizer and "
                   "the learning rate's\n"
                   "# schedule besides.\nmodel:\n  ddp_bucket_cap_mb: ",
                   BucketMegabytes(recipe), "\n  dtype: ", NameOf(t.dtype), "\n  init_method:\n    std: 0.02\n",
                   "  make_vocab_size_divisible_by: ", m.vocab_multiple,
                   "\n  model_config:\n    hidden_act: silu\n    hidden_size: ", m.hidden,
                   "\n    initializer_range: 0.02\n    intermediate_size: ", m.ffn,
                   "\n    is_llama_config: true\n    max_position_embeddings: ", std::max(m.max_positions, t.sequence),
                   "\n    num_attention_heads: ", m.heads, "\n    num_hidden_layers: ", m.layers,
                   "\n    num_key_value_heads: ", m.kv_heads, "\n    rms_norm_eps: ", YamlNumber(m.norm_epsilon),
                   "\n    rope_theta: ", YamlNumber(m.rope_theta),
                   "\n    tie_word_embeddings: ", True(m.tied_embeddings), "\n    vocab_size: ", m.vocab, "\n");
  absl::StrAppend(
      &out.text, "optimizer:\n  accumulate_grad_in_fp32: ", True(t.gradient_dtype == DType::kFloat32),
      "\n  learning_rate_scheduler:\n    learning_rate: ", YamlNumber(t.optimizer.learning_rate),
      "\n  optimizer_factory:\n    adam_beta1: ", YamlNumber(t.optimizer.beta1),
      "\n    adam_beta2: ", YamlNumber(t.optimizer.beta2), "\n    adam_eps: ", YamlNumber(t.optimizer.epsilon),
      "\n    name: adamW\n    torch_adam_is_fused: true\n  weight_decay: ", YamlNumber(t.optimizer.weight_decay),
      "\n  zero_stage: ", recipe.zero_stage(), "\nparallelism:\n  dp: ", recipe.data,
      "\n  context_parallel_size: ", recipe.context, "\n  expert_parallel_size: ", recipe.expert,
      "\n  pp: ", recipe.pipeline, "\n  pp_engine: ", recipe.schedule == Schedule::kGpipe ? "afab" : "1f1b",
      "\n  recompute_layer: ", True(again), "\n  tp: ", recipe.tensor,
      "\n  tp_linear_async_communication: ", True(recipe.sequence_parallel),
      "\n  tp_mode: ", recipe.sequence_parallel ? "REDUCE_SCATTER" : "ALL_REDUCE",
      "\ntokens:\n  batch_accumulation_per_replica: ", recipe.microbatches, "\n  micro_batch_size: ", recipe.microbatch,
      "\n  sequence_length: ", t.sequence, "\n  train_steps: ", t.steps, "\n");
  return out;
}

TrainerWords WordsOfNanotron(const Recipe& recipe) {
  TrainerWords words;
  words.other_opts = absl::StrCat("nanotron, ", GradientWords(recipe));
  words.attention = "flash_attention_2";
  words.zero_fsdp = recipe.shard_optimizer ? "ZeRO-1" : "none";
  const bool again = recipe.recompute == Recompute::kFull || recipe.recompute == Recompute::kLayer;
  words.recompute = again ? "full" : "none";
  words.deals_layers = false;
  words.takes_bucket = false;  // ZeRO-1 reduces all gradients at once (trainer.py, sync_gradients_across_dp)
  return words;
}

void NarrowToNanotron(Problem* problem) {
  if (!problem->shard_parameters.has_value()) problem->shard_parameters = false;
  if (!problem->optimizer_shard_size.has_value()) problem->optimizer_shard_size = -1;
  if (!problem->chunks.has_value()) problem->chunks = 1;
  if (!problem->context_parallel.has_value()) problem->context_parallel = 1;
}

}  // namespace meshwright
