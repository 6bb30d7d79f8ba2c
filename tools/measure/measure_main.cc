#include "tools/measure/measure_main.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "costmodel/library.h"
#include "executor/manual/launch.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cluster_flags.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/measure/core_sharing.h"
#include "tools/measure/experiments.h"
#include "tools/measure/fit.h"
#include "tools/measure/nccl_log.h"
#include "tools/measure/overlap.h"
#include "tools/measure/report.h"

namespace meshwright {
namespace {

constexpr int64_t kMostRanks = 1024;
constexpr double kLargestCollective = 16.0 * (1 << 30);
constexpr size_t kMostLogBytes = size_t{64} << 20;

// "Intel(R) Xeon(R) ..., 2 cores".
std::string DescribeHost() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model = "a processor without a name";
  while (std::getline(info, line)) {
    if (!absl::StartsWith(line, "model name")) continue;
    model = std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    break;
  }
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " cores");
}

MeasuredOn Describe(const RankPlayer& player, const Flags& flags) {
  MeasuredOn on;
  on.date = absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone());
  on.machine = player.description.empty() ? DescribeHost() : player.description;
  on.command = absl::StrCat("measure --out=", flags.Text("out"), player.device == "host" ? "" : " --device=gpu",
                            flags.True("quick") ? " --quick" : "");
  return on;
}

absl::StatusOr<MeasurePlan> PlanOf(const RankPlayer& player, const Flags& flags) {
  MeasurePlan plan = player.device == "host" ? HostPlan() : GpuPlan();
  if (flags.True("quick")) plan = QuickPlan(std::move(plan));
  if (!flags.Has("largest")) return plan;
  const absl::StatusOr<double> largest = ParseQuantity(flags.Text("largest"), UnitKind::kBytes);
  if (!largest.ok()) return Flags::Wrong("largest", largest.status());
  if (*largest < 1 || *largest > kLargestCollective) {
    return Flags::Wrong("largest", WrongInput(flags.Text("largest"), "1 B to 16 GiB"));
  }
  return LargerPlan(std::move(plan), Bytes(static_cast<int64_t>(*largest)));
}

// What fails is said, and leaves the others: a machine's time is not lost to one kernel. Not in a job, whose ranks
// would then do different things. The first error where all fail.
void SayNotMeasured(const absl::Status& why) {
  std::fprintf(stderr, "not measured: %s\n", std::string(why.message()).c_str());
}
absl::StatusOr<std::vector<Sample>> RunAll(const std::vector<Experiment>& experiments, const PlayProgram& play,
                                           bool speaks, bool in_job = false) {
  std::optional<Progress> progress;
  if (speaks) progress.emplace("measuring");
  std::vector<Sample> samples;
  absl::Status first;
  int64_t done = 0;
  for (const Experiment& experiment : experiments) {
    absl::StatusOr<Sample> sample = Measure(experiment, play);
    if (sample.ok()) {
      samples.push_back(*std::move(sample));
    } else {
      const absl::Status named(sample.status().code(), absl::StrCat(experiment.name, ": ", sample.status().message()));
      if (in_job) return named;
      first.Update(named);
      SayNotMeasured(named);
    }
    if (progress.has_value()) progress->Update(++done, static_cast<int64_t>(experiments.size()));
  }
  if (samples.empty()) return first;
  return samples;
}

// "my_machine.yaml" -> "my_machine".
std::string BaseOf(const std::string& path) { return std::string(absl::StripSuffix(path, ".yaml")); }

absl::Status WriteLogs(const std::string& base, absl::Span<const Sample> samples, const std::string& device) {
  std::vector<std::pair<CollectiveKind, int64_t>> written;
  for (const Sample& sample : samples) {
    if (sample.kind != SampleKind::kCollective) continue;
    const auto key = std::pair(sample.collective, sample.ranks);
    if (std::find(written.begin(), written.end(), key) != written.end()) continue;
    written.push_back(key);
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(absl::StrCat(base, ".", NameOf(sample.collective), ".", sample.ranks, ".log"),
                                         ToNcclLog(sample.collective, sample.ranks, samples, device)));
  }
  return absl::OkStatus();
}

// Over all devices, on GPUs: the host does one thing at a time.
absl::StatusOr<std::vector<OverlapSample>> MeasureOverlaps(const MeasurePlan& plan, int64_t ranks,
                                                           const RankPlayer& player) {
  std::vector<OverlapSample> samples;
  if (player.device == "host") return samples;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OverlapExperiment> experiments, OverlapExperiments(plan, ranks));
  for (const OverlapExperiment& experiment : experiments) {
    absl::StatusOr<OverlapSample> sample = MeasureOverlap(experiment, player.threads);
    if (sample.ok()) {
      samples.push_back(*std::move(sample));
    } else {
      SayNotMeasured(
          absl::Status(sample.status().code(), absl::StrCat(experiment.name, ": ", sample.status().message())));
    }
  }
  return samples;
}

// Groups of 2, 4, ... up to `most`.
absl::Status MeasureCollectives(const MeasurePlan& plan, int64_t most, const PlayProgram& play,
                                std::vector<Sample>& samples) {
  for (int64_t ranks = 2; ranks <= most; ranks *= 2) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Experiment> experiments, CollectiveExperiments(plan, ranks));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Sample> more, RunAll(experiments, play, true));
    samples.insert(samples.end(), more.begin(), more.end());
  }
  return absl::OkStatus();
}

absl::Status MeasureHere(const Flags& flags, const OpenPlayer& open) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckWritable(flags.Text("out")));
  MESHWRIGHT_ASSIGN_OR_RETURN(const RankPlayer player, open());
  const int64_t there = player.devices > 0 ? player.devices : std::max<int64_t>(2, std::thread::hardware_concurrency());
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t most, flags.IntOr("ranks", there, 1, kMostRanks));
  absl::StatusOr<Cluster> from = MakeClusterOfDevices(player.device, there);
  if (!from.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a device that the library does not have: ", from.status().message()));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const MeasurePlan plan, PlanOf(player, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Experiment> kernels, KernelExperiments(plan));
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<Sample> samples, RunAll(kernels, player.threads, true));
  const absl::StatusOr<Sample> issued = Measure(kernels[0], player.threads, /*graphs=*/false);
  if (!issued.ok()) SayNotMeasured(issued.status());
  MESHWRIGHT_RETURN_IF_ERROR(MeasureCollectives(plan, most, player.threads, samples));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OverlapSample> overlaps,
                              MeasureOverlaps(plan, std::min(most, there), player));
  Fit fit = FitConstants(samples, issued.ok() ? issued->time : Nanos(0), *from);
  FitOverlap(overlaps, fit.cluster);
  const MeasuredOn on = Describe(player, flags);
  const std::string base = BaseOf(flags.Text("out"));
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("out"), ToClusterFile(fit, samples, on)));
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(base + ".csv", ToCsv(fit, samples)));
  MESHWRIGHT_RETURN_IF_ERROR(WriteLogs(base, samples, on.machine));
  Print(absl::StrCat(on.machine, ", ", on.date, ", ", samples.size(), " samples\n", ToText(fit),
                     ToText(overlaps, fit.cluster)));
  return absl::OkStatus();
}

// The cluster of a job's hosts: kernels as `--cluster` has them, or guesses; what is between ranks, and by how much
// ranks that share cores slow each other down, as it was measured.
absl::Status WriteFitOfJob(const Flags& flags, absl::Span<const Sample> samples, int64_t ranks, double sharing,
                           const MeasuredOn& on) {
  absl::StatusOr<Cluster> from =
      flags.Has("cluster") ? OpenCluster(flags.Text("cluster")) : MakeClusterOfDevices("host", ranks);
  if (!from.ok()) return from.status();
  from->nodes = 1;
  from->devices_per_node = ranks;
  Fit fit = FitCollectives(samples, *from);
  fit.cluster.device.kernels.core_sharing = sharing;
  const std::string base = BaseOf(flags.Text("out"));
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("out"), ToClusterFile(fit, samples, on)));
  MESHWRIGHT_RETURN_IF_ERROR(WriteFile(base + ".csv", ToCsv(fit, samples)));
  Print(absl::StrCat(ToText(fit), absl::StrFormat("kernels take %.2f times as long on all ranks at once\n", sharing)));
  return absl::OkStatus();
}

absl::Status MeasureInJob(const Flags& flags, const OpenPlayer& open) {
  const absl::StatusOr<std::shared_ptr<Endpoint>> world =
      manual::JoinByVariables(manual::OwnEnvironment(), absl::Minutes(2));
  if (!world.ok()) return WithExit(ExitCode::kRunFailed, world.status());
  if (*world == nullptr) return absl::OkStatus();
  const auto measure = [&]() -> absl::Status {
    const bool speaks = (*world)->rank() == 0;
    if (speaks) MESHWRIGHT_RETURN_IF_ERROR(CheckWritable(flags.Text("out")));
    MESHWRIGHT_ASSIGN_OR_RETURN(const RankPlayer player, open());
    MESHWRIGHT_ASSIGN_OR_RETURN(const MeasurePlan plan, PlanOf(player, flags));
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Experiment> experiments,
                                CollectiveExperiments(plan, (*world)->num_ranks()));
    const PlayProgram play = [&](const Program& program, const RunOptions& options, const DataSource& data) {
      return player.process(program, options, data, **world);
    };
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Sample> samples, RunAll(experiments, play, speaks, /*in_job=*/true));
    double sharing = 1;
    if (player.device == "host") {
      MESHWRIGHT_ASSIGN_OR_RETURN(const Experiment experiment, SharingExperiment(plan));
      MESHWRIGHT_ASSIGN_OR_RETURN(sharing, MeasureCoreSharing(experiment, player.threads, **world));
    }
    if (!speaks) return absl::OkStatus();
    const MeasuredOn on = Describe(player, flags);
    Print(absl::StrCat(on.machine, ", ", on.date, ", ", samples.size(), " samples of collectives\n"));
    if (player.device == "host") {
      MESHWRIGHT_RETURN_IF_ERROR(WriteFitOfJob(flags, samples, (*world)->num_ranks(), sharing, on));
    }
    return WriteLogs(BaseOf(flags.Text("out")), samples, on.machine);
  };
  const absl::Status status = measure();
  if (!status.ok()) (*world)->Abort(status);
  return status;
}

absl::Status ReadLog(const Flags& flags) {
  const std::string path = flags.Text("nccl_log");
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostLogBytes));
  MESHWRIGHT_ASSIGN_OR_RETURN(const NcclLog log, ParseNcclLog(text, path));
  std::vector<absl::string_view> names;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kAllToAll}) {
    names.push_back(NameOf(kind));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> named, flags.Choice("collective", names));
  std::optional<CollectiveKind> kind = log.collective;
  for (const CollectiveKind each :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
        CollectiveKind::kBroadcast, CollectiveKind::kAllToAll}) {
    if (named.has_value() && NameOf(each) == names[*named]) kind = each;
  }
  if (!kind.has_value()) {
    return Flags::Wrong("collective", WrongInput("a log that does not name its collective", "this flag"));
  }
  if (!flags.Has("cluster")) {
    return Flags::Wrong("cluster", WrongInput("nothing", "the file of the cluster that the log was measured on"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Cluster cluster, OpenCluster(flags.Text("cluster")));
  const int64_t listed = log.ranks > 0 ? log.ranks : cluster.num_devices();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t ranks, flags.IntOr("ranks", listed, 2, int64_t{1} << 20));
  Print(CompareLog(log, *kind, ranks, cluster));
  return absl::OkStatus();
}

absl::Status RunMeasure(const Flags& flags, const OpenPlayer& open) {
  constexpr absl::string_view kDevices[] = {"host", "gpu"};
  MESHWRIGHT_RETURN_IF_ERROR(flags.Choice("device", kDevices).status());
  if (flags.Has("nccl_log")) return ReadLog(flags);
  if (!flags.Has("out")) return Flags::Wrong("out", WrongInput("nothing", "where the cluster file goes"));
  const bool job = manual::FindLauncher(manual::OwnEnvironment()) == manual::Launcher::kVariables;
  return job ? MeasureInJob(flags, open) : MeasureHere(flags, open);
}

}  // namespace

Command MeasureCommandLine() {
  Command command{
      .name = "measure",
      .summary = "Calibrates the cost model on the machine at hand: writes a cluster file for plan and simulate.",
      .arguments = "",
      .num_arguments = 0,
      .example = {"measure --quick --out=my_machine.yaml",
                  "plan models/configs/gpt2_tiny.yaml --cluster=my_machine.yaml"},
      .flags = {{"out", "FILE", "the cluster file; samples and logs of collectives lie beside it"},
                {"device", "KIND", "host or gpu; host unless given"},
                {"ranks", "N", "the most ranks of a collective; the cores, or the GPUs, unless given"},
                {"quick", "", "a few small shapes, to see that it works"},
                {"largest", "BYTES", "of a collective, e.g. 64 MiB; 8 MiB on the host unless given, 256 MiB on GPUs"},
                {"nccl_log", "FILE", "instead: a log of nccl-tests beside what the model predicts"},
                {"cluster", "FILE", "the cluster of that log; in a job, where the kernels' constants come from"},
                {"collective", "NAME", "of that log, where it does not say"}},
  };
  return command;
}

int MeasureMain(int argc, char** argv, const OpenPlayer& open) {
  return RunCommand(
      MeasureCommandLine(), [&](const Flags& flags) { return RunMeasure(flags, open); }, argc, argv);
}

}  // namespace meshwright
