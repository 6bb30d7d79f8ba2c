// whatif: sizes a cluster: the best plan for each of several numbers and kinds of devices.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "costmodel/goodput.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/model_file.h"
#include "planner/search/search.h"
#include "tools/batch_advice.h"
#include "tools/chart.h"
#include "tools/cluster_flags.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/export/trainer_flag.h"
#include "tools/files.h"
#include "tools/idle_devices.h"
#include "tools/report_charts.h"
#include "tools/session.h"
#include "tools/session_checks.h"
#include "tools/slowest_device.h"
#include "tools/sweep.h"

namespace meshwright {
namespace {

Command WhatifCommand() {
  Command command{
      .name = "whatif",
      .summary = "Plans for several clusters: step time, cost of the run, the smallest that fits, the knee.",
      .arguments = "MODEL.yaml",
      .example = {"whatif models/configs/gpt2_1_5b.yaml --devices=8..64 --device=h100,b200"},
      .flags = {{"devices", "N..M", "numbers of devices: 64..4096 doubles, 8,24,64 lists; the file's unless given",
                 "gpus num_gpus ngpus nodes"},
                {"device", "NAME,...", "kinds of devices; the file's unless given", "gpu gpu_type gpu_name"},
                {"tokens", "X", "of the whole run, e.g. 300e9 or 300B; training.tokens unless given"},
                TrainerFlag(),
                IdleDevicesFlag(),
                {"days", "X", "that the run may take: names the cheapest cluster that does", "deadline time"},
                {"budget", "X", "of US dollars that the run may cost, e.g. 2e6 or 2M", "cost max_cost"},
                {"failures", "X", "in a million device-hours that stop the run; 19.7 unless given"},
                {"checkpoint", "TIME", "that steps stop for a checkpoint; 60 s unless given"},
                {"restart", "TIME", "from a failure to the next step; 600 s unless given"},
                {"chart", "FILE", "writes a page with charts over the devices, for a browser: whatif.html"},
                {"format", "FORM", "text, json or csv"}},
  };
  command.flags.insert(command.flags.end(), StrategyFlags().begin(), StrategyFlags().end());
  for (const FlagSpec& flag : ClusterFlags()) {
    const auto is_its = [&](const ClusterKey& key) { return key.name == flag.name; };
    if (std::any_of(ClusterKeys().begin(), ClusterKeys().end(), is_its)) command.flags.push_back(flag);
  }
  return command;
}

// `machine` with so many devices, and what flags change.
absl::StatusOr<Cluster> ClusterFor(const Cluster& machine, int64_t devices, const Flags& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, WithDevices(machine, devices));
  for (const ClusterKey& key : ClusterKeys()) {
    if (!flags.Has(key.name)) continue;
    const absl::Status status = key.set(flags.Text(key.name), &cluster);
    if (!status.ok()) return Flags::Wrong(key.name, status);
  }
  return cluster;
}

// A row before its search: the cluster, and what is to be planned on it.
struct Row {
  SweepPoint point;
  absl::Status misfit;             // that number of devices does not go with the cluster, the file or a flag
  std::optional<Session> session;  // else
};

Row RowFor(const SourceFile& source, const Cluster& machine, int64_t devices, const Flags& flags) {
  Row row;
  row.point.device = machine.device.name;
  row.point.devices = devices;
  const absl::StatusOr<Cluster> cluster = ClusterFor(machine, devices, flags);
  row.point.price = cluster.ok() ? cluster->price : machine.price;
  absl::StatusOr<Session> session = cluster.ok() ? OpenModel(source, flags, *cluster) : cluster.status();
  if (!session.ok()) {
    const bool of_flag = cluster.ok() || ExitCodeOf(cluster.status()) == ExitCode::kUsage;
    row.misfit = of_flag ? session.status() : Flags::Wrong("devices", session.status());
    row.point.problem = LeftOut(session.status().message(), source.path);
    return row;
  }
  row.session = *std::move(session);
  return row;
}

// The rows of all machines, in order. Numbers of devices that do not go with what the user wants are left out of the
// sweep; an error where none goes with it, which may have another reason.
absl::StatusOr<std::vector<Row>> RowsFor(const SourceFile& source, const std::vector<Cluster>& machines,
                                         const std::vector<int64_t>& counts, const Flags& flags) {
  std::vector<Row> rows;
  for (const Cluster& machine : machines) {
    for (const int64_t count : counts) rows.push_back(RowFor(source, machine, count, flags));
  }
  const bool any = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.session.has_value(); });
  if (!any) return rows.front().misfit;
  return rows;
}

void AddOnce(const std::string& notice, std::vector<std::string>& notices) {
  if (notice.empty() || std::find(notices.begin(), notices.end(), notice) != notices.end()) return;
  notices.push_back(notice);
}

// Of all rows, each once.
std::vector<std::string> NoticesOf(const std::vector<Row>& rows) {
  std::vector<std::string> notices;
  for (const Row& row : rows) {
    if (!row.session.has_value()) continue;
    for (const std::string& notice : row.session->notices) AddOnce(notice, notices);
  }
  return notices;
}

// An error only where it is a bug.
absl::Status PlanPoint(const Flags& flags, const Trainer* trainer, Session& session, SweepPoint& point) {
  SearchOptions options;
  options.keep = 1;
  absl::StatusOr<SearchResult> found = SearchForDevices(trainer, flags, options, session);
  if (ExitCodeOf(found.status()) == ExitCode::kBug) return found.status();
  if (!found.ok()) {
    point.problem = std::string(found.status().message());
    return absl::OkStatus();
  }
  point.best = std::move(found->ranked.front());
  point.idle = session.idle_devices;
  if (trainer != nullptr) return absl::OkStatus();  // at that pace as it is
  MESHWRIGHT_ASSIGN_OR_RETURN(point.at_slowest, PredictAtSlowest(session.problem, point.best->strategy));
  return absl::OkStatus();
}

// Of the flags, or else what is published or assumed.
absl::StatusOr<Reliability> ReliabilityOf(const Flags& flags) {
  Reliability reliability = {.failures_per_device_hour = kPublishedFailuresPerDeviceHour,
                             .checkpoint = kAssumedCheckpoint,
                             .restart = kAssumedRestart};
  if (flags.Has("failures")) {
    const absl::StatusOr<double> failures = ParseDouble(flags.Text("failures"), 0);
    if (!failures.ok()) return Flags::Wrong("failures", failures.status());
    reliability.failures_per_device_hour = *failures * 1e-6;
  }
  for (const auto& [name, time] :
       {std::make_pair("checkpoint", &reliability.checkpoint), std::make_pair("restart", &reliability.restart)}) {
    if (!flags.Has(name)) continue;
    const absl::StatusOr<Nanos> parsed = ParseNanos(flags.Text(name));
    if (!parsed.ok()) return Flags::Wrong(name, parsed.status());
    *time = *parsed;
  }
  return reliability;
}

absl::Status SetLimits(const Flags& flags, SweepReport& report) {
  if (flags.Has("days")) {
    const absl::StatusOr<double> days = ParseDouble(flags.Text("days"), 0);
    if (!days.ok()) return Flags::Wrong("days", days.status());
    if (*days == 0) return Flags::Wrong("days", WrongInput("0", "a number above it"));
    report.days = *days;
  }
  if (flags.Has("budget")) {
    const absl::StatusOr<double> dollars = ParseAmount(flags.Text("budget"));
    if (!dollars.ok()) {
      return Flags::Wrong("budget", WrongInput(QuoteForMessage(flags.Text("budget")), "dollars, e.g. 2e6 or 2M"));
    }
    report.dollars = *dollars;
  }
  if (report.tokens > 0 || (report.days == 0 && report.dollars == 0)) return absl::OkStatus();
  return Flags::Wrong(flags.Has("days") ? "days" : "budget",
                      WrongInput("a run of unknown length", "--tokens with it, or training.tokens"));
}

// A cluster of each kind: the file's own, as it stands there, or usual machines of those that --device names, each
// once.
absl::StatusOr<std::vector<Cluster>> MachinesOf(const Cluster& of_file, const Flags& flags) {
  if (!flags.Has("device")) return std::vector<Cluster>{of_file};
  std::vector<Cluster> machines;
  for (const absl::string_view name : absl::StrSplit(flags.Text("device"), ',')) {
    absl::StatusOr<Cluster> machine = MakeCluster(name, 1);
    if (!machine.ok()) return WrongDevice(name, machine.status());
    if (machine->device.name == of_file.device.name) machine = of_file;
    const bool known = std::any_of(machines.begin(), machines.end(),
                                   [&](const Cluster& other) { return other.device.name == machine->device.name; });
    if (!known) machines.push_back(*std::move(machine));
  }
  return machines;
}

// The file as it is, for what flags do not say.
absl::StatusOr<Cluster> ClusterOfFile(const SourceFile& source, const Flags& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const ModelFile file, ParseModelFile(source.text, source.path, source.config));
  if (!file.cluster().present() && !flags.Has("devices")) {
    return Flags::Wrong("devices", WrongInput("nothing", "numbers of devices, e.g. 64..1024",
                                              "only a file with a section `cluster:` says how many"));
  }
  if (!file.cluster().present() && flags.Has("device")) return MakeCluster("host", 1);
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, ClusterFrom(file.cluster(), Flags()));
  if (!flags.Has("devices")) MESHWRIGHT_RETURN_IF_ERROR(CheckDeviceNum(file, cluster));
  return cluster;
}

// Into the report; returns what there is to advise, each once.
absl::StatusOr<std::vector<std::string>> PlanRows(const Flags& flags, const Trainer* trainer, std::vector<Row>& rows,
                                                  SweepReport& report) {
  Progress progress("planning");
  std::vector<std::string> advice;
  for (Row& row : rows) {
    progress.Update(static_cast<int64_t>(report.points.size()), static_cast<int64_t>(rows.size()));
    SweepPoint& point = row.point;
    if (row.session.has_value()) MESHWRIGHT_RETURN_IF_ERROR(PlanPoint(flags, trainer, *row.session, point));
    point.goodput =
        Goodput(point.devices, BestCheckpointInterval(point.devices, report.reliability), report.reliability);
    constexpr double kNever = 1e-6;  // of the run in steps that count: a day's work would take millennia
    if (report.tokens > 0 && point.best.has_value() && point.goodput < kNever) {
      point.best.reset();
      point.problem = "the run never ends: it fails faster than it starts again";
    }
    if (point.best.has_value()) AddOnce(AdviceOnBatch(*row.session, point.best->degrees.data), advice);
    report.points.push_back(std::move(point));
  }
  return advice;
}

absl::Status RunWhatif(const Flags& flags) {
  constexpr absl::string_view kFormats[] = {"text", "json", "csv"};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_RETURN_IF_ERROR(flags.CheckAlone({"chart"}, {"format"}));
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutputs({flags.Text("chart")}, {flags.arguments()[0]}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Trainer* const trainer, TrainerFrom(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadModelSource(flags.arguments()[0], flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster any, ClusterOfFile(source, flags));
  std::vector<int64_t> counts = {any.num_devices()};
  if (flags.Has("devices")) {
    absl::StatusOr<std::vector<int64_t>> parsed = ParseCounts(flags.Text("devices"));
    if (!parsed.ok()) return Flags::Wrong("devices", parsed.status());
    counts = *std::move(parsed);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Cluster> machines, MachinesOf(any, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<Row> rows, RowsFor(source, machines, counts, flags));
  const Session& session =
      *std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.session.has_value(); })->session;
  PrintNotices(NoticesOf(rows));
  SweepReport report;
  report.name = session.problem.name;
  if (trainer != nullptr) report.trainer = std::string(trainer->title);
  report.batch = ShowBatch(session.problem);
  report.rows = session.problem.tokens_per_row == 1;
  report.tokens = session.file->training.tokens;
  MESHWRIGHT_RETURN_IF_ERROR(SetLimits(flags, report));
  MESHWRIGHT_ASSIGN_OR_RETURN(report.reliability, ReliabilityOf(flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> advice, PlanRows(flags, trainer, rows, report));
  PrintNotices(advice);
  MarkPoints(report.points);
  if (flags.Has("chart")) {
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(
        flags.Text("chart"), ToHtml(absl::StrCat("Clusters for ", report.name), ChartsOf(report), ToText(report))));
    if (flags.Text("chart") == "-") return absl::OkStatus();
  }
  Print(format == 2 ? ToCsv(report) : format == 1 ? ToText(ToJson(report)) : ToText(report));
  const auto fits = [](const SweepPoint& point) { return point.best.has_value(); };
  if (std::any_of(report.points.begin(), report.points.end(), fits)) return absl::OkStatus();
  return WithExit(ExitCode::kNothingFits, absl::ResourceExhaustedError("nothing fits on any of these clusters"));
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::WhatifCommand(), meshwright::RunWhatif, argc, argv);
}
