// plan: chooses a strategy for a model on a cluster, says why, and writes it down.
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/document.h"
#include "ir/status.h"
#include "ir/text.h"
#include "planner/search/search.h"
#include "tools/batch_advice.h"
#include "tools/chart.h"
#include "tools/cluster_flags.h"
#include "tools/command.h"
#include "tools/dump.h"
#include "tools/export/trainer_flag.h"
#include "tools/export/writers.h"
#include "tools/files.h"
#include "tools/idle_devices.h"
#include "tools/plan_file.h"
#include "tools/plan_report.h"
#include "tools/report_charts.h"
#include "tools/session.h"
#include "tools/strategy_files.h"

namespace meshwright {
namespace {

Command PlanCommand() {
  Command command{
      .name = "plan",
      .summary = "Chooses how to split a training step over devices, says why, and writes plan.yaml.",
      .arguments = "MODEL.yaml",
      .example = {"plan models/configs/gpt2_1_5b.yaml --devices=16 --device=h100-sxm"},
      .flags = {{"out", "FILE", "where the plan goes; plan.yaml unless given, nowhere for --out=", {}, {}, true},
                {"format", "FORM", "text or json"},
                {"chart", "FILE", "writes a page with charts of the best strategies, for a browser: plan.html"},
                {"dump", "WHAT", "instead of the report: graph, strategy, program, or rank0, rank1, ..."},
                {"tokens", "X", "of the whole run, e.g. 300e9 or 300B: how long it takes; training.tokens unless given",
                 "total_tokens train_tokens"},
                TrainerFlag(),
                IdleDevicesFlag(),
                {"keep", "N", "how many strategies to show; 5 unless given"},
                {"threads", "N", "of the search; as many as cores unless given"}},
  };
  for (const auto* more : {&StrategyFlags(), &StrategyFileFlags(), &ClusterFlags()}) {
    command.flags.insert(command.flags.end(), more->begin(), more->end());
  }
  return command;
}

// A file of another kind that happens to lie there is not lost.
absl::Status CheckUsualPlace(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return absl::OkStatus();
  const absl::StatusOr<std::string> there = ReadFile(path, kMaxDocumentBytes);
  if (there.ok() && (there->empty() || IsPlan(*there))) return absl::OkStatus();
  return Flags::Wrong("out", WrongInput(absl::StrCat("a file ", path, " that is no plan"), "where the plan goes",
                                        absl::StrCat("--out=", path, " writes over it")));
}

absl::Status RunPlan(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_ASSIGN_OR_RETURN(const DumpRequest dump, DumpRequest::Parse(flags));
  if (dump.wanted() && (format == 1 || flags.Has("chart"))) {
    return Flags::Wrong("dump", WrongInput(format == 1 ? "it beside --format=json" : "it beside --chart", "one of them",
                                           "a dump is printed in place of the report"));
  }
  SearchOptions options;
  MESHWRIGHT_ASSIGN_OR_RETURN(options.keep, flags.IntOr("keep", 5, 1, 1000));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Trainer* const trainer, TrainerFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t threads, flags.IntOr("threads", 0, 0, 1024));
  options.threads = static_cast<int>(threads);
  const std::string out = flags.Has("out") ? flags.Text("out") : "plan.yaml";
  MESHWRIGHT_RETURN_IF_ERROR(flags.CheckAlone({"out", "chart"}, {"format", "dump"}));

  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadModelSource(flags.arguments()[0], flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(Session session, OpenModel(source, flags));
  MESHWRIGHT_RETURN_IF_ERROR(LoadStrategies(flags, session));
  const std::string outputs[] = {out, flags.Text("chart")};
  const std::string inputs[] = {session.source.path, session.file->config_path, flags.Text("cluster"),
                                flags.Text("device")};
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutputs(outputs, inputs));
  if (!flags.Has("out")) MESHWRIGHT_RETURN_IF_ERROR(CheckUsualPlace(out));
  MESHWRIGHT_RETURN_IF_ERROR(CheckSavesStrategies(flags, session, inputs, outputs));
  PrintNotices(session.notices);
  absl::StatusOr<SearchResult> found = absl::UnknownError("");
  {
    Progress progress("searching");
    options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
    found = SearchForDevices(trainer, flags, options, session);
  }
  if (!found.ok()) return found.status();
  const std::string advice = AdviceOnBatch(session, found->ranked.front().degrees.data);
  if (!advice.empty()) found->warnings.push_back(advice);
  PrintNotices(found->warnings);
  MESHWRIGHT_ASSIGN_OR_RETURN(PlanReport report, MakeReport(session, *std::move(found), trainer));
  const Candidate& best = report.result.ranked.front();
  if (SavesStrategies(flags, session)) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const Evaluation evaluation, Evaluate(session.problem, best.strategy));
    MESHWRIGHT_RETURN_IF_ERROR(SaveStrategies(flags, session, best.strategy, evaluation.program));
  }
  if (!out.empty()) {
    const Plan plan{session, best.strategy, PromiseOf(best.prediction, trainer == nullptr ? "" : trainer->name)};
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(out, ToYaml(plan)));
    if (out == "-") return absl::OkStatus();
  }
  if (dump.wanted()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, dump.Show(session.problem, best.strategy));
    Print(text);
    return absl::OkStatus();
  }
  if (flags.Has("chart")) {
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("chart"), ToHtml(absl::StrCat("Plan of ", session.problem.name),
                                                                     ChartsOf(report.result), ToText(report))));
    if (flags.Text("chart") == "-") return absl::OkStatus();
  }
  Print(format == 1 ? ToText(ToJson(report)) : ToText(report));
  if (!out.empty() && format != 1) Print(absl::StrCat("\nwrote ", out, "\n"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::PlanCommand(), meshwright::RunPlan, argc, argv);
}
