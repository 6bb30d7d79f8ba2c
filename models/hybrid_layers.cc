#include "models/hybrid_layers.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/hugging_face_values.h"

namespace meshwright {
namespace {

using config_json::BoolOr;
using config_json::FirstGiven;
using config_json::Given;
using config_json::IntOr;
using config_json::kMost;
using config_json::NotModelled;

// By layer, whether it has full attention.
using FullLayers = std::vector<bool>;

absl::StatusOr<FullLayers> FullLayersOf(const NodeRef& in, HybridKeys keys, size_t layers) {
  FullLayers full(layers, false);
  const NodeRef types = in["layer_types"];
  if (Given(types)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> each, types.AsList());
    if (each.size() != layers) {
      return types.Error(absl::StrCat(each.size(), " kinds"), absl::StrCat("one for each of the ", layers, " layers"));
    }
    for (size_t i = 0; i < layers; ++i) {
      const absl::string_view type = each[i].text();
      full[i] = type == "full_attention" || type == "attention";
      if (!full[i] && type != "linear_attention" && type != "mamba") {
        return NotModelled(each[i], absl::StrCat(QuoteForMessage(type), " beside linear attention"));
      }
    }
    return full;
  }
  if (keys == HybridKeys::kKimi) {  // from 1
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> each, in["linear_attn_config"]["full_attn_layers"].AsList());
    for (const NodeRef& one : each) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layer, one.AsInt(1, static_cast<int64_t>(layers)));
      full[static_cast<size_t>(layer) - 1] = true;
    }
    return full;
  }
  if (keys == HybridKeys::kMamba) {
    for (const NodeRef& one : in["attn_layer_indices"].children()) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layer, one.AsInt(0, static_cast<int64_t>(layers) - 1));
      full[static_cast<size_t>(layer)] = true;
    }
    return full;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t every, IntOr(in["full_attention_interval"], 4));
  for (size_t i = 0; i < layers; ++i) full[i] = (i + 1) % static_cast<size_t>(every) == 0;
  return full;
}

// In letters: hybrid_override_pattern as it stands, or layers_block_type.
absl::StatusOr<std::string> ReadPattern(const NodeRef& in) {
  if (Given(in["hybrid_override_pattern"])) return in["hybrid_override_pattern"].AsString();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> types, in["layers_block_type"].AsList());
  std::string pattern;
  for (const NodeRef& type : types) {
    const absl::string_view name = type.text();
    const char letter = name == "mamba"       ? 'M'
                        : name == "attention" ? '*'
                        : name == "mlp"       ? '-'
                        : name == "moe"       ? 'E'
                                              : 0;
    if (letter == 0) return NotModelled(type, QuoteForMessage(name));
    pattern.push_back(letter);
  }
  return pattern;
}

absl::Status ReadLinear(const NodeRef& in, HybridKeys keys, const DecoderConfig& c, LinearAttentionConfig& l) {
  const bool olmo = keys == HybridKeys::kOlmo;
  l.form = LinearForm::kGatedDelta;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, IntOr(in["linear_num_key_heads"], olmo ? c.heads : 16));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, IntOr(in["linear_num_value_heads"], olmo ? c.heads : 32));
  const int64_t of_hidden = std::max<int64_t>(c.hidden * 3 / 4 / l.key_heads, 1);
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, IntOr(in["linear_key_head_dim"], olmo ? of_hidden : 128));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, IntOr(in["linear_value_head_dim"], olmo ? 2 * l.key_dim : 128));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution, IntOr(in["linear_conv_kernel_dim"], 4));
  return absl::OkStatus();
}

// Gates go through a vector as long as a head unless `use_full_rank_gate` is given.
absl::Status ReadKimi(const NodeRef& in, LinearAttentionConfig& l) {
  l.form = LinearForm::kKimiDelta;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, in["num_heads"].AsInt(1, kMost));
  l.key_heads = l.value_heads;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim, in["head_dim"].AsInt(1, kMost));
  l.value_dim = l.decay_rank = l.key_dim;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution, IntOr(in["short_conv_kernel_size"], 4));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool full, BoolOr(in["use_full_rank_gate"], false));
  l.gate_rank = full ? 0 : l.key_dim;
  return absl::OkStatus();
}

absl::Status ReadMamba(const NodeRef& in, HybridKeys keys, int64_t hidden, LinearAttentionConfig& l) {
  const bool nemotron = keys == HybridKeys::kPatterns;
  l.form = LinearForm::kStateSpace;
  MESHWRIGHT_ASSIGN_OR_RETURN(l.value_heads, IntOr(FirstGiven(in, {"mamba_num_heads", "mamba_n_heads"}), 128));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_heads, IntOr(FirstGiven(in, {"n_groups", "mamba_n_groups"}), nemotron ? 8 : 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.key_dim,
                              IntOr(FirstGiven(in, {"ssm_state_size", "mamba_d_state"}), nemotron ? 128 : 256));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution, IntOr(FirstGiven(in, {"conv_kernel", "mamba_d_conv"}), 4));
  MESHWRIGHT_ASSIGN_OR_RETURN(l.convolution_bias, BoolOr(FirstGiven(in, {"use_conv_bias", "mamba_conv_bias"}), true));
  const NodeRef width = FirstGiven(in, {"mamba_head_dim", "mamba_d_head"});
  if (nemotron || (Given(width) && width.text() != "auto")) {
    MESHWRIGHT_ASSIGN_OR_RETURN(l.value_dim, IntOr(width, 64));
  } else {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t expand, IntOr(FirstGiven(in, {"mamba_expand", "expand"}), 2));
    l.value_dim = expand * hidden / l.value_heads;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool bias, BoolOr(in["mamba_proj_bias"], false));
  if (bias) return NotModelled(in["mamba_proj_bias"], "a bias of a state space's products");
  if (l.value_dim < 1 || l.value_heads % l.key_heads != 0) {
    const NodeRef at = FirstGiven(in, {"mamba_num_heads", "mamba_n_heads"});
    return at.Error(absl::StrCat(l.value_heads, " heads"), absl::StrCat("a multiple of ", l.key_heads, " groups"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> LayersOfPattern(const NodeRef& in, HybridKeys keys) {
  if (keys != HybridKeys::kPatterns) return 0;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string pattern, ReadPattern(in));
  return static_cast<int64_t>(pattern.size());
}

absl::Status ReadHybridLayers(const NodeRef& in, HybridKeys keys, DecoderConfig& c) {
  if (keys == HybridKeys::kNone) return absl::OkStatus();
  if (keys == HybridKeys::kPatterns) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.layer_pattern, ReadPattern(in));
    if (c.experts > 0 && absl::StrContains(c.layer_pattern, '-')) {
      MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_ffn, in["intermediate_size"].AsInt(1, kMost));
    }
    return ReadMamba(in, keys, c.hidden, c.linear_attention);
  }
  if (keys == HybridKeys::kLinear || keys == HybridKeys::kOlmo) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadLinear(in, keys, c, c.linear_attention));
  } else if (keys == HybridKeys::kKimi) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadKimi(in["linear_attn_config"], c.linear_attention));
  } else {
    MESHWRIGHT_RETURN_IF_ERROR(ReadMamba(in, keys, c.hidden, c.linear_attention));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const FullLayers full, FullLayersOf(in, keys, static_cast<size_t>(c.layers)));
  SetFullAttention(full, c);
  return absl::OkStatus();
}

}  // namespace meshwright
