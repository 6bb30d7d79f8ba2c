#include "models/window_layers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// GPT-Neo's: runs of kinds, and how many times each stands in a row.
absl::Status ReadRuns(const NodeRef& in, std::vector<bool>& windowed) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> runs, in.AsList());
  size_t layer = 0;
  for (const NodeRef& run : runs) {
    const std::vector<NodeRef> parts = run.children();
    if (parts.size() != 2) return run.Error(absl::StrCat(parts.size(), " parts"), "a list of kinds, and a number");
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t times, parts[1].AsInt(1, kMostLayers));
    for (int64_t i = 0; i < times; ++i) {
      for (const NodeRef& kind : parts[0].children()) {
        MESHWRIGHT_ASSIGN_OR_RETURN(const size_t has, kind.AsChoice({"global", "local"}));
        if (layer < windowed.size()) windowed[layer] = has == 1;
        ++layer;
      }
    }
  }
  if (layer == windowed.size()) return absl::OkStatus();
  return in.Error(absl::StrCat(layer, " kinds"), absl::StrCat("one for each of the ", windowed.size(), " layers"));
}

// By layer, whether it has a window, of a model that has some.
absl::StatusOr<std::vector<bool>> WindowedLayers(const NodeRef& in, const HuggingFaceFamily& family, size_t layers) {
  std::vector<bool> windowed(layers, true);
  if (Given(in["attention_types"])) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadRuns(in["attention_types"], windowed));
    return windowed;
  }
  if (!Given(in["layer_types"]) && Given(in["hybrid_layer_pattern"])) {  // MiMo-V2's
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> has, in["hybrid_layer_pattern"].AsInts(0, 1));
    if (has.size() != layers) {
      return in["hybrid_layer_pattern"].Error(absl::StrCat(has.size(), " numbers"),
                                              absl::StrCat("one for each of the ", layers, " layers"));
    }
    for (size_t i = 0; i < layers; ++i) windowed[i] = has[i] == 1;
    return windowed;
  }
  if (!Given(in["layer_types"])) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, IntOr(in["max_window_layers"], 0, 0));
    const NodeRef pattern =
        FirstGiven(in, {"sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"});
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t every, IntOr(pattern, family.full_every, 0));
    for (size_t i = 0; i < layers; ++i) {
      const auto layer = static_cast<int64_t>(i);
      windowed[i] = every > 0 ? (layer + 1 - family.full_at) % every != 0 : layer >= first;
    }
    if (family.full_first) windowed[0] = false;
    return windowed;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> types, in["layer_types"].AsList());
  for (size_t i = 0; i < types.size(); ++i) {
    const absl::string_view type = types[i].text();
    const bool has = type == "sliding_attention" || type == "chunked_attention";
    if (!has && type != "full_attention") return NotModelled(types[i], QuoteForMessage(type));
    if (i < layers) windowed[i] = has;
  }
  // Step 3.5 tells of those that predict further tokens, too.
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t next, IntOr(in["num_nextn_predict_layers"], 0, 0));
  if (types.size() != layers && types.size() != layers + static_cast<size_t>(next)) {
    return in["layer_types"].Error(absl::StrCat(types.size(), " kinds"),
                                   absl::StrCat("one for each of the ", layers, " layers"));
  }
  return windowed;
}

// Laguna's: a number of heads for each layer, one for those with a window and one for the others.
absl::Status ReadHeadsOfLayers(const NodeRef& list, const std::vector<bool>& windowed, AttentionHeads& of_windows,
                               AttentionHeads& of_all) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<NodeRef> each, list.AsList());
  if (each.size() != windowed.size()) {
    return list.Error(absl::StrCat(each.size(), " numbers"),
                      absl::StrCat("one for each of the ", windowed.size(), " layers"));
  }
  std::optional<int64_t> seen[2];
  for (size_t i = 0; i < each.size(); ++i) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, each[i].AsInt(1, kMost));
    if (seen[windowed[i]].value_or(heads) != heads) {
      return NotModelled(each[i], "another number of heads in layers of one kind");
    }
    seen[windowed[i]] = heads;
  }
  of_windows.heads = seen[true].value_or(of_windows.heads);
  of_all.heads = seen[false].value_or(of_all.heads);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadWindow(const NodeRef& in, const HuggingFaceFamily& family, const Training& training, DecoderConfig& c,
                        std::vector<std::string>& notices) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                              WindowedLayers(in, family, static_cast<size_t>(c.layers)));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool used, BoolOr(in["use_sliding_window"], family.may_window));
  const NodeRef window =
      Given(in["attention_types"]) ? in["window_size"] : FirstGiven(in, {"sliding_window", "attention_chunk_size"});
  const bool none = std::find(windowed.begin(), windowed.end(), true) == windowed.end();
  if (!used || window.is_null() || none) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t length, IntOr(window, family.window, 0));
  if (length == 0) return absl::OkStatus();
  c.sliding_window = length;
  std::vector<bool> full = windowed;
  full.flip();
  SetFullAttention(full, c);
  if (length < training.sequence && Given(in["attention_chunk_size"])) {
    notices.push_back(absl::StrCat("attention in chunks of ", length,
                                   " tokens is taken for windows of as many, up to "
                                   "twice the work"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeadsByKind(const NodeRef& in, const HuggingFaceFamily& family, DecoderConfig& c,
                             std::vector<std::string>& notices) {
  const NodeRef others = in["attention_other_setting"];
  AttentionHeads of_windows = HeadsOf(c, 1), of_all = of_windows;
  if (family.full_head_dim > 0) {
    if (Given(in["per_layer_config"])) return NotModelled(in["per_layer_config"], "a map of layers");
    MESHWRIGHT_ASSIGN_OR_RETURN(of_all.head_dim, IntOr(in["global_head_dim"], family.full_head_dim));
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool same, BoolOr(in["attention_k_eq_v"], false));
    if (same) {
      MESHWRIGHT_ASSIGN_OR_RETURN(of_all.kv_heads, IntOr(in["num_global_key_value_heads"], of_all.kv_heads));
      notices.push_back("of layers without a window values have a weight of their own, in place of that of keys");
    }
  } else if (others.is_map()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.heads, IntOr(others["num_attention_heads"], of_all.heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.kv_heads, IntOr(others["num_attention_groups"], of_all.kv_heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.head_dim, IntOr(others["head_dim"], of_all.head_dim));
  } else if (family.value_head_dim > 0) {
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.heads, IntOr(in["swa_num_attention_heads"], of_all.heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.kv_heads, IntOr(in["swa_num_key_value_heads"], of_all.kv_heads));
    MESHWRIGHT_ASSIGN_OR_RETURN(of_windows.head_dim, IntOr(in["swa_head_dim"], of_all.head_dim));
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t values, IntOr(in["swa_v_head_dim"], ValueWidth(c)));
    if (values != ValueWidth(c)) return NotModelled(in["swa_v_head_dim"], "values of another width in some layers");
  } else if (Given(in["num_attention_heads_per_layer"])) {
    std::vector<bool> windowed(static_cast<size_t>(c.layers), false);
    if (c.sliding_window > 0) {
      MESHWRIGHT_ASSIGN_OR_RETURN(windowed, WindowedLayers(in, family, windowed.size()));
    }
    MESHWRIGHT_RETURN_IF_ERROR(ReadHeadsOfLayers(in["num_attention_heads_per_layer"], windowed, of_windows, of_all));
  }
  if (of_windows == of_all) return absl::OkStatus();
  if (c.sliding_window > 0 && !HasFullAttention(c)) of_all = of_windows;  // all layers have one
  if (c.sliding_window == 0) of_windows = of_all;                         // or none
  c.heads = of_windows.heads;
  c.kv_heads = of_windows.kv_heads;
  c.head_dim = of_windows.head_dim;
  if (of_windows != of_all) c.full_attention_heads = of_all;
  return absl::OkStatus();
}

}  // namespace meshwright
