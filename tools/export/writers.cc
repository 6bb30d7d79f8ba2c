#include "tools/export/writers.h"

#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/numbers.h"

namespace meshwright {

std::string Heading(const Plan& plan, const std::vector<std::string>& differences) {
  const Cluster& cluster = plan.session.problem.cluster;
  std::string text = absl::StrCat(
      "# ", PlainName(plan.session.file->name), " on ", cluster.nodes, cluster.nodes == 1 ? " node x " : " nodes x ",
      cluster.devices_per_node, " ", cluster.device.name, ", from a plan of meshwright.\n# Predicted",
      plan.promise.trainer.empty() ? "" : absl::StrCat(", as ", plan.promise.trainer, " runs it"), ": step ",
      ShowTime(plan.promise.step), ", ", ShowLarge(plan.promise.tokens_per_second),
      plan.session.file->is_decoder() ? " tokens/s, MFU " : " rows/s, MFU ", ShowPercent(plan.promise.mfu),
      ", peak memory ", ShowBytes(plan.promise.peak), " a device.\n");
  for (const std::string& difference : differences) absl::StrAppend(&text, "# Differs: ", difference, ".\n");
  return text;
}

absl::Status HasNo(absl::string_view trainer, absl::string_view what, absl::string_view flag) {
  return absl::UnimplementedError(absl::StrCat(trainer, " has no ", what, "; plan with ", flag));
}

int64_t KeyHeads(const DecoderConfig& model) { return std::gcd(model.kv_heads, HeadsOf(model, 0).kv_heads); }

absl::Status CheckCommon(absl::string_view trainer, const Recipe& recipe, std::vector<std::string>& differences) {
  for (const int64_t window : {recipe.model.sliding_window, int64_t{0}}) {
    const AttentionHeads sizes = HeadsOf(recipe.model, window);
    if (sizes.heads % recipe.tensor == 0) continue;
    const int64_t all = std::gcd(recipe.model.heads, HeadsOf(recipe.model, 0).heads);
    return absl::UnimplementedError(absl::StrFormat(
        "%s splits heads over all tensor-parallel ranks: found %d heads over %d, wanted a divisor; plan with "
        "--tensor_parallel=%d",
        trainer, sizes.heads, recipe.tensor, std::gcd(all, recipe.tensor)));
  }
  if (const int64_t keys = KeyHeads(recipe.model); keys % recipe.tensor != 0) {
    differences.push_back(absl::StrFormat(
        "%d heads of keys and values over %d ranks: %s splits the queries and repeats keys and values, the plan "
        "repeats both",
        keys, recipe.tensor, trainer));
  }
  if (recipe.sums_gradients) {
    differences.push_back(absl::StrCat(trainer, " takes the mean of the ranks' gradients, the plan their sum, ",
                                       recipe.data, " times as much (gradients_mean: false)"));
  }
  if (recipe.sequence_parallel && recipe.training.sequence % recipe.tensor != 0) {
    return HasNo(trainer, absl::StrCat("sequence of ", recipe.training.sequence, " tokens over ", recipe.tensor),
                 "--nosequence_parallel");
  }
  return absl::OkStatus();
}

absl::Status RefuseAdapters(absl::string_view trainer, const Recipe& recipe) {
  if (!recipe.training.lora.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(trainer, " has no adapters (`lora`); plan with --trainer=nemo or deepspeed, or leave them out"));
}

absl::StatusOr<std::string> AdapterWords(const Recipe& recipe) {
  if (!recipe.training.lora.has_value()) return std::string();
  const Lora& lora = *recipe.training.lora;
  const bool attention = lora.qkv && lora.proj, mlp = lora.mlp1 && lora.mlp2;
  if (!attention || (lora.mlp1 || lora.mlp2) != mlp) {
    return absl::UnimplementedError(
        "what a trainer makes of adapters is known where all products of a layer have them, or qkv and proj alone; "
        "leave out training.lora.targets");
  }
  return absl::StrCat("PEFT LoRA of rank ", lora.rank, mlp ? ", all linear" : ", q_proj k_proj v_proj o_proj");
}

bool IsConstantScale(const Training& training) {
  const std::optional<LossScaling> scaling = training.LossScale();
  return scaling.has_value() ? scaling->growth_factor == 1 && scaling->backoff_factor == 1
                             : training.dtype == DType::kFloat16;
}

void TellOfScaling(absl::string_view trainer, const Training& training, std::vector<std::string>& differences) {
  const std::optional<LossScaling> scaling = training.LossScale();
  if (!scaling.has_value() || IsConstantScale(training)) return;
  if (scaling->growth_factor == 2 && scaling->backoff_factor == 0.5) return;
  differences.push_back(absl::StrCat(trainer, " doubles and halves the scale of the loss, the plan's factors are ",
                                     ShortestNumber(scaling->growth_factor), " and ",
                                     ShortestNumber(scaling->backoff_factor)));
}

void TellOfUnfused(absl::string_view trainer, const Recipe& recipe, std::vector<std::string>& differences) {
  if (recipe.training.fused_attention) return;
  differences.push_back(absl::StrCat("the plan's attention is unfused, ", trainer, "'s as its model has it"));
}

void AddLeftOut(const Plan& plan, std::vector<std::string>& differences) {
  const std::vector<std::string>& left_out = plan.session.file->left_out;
  differences.insert(differences.end(), left_out.begin(), left_out.end());
}

absl::Status CheckLlama(absl::string_view trainer, const Recipe& recipe) {
  const DecoderConfig& m = recipe.model;
  const bool plain = !m.bias && !m.qkv_bias && !m.qk_norm && m.rotary_factor == 1 && m.mtp_layers == 0 &&
                     m.norm_places == NormPlaces::kBefore && m.layer_form == LayerForm::kSerial &&
                     m.linear_attention.value_heads == 0 && m.layer_pattern.empty() && !m.attention_gate &&
                     !m.shared_expert_gate && m.expert_hidden == 0;
  if (plain && m.activation == Activation::kSwiglu && m.norm == Norm::kRmsNorm && m.positions == Positions::kRotary) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      trainer, " is written for models built as Llama is (swiglu, rms_norm, rotary, no bias, no qk_norm), which \"",
      recipe.name, "\" is not; take megatron"));
}

std::string GradientWords(const Recipe& recipe) {
  return recipe.training.gradient_dtype == DType::kFloat32 ? "gradients in float32" : "gradients in bf16";
}

}  // namespace meshwright
