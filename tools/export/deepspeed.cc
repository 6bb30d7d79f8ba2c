// DeepSpeed: ds_config.json. JSON has no comments, so differences are told on standard error alone.
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/export/writers.h"
#include "tools/json_text.h"
#include "tools/numbers.h"

namespace meshwright {

absl::StatusOr<Exported> ToDeepSpeed(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  Exported out;
  MESHWRIGHT_RETURN_IF_ERROR(CheckCommon("DeepSpeed", recipe, out.differences));
  if (recipe.pipeline > 1) {
    return HasNo("DeepSpeed's configuration", "pipeline, which its users build in code", "--stages=1");
  }
  if (recipe.expert > 1) {
    return HasNo("DeepSpeed's configuration", "expert parallelism, which its users build in code",
                 "--expert_parallel=1");
  }
  if (recipe.context > 1) return HasNo("DeepSpeed's configuration", "context parallelism", "--context_parallel=1");
  const Training& t = recipe.training;
  if (recipe.copies > 1 && !recipe.shard_parameters) {
    return HasNo("DeepSpeed", "ZeRO-1 over groups of replicas (MiCS splits parameters, too)",
                 "--optimizer_weight_shard_size=-1 or --shard_parameters");
  }
  if (recipe.copies > 1) {
    out.differences.push_back("groups of replicas are MiCS: the model is made within deepspeed.zero.MiCS_Init");
  }
  if (t.dtype == DType::kFloat64) return HasNo("DeepSpeed", "float64", "--precision=bfloat16");
  if (recipe.product_bits() > 0) {
    return HasNo("DeepSpeed's configuration", NameOfProducts(recipe), "--products=bfloat16");
  }
  // Its engine's _do_optimizer_sanity_check: two types are for ZeRO alone, which on one rank splits nothing.
  const bool two_types = t.gradient_dtype != t.dtype;
  const bool zero_of_one = recipe.zero_stage() == 0 && two_types && recipe.data == 1;
  if (recipe.zero_stage() == 0 && two_types && recipe.data > 1) {
    return HasNo("DeepSpeed",
                 absl::StrCat(NameOf(t.gradient_dtype), " gradients of a ", NameOf(t.dtype), " model without ZeRO"),
                 "--parallel_optimizer");
  }
  TellOfUnfused("DeepSpeed", recipe, out.differences);
  if (t.lora.has_value()) {
    out.differences.push_back(
        absl::StrCat("the adapters are PEFT's, in the training code: LoraConfig(r=", t.lora->rank,
                     ", lora_alpha=", ShortestNumber(t.lora->scale() * static_cast<double>(t.lora->rank)), ", ..)"));
  }
  TellOfScaling("DeepSpeed", t, out.differences);
  if (recipe.sequence_parallel) {
    out.differences.push_back("DeepSpeed's tensor parallelism has no sequence parallelism: it needs more memory");
  }
  if (recipe.recompute != Recompute::kNone) {
    out.differences.push_back(absl::StrCat("recompute ", NameOf(recipe.recompute),
                                           " is switched on in the model's code (gradient checkpointing)"));
  }
  Json json;
  json["train_batch_size"] = recipe.batch;
  json["train_micro_batch_size_per_gpu"] = recipe.microbatch;
  json["gradient_accumulation_steps"] = recipe.microbatches;
  if (t.dtype == DType::kBFloat16) json["bf16"]["enabled"] = true;
  if (t.dtype == DType::kFloat16) json["fp16"]["enabled"] = true;
  const std::optional<LossScaling> scaling = t.LossScale();
  if (IsConstantScale(t)) {
    json["fp16"]["loss_scale"] = scaling.has_value() ? scaling->initial : 1;
  } else if (scaling.has_value()) {
    json["fp16"]["initial_scale_power"] = static_cast<int64_t>(std::lround(std::log2(scaling->initial)));
    json["fp16"]["loss_scale_window"] = scaling->growth_interval;
    json["fp16"]["hysteresis"] = 1;  // the plan lowers the scale at the first step that is skipped
  }
  const absl::string_view gradients = t.gradient_dtype == DType::kFloat32    ? "fp32"
                                      : t.gradient_dtype == DType::kBFloat16 ? "bf16"
                                                                             : "fp16";
  json["data_types"]["grad_accum_dtype"] = std::string(gradients);
  json["communication_data_type"] = std::string(gradients);  // else the model's
  Json& zero = json["zero_optimization"];
  zero["stage"] = zero_of_one ? 1 : recipe.zero_stage();
  if (recipe.copies > 1) zero["mics_shard_size"] = recipe.data / recipe.copies;
  zero["overlap_comm"] = true;
  zero["contiguous_gradients"] = true;
  if (recipe.bucket_elements > 0) {
    zero["reduce_bucket_size"] = recipe.bucket_elements;
    if (recipe.zero_stage() == 1) zero["allgather_bucket_size"] = recipe.bucket_elements;
  }
  if (recipe.tensor > 1) json["tensor_parallel"]["autotp_size"] = recipe.tensor;
  const Optimizer& o = t.optimizer;
  if (o.kind == OpKind::kAdamW) {
    json["optimizer"] = {{"type", "AdamW"},
                         {"params",
                          {{"lr", o.learning_rate},
                           {"betas", {o.beta1, o.beta2}},
                           {"eps", o.epsilon},
                           {"weight_decay", o.weight_decay}}}};
  } else {
    out.differences.push_back("the optimizer is left to the training code");
  }
  out.text = ToText(json);
  return out;
}

// The model is taken to be one of Hugging Face's, whose checkpoints run a layer again.
TrainerWords WordsOfDeepSpeed(const Recipe& recipe) {
  TrainerWords words;
  words.other_opts = absl::StrCat("Hugging Face, DeepSpeed 0.17, ", GradientWords(recipe));
  if (recipe.training.optimizer.kind == OpKind::kMuon) absl::StrAppend(&words.other_opts, ", Muon");
  words.attention = "flash_attention_2";
  words.zero_fsdp = recipe.zero_stage() == 0 ? "none" : absl::StrCat("ZeRO-", recipe.zero_stage(), ", overlap_comm");
  if (recipe.copies > 1) absl::StrAppend(&words.zero_fsdp, ", HSDP, dp_replicate ", recipe.copies);
  words.recompute = recipe.recompute == Recompute::kNone ? "none" : "full";
  words.takes_bucket = false;
  return words;
}

void NarrowToDeepSpeed(Problem* problem) {
  for (std::optional<int64_t>* const degree :
       {&problem->stages, &problem->expert_parallel, &problem->context_parallel}) {
    if (!degree->has_value()) *degree = 1;
  }
  if (!problem->parallel_optimizer.has_value()) problem->parallel_optimizer = true;
}

}  // namespace meshwright
