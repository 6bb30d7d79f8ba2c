#include "planner/search/nothing_fits.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "planner/search/bounds.h"
#include "planner/search/evaluate.h"
#include "planner/search/parallel_for.h"

namespace meshwright {
namespace {

// Of the combinations with the lowest bounds of memory, these many are planned in full.
constexpr size_t kPlanned = 16;
constexpr int64_t kMostNodes = 64;  // times as many as there are

struct Closest {
  Combination combination;
  Prediction prediction;  // memory only
};

std::string ShowBytes(Bytes bytes) {
  if (bytes < MiB(1)) return absl::StrCat(bytes.raw(), " B");
  if (bytes < GiB(1)) return absl::StrFormat("%.1f MiB", static_cast<double>(bytes.raw()) / (1 << 20));
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes.raw()) / (1 << 30));
}

// With as much there is enough.
std::string ShowBytesUp(Bytes bytes) {
  const int64_t tenth = GiB(1).raw() / 10;
  return bytes < GiB(1) ? ShowBytes(bytes + MiB(1) / 10)
                        : ShowBytes(Bytes((bytes.raw() + tenth - 1) / tenth * tenth + 1));
}

// The combination that needs least memory; none where no combination is valid, or, with `below`, where the bounds say
// that none needs less than that.
absl::StatusOr<std::optional<Closest>> FindClosest(const Problem& asked, const DecoderFacts& facts, int threads,
                                                   std::optional<Bytes> below = std::nullopt) {
  const Problem problem = Narrowed(asked);
  const CostModel costs(problem.cluster);
  const Space space = DecoderSpace(problem, facts, {true, true});
  MESHWRIGHT_ASSIGN_OR_RETURN(const LowerBounds bounds,
                              LowerBounds::Make(problem, costs, facts, space.combinations, threads));
  std::vector<std::pair<Bytes, size_t>> order;
  for (size_t i = 0; i < space.combinations.size(); ++i) {
    // What was not probed needs more than one that was, of fewer rows or with more computed again.
    if (const absl::StatusOr<LowerBound> bound = bounds.Of(space.combinations[i]); bound.ok() && bound->probed()) {
      if (!below.has_value() || bound->peak <= *below) order.push_back({bound->peak, i});
    }
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kPlanned));
  std::vector<std::optional<Closest>> planned(order.size());
  ParallelFor(order.size(), threads, [&](size_t i) {
    const Combination& combination = space.combinations[order[i].second];
    const absl::StatusOr<Strategy> strategy = StrategyOf(problem, combination, facts.sizes);
    if (!strategy.ok()) return;
    const absl::StatusOr<Graph> graph = problem.graph(problem.batch / strategy->microbatches);
    if (!graph.ok()) return;
    absl::StatusOr<Prediction> prediction = PredictGraph(problem, *graph, costs, *strategy, Simulated::kNothing);
    if (prediction.ok()) planned[i] = Closest{combination, *std::move(prediction)};
  });
  std::optional<Closest> closest;
  for (std::optional<Closest>& one : planned) {
    if (!one.has_value()) continue;
    if (!closest.has_value() || one->prediction.peak < closest->prediction.peak) closest = std::move(one);
  }
  return closest;
}

absl::StatusOr<bool> Fits(const Problem& problem, const DecoderFacts& facts, int threads) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<Closest> closest,
                              FindClosest(problem, facts, threads, CapacityOf(problem)));
  return closest.has_value() && closest->prediction.fits();
}

// A decision of the user's that may be what binds, or the limits of the trainer that the user chose.
struct Decision {
  absl::string_view name;  // "": the trainer's limits
  bool (*made)(const Problem& problem);
  void (*leave)(Problem& problem);
};
constexpr Decision kDecisions[] = {
    {"recompute", [](const Problem& p) { return p.recompute.has_value(); }, [](Problem& p) { p.recompute.reset(); }},
    {"the parallel optimizer", [](const Problem& p) { return p.parallel_optimizer.has_value(); },
     [](Problem& p) { p.parallel_optimizer.reset(); }},
    {"shard_parameters", [](const Problem& p) { return p.shard_parameters.has_value() && !*p.shard_parameters; },
     [](Problem& p) { p.shard_parameters.reset(); }},
    {"optimizer_weight_shard_size", [](const Problem& p) { return p.optimizer_shard_size.value_or(-1) > 1; },
     [](Problem& p) { p.optimizer_shard_size.reset(); }},
    {"sequence parallelism", [](const Problem& p) { return p.sequence_parallel.has_value(); },
     [](Problem& p) { p.sequence_parallel.reset(); }},
    {"the micro-batches", [](const Problem& p) { return p.microbatch.has_value() || p.microbatches.has_value(); },
     [](Problem& p) {
       p.microbatch.reset();
       p.microbatches.reset();
     }},
    {"the parallel degrees",
     [](const Problem& p) {
       return p.tensor_parallel.has_value() || p.data_parallel.has_value() || p.stages.has_value() ||
              p.expert_parallel.has_value() || p.context_parallel.has_value();
     },
     [](Problem& p) {
       p.tensor_parallel.reset();
       p.data_parallel.reset();
       p.stages.reset();
       p.expert_parallel.reset();
       p.context_parallel.reset();
     }},
    {"the upper bounds of the degrees",
     [](const Problem& p) {
       return p.max_tensor_parallel.has_value() || p.max_data_parallel.has_value() || p.max_stages.has_value() ||
              p.max_expert_parallel.has_value() || p.max_context_parallel.has_value();
     },
     [](Problem& p) {
       p.max_tensor_parallel.reset();
       p.max_data_parallel.reset();
       p.max_stages.reset();
       p.max_expert_parallel.reset();
       p.max_context_parallel.reset();
     }},
    {"", [](const Problem& p) { return p.narrow != nullptr; }, [](Problem& p) { p.narrow = nullptr; }},
};

std::string LeaveToSearch(const Decision& decision, const Problem& problem) {
  if (!decision.name.empty()) return absl::StrCat("leave ", decision.name, " to the search");
  return absl::StrCat("plan without --trainer or for a trainer with more choices than ", problem.narrowed_by);
}

absl::StatusOr<std::vector<std::string>> WaysOut(const Problem& problem, const DecoderFacts& facts, int threads) {
  std::vector<std::string> ways;
  for (const Decision& decision : kDecisions) {
    if (!decision.made(problem)) continue;
    Problem free = problem;
    decision.leave(free);
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool fits, Fits(free, facts, threads));
    if (fits) ways.push_back(LeaveToSearch(decision, problem));
  }
  for (int64_t times = 2; times <= kMostNodes; times *= 2) {
    Problem larger = problem;
    larger.cluster.nodes *= times;
    MESHWRIGHT_ASSIGN_OR_RETURN(const bool fits, Fits(larger, facts, threads));
    if (!fits) continue;
    ways.push_back(absl::StrCat("use ", larger.cluster.num_devices(), " devices"));
    break;
  }
  return ways;
}

std::string DegreesText(const Combination& combination) {
  const Degrees& d = combination.degrees;
  std::string text = absl::StrCat("data ", d.data, " x tensor ", d.tensor, " x pipeline ", d.pipeline);
  if (d.context > 1) absl::StrAppend(&text, " x context ", d.context);
  if (d.expert > 1) absl::StrAppend(&text, ", experts over ", d.expert);
  if (d.spread_experts) absl::StrAppend(&text, ", experts spread over tensor");
  if (d.copies > 1) absl::StrAppend(&text, ", optimizer over groups of ", d.data * d.context / d.copies);
  absl::StrAppend(&text, ", micro-batches of ", d.microbatch, ", recompute ", NameOf(combination.recompute));
  return text;
}

std::string MemoryText(const Prediction& prediction) {
  std::vector<std::string> parts;
  for (size_t role = 0; role < prediction.memory.size(); ++role) {
    if (prediction.memory[role] < MiB(1)) continue;
    parts.push_back(absl::StrCat(NameOf(static_cast<BufferRole>(role)), " ", ShowBytes(prediction.memory[role])));
  }
  for (const auto& [name, bytes] : prediction.outside) parts.push_back(absl::StrCat(name, " ", ShowBytes(bytes)));
  return absl::StrCat(ShowBytes(prediction.peak), " on stage ", prediction.fullest_class, ": ",
                      absl::StrJoin(parts, ", "));
}

// What the devices have may be more than the user's limit.
std::string MoreMemory(const Problem& problem, const Prediction& prediction) {
  Problem without_limit = problem;
  without_limit.memory_limit.reset();
  if (prediction.peak <= CapacityOf(without_limit)) {
    return absl::StrCat("raise max_device_memory to ", ShowBytesUp(prediction.peak));
  }
  return absl::StrCat("use devices with ", ShowBytesUp(prediction.peak), " of memory");
}

}  // namespace

absl::Status NothingFits(const Problem& problem, const DecoderFacts& facts, int threads) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::optional<Closest> closest, FindClosest(problem, facts, threads));
  if (!closest.has_value()) return absl::InvalidArgumentError("no combination of parallel degrees can be lowered");
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<std::string> ways, WaysOut(problem, facts, threads));
  ways.push_back(MoreMemory(problem, closest->prediction));
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory: nothing fits in ", ShowBytes(closest->prediction.capacity), " on ", problem.cluster.num_devices(), " x ",
      problem.cluster.device.name, ". The closest (", DegreesText(closest->combination), ") needs ",
      MemoryText(closest->prediction), ". What would fit: ", absl::StrJoin(ways, ", or "), "."));
}

absl::Status NothingValid(const Problem& problem, const DecoderFacts& facts,
                          const std::map<std::string, int64_t>& pruned) {
  const int64_t devices = problem.cluster.num_devices();
  std::string reasons, ways;
  for (const auto& [reason, count] : pruned) {
    absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", reason, " (", count, ")");
  }
  const auto add_if_valid = [&](const Problem& other, absl::string_view way) {
    if (DecoderSpace(Narrowed(other), facts, kWidening[std::size(kWidening) - 1]).combinations.empty()) return;
    absl::StrAppend(&ways, ways.empty() ? ". What would be valid: " : ", or ", way);
  };
  for (const Decision& decision : kDecisions) {
    if (!decision.made(problem)) continue;
    Problem free = problem;
    decision.leave(free);
    add_if_valid(free, LeaveToSearch(decision, problem));
  }
  const int64_t below = problem.batch - problem.batch % devices;
  for (const int64_t batch : {below, below + devices}) {
    if (batch == 0 || batch == problem.batch) continue;
    Problem other = problem;
    other.batch = batch;
    add_if_valid(other, absl::StrCat("a batch of ", batch));
  }
  return absl::InvalidArgumentError(absl::StrCat("no combination of parallel degrees is valid for a batch of ",
                                                 problem.batch, " on ", devices, " devices: ", reasons, ways));
}

absl::Status DoesNotFit(const Problem& problem, const Prediction& prediction) {
  return absl::ResourceExhaustedError(
      absl::StrCat("memory: this does not fit in ", ShowBytes(prediction.capacity), " of ", problem.cluster.device.name,
                   ". It needs ", MemoryText(prediction), ". What would fit: ", MoreMemory(problem, prediction), "."));
}

}  // namespace meshwright
