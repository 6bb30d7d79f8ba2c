#include "tools/export/trainer_prediction.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "costmodel/library.h"
#include "ir/cluster.h"
#include "ir/dtype.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "planner/search/parallel_for.h"
#include "tools/exit_code.h"
#include "tools/export/recipe.h"
#include "tools/numbers.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"
#include "tools/validate/predict_run.h"
#include "tools/validate/training_row.h"
#include "tools/validate/training_run.h"

namespace meshwright {
namespace {

// A device of the library by which a row of the plan's own device is told to be old or new.
std::string DeviceWord(const Device& device) {
  if (FindDevice(device.name).ok()) return device.name;
  switch (device.generation) {
    case Generation::kVolta:
      return "v100-sxm-32gb";
    case Generation::kAmpere:
      return "a100-sxm-80gb";
    case Generation::kAda:
    case Generation::kHopper:
    case Generation::kHost:
      return "h100-sxm";
    case Generation::kBlackwell:
      return "b200";
  }
  return "h100-sxm";
}

absl::StatusOr<CsvTable> RowOf(const Recipe& recipe, const TrainerWords& words) {
  CsvTable table;
  table.rows.push_back({.line = 1, .cells = {}});
  const auto add = [&table](absl::string_view column, std::string cell) {
    table.columns.push_back(std::string(column));
    table.rows[0].cells.push_back(std::move(cell));
  };
  const auto count = [&add](absl::string_view column, int64_t value) { add(column, absl::StrCat(value)); };
  add("model", IsGated(recipe.model.activation) ? "Llama" : "GPT");
  count("seq_len", recipe.training.sequence);
  count("global_batch_seqs", recipe.batch);
  count("micro_batch_seqs", recipe.microbatch);
  add("dtype", recipe.product_bits() > 0 ? NameOfProducts(recipe) : std::string(NameOf(recipe.training.dtype)));
  add("gpu_type", DeviceWord(recipe.cluster.device));
  count("gpus", recipe.devices());
  count("gpus_per_node", recipe.cluster.devices_per_node);
  count("tp", recipe.tensor);
  count("pp", recipe.pipeline);
  count("vpp", recipe.chunks);
  count("dp", recipe.data);
  count("cp", recipe.context);
  if (recipe.model.experts > 0) {
    count("ep", recipe.expert * (recipe.spread_experts ? recipe.tensor : 1));
    count("etp", recipe.spread_experts ? 1 : recipe.tensor);
  }
  add("seq_parallel", recipe.sequence_parallel ? "yes" : "no");
  add("zero_fsdp", words.zero_fsdp);
  add("recompute", words.recompute);
  add("attention", recipe.training.fused_attention ? words.attention : "unfused");
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::string adapters, AdapterWords(recipe));
  add("other_opts", absl::StrCat(words.other_opts, adapters.empty() ? "" : "; ", adapters));
  return table;
}

absl::StatusOr<TrainingRun> RunOf(const Recipe& recipe, const TrainerWords& words) {
  RowOverrides overrides;
  overrides.model = recipe.model;
  overrides.cluster = recipe.cluster;
  overrides.float8_parameters = recipe.training.float8_parameters;
  if (recipe.model.experts > 0) {
    overrides.expert_imbalance = words.pads_experts ? std::max(1.0, recipe.model.capacity_factor) : 1.0;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const CsvTable table, RowOf(recipe, words));
  MESHWRIGHT_ASSIGN_OR_RETURN(TrainingRun run, ReadTrainingRun(CsvCells(table, table.rows[0]), overrides));
  run.training.optimizer = recipe.training.optimizer;
  run.schedule = recipe.schedule;
  run.chunks = recipe.chunks;
  run.most_chunks = run.ends_count = false;
  if (words.deals_layers && recipe.pipeline > 1 && !recipe.even_layers()) run.parts = recipe.layers;
  if (run.degrees.context > 1) {
    run.degrees.exchange = words.rings_keys ? recipe.exchange : ContextExchange::kAllGather;
  }
  if (words.takes_bucket && recipe.bucket_elements > 0) run.bucket = recipe.bucket_elements;
  run.early_nccl = run.early_context = false;  // of tables whose devices are old
  return run;
}

std::string Misfit(const Trainer& trainer, const Candidate& nearest) {
  const Prediction& p = nearest.prediction;
  return absl::StrCat("none of the plans that were looked at fits as ", trainer.title, " runs it: the nearest takes ",
                      ShowBytes(p.peak), " of ", ShowBytes(p.capacity),
                      "; plan with --recompute=full, --shard_parameters or a smaller --microbatch");
}

}  // namespace

const Trainer* TrainerWithTitle(absl::string_view title) {
  for (const Trainer& trainer : kTrainers) {
    if (trainer.title == title && trainer.words != nullptr) return &trainer;
  }
  return nullptr;
}

absl::StatusOr<TrainerPrediction> PredictUnder(const Trainer& trainer, const Plan& plan) {
  if (trainer.words == nullptr) {
    return absl::UnimplementedError(absl::StrCat("what ", trainer.title, " does besides a program is not known"));
  }
  if (plan.session.problem.cluster.device.generation == Generation::kHost) {
    return absl::UnimplementedError(absl::StrCat("found a cluster of hosts, wanted one of GPUs, on which ",
                                                 trainer.title, " runs; plan with --device, e.g. --device=h100"));
  }
  MESHWRIGHT_RETURN_IF_ERROR(trainer.write(plan).status());
  MESHWRIGHT_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(plan));
  const absl::StatusOr<TrainingRun> run = RunOf(recipe, trainer.words(recipe));
  if (!run.ok()) return absl::UnimplementedError(absl::StrCat("as ", trainer.title, ": ", run.status().message()));
  TrainerPrediction under{.prediction = {}, .approximations = run->approximations};
  MESHWRIGHT_ASSIGN_OR_RETURN(under.prediction, PredictRun(*run));
  Prediction& prediction = under.prediction;
  prediction.capacity = std::min(prediction.capacity, plan.session.problem.memory_limit.value_or(prediction.capacity));
  // A run may stand for one of some more or fewer replicas (WithDividingDegree), which takes as long.
  prediction.tokens_per_second =
      static_cast<double>(recipe.batch * recipe.training.sequence) / ToSeconds(prediction.step);
  return under;
}

namespace {

using Predicted = absl::StatusOr<TrainerPrediction>;

// Of the least multiple of our own program's time that was seen a trainer may take so much where other candidates are
// of another kind: experts whose tokens cross no node, say.
constexpr double kUnseen = 0.5;

// What a trainer takes of candidates: of each strategy predicted once.
class TrainerTimes {
 public:
  TrainerTimes(const Trainer& trainer, const Session& session, const SearchOptions& options)
      : trainer_(trainer), session_(session), options_(options) {}

  std::vector<Predicted> Of(const std::vector<Candidate>& candidates) {
    std::vector<std::string> keys;
    std::vector<size_t> fresh;
    for (size_t i = 0; i < candidates.size(); ++i) {
      keys.push_back(ToText(candidates[i].strategy));
      if (known_.try_emplace(keys.back(), absl::UnknownError("")).second) fresh.push_back(i);
    }
    std::mutex progress;
    int64_t done = 0;
    ParallelFor(fresh.size(), options_.threads, [&](size_t i) {
      const Candidate& candidate = candidates[fresh[i]];
      known_.at(keys[fresh[i]]) =
          PredictUnder(trainer_, {session_, candidate.strategy, PromiseOf(candidate.prediction)});
      if (options_.progress == nullptr) return;
      const std::lock_guard<std::mutex> lock(progress);
      options_.progress(++done, static_cast<int64_t>(fresh.size()));
    });
    std::vector<Predicted> times;
    for (const std::string& key : keys) times.push_back(known_.at(key));
    return times;
  }

 private:
  const Trainer& trainer_;
  const Session& session_;
  const SearchOptions& options_;
  std::map<std::string, Predicted> known_;  // no new entries while threads fill it
};

// What is known of a search's candidates and what the trainer takes of them.
struct Comparison {
  std::optional<Nanos> best;   // the trainer's fastest that fits
  double least = 0, most = 0;  // times what our own program takes
  int64_t passes = 0;          // of all candidates
};

Comparison Compare(const std::vector<Candidate>& candidates, const std::vector<Predicted>& under) {
  Comparison of;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Strategy& strategy = candidates[i].strategy;
    of.passes += strategy.stages * strategy.chunks * strategy.microbatches;
    if (!under[i].ok()) continue;
    const Prediction& prediction = under[i]->prediction;
    if (prediction.fits()) of.best = std::min(of.best.value_or(prediction.step), prediction.step);
    const double ratio = ToSeconds(prediction.step) / ToSeconds(candidates[i].prediction.step);
    of.least = of.least == 0 ? ratio : std::min(of.least, ratio);
    of.most = std::max(of.most, ratio);
  }
  return of;
}

absl::StatusOr<SearchResult> Ranked(const Trainer& trainer, std::vector<Predicted> under, SearchResult found,
                                    int64_t keep) {
  std::vector<Candidate> ranked;
  std::optional<Candidate> nearest;
  Nanos fastest;
  std::vector<std::string> near;  // of the fastest
  int64_t refused = 0, unfit = 0;
  for (size_t i = 0; i < under.size(); ++i) {
    if (!under[i].ok()) {
      ++refused;
      continue;
    }
    Candidate& candidate = found.ranked[i];
    candidate.prediction = std::move(under[i]->prediction);
    if (candidate.prediction.fits()) {
      if (ranked.empty() || candidate.prediction.step < fastest) {
        fastest = candidate.prediction.step;
        near = std::move(under[i]->approximations);
      }
      ranked.push_back(std::move(candidate));
      continue;
    }
    ++unfit;
    if (!nearest.has_value() || candidate.prediction.peak < nearest->prediction.peak) nearest = std::move(candidate);
  }
  if (ranked.empty() && nearest.has_value()) return absl::ResourceExhaustedError(Misfit(trainer, *nearest));
  if (ranked.empty()) return under.front().status();
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Candidate& a, const Candidate& b) { return a.prediction.step < b.prediction.step; });
  if (static_cast<int64_t>(ranked.size()) > keep) ranked.resize(static_cast<size_t>(keep));
  found.ranked = std::move(ranked);
  for (const std::string& what : near)
    found.warnings.push_back(absl::StrCat("as ", trainer.title, ", near to: ", what));
  if (refused > 0) found.pruned[absl::StrCat("not to be had of ", trainer.title)] += refused;
  if (unfit > 0) found.pruned[absl::StrCat("does not fit as ", trainer.title, " runs it")] += unfit;
  return found;
}

// The ranking under the trainer of what a search of `problem` finds, of more and more candidates. `finds`: set to
// whether there are any.
absl::StatusOr<SearchResult> SearchUnder(const Trainer& trainer, const Problem& problem, const SearchOptions& options,
                                         TrainerTimes& times, bool* finds) {
  SearchOptions more = options;
  more.predicted_again = true;
  more.faster_than.reset();  // which is of the trainer's time
  more.keep = std::max(options.keep, kPredictedUnder);
  Searches searches(problem);
  for (bool widened = false;; widened = true) {
    *finds = false;
    MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult found, searches.Search(more));
    *finds = true;
    std::vector<Predicted> under = times.Of(found.ranked);
    const int64_t size = static_cast<int64_t>(found.ranked.size());
    const Comparison of = Compare(found.ranked, under);
    const double last = ToSeconds(found.ranked.back().prediction.step);
    const Nanos to_beat = std::min(of.best.value_or(kForever), options.faster_than.value_or(kForever));
    const auto slower = [&](double unseen) { return last * of.least * unseen >= ToSeconds(to_beat); };
    const bool may_be_faster = size == more.keep && of.least > 0 && !slower(kUnseen);
    // Once more were looked at than at first, at the least multiple that was seen (DESIGN.md, 2026-11-28: what that was
    // held to).
    const bool enough = widened && slower(1);
    const bool too_many = 4 * size > std::max(options.keep, kMostPredictedUnder) || 4 * of.passes > kMostPassesUnder;
    if (may_be_faster && !enough && !too_many) {
      more.keep *= 4;
      continue;
    }
    if (may_be_faster && of.best.has_value()) {
      absl::StrAppend(&found.not_tried, found.not_tried.empty() ? "" : "; and ",
                      absl::StrFormat("plans that take our own program more than %s, of which %s's fastest could be "
                                      "one: what was tried takes it %.2f to %.2f times as long",
                                      ShowSeconds(last), trainer.title, of.least, of.most));
    }
    return Ranked(trainer, std::move(under), std::move(found), options.keep);
  }
}

}  // namespace

absl::StatusOr<SearchResult> RankUnder(const Trainer& trainer, const Session& session, SearchResult found, int64_t keep,
                                       int threads) {
  SearchOptions options;
  options.threads = threads;
  std::vector<Predicted> under = TrainerTimes(trainer, session, options).Of(found.ranked);
  return Ranked(trainer, std::move(under), std::move(found), keep);
}

absl::StatusOr<SearchResult> SearchFor(const Trainer* trainer, const Session& session, const SearchOptions& options) {
  if (trainer == nullptr) return Search(session.problem, options);
  const auto begin = std::chrono::steady_clock::now();
  Problem problem = session.problem;
  problem.narrow = trainer->narrow;
  problem.narrowed_by = std::string(trainer->title);
  TrainerTimes times(*trainer, session, options);
  // What our own program has no memory for, the trainer may have.
  Problem larger = problem;
  larger.memory_limit.reset();
  larger.cluster.device.memory = CapacityOf(problem) * 3 / 2;
  bool finds = false;
  absl::StatusOr<SearchResult> ranked = SearchUnder(*trainer, larger, options, times, &finds);
  if (absl::IsResourceExhausted(ranked.status())) {
    // What a search leaves out while there is enough memory (kWidening) may fit. Where not even more memory is enough,
    // the error says what would be.
    bool found_less = false;
    absl::StatusOr<SearchResult> less = SearchUnder(*trainer, problem, options, times, &found_less);
    if (less.ok() || !finds) ranked = std::move(less);
  }
  if (absl::IsResourceExhausted(ranked.status())) return WithExit(ExitCode::kNothingFits, ranked.status());
  if (ranked.ok()) {
    ranked->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ranked->none_faster =
        options.faster_than.has_value() && ranked->ranked.front().prediction.step >= *options.faster_than;
    if (ranked->none_faster) ranked->ranked.clear();
  }
  return ranked;
}

}  // namespace meshwright
