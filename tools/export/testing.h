// Plans to export, and what an exported script says.
#ifndef MESHWRIGHT_TOOLS_EXPORT_TESTING_H_
#define MESHWRIGHT_TOOLS_EXPORT_TESTING_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "planner/search/degrees.h"
#include "tools/export/writers.h"
#include "tools/session.h"

namespace meshwright {

inline std::string Llama(absl::string_view more = "") {
  return absl::StrCat(
      "name: llama\narchitecture: {decoder: {hidden: 64, layers: 6, heads: 8, kv_heads: 4, ffn: 192, vocab: 1024, "
      "activation: swiglu, norm: rms_norm, positions: rotary, rope_theta: 500000, bias: false",
      more, "}}\n",
      "training: {batch: 48, sequence: 32, dtype: bfloat16, optimizer: {adamw: {learning_rate: 6e-4}}}\n"
      "cluster: {device: h100-sxm, nodes: 2, devices_per_node: 8}\n");
}

// A plan of the decoder with these degrees. `config` is the config.json that the text names.
inline absl::StatusOr<Plan> PlanOf(const std::string& text, const Degrees& degrees,
                                   const std::vector<std::string>& flags_text = {}, const std::string& config = "") {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), flags_text));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel({"m.yaml", text, config}, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.strategy, FromDegrees(plan.session.problem, degrees));
  plan.promise = {Millis(12), 0.4, 1000, MiB(100)};
  return plan;
}

// Options of the script by name, the value behind them or "".
inline std::map<std::string, std::string> OptionsOf(absl::string_view script) {
  std::map<std::string, std::string> options;
  for (absl::string_view line : absl::StrSplit(script, '\n')) {
    if (!absl::StartsWith(line, "  --")) continue;
    line.remove_prefix(2);
    if (absl::EndsWith(line, " \\")) line.remove_suffix(2);
    const std::pair<std::string, std::string> option = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    options.insert(option);
  }
  return options;
}
inline int64_t NumberOf(const std::map<std::string, std::string>& options, const std::string& name) {
  int64_t value = -1;
  const auto found = options.find(name);
  EXPECT_TRUE(found != options.end() && absl::SimpleAtoi(found->second, &value)) << name;
  return value;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_TESTING_H_
