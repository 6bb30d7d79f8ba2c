#include "tools/run_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "costmodel/library.h"
#include "executor/spread.h"
#include "executor/steady_clock.h"
#include "ir/files.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/trace.h"
#include "planner/search/feeding.h"
#include "planner/search/search.h"
#include "tools/exit_code.h"
#include "tools/files.h"
#include "tools/graph_files.h"
#include "tools/json_text.h"
#include "tools/numbers.h"
#include "tools/plan_file.h"
#include "tools/run_callbacks.h"
#include "tools/session.h"
#include "tools/strategy_files.h"
#include "tools/training_data.h"

namespace meshwright {
namespace {

constexpr int64_t kMostThreads = 1024;

// A program to run, and what it was made from.
struct Job {
  Plan plan;
  Program program;
  DType dtype = DType::kFloat32;
};

// The host stores float16 and bfloat16, but is no device on which a model in them is worth running.
absl::Status CheckRuns(const Session& session, const RankCarrier& carrier) {
  const DType dtype = session.file->training.dtype;
  if (session.file->training.float8_parameters) {
    return Flags::Wrong("parameters", WrongInput("weights in float8", "weights of the type of the model",
                                                 "no kernel here reads them; plan with --parameters=bfloat16"));
  }
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return absl::OkStatus();
  const bool host = carrier.device == "host";
  if (!host && (dtype == DType::kBFloat16 || dtype == DType::kFloat16)) return absl::OkStatus();
  return Flags::Wrong("precision", WrongInput(absl::StrCat("a model in ", NameOf(dtype)),
                                              host ? "float32 or float64" : "bfloat16, float16, float32 or float64",
                                              host ? "give --precision=float32, or --device=gpu where there are some"
                                                   : "give --precision=bfloat16"));
}

absl::StatusOr<Plan> PlanFrom(const std::string& path, const Flags& flags, const RankCarrier& carrier) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const SourceFile source, ReadModelSource(path, flags));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<int64_t> ranks, flags.Int("ranks", 1, kMostThreads));
  if (IsPlan(source.text)) return ParsePlan(source, flags);
  const int64_t wanted = ranks.value_or(std::max<int64_t>(1, carrier.ranks));
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(Cluster cluster, MakeClusterOfDevices(carrier.device, wanted));
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel(source, flags, std::move(cluster)));
  MESHWRIGHT_RETURN_IF_ERROR(CheckRuns(plan.session, carrier));
  MESHWRIGHT_RETURN_IF_ERROR(LoadStrategies(flags, plan.session));
  SearchOptions options;
  options.keep = 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult found, Search(plan.session.problem, options));
  plan.strategy = std::move(found.ranked.front().strategy);
  plan.session.notices.insert(plan.session.notices.end(), found.warnings.begin(), found.warnings.end());
  plan.promise = PromiseOf(found.ranked.front().prediction);
  return plan;
}

// S1.8: the executor stays below max_device_memory.
absl::Status CheckMemoryLimit(const Program& program, const Session& session) {
  const std::optional<Bytes> limit = session.problem.memory_limit;
  for (const RankClass& rank_class : program.classes) {
    if (!limit.has_value() || rank_class.arena <= *limit) continue;
    return absl::ResourceExhaustedError(absl::StrCat("a rank of ", rank_class.name, " wants ",
                                                     ShowBytes(rank_class.arena), ", max_device_memory is ",
                                                     ShowBytes(*limit)));
  }
  return absl::OkStatus();
}

// The arenas of the ranks on this machine must fit in its memory: a system that has none left stops somebody. A
// device's must fit in the device's.
absl::Status CheckMemory(const Program& program, const RankCarrier& carrier) {
  Bytes most;
  for (const RankClass& rank_class : program.classes) most = std::max(most, rank_class.arena);
  if (carrier.memory > Bytes(0)) {
    if (most <= carrier.memory) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("the program wants ", ShowBytes(most), " on each device, one has ",
                                                     ShowBytes(carrier.memory),
                                                     "; use more devices, a smaller batch or recompute"));
  }
  const int64_t ranks = carrier.here > 0 ? carrier.here : program.mesh.num_ranks();
  const double wanted = static_cast<double>(most.raw()) * static_cast<double>(ranks);
  const double have = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (wanted <= have) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the program wants ", ShowBytes(most), " on each of ", ranks, " ranks, this machine has ",
      ShowBytes(Bytes(static_cast<int64_t>(have))), "; use fewer ranks, a smaller batch or a smaller model"));
}

absl::StatusOr<Job> JobFrom(const Flags& flags, const RankCarrier& carrier) {
  const std::string& path = flags.arguments()[0];
  Job job;
  MESHWRIGHT_ASSIGN_OR_RETURN(job.plan, PlanFrom(path, flags, carrier));
  MESHWRIGHT_RETURN_IF_ERROR(CheckRuns(job.plan.session, carrier));
  job.dtype = job.plan.session.file->training.dtype;
  MESHWRIGHT_ASSIGN_OR_RETURN(job.program, ProgramOf(job.plan));
  MESHWRIGHT_RETURN_IF_ERROR(CheckMemoryLimit(job.program, job.plan.session));
  MESHWRIGHT_RETURN_IF_ERROR(CheckMemory(job.program, carrier));
  const int64_t ranks = job.program.mesh.num_ranks();
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t wanted, flags.IntOr("ranks", ranks, 1, kMostThreads));
  if (wanted != ranks && job.plan.session.problem.mode != SearchMode::kStandAlone) {
    return Flags::Wrong("ranks", WrongInput(absl::StrCat(wanted), absl::StrCat(ranks, ", the ranks of the plan")));
  }
  if (carrier.ranks == 0 && ranks > kMostThreads) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError(absl::StrCat("found a plan of ", ranks, " ranks, wanted at most ",
                                                            kMostThreads, "; plan for fewer devices")));
  }
  return job;
}

void PrintAllRanks(const RunResult& result, const LossLines& lines, int64_t first_step) {
  for (size_t step = 0; step < result.losses.size(); ++step) {
    for (size_t rank = 0; rank < result.rank_losses.size(); ++rank) {
      if (step >= result.rank_losses[rank].size()) continue;
      const int64_t number = first_step + static_cast<int64_t>(step);
      if (!lines.Wanted(number)) continue;
      Print(absl::StrCat("rank ", rank, " ", lines.Line(number, result.rank_losses[rank][step])));
    }
  }
}

// S17.2: what a program that is split by hand does not keep equal drifts apart.
void WarnOfSpread(const Program& program, const RunResult& result, int64_t steps) {
  std::string drifted;
  for (const Spread& spread : SpreadByRank(program, result)) {
    if (spread.spread == 0) continue;
    absl::StrAppend(&drifted, drifted.empty() ? "" : ", ", spread.parameter, " by up to ",
                    absl::StrFormat("%.3g", spread.spread));
  }
  if (drifted.empty()) return;
  std::fprintf(stderr,
               "warning: after %d steps the ranks' weights differ: %s. Nothing averages their gradients; set "
               "parallel_mode hybrid_parallel with gradients_mean\n",
               static_cast<int>(steps), drifted.c_str());
}

// What was planned and what the ranks of each stage allocated; they must be equal.
absl::Status PrintArenas(const Program& program, const RunResult& result) {
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const Bytes planned = program.classes[c].arena;
    const int64_t ranks = program.ranks_per_class();
    Bytes least = planned, most = planned;
    for (int64_t local = 0; local < ranks; ++local) {
      const auto rank = static_cast<size_t>(program.RankOf(c, local));
      if (rank >= result.arenas.size()) return absl::InternalError(absl::StrCat("rank ", rank, " reports no arena"));
      least = std::min(least, result.arenas[rank]);
      most = std::max(most, result.arenas[rank]);
    }
    if (least != planned || most != planned) {
      return absl::InternalError(absl::StrCat(program.classes[c].name, ": planned ", planned.raw(),
                                              " bytes, allocated from ", least.raw(), " to ", most.raw()));
    }
    Print(absl::StrCat("memory of ", program.classes[c].name, ": ", ShowCount(planned.raw()),
                       " bytes planned, the same allocated on each of ", ranks, ranks == 1 ? " rank\n" : " ranks\n"));
  }
  return absl::OkStatus();
}

// What became of the scale of the loss, where there is one.
std::optional<LossScale> LastScale(const RunResult& result) {
  if (result.loss_scales.empty() || result.loss_scales[0].empty()) return std::nullopt;
  return result.loss_scales[0].back();
}

void PrintLossScale(const RunResult& result) {
  const std::optional<LossScale> scale = LastScale(result);
  if (!scale.has_value()) return;
  Print(absl::StrCat("loss scale ", ShortestNumber(scale->scale), ", ", scale->skipped,
                     scale->skipped == 1 ? " step" : " steps", " skipped since the beginning of training\n"));
}

Json ResultJson(const Job& job, const RunResult& result) {
  Json out;
  out["schema"] = "meshwright/run/1";
  out["name"] = job.program.name;
  out["ranks"] = job.program.mesh.num_ranks();
  out["precision"] = std::string(NameOf(job.dtype));
  out["losses"] = result.losses;
  if (const std::optional<LossScale> scale = LastScale(result); scale.has_value()) {
    out["loss_scale"] = scale->scale;
    out["skipped_steps"] = scale->skipped;
  }
  out["loss_is_sum_of_microbatches"] = job.plan.session.problem.loss_is_sum;
  out["microbatches"] = job.program.num_microbatches;
  Json stages = Json::array();
  for (size_t c = 0; c < job.program.classes.size(); ++c) {
    const auto rank = static_cast<size_t>(job.program.RankOf(c, 0));
    stages.push_back(Json{{"name", job.program.classes[c].name},
                          {"planned_bytes", job.program.classes[c].arena.raw()},
                          {"allocated_bytes", result.arenas[rank].raw()}});
  }
  out["stages"] = std::move(stages);
  return out;
}

std::string Describe(const Job& job) {
  const Strategy& s = job.plan.strategy;
  return absl::StrCat(job.program.name, " on ", s.mesh.num_ranks(), s.mesh.num_ranks() == 1 ? " rank" : " ranks",
                      s.mesh.num_ranks() == 1 ? "" : absl::StrCat(" (", ToText(s.mesh), ")"), ", ", s.microbatches,
                      s.microbatches == 1 ? " micro-batch" : " micro-batches", ", recompute ", NameOf(s.recompute),
                      s.parallel_optimizer ? ", parallel optimizer" : "",
                      s.shard_parameters ? ", parameters split" : "", ", ", NameOf(job.dtype));
}

}  // namespace

Command RunCommandLine() {
  Command command{
      .name = "run",
      .summary = "Trains on this machine: plays the program of a plan, or of a model planned on the spot.",
      .arguments = "PLAN.yaml|MODEL.yaml",
      .example = {"run models/configs/oracle_b.yaml --steps=6 --ranks=8"},
      .flags = {{"steps", "N", "how many more; unless given the file's, less those of a loaded checkpoint"},
                {"ranks", "N", "threads, for a model file; 1 unless given (under mpirun: its processes)"},
                {"device", "KIND", "host or gpu, one for each rank; host unless given"},
                {"graphs", "", "on GPUs, later steps are launched as one CUDA graph; true unless given"},
                {"seed", "N", "of initial values; the file's unless given"},
                {"data", "FOLDER", "where the data set lies; the file's, or DATA_PATH, unless given"},
                {"nccl_estimates", "", "on GPUs, with --trace: NCCL's own estimate of each collective, for compare"},
                {"register_arena", "", "on GPUs: NCCL reads and writes the arena in place, where it can"},
                {"trace", "FILE", "writes a timeline of the last step for https://ui.perfetto.dev"},
                {"all_ranks", "", "losses of every rank that has one, after the run"},
                {"format", "FORM", "text or json"}},
  };
  for (const auto* more : {&CallbackFlags(), &StrategyFileFlags(), &StrategyFlags()}) {
    command.flags.insert(command.flags.end(), more->begin(), more->end());
  }
  return command;
}

namespace {

// When steps end, on the rank that says so first. The first two are not like the others: kernels are loaded in one, a
// device records the other.
class StepTimes {
 public:
  void End() { ends_.push_back(SteadyNow()); }
  // Of all but the first two; nothing where there are too few.
  std::optional<double> MedianSeconds() const {
    std::vector<double> times;
    for (size_t i = kUnlike; i < ends_.size(); ++i) times.push_back(absl::ToDoubleSeconds(ends_[i] - ends_[i - 1]));
    if (times.empty()) return std::nullopt;
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

 private:
  static constexpr size_t kUnlike = 2;
  std::vector<absl::Time> ends_;
};

// "step 52.1 ms, 314 k tokens/s": what a step takes with everything around it.
std::string SaySpeed(double seconds, const Problem& problem) {
  const double units = static_cast<double>(problem.batch * problem.tokens_per_row);
  return absl::StrCat("step ", ShowSeconds(seconds), " in the median, ", ShowLarge(units / seconds),
                      problem.tokens_per_row > 1 ? " tokens/s" : " rows/s");
}

absl::StatusOr<RunOptions> OptionsOf(const Flags& flags, const Job& job) {
  const Training& training = job.plan.session.file->training;
  RunOptions options;
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t seed, flags.IntOr("seed", training.seed, 0, int64_t{1} << 62));
  options.seed = static_cast<uint64_t>(seed);
  options.seed_per_rank = training.seed_per_rank;
  options.batches = NumBatches(job.plan.session.problem, job.program.ranks_per_class());
  options.trace = flags.Has("trace");
  options.library_estimates = options.trace && flags.True("nccl_estimates");
  options.register_arena = flags.True("register_arena");
  options.graphs = flags.Bool("graphs").value_or(true);
  options.predicted_step = absl::Nanoseconds(job.plan.promise.step.raw());
  return options;
}

// Where the model file asks for it.
absl::Status DumpGraphs(const Job& job, const RankCarrier& carrier) {
  const auto& context = job.plan.session.file->context;
  if (context.save_graphs <= 0) return absl::OkStatus();
  const Problem& problem = job.plan.session.problem;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(problem.batch / job.plan.strategy.microbatches));
  return WriteGraphs(context.save_graphs, context.save_graphs_path, graph, job.program, carrier.rank);
}

// How many steps, from where.
absl::Status SetSteps(const Flags& flags, const Training& training, const TrainingData& data, RunOptions& options) {
  int64_t all = training.steps;
  if (training.epochs > 0 && data.steps_per_epoch > 0) all = training.epochs * data.steps_per_epoch;
  if (!flags.Has("steps") && all <= options.first_step) {
    return Flags::Wrong("load", WrongInput(absl::StrCat("a checkpoint after ", options.first_step, " steps"),
                                           absl::StrCat("one before the end of the ", all, " that the file asks for"),
                                           "give --steps for more"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(options.steps, flags.IntOr("steps", all - options.first_step, 1, int64_t{1} << 40));
  return absl::OkStatus();
}

// How a run ends that could not be carried through.
absl::Status WithExitOf(const absl::Status& why) {
  return WithExit(absl::IsInternal(why) ? ExitCode::kBug
                  : IsFileError(why)    ? ExitCode::kIo
                                        : ExitCode::kRunFailed,
                  why);
}

// The files that it reads.
std::vector<std::string> InputsOf(const Flags& flags) {
  return {flags.arguments()[0], flags.Text("data"), flags.Text("load")};
}

// The losses of the steps from `begin`, of a run that began with step `first`.
void PrintLosses(const RunResult& result, const LossLines& lines, int64_t first, int64_t begin) {
  const int64_t end = first + static_cast<int64_t>(result.losses.size());
  for (int64_t step = begin; step < end; ++step) {
    if (lines.Wanted(step)) Print(lines.Line(step, result.losses[static_cast<size_t>(step - first)]));
  }
}

// Flags that change nothing in this run, and what they would be for.
std::vector<std::string> IdleFlags(const Flags& flags, const RunOptions& options) {
  std::vector<std::string> notices;
  const auto idle = [&](absl::string_view flag, absl::string_view without) {
    if (flags.Has(flag)) notices.push_back(absl::StrCat("--", flag, " has no effect without ", without));
  };
  if (!options.checkpoint.has_value()) {
    for (const absl::string_view flag : {"checkpoint_steps", "integrated_save"}) idle(flag, "--checkpoint_dir");
  }
  if (flags.Text("device") != "gpu") {
    for (const absl::string_view flag : {"graphs", "nccl_estimates", "register_arena"}) idle(flag, "--device=gpu");
  } else if (!options.trace) {
    idle("nccl_estimates", "--trace");
  }
  return notices;
}

// Whether the timeline can be written where it goes.
absl::Status CheckTrace(const Flags& flags, const RankCarrier& carrier) {
  if (flags.Text("trace") == "-") {
    return Flags::Wrong("trace", WrongInput("-", "a file", "standard output has the losses"));
  }
  if (!carrier.speaks) return absl::OkStatus();
  return CheckOutputs({flags.Text("trace")}, InputsOf(flags));
}

}  // namespace

absl::Status RunTraining(const Flags& flags, const RankCarrier& carrier) {
  constexpr absl::string_view kFormats[] = {"text", "json"}, kDevices[] = {"host", "gpu"};
  MESHWRIGHT_RETURN_IF_ERROR(flags.Choice("device", kDevices).status());
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<size_t> format, flags.Choice("format", kFormats));
  MESHWRIGHT_RETURN_IF_ERROR(CheckTrace(flags, carrier));
  MESHWRIGHT_ASSIGN_OR_RETURN(Job job, JobFrom(flags, carrier));
  const ModelFile& file = *job.plan.session.file;
  MESHWRIGHT_ASSIGN_OR_RETURN(RunOptions options, OptionsOf(flags, job));
  std::vector<InputSpec> inputs;
  if (const auto* model = std::get_if<OperatorModel>(&file.model)) inputs = model->inputs;
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainingData data,
                              OpenTrainingData(file.training, inputs, options.seed, flags.Text("data")));
  MESHWRIGHT_ASSIGN_OR_RETURN(options.checkpoint,
                              CheckpointsOf(flags, file.callbacks, data.steps_per_epoch, job.program.mesh.num_ranks()));
  if (carrier.speaks && options.checkpoint.has_value()) {
    const std::string folder = RankPath(options.checkpoint->directory, 0);
    MESHWRIGHT_RETURN_IF_ERROR(
        CheckWritableInNewFolder(absl::StrCat(folder, "/", options.checkpoint->prefix, ".ckpt")));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<SavedState> state, LoadedState(flags));
  if (state.has_value()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<std::string> notices, CheckFits(job.program, *state));
    job.plan.session.notices.insert(job.plan.session.notices.end(), notices.begin(), notices.end());
    options.initial = &*state;
    options.first_step = state->steps_done;
  }
  MESHWRIGHT_RETURN_IF_ERROR(SetSteps(flags, file.training, data, options));
  if (carrier.speaks) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckSavesStrategies(flags, job.plan.session, InputsOf(flags), {flags.Text("trace")}));
  }
  MESHWRIGHT_RETURN_IF_ERROR(DumpGraphs(job, carrier));
  if (carrier.speaks) {
    MESHWRIGHT_RETURN_IF_ERROR(SaveStrategies(flags, job.plan.session, job.plan.strategy, job.program));
    PrintNotices(job.plan.session.notices);
    PrintNotices(data.notices);
    PrintNotices(IdleFlags(flags, options));
    std::fprintf(stderr, "%s\n", Describe(job).c_str());
  }

  const LossMonitor& monitor = file.callbacks.loss_monitor;
  const LossLines lines(monitor, job.dtype, data.steps_per_epoch,
                        job.plan.session.problem.loss_is_sum ? job.program.num_microbatches : 1);
  const bool text = format != size_t{1}, after = flags.True("all_ranks");
  int64_t told = options.first_step;  // steps that have been printed, or need not be
  std::mutex mutex;
  StepTimes times;
  options.on_loss = [&](int64_t step, double loss, bool first) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (first) times.End();
    if (!text || after) return;
    if (first) told = step + 1;
    if (!lines.Wanted(step) || !(monitor.all_ranks || (first && carrier.speaks))) return;
    carrier.print(lines.Line(step, loss));
  };
  // What layerwise_parallel asks for in the other modes needs no warning.
  const bool may_drift = file.by_hand() && file.parallel.parallel_mode == ParallelMode::kStandAlone;
  options.keep_parameters = may_drift && HasSpread(job.program);
  absl::StatusOr<RunResult> result = carrier.run(job.program, options, *data.source);
  if (!result.ok()) return WithExitOf(result.status());
  if (!carrier.speaks) {  // a process with an output of its own
    if (text && after) PrintLosses(*result, lines, options.first_step, options.first_step);
    return absl::OkStatus();
  }
  if (may_drift) WarnOfSpread(job.program, *result, options.steps);
  if (flags.Has("trace")) {
    MESHWRIGHT_RETURN_IF_ERROR(WriteFile(flags.Text("trace"), ToChromeJson(result->trace, job.program)));
  }
  const std::optional<double> median = times.MedianSeconds();
  if (median.has_value()) std::fprintf(stderr, "%s\n", SaySpeed(*median, job.plan.session.problem).c_str());
  if (!text) {
    Print(ToText(ResultJson(job, *result)));
    return absl::OkStatus();
  }
  // Of a pipeline under MPI the losses are known to another process while it runs.
  if (!after && !monitor.all_ranks) PrintLosses(*result, lines, options.first_step, told);
  if (after) PrintAllRanks(*result, lines, options.first_step);
  PrintLossScale(*result);
  return PrintArenas(job.program, *result);
}

}  // namespace meshwright
