#include "tools/import/bridge.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/export/bridge_keys.h"

namespace meshwright {
namespace {

// An object of Python's, by the name of what it is.
std::string TextOf(const NodeRef& value) {
  if (value.is_scalar()) return value.text();
  if (value.is_map()) return value["_target_"].text();
  return "";
}

bool Is(const NodeRef& value, absl::string_view word) {
  return value.present() && absl::EqualsIgnoreCase(TextOf(value), word);
}

// "[0,1,1]"; of lists of lists, parts of a pipeline, "t*2|t*3": how many decoder layers each has.
std::string ListText(const NodeRef& list) {
  const std::vector<NodeRef> children = list.children();
  if (children.empty() || !children[0].is_list()) {
    return absl::StrCat(
        "[",
        absl::StrJoin(children, ",",
                      [](std::string* out, const NodeRef& child) { absl::StrAppend(out, child.text()); }),
        "]");
  }
  return absl::StrJoin(children, "|", [](std::string* out, const NodeRef& part) {
    for (const NodeRef& layer : part.children()) absl::StrAppend(out, layer.text() == "decoder" ? "t" : "");
  });
}

void AddKey(const BridgeKey& row, const NodeRef& value, Options& options) {
  if (!row.on.empty()) {
    if (Is(value, row.on)) options.Add(row.option, {}, value.line());
    return;
  }
  if (value.is_map() || Is(value, "None")) return;
  if (row.option == "recompute-modules") {
    std::vector<std::string> modules;
    for (const NodeRef& child : value.children()) modules.push_back(child.text());
    options.Add(row.option, std::move(modules), value.line());
    return;
  }
  std::string text = value.is_list() ? ListText(value) : value.text();
  if (row.option == "window-size" && value.is_list()) text = text.substr(1, text.size() - 2);
  options.Add(row.option, {std::move(text)}, value.line());
}

// A name, "bf16_with_fp8_current_scaling_mixed", or a map of what it stands for.
void AddPrecision(const NodeRef& in, Options& options) {
  const NodeRef precision = in["mixed_precision"], model = in["model"];
  for (const absl::string_view type : {"bf16", "fp16"}) {
    const bool named = precision.is_scalar() && absl::StartsWith(precision.text(), type);
    if (named || Is(precision[type], "true") || Is(model[type], "true")) options.Add(type, {}, in.line());
  }
  const NodeRef float8 = precision["fp8"], float4 = precision["fp4"];
  const bool four =
      precision.is_scalar() ? absl::StrContains(precision.text(), "nvfp4") : float4.is_scalar() && !Is(float4, "None");
  if (four) options.Add("fp4-format", {"e2m1"}, in.line());
  const bool gathers_four = precision.is_scalar() ? four : Is(precision["fp4_param_gather"], "true");
  if (gathers_four) options.Add("fp4-param-gather", {}, in.line());
  const bool named = precision.is_scalar() && absl::StrContains(precision.text(), "fp8");
  if (named || (float8.is_scalar() && !Is(float8, "None"))) options.Add("fp8-format", {"hybrid"}, in.line());
  // Weights in float8: in all named ones but those of blocks of 128 (training/mixed_precision.py).
  const std::string scales = precision.is_map()      ? TextOf(precision["fp8_recipe"])
                             : precision.is_scalar() ? precision.text()
                                                     : "";
  if (absl::StrContains(scales, "mxfp8")) options.Add("fp8-recipe", {"mxfp8"}, in.line());
  const bool gathers = Is(precision["fp8_param_gather"], "true") || Is(precision["fp8_param"], "true");
  if (gathers || (named && !absl::StrContains(scales, "subchannel"))) options.Add("fp8-param-gather", {}, in.line());
  if (Is(precision["grad_reduce_in_fp32"], "false")) options.Add("grad-reduce-in-bf16", {}, in.line());
}

}  // namespace

bool LooksLikeBridge(absl::string_view text) {
  const bool begins = absl::StartsWith(text, "model:") || absl::StrContains(text, "\nmodel:");
  return begins && absl::StrContains(text, " tensor_model_parallel_size:");
}

Options OptionsOfBridge(const NodeRef& in, absl::string_view file_name) {
  Options options(file_name, true);
  const NodeRef model = in["model"];
  for (const BridgeKey& row : kBridgeKeys) {
    const NodeRef value = in[row.section][row.key];
    if (value.present() && !value.is_null()) AddKey(row, value, options);
  }
  if (const NodeRef groups = model["num_query_groups"]; groups.is_scalar() && !Is(groups, "None")) {
    options.Add("group-query-attention", {}, groups.line());
  }
  if (!Is(model["add_bias_linear"], "false")) options.Add("add-bias-linear", {}, model.line());
  if (absl::StrContains(TextOf(model["activation_func"]), "squared_relu"))
    options.Add("squared-relu", {}, model.line());
  if (const NodeRef length = in["dataset"]["seq_length"]; !options.Has("seq-length") && length.is_scalar()) {
    options.Add("seq-length", {length.text()}, length.line());
  }
  if (const NodeRef words = in["tokenizer"]["vocab_size"]; !options.Has("vocab-size") && words.is_scalar()) {
    options.Add("vocab-size", {words.text()}, words.line());
  }
  AddPrecision(in, options);
  return options;
}

}  // namespace meshwright
