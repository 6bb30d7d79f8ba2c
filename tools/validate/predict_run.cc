#include "tools/validate/predict_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "costmodel/cost_model.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "ir/strategy.h"
#include "planner/search/degrees.h"
#include "tools/validate/framework_memory.h"
#include "tools/validate/run_problem.h"

namespace meshwright {
namespace {

// kWhatFits: a step of 0 where it does not.
absl::StatusOr<Prediction> PredictOne(const TrainingRun& given, Simulated simulated) {
  const TrainingRun run = WithDividingDegree(given);
  Problem problem = ProblemOf(run);
  if (run.degrees.data != given.degrees.data && !run.groups && given.degrees.copies == 1) {
    problem.host.replicas = given.degrees.data;
  }
  Degrees degrees = run.degrees;
  const LabelSizes experts = {{"e", run.model.experts}};
  if (run.model.experts > 1 && !degrees.spread_experts) {
    degrees.expert_groups = ExpertGroups(run.dispatcher, degrees, run.cluster, experts);
    // On one node the same kernels send a token once to each rank.
    if (run.dispatcher == Dispatcher::kPerNode && degrees.expert_groups == 1) {
      degrees.expert_groups = ExpertGroups(Dispatcher::kPerRank, degrees, run.cluster, experts);
    }
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(Strategy strategy, FromDegrees(problem, degrees));
  strategy.layers_per_stage = LayersPerStage(run);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(problem.batch / strategy.microbatches));
  MESHWRIGHT_ASSIGN_OR_RETURN(Evaluation evaluation,
                              EvaluateGraph(problem, graph, CostModel(problem.cluster), strategy, simulated));
  Prediction& prediction = evaluation.prediction;
  if (!run.updates) prediction.step -= std::exchange(prediction.time[TimeUse::kOptimizer], Nanos());
  const Bytes copies = HeldBesideArena(run, strategy, prediction), groups = GroupBytes(run, prediction);
  prediction.arena += copies;
  prediction.peak += copies + groups;
  prediction.outside.emplace_back("framework's difference", copies + groups);
  // What did not fit without a framework's savings does with them.
  if (prediction.step == Nanos() && prediction.fits()) return PredictOne(given, Simulated::kAll);
  return std::move(prediction);
}

template <class Quantity>
Quantity Between(Quantity none, Quantity all, double share) {
  return Quantity(std::llround(static_cast<double>(none.raw()) * (1 - share) + static_cast<double>(all.raw()) * share));
}

// Time and memory are linear in the number of layers that are recomputed.
absl::StatusOr<Prediction> Predict(const TrainingRun& run, Simulated simulated = Simulated::kAll) {
  TrainingRun with = run;
  with.recompute_ops.insert(run.recompute_more.begin(), run.recompute_more.end());
  MESHWRIGHT_ASSIGN_OR_RETURN(Prediction all, PredictOne(with, simulated));
  if (run.recompute_share >= 1) return all;
  TrainingRun without = run;
  without.recompute = Recompute::kNone;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Prediction none, PredictOne(without, simulated));
  // Where one of the two does not fit it has no times; together they may fit.
  const bool timed = all.step > Nanos() && none.step > Nanos();
  const double before = ToSeconds(all.step);
  all.step = Nanos();
  for (size_t i = 0; i < kNumTimeUses; ++i) {
    const TimeUse use = static_cast<TimeUse>(i);
    all.time[use] = timed ? Between(none.time[use], all.time[use], run.recompute_share) : Nanos();
    all.step += all.time[use];
  }
  if (all.step > Nanos()) {
    all.mfu *= before / ToSeconds(all.step);
    all.tokens_per_second *= before / ToSeconds(all.step);
  }
  all.peak = Between(none.peak, all.peak, run.recompute_share);
  all.arena = Between(none.arena, all.arena, run.recompute_share);
  Bytes listed;
  for (size_t i = 0; i < kNumRoles; ++i) {
    all.memory[i] = Between(none.memory[i], all.memory[i], run.recompute_share);
    listed += all.memory[i];
  }
  for (const auto& [name, bytes] : all.outside) listed += bytes;
  all.outside.back().second += all.peak - listed;  // the framework's, which differs most
  if (!timed && simulated != Simulated::kAll && all.fits()) return Predict(run, Simulated::kAll);
  return all;
}

// What the source leaves open it chose well: the fastest that fits, and so do we. Rows of a micro-batch and tensor
// parallelism are powers of two, the latter inside a node; stages divide the layers.
constexpr int64_t kMostRowsTried = 16;
constexpr int64_t kMostStagesTried = 64;

// Experts on each rank, spread over the ranks of a node, or over as many as they divide by.
std::vector<int64_t> ExpertDegrees(const TrainingRun& run, const Degrees& degrees) {
  if (run.experts_given) return {degrees.expert};
  const int64_t all = std::gcd(run.model.experts, degrees.data * degrees.context);
  const int64_t node = std::gcd(all, std::max<int64_t>(1, run.cluster.devices_per_node / degrees.tensor));
  std::vector<int64_t> values = {all};
  if (node != all) values.push_back(node);
  if (node != 1) values.push_back(1);
  return values;
}

std::vector<Degrees> LayoutsOf(const TrainingRun& run) {
  const auto divisors = [&run] {
    std::vector<int64_t> values;
    for (int64_t n = 1; n <= kMostStagesTried; ++n) {
      if (run.model.layers % n == 0) values.push_back(n);
    }
    if (run.pipeline_given) values.assign(1, run.degrees.pipeline);
    return values;
  };
  const auto powers = [](bool given, int64_t only, int64_t most) {
    std::vector<int64_t> values;
    for (int64_t n = 1; n <= most && !given; n *= 2) values.push_back(n);
    if (given) values.push_back(only);
    return values;
  };
  const int64_t devices = run.cluster.num_devices();
  std::vector<Degrees> layouts;
  for (const int64_t tensor : powers(run.tensor_given, run.degrees.tensor, run.cluster.devices_per_node)) {
    for (const int64_t pipeline : divisors()) {
      if (devices % (tensor * pipeline) != 0) continue;
      if (!run.tensor_given && run.model.heads % tensor != 0) continue;
      for (const int64_t rows : powers(run.microbatch_given, run.degrees.microbatch, kMostRowsTried)) {
        Degrees degrees = run.degrees;
        degrees.tensor = tensor;
        degrees.pipeline = pipeline;
        degrees.data = devices / (tensor * pipeline * degrees.context);
        degrees.microbatch = rows;
        degrees.sequence_parallel = tensor > 1 && run.sequence_parallel;
        if (degrees.data * tensor * pipeline * degrees.context != devices) continue;
        if (run.training.batch % (degrees.data * rows) != 0) continue;
        for (const int64_t experts : ExpertDegrees(run, degrees)) {
          degrees.expert = experts;
          if (degrees.data % degrees.expert_data() == 0) layouts.push_back(degrees);
        }
      }
    }
  }
  return layouts;
}

}  // namespace

absl::StatusOr<Prediction> PredictRun(const TrainingRun& run) { return Predict(run); }

absl::StatusOr<Prediction> PredictFastest(TrainingRun* run) {
  const bool layout_given = run->tensor_given && run->pipeline_given;
  if (layout_given && run->microbatch_given && run->experts_given) return Predict(*run);
  absl::StatusOr<Prediction> best = absl::UnimplementedError("no layout divides the batch and the layers");
  Degrees chosen = run->degrees;
  for (const Degrees& degrees : LayoutsOf(*run)) {
    run->degrees = degrees;
    absl::StatusOr<Prediction> next = Predict(*run, Simulated::kWhatFits);
    if (!next.ok()) {
      if (!best.ok()) best = next.status();
      continue;
    }
    // Of what does not fit, the smallest.
    const bool better = !best.ok() || (next->fits() ? !best->fits() || next->step < best->step
                                                    : !best->fits() && next->peak < best->peak);
    if (!better) continue;
    best = std::move(next);
    chosen = degrees;
  }
  run->degrees = chosen;
  if (best.ok() && best->step == Nanos()) best = Predict(*run);
  const auto say = [run](bool given, absl::string_view column, int64_t value) {
    if (!given) run->defaults.push_back(absl::StrCat(column, " ", value, " (the fastest that fits)"));
  };
  say(run->tensor_given, "tp", chosen.tensor);
  say(run->pipeline_given, "pp", chosen.pipeline);
  say(run->microbatch_given, "micro_batch_seqs", chosen.microbatch);
  say(run->experts_given, "ep", chosen.expert);
  return best;
}

}  // namespace meshwright
