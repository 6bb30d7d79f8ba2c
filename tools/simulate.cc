// simulate: plays one step of a plan in simulated time.
#include "simulator/simulate.h"

#include <string>
#include <utility>

#include "costmodel/cost_model.h"
#include "ir/status.h"
#include "ir/trace.h"
#include "simulator/price.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/plan_file.h"
#include "tools/session.h"
#include "tools/simulation_report.h"

namespace meshwright {
namespace {

Command SimulateCommand() {
  return {
      .name = "simulate",
      .summary = "Plays one step of a plan in simulated time: what takes long, and memory over time.",
      .arguments = "PLAN.yaml",
      .example = {"plan models/configs/gpt2_1_5b.yaml", "simulate plan.yaml --trace=sim.json"},
      .flags = {{"trace", "FILE", "writes a timeline for https://ui.perfetto.dev"},
                {"detail", "WHAT", "of the timeline: slots, instructions; instructions unless there are very many"},
                {"precision", "TYPE", "float32, float64: the same strategy in another type, as run has it"},
                {"format", "FORM", "text or json"}},
  };
}

// What a timeline shows: all instructions where a viewer can hold them.
absl::StatusOr<TraceDetail> DetailFor(const Flags& flags, const Program& program) {
  if (!flags.Has("trace")) return TraceDetail::kNone;
  constexpr absl::string_view kNames[] = {"slots", "instructions"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> detail, flags.Choice("detail", kNames));
  constexpr int64_t kMostInstructions = 100'000;
  int64_t issued = 0;
  for (const RankClass& rank_class : program.classes) issued += NumIssued(rank_class);
  const bool slots = detail.has_value() ? *detail == 0 : issued > kMostInstructions;
  return slots ? TraceDetail::kSlots : TraceDetail::kInstructions;
}

absl::Status RunSimulate(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadSource(flags.arguments()[0]));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Plan plan, ParsePlan(source, flags));
  const Problem& problem = plan.session.problem;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Program program, ProgramOf(plan));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, CostModel(problem.cluster)));
  SimulateOptions options;
  options.memory = true;
  MESHWRIGHT_ASSIGN_OR_RETURN(options.trace, DetailFor(flags, program));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(program, prices, options));
  if (flags.Has("trace")) {
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("trace"), ToChromeJson(result.trace, program)));
    if (flags.Text("trace") == "-") return absl::OkStatus();
  }
  Print(format == 1 ? ToText(ToJson(program, result)) : ToText(program, result));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::SimulateCommand(), meshwright::RunSimulate, argc, argv);
}
