// simulate: plays one step of a plan in simulated time.
#include "simulator/simulate.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "costmodel/cost_model.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/trace.h"
#include "simulator/price.h"
#include "simulator/variation.h"
#include "tools/chart.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/plan_file.h"
#include "tools/report_charts.h"
#include "tools/session.h"
#include "tools/simulation_report.h"
#include "tools/timeline.h"

namespace meshwright {
namespace {

Command SimulateCommand() {
  return {
      .name = "simulate",
      .summary = "Plays one step of a plan in simulated time: what takes long, and memory over time.",
      .arguments = "PLAN.yaml",
      .example = {"plan models/configs/gpt2_1_5b.yaml", "simulate plan.yaml --trace=sim.json"},
      .flags = {{"trace", "FILE",
                 "writes a timeline for https://ui.perfetto.dev: Chrome JSON, packed if .gz, or Perfetto's own if "
                 ".pftrace"},
                {"chart", "FILE", "writes a page with charts of the stages, for a browser: simulation.html"},
                {"detail", "WHAT", "of the timeline: slots, instructions; instructions unless there are very many"},
                {"jitter", "X", "devices vary from step to step by this share of their time, e.g. 0.03"},
                {"slow", "RANK:X,...", "ranks whose kernels take X times as long"},
                {"samples", "N", "steps to draw with --jitter; 200 unless given"},
                {"precision", "TYPE", "float32, float64: the same strategy in another type, as run has it"},
                {"format", "FORM", "text or json"}},
  };
}

// Bytes of a timeline that a viewer takes a while to open.
constexpr size_t kLargeTimeline = 5'000'000;

// What a timeline shows: all instructions where a viewer can hold them.
absl::StatusOr<TraceDetail> DetailFor(const Flags& flags, const Program& program) {
  constexpr absl::string_view kNames[] = {"slots", "instructions"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> detail, flags.Choice("detail", kNames));
  if (!flags.Has("trace")) return TraceDetail::kNone;
  constexpr int64_t kMostInstructions = 100'000;
  int64_t issued = 0;
  for (const RankClass& rank_class : program.classes) issued += NumIssued(rank_class);
  const bool slots = detail.has_value() ? *detail == 0 : issued > kMostInstructions;
  return slots ? TraceDetail::kSlots : TraceDetail::kInstructions;
}

// What --jitter, --slow and --samples say; nothing if none is given.
absl::StatusOr<std::optional<Variation>> VariationOf(const Flags& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> samples, flags.Int("samples", 1, 100'000));
  if (!flags.Has("jitter") && !flags.Has("slow")) return std::nullopt;
  Variation variation;
  if (flags.Has("jitter")) {
    const absl::StatusOr<double> jitter = ParseDouble(flags.Text("jitter"), 0, 0.5);
    if (!jitter.ok()) return Flags::Wrong("jitter", jitter.status());
    variation.jitter = *jitter;
  }
  variation.samples = samples.value_or(variation.jitter > 0 ? variation.samples : 1);
  if (!flags.Has("slow")) return variation;
  std::set<int64_t> ranks;
  for (const absl::string_view part : absl::StrSplit(flags.Text("slow"), ',')) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, ':');
    if (pair.size() != 2) {
      return Flags::Wrong("slow", absl::InvalidArgumentError(absl::StrCat("found \"", part, "\", wanted RANK:X")));
    }
    const absl::StatusOr<int64_t> rank = ParseInt(pair[0], 0);
    if (!rank.ok()) return Flags::Wrong("slow", rank.status());
    const absl::StatusOr<double> slowdown = ParseDouble(pair[1], 1e-3, 1000);
    if (!slowdown.ok()) return Flags::Wrong("slow", slowdown.status());
    if (!ranks.insert(*rank).second) {
      return Flags::Wrong("slow",
                          absl::InvalidArgumentError(absl::StrCat("found rank ", *rank, " twice, wanted it once")));
    }
    variation.stragglers.push_back({*rank, *slowdown});
  }
  return variation;
}

absl::Status RunSimulate(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<Variation> variation, VariationOf(flags));
  MESHWRIGHT_RETURN_IF_ERROR(flags.CheckAlone({"trace", "chart"}, {"format"}));
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutputs({flags.Text("trace"), flags.Text("chart")}, {flags.arguments()[0]}));
  if (flags.Has("samples") && !flags.Has("jitter")) PrintNotices({"--samples has no effect without --jitter"});
  if (flags.Has("detail") && !flags.Has("trace")) PrintNotices({"--detail has no effect without --trace"});
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadSource(flags.arguments()[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(source, flags));
  const Problem& problem = plan.session.problem;
  if (!plan.promise.trainer.empty()) {
    PrintNotices(
        {absl::StrCat("the plan is for ", plan.promise.trainer, "; this is our own program, without its habits")});
  }
  absl::StatusOr<Program> lowered = ProgramOf(plan);
  if (!lowered.ok()) return WithPrefix(absl::StrCat(source.path, ": the strategy in it: "), lowered.status());
  const Program program = AsPlayed(*std::move(lowered), problem.cluster);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, CostModel(problem.cluster)));
  for (const Straggler& slow : variation.has_value() ? variation->stragglers : std::vector<Straggler>()) {
    const int64_t ranks = program.mesh.num_ranks();
    if (slow.rank < ranks) continue;
    return Flags::Wrong("slow", WrongInput(absl::StrCat("rank ", slow.rank),
                                           absl::StrCat("a rank of the plan, from 0 to ", ranks - 1)));
  }
  SimulateOptions options;
  options.memory = true;
  MESHWRIGHT_ASSIGN_OR_RETURN(options.trace, DetailFor(flags, program));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(program, prices, options));
  if (flags.Has("trace")) {
    const std::string timeline = TimelineFor(flags.Text("trace"), result.trace, program);
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("trace"), timeline));
    if (flags.Text("trace") == "-") return absl::OkStatus();
    if (timeline.size() > kLargeTimeline) {
      PrintNotices(
          {absl::StrFormat("%s has %.1f MB; as .pftrace a timeline is less than half of JSON, as .json.gz a tenth",
                           flags.Text("trace"), static_cast<double>(timeline.size()) / 1e6)});
    }
  }
  std::optional<StepTimes> varied;
  if (variation.has_value()) {
    const Progress progress("simulating steps that vary");
    MESHWRIGHT_ASSIGN_OR_RETURN(varied, SimulateVaried(program, prices, *variation));
  }
  if (flags.Has("chart")) {
    const std::string text = ToText(program, result, varied);
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(
        flags.Text("chart"), ToHtml(absl::StrCat("A step of ", program.name), ChartsOf(program, result), text)));
    if (flags.Text("chart") == "-") return absl::OkStatus();
  }
  Print(format == 1 ? ToText(ToJson(program, result, varied)) : ToText(program, result, varied));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::SimulateCommand(), meshwright::RunSimulate, argc, argv);
}
