// compare: a predicted step against a measured one, instruction by instruction.
#include <string>

#include "ir/status.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/trace_comparison.h"

namespace meshwright {
namespace {

constexpr size_t kMostTraceBytes = size_t{1} << 30;

Command CompareCommand() {
  return {
      .name = "compare",
      .summary = "Joins a simulated and a measured trace of one program and shows where they differ most.",
      .arguments = "SIM.json RUN.json",
      .num_arguments = 2,
      .example = {"plan models/configs/oracle_b.yaml", "simulate plan.yaml --trace=sim.json",
                  "run plan.yaml --trace=run.json", "compare sim.json run.json"},
      .flags = {{"worst", "N", "how many rows to show; 10 unless given"}, {"format", "FORM", "text or json"}},
  };
}

absl::StatusOr<NamedTrace> ReadTrace(const std::string& path) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostTraceBytes));
  return ParseNamedTrace(json, path);
}

absl::Status RunCompare(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t worst, flags.IntOr("worst", 10, 1, 1'000'000));
  MESHWRIGHT_ASSIGN_OR_RETURN(const NamedTrace simulated, ReadTrace(flags.arguments()[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const NamedTrace measured, ReadTrace(flags.arguments()[1]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Comparison comparison, Compare(simulated, measured));
  Print(format == 1 ? ToText(ToJson(comparison)) : ToText(comparison, static_cast<size_t>(worst)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::CompareCommand(), meshwright::RunCompare, argc, argv);
}
