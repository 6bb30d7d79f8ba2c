// compare: a predicted step against a measured one, instruction by instruction, or against a trainer's log or what its
// profiler recorded; or two plans.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/json_text.h"
#include "tools/plan_comparison.h"
#include "tools/plan_file.h"
#include "tools/profile/packed_text.h"
#include "tools/profile/profile_comparison.h"
#include "tools/profile/profile_trace.h"
#include "tools/session.h"
#include "tools/step_log.h"
#include "tools/trace_comparison.h"

namespace meshwright {
namespace {

constexpr size_t kMostTraceBytes = size_t{1} << 30;
constexpr absl::string_view kWanted =
    "two plans, a plan and then a trainer's log or a trace of torch.profiler, or a simulated and a measured timeline "
    "(simulate and run --trace)";

bool IsJson(absl::string_view text) { return absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{"); }
// And nothing else: a log may have its lines as JSON, or some of them.
bool IsOneJson(absl::string_view text) { return IsJson(text) && Json::accept(text.begin(), text.end()); }

// Of a file that is no JSON: simulate writes two kinds of timelines that are for viewers alone.
absl::Status NoTimeline(const SourceFile& file) {
  if (IsPacked(file.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": found a packed file, wanted a timeline as JSON; gunzip it"));
  }
  if (absl::EndsWith(file.path, ".pftrace")) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": found a timeline for Perfetto, wanted one as JSON; --trace=FILE.json writes it"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file.path, ":1:1: found neither a plan nor a timeline, wanted ", kWanted));
}

Command CompareCommand() {
  return {
      .name = "compare",
      .summary = "Compares a simulated and a measured timeline, two plans, or a plan and a trainer's log or profile.",
      .arguments = "SIM.json RUN.json | A.yaml B.yaml | PLAN.yaml (TRAIN.log | TRACE.json)",
      .num_arguments = 2,
      .example = {"plan models/configs/oracle_b.yaml", "simulate plan.yaml --trace=sim.json",
                  "run plan.yaml --trace=run.json", "compare sim.json run.json"},
      .flags = {{"worst", "N", "how many rows to show; 10 unless given"}, {"format", "FORM", "text or json"}},
  };
}

absl::StatusOr<PlanComparison> CompareAsPlans(const SourceFile& a, const SourceFile& b) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(a));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan other, ParsePlan(b));
  return ComparePlans({a.path, b.path}, plan, other);
}

absl::StatusOr<ProfileComparison> CompareAsProfile(const SourceFile& plan_file, const SourceFile& trace_file) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(plan_file));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ProfileTrace trace, ReadProfileTrace(trace_file.text, trace_file.path));
  return CompareWithProfile(plan_file.path, plan, trace);
}

absl::Status RunCompare(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t worst, flags.IntOr("worst", 10, 1, 1'000'000));
  std::vector<SourceFile> files;
  for (const std::string& path : flags.arguments()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMostTraceBytes));
    files.push_back({path, std::move(text)});
  }
  const bool is_plan = IsPlan(files[0].text), both = is_plan == IsPlan(files[1].text);
  // By content, before the whole of it is looked at: a log has no such beginning.
  if (is_plan && !both && (IsPacked(files[1].text) || IsProfileTrace(files[1].text))) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const ProfileComparison profiled, CompareAsProfile(files[0], files[1]));
    Print(format == 1 ? ToText(ToJson(profiled)) : ToText(profiled, static_cast<size_t>(worst)));
    return absl::OkStatus();
  }
  const bool is_log = is_plan && !IsOneJson(files[1].text);
  if (!both && !is_log) {
    return absl::InvalidArgumentError(absl::StrCat(files[is_plan ? 0 : 1].path, " is a plan, ",
                                                   files[is_plan ? 1 : 0].path, " is none; wanted ", kWanted));
  }
  for (const SourceFile& file : files) {
    if (!is_plan && !IsJson(file.text)) return NoTimeline(file);
  }
  if (!both) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(files[0]));
    MESHWRIGHT_ASSIGN_OR_RETURN(StepLog log, ParseStepLog(files[1].text, files[1].path, plan.session.problem));
    MESHWRIGHT_ASSIGN_OR_RETURN(const LogComparison logged, CompareWithLog(files[0].path, plan, std::move(log)));
    Print(format == 1 ? ToText(ToJson(logged)) : ToText(logged));
    return absl::OkStatus();
  }
  if (is_plan) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const PlanComparison plans, CompareAsPlans(files[0], files[1]));
    Print(format == 1 ? ToText(ToJson(plans)) : ToText(plans));
    return absl::OkStatus();
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const NamedTrace simulated, ParseNamedTrace(files[0].text, files[0].path));
  MESHWRIGHT_ASSIGN_OR_RETURN(const NamedTrace measured, ParseNamedTrace(files[1].text, files[1].path));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Comparison comparison, Compare(simulated, measured));
  Print(format == 1 ? ToText(ToJson(comparison)) : ToText(comparison, static_cast<size_t>(worst)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::CompareCommand(), meshwright::RunCompare, argc, argv);
}
