#include "models/expert_layers.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/hugging_face_values.h"

namespace meshwright {
namespace {

using config_json::FirstGiven;
using config_json::Given;
using config_json::IntOr;
using config_json::kMost;

// By layer, whether it has experts.
using Pattern = std::vector<bool>;

// The first layers, as many as `at` says, have none.
absl::Status TakeFirst(const NodeRef& at, int64_t fallback, Pattern& with) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t first, IntOr(at, fallback, 0));
  for (size_t layer = 0; layer < with.size() && layer < static_cast<size_t>(first); ++layer) with[layer] = false;
  return absl::OkStatus();
}

// Experts where the layer's number, counted from `base`, is a multiple of what `at` says.
absl::Status TakeOthers(const NodeRef& at, size_t base, Pattern& with) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t every, IntOr(at, 1, 1));
  for (size_t layer = 0; layer < with.size(); ++layer) {
    if ((layer + base) % static_cast<size_t>(every) != 0) with[layer] = false;
  }
  return absl::OkStatus();
}

// A list of layers that have experts, or have none.
absl::Status ReadList(const NodeRef& list, bool experts, Pattern& with) {
  if (!Given(list) || list.children().empty()) return absl::OkStatus();
  if (experts) with.assign(with.size(), false);
  for (const NodeRef& one : list.children()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t layer, one.AsInt(0, static_cast<int64_t>(with.size()) - 1));
    with[static_cast<size_t>(layer)] = experts;
  }
  return absl::OkStatus();
}

// A word for each layer.
absl::Status ReadWords(const NodeRef& list, Pattern& with) {
  const std::vector<NodeRef> words = list.children();
  if (words.size() != with.size()) {
    return list.Error(absl::StrCat(words.size(), " kinds"),
                      absl::StrCat("one for each of the ", with.size(), " layers"));
  }
  for (size_t layer = 0; layer < words.size(); ++layer) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t kind, words[layer].AsChoice({"dense", "sparse"}));
    with[layer] = kind == 1;
  }
  return absl::OkStatus();
}

// Step 3.5's: the layers that have experts, in one text.
absl::Status ReadEnumeration(const NodeRef& in, Pattern& with) {
  with.assign(with.size(), false);
  for (const absl::string_view word : absl::StrSplit(in.text(), ',')) {
    size_t layer = 0;
    if (!absl::SimpleAtoi(word, &layer) || layer >= with.size()) {
      return in.Error(QuoteForMessage(word),
                      absl::StrCat("numbers of layers below ", with.size(), ", such as \"1,2\""));
    }
    with[layer] = true;
  }
  return absl::OkStatus();
}

// As the classes have it: DeepSeek's and GLM's layer i where i % moe_layer_freq is 0, Qwen's, ERNIE's and Llama 4's
// where that of i + 1 is. MiMo has a list of 0 and 1 for moe_layer_freq.
absl::StatusOr<Pattern> PatternOf(const NodeRef& in, int64_t dense_layers, int64_t layers) {
  Pattern with(static_cast<size_t>(layers), true);
  if (Given(in["mlp_layer_types"])) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadWords(in["mlp_layer_types"], with));
    return with;
  }
  if (Given(in["moe_layers_enum"]) && in["moe_layers_enum"].is_scalar()) {
    MESHWRIGHT_RETURN_IF_ERROR(ReadEnumeration(in["moe_layers_enum"], with));
    return with;
  }
  const NodeRef frequency = in["moe_layer_freq"];
  if (Given(frequency) && !frequency.is_scalar()) {
    const std::vector<NodeRef> each = frequency.children();
    if (each.size() != with.size()) {
      return frequency.Error(absl::StrCat(each.size(), " numbers"),
                             absl::StrCat("one for each of the ", layers, " layers"));
    }
    for (size_t layer = 0; layer < each.size(); ++layer) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t has, each[layer].AsInt(0, 1));
      with[layer] = has == 1;
    }
  } else {
    MESHWRIGHT_RETURN_IF_ERROR(TakeOthers(frequency, 0, with));
  }
  for (const absl::string_view step : {"decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step"}) {
    MESHWRIGHT_RETURN_IF_ERROR(TakeOthers(in[step], 1, with));
  }
  MESHWRIGHT_RETURN_IF_ERROR(ReadList(in["moe_layers"], true, with));
  MESHWRIGHT_RETURN_IF_ERROR(ReadList(in["mlp_only_layers"], false, with));
  MESHWRIGHT_RETURN_IF_ERROR(TakeFirst(
      FirstGiven(in, {"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"}), dense_layers, with));
  return with;
}

}  // namespace

absl::Status ReadExpertLayers(const NodeRef& in, int64_t dense_layers, DecoderConfig& c) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Pattern with, PatternOf(in, dense_layers, c.layers));
  std::vector<int64_t> experts;
  for (size_t layer = 0; layer < with.size(); ++layer) {
    if (with[layer]) experts.push_back(static_cast<int64_t>(layer));
  }
  // The distance of the first two says how many of the layers before the first stand with it.
  const int64_t every = experts.size() > 1 ? experts[1] - experts[0] : 1;
  const int64_t dense = experts.empty() ? -1 : experts[0] - (every - 1);
  bool regular = dense >= 0 && experts.back() + 1 == c.layers;
  for (size_t i = 1; i < experts.size(); ++i) regular &= experts[i] - experts[i - 1] == every;
  if (!regular) {
    const NodeRef at =
        FirstGiven(in, {"mlp_layer_types", "mlp_only_layers", "moe_layers", "moe_layers_enum", "decoder_sparse_step",
                        "moe_layer_interval", "interleave_moe_layer_step", "moe_layer_freq", "first_k_dense_replace",
                        "moe_layer_start_index", "num_dense_layers"});
    return at.Locate(absl::UnimplementedError(
        "layers without experts that are neither the first nor all but the last of each so many are not modelled"));
  }
  c.dense_layers = dense;
  c.expert_every = every;
  if (dense == 0 && every == 1) return absl::OkStatus();
  MESHWRIGHT_ASSIGN_OR_RETURN(c.dense_ffn,
                              FirstGiven(in, {"intermediate_size_mlp", "intermediate_size"}).AsInt(1, kMost));
  return absl::OkStatus();
}

}  // namespace meshwright
