#include "tools/validate/recompute_text.h"

#include <algorithm>
#include <regex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tools/validate/words.h"

namespace meshwright {
namespace {

double ShareOf(const std::smatch& match, int64_t layers) {
  return std::min(1.0, std::stod(match[1].str()) / static_cast<double>(layers));
}

// "every 2nd layer": a half. "12 layers", "12": of all. Where no number is given, every second, torchtitan's default.
double ShareOfLayers(const std::string& text, int64_t layers) {
  std::smatch match;
  static const std::regex* const kEvery = new std::regex(R"(every\s*(\d{1,6}))");
  static const std::regex* const kLayers = new std::regex(R"((\d{1,6})\s*(?:/\s*\d{1,6}\s*)?(layers|$))");
  if (std::regex_search(text, match, *kEvery)) return 1 / std::max(1.0, std::stod(match[1].str()));
  return std::regex_search(text, match, *kLayers) ? ShareOf(match, layers) : 0.5;
}

// "checkpoint_lvl=1 for 24 layers, 2 for 24": of all layers, those that recompute the product before the activation.
double ShareOfSecondLevel(const std::string& text, int64_t layers) {
  std::smatch match;
  static const std::regex* const kSecond = new std::regex(R"(layers?[,;] *2 for (\d{1,6}))");
  return std::regex_search(text, match, *kSecond) ? ShareOf(match, layers) : 0;
}

bool SaysNone(const std::string& text) {
  // But not "norm", "nothing_saveable" and "non-reentrant".
  static const std::regex* const kNo = new std::regex(R"(^(no|none|not|n)(?![a-z])|^everything_saveable)");
  const bool no = std::regex_search(text, *kNo);
  return text.empty() || no || text == "false" || text == "off" || text == "0" || HasAny(text, {"disabled", "without"});
}

bool IsNumber(const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; }

bool SaysAll(const std::string& text) {
  static const std::regex* const kFull =
      new std::regex(R"(^((non-?|use_)?re-?entrant )?full|^nothing_saveable|^all$)");  // jax.checkpoint's
  return std::regex_search(text, *kFull) || text == "yes" || text == "\xE2\x9C\x93" || text == "true" || text == "on" ||
         text == "1" || HasAny(text, {"uniform", "every layer", "every_layer", "each layer", "all layers", "enabled"});
}

struct Module {
  absl::string_view name;
  std::vector<std::string> ops;
};

// Of `--recompute-modules`, and by the words that tables have for them.
const std::vector<Module>& MegatronModules() {
  static const std::vector<Module>* const kModules = new std::vector<Module>{
      {"core_attn", {"attention"}},
      {"moe_act", {"activation"}},
      {"act", {"activation"}},
      {"layernorm", {"norm1", "norm2"}},
      {"norm", {"norm1", "norm2"}},
      {"mla_up_proj", {"q_norm", "q_up", "kv_norm", "kv_up", "latent_heads"}},
      {"mlp", {"mlp1", "activation"}},
      {"shared_experts", {"shared_mlp1", "shared_activation"}},
      // All of the layer's forward pass, the shared expert's, too (megatron/core/transformer/moe/moe_layer.py).
      {"moe",
       {"router", "expert_down", "dispatch", "mlp1", "activation", "mlp2", "combine", "expert_up", "shared_mlp1",
        "shared_activation", "shared_mlp2"}},
  };
  return *kModules;
}

// A list of modules and nothing else.
bool ReadModules(const std::string& text, bool experts, RecomputeText* read) {
  RecomputeText all;
  int64_t named = 0;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" ,;+[]'\""), absl::SkipEmpty())) {
    const auto is = [&](const Module& module) { return module.name == word; };
    const auto found = std::find_if(MegatronModules().begin(), MegatronModules().end(), is);
    if (found == MegatronModules().end()) return false;
    ++named;
    if (experts && found->name == "mlp") continue;  // of the layers without experts, of which our models have none
    all.ops.insert(found->ops.begin(), found->ops.end());
  }
  if (named > 0) *read = all;
  return named > 0;
}

}  // namespace

RecomputeText ReadRecomputeText(const std::string& text, int64_t layers, bool experts) {
  RecomputeText read;
  if (ReadModules(text, experts, &read) || SaysNone(text)) return read;
  const bool mlp = HasAny(text, {"mlp"});
  if (SaysAll(text)) {
    read.recompute = Recompute::kLayer;
  } else if ((HasAny(text, {"every", "selective layer", "block", "layers"}) || IsNumber(text)) && !mlp) {
    read.recompute = Recompute::kLayer;
    read.share = ShareOfLayers(text, layers);
    read.some_layers = true;
  } else if (HasAny(text, {"recompute gelu", "checkpoint_lvl=1"})) {
    read.ops = {"activation"};
    if (const double both = ShareOfSecondLevel(text, layers); both > 0) {
      read.more = {"mlp1"};
      read.share = both;
    }
  } else if (HasAny(text, {"save_qkv_proj"})) {  // MaxText's policies, and Praxis'
    read.ops = {"norm1", "qk_norm", "rotary", "latent_heads", "attention",
                "proj",  "add1",    "norm2",  "mlp1",         "activation"};
  } else if (HasAny(text, {"save_dot_except_mlp", "save_qkv_out_proj"})) {
    read.ops = {"norm1", "qk_norm", "rotary", "latent_heads", "attention", "norm2", "mlp1", "activation"};
  } else if (HasAny(text, {"checkpoint_lvl=2", "except_mlp"})) {  // MaxText's `remat_policy`
    read.ops = {"mlp1", "activation"};
  } else if (HasAny(text, {"minimal_flash"})) {  // MaxText's: and attention's results kept
    read.ops = {"norm1", "qk_norm", "rotary", "latent_heads", "norm2", "activation"};
  } else if (HasAny(text, {"save_dot_only", "save_dot_with_no_batch", "minimal"})) {  // fused attention is no product
    read.ops = {"norm1", "qk_norm", "rotary", "latent_heads", "attention", "norm2", "activation"};
  } else if (HasAny(text, {"selective op"}) || text == "sac") {
    read.ops = {"norm1", "qk_norm", "rotary", "latent_heads", "proj", "add1", "norm2", "activation"};
    read.more = {"mlp1"};
    read.share = 0.5;
  } else if (HasAny(text, {"selective", "core attention", "attention only", "recompute-activations"})) {
    read.recompute = Recompute::kSelective;
  } else if (HasAny(text, {"checkpointing"}) && !mlp) {
    read.recompute = Recompute::kLayer;
  } else {
    read.known = false;
  }
  return read;
}

}  // namespace meshwright
