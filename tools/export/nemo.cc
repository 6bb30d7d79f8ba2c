// NeMo: YAML that Megatron-Bridge, its trainer on Megatron-Core, reads over a recipe of its own (--config-file).
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "ir/status.h"
#include "tools/export/bridge_keys.h"
#include "tools/export/writers.h"

namespace meshwright {
namespace {

// What Megatron-LM's options say that has no key of its own there, and is said elsewhere.
constexpr absl::string_view kSaidElsewhere[] = {
    "use-mcore-models", "group-query-attention", "bf16",       "fp16",
    "fp8-format",       "initial-loss-scale",    "loss-scale", "loss-scale-window",
    "hysteresis",       "fp8-param-gather",      "fp4-format"};

// What Gemma's recipes have in forms of their own: of rotary positions two bases, of windows one number.
constexpr absl::string_view kOfRecipe[] = {"rotary-base", "window-size", "window-attn-skip-freq"};

// As YAML has it: "core_attn layernorm" and "1,0" are lists, what a shell quotes is not quoted there, and a layout is a
// text of signs that mean something to YAML.
std::string YamlValue(absl::string_view option, std::string value) {
  absl::StrReplaceAll({{"'", ""}}, &value);
  if (option == "recompute-modules") return absl::StrCat("[", absl::StrReplaceAll(value, {{" ", ", "}}), "]");
  if (option == "window-size") return absl::StrCat("[", absl::StrReplaceAll(value, {{",", ", "}}), "]");
  if (option == "window-attn-skip-freq") return value;
  if (option == "experimental-attention-variant") return "gated_delta_net";
  const bool number = value.find_first_not_of("0123456789.e-+") == std::string::npos;
  const bool word =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  if (option == "moe-layer-freq" || option == "linear-attention-freq" || (!number && !word)) {
    return absl::StrCat("\"", value, "\"");
  }
  // PyYAML takes 1e-08 for a text.
  const size_t exponent = value.find('e');
  if (number && exponent != std::string::npos && value.find('.') == std::string::npos) value.insert(exponent, ".0");
  return value;
}

std::string Precision(const Recipe& recipe) {
  const absl::string_view type = recipe.training.dtype == DType::kFloat16 ? "fp16" : "bf16";
  constexpr absl::string_view kFloat8 = "_with_fp8_current_scaling_mixed", kFloat4 = "_with_nvfp4_mixed";
  return absl::StrCat(type, recipe.product_bits() == 8 ? kFloat8 : recipe.product_bits() == 4 ? kFloat4 : "_mixed");
}

void TellOfRest(const Recipe& recipe, std::vector<std::string>& differences) {
  const Training& t = recipe.training;
  if (t.dtype == DType::kFloat32) differences.push_back("the type of parameters is the recipe's, float32 in the plan");
  if (t.dtype == DType::kBFloat16 && t.gradient_dtype != DType::kFloat32) {
    differences.push_back("with bf16_mixed gradients are reduced in float32, in the plan in bfloat16");
  }
  // As all of its float8 recipes of one scale a tensor have it (training/mixed_precision.py, fp8_param_gather).
  if (recipe.product_bits() == 8 && !t.float8_parameters) {
    differences.push_back(absl::StrCat("with ", Precision(recipe),
                                       " weights lie and are gathered in float8, in the plan in ", NameOf(t.dtype),
                                       "; --parameters=float8 plans for that"));
  }
  if (recipe.product_bits() == 4) {
    differences.push_back(
        absl::StrCat("with ", Precision(recipe), " weights are gathered in NVFP4, in the plan in ", NameOf(t.dtype)));
  }
  if (t.lora.has_value())
    differences.push_back("adapters are those of the recipe (`peft`), which this file does not set");
}

}  // namespace

absl::StatusOr<Exported> ToNemo(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  Exported out;
  MESHWRIGHT_ASSIGN_OR_RETURN(MegatronOptionList options,
                              MegatronOptionsOf(plan, recipe, LayersFrom::kRecipe, out.differences));
  options.emplace_back("--vocab-size", absl::StrCat(recipe.model.vocab));
  TellOfRest(recipe, out.differences);
  if (recipe.model.norm_places == NormPlaces::kBoth) {
    std::erase_if(options,
                  [](const auto& one) { return absl::c_linear_search(kOfRecipe, absl::StripPrefix(one.first, "--")); });
  }
  std::map<absl::string_view, std::string> sections;
  for (const BridgeKey& row : kBridgeKeys) {
    const auto option =
        absl::c_find_if(options, [&](const auto& one) { return absl::StripPrefix(one.first, "--") == row.option; });
    if (option == options.end()) continue;
    const std::string value = row.on.empty() ? YamlValue(row.option, option->second) : std::string(row.on);
    absl::StrAppend(&sections[row.section], "  ", row.key, ": ", value, "\n");
    options.erase(option);
  }
  absl::StrAppend(&sections["model"], "  should_pad_vocab: true\n");
  if (recipe.model.kv_heads == recipe.model.heads) {
    absl::StrAppend(&sections["model"], "  num_query_groups: ", recipe.model.heads, "\n");
  }
  sections["dataset"] = absl::StrCat("  seq_length: ", recipe.training.sequence, "\n");
  for (const auto& [name, value] : options) {
    const absl::string_view plain = absl::StripPrefix(name, "--");
    if (absl::c_linear_search(kSaidElsewhere, plain) || plain == "squared-relu") continue;
    out.differences.push_back(
        absl::StrCat("no key is known there for Megatron-LM's ", name, value.empty() ? "" : " ", value));
  }
  out.text = absl::StrCat(Heading(plan, out.differences),
                          "#\n# For --config-file of a training script of Megatron-Bridge, over a recipe of the same "
                          "model, under\n# torchrun --nnodes ",
                          recipe.cluster.nodes, " --nproc-per-node ", recipe.cluster.devices_per_node, "\n");
  if (recipe.training.dtype != DType::kFloat32)
    absl::StrAppend(&out.text, "mixed_precision: ", Precision(recipe), "\n");
  for (const absl::string_view section : {"model", "train", "ddp", "optimizer", "dataset", "checkpoint", "rng"}) {
    if (const auto found = sections.find(section); found != sections.end()) {
      absl::StrAppend(&out.text, section, ":\n", found->second);
    }
  }
  return out;
}

}  // namespace meshwright
