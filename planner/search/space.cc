#include "planner/search/space.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/passes/split_context.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

// Gradient buckets: what frameworks use by default, and some times more for large models on many nodes.
constexpr Bytes kBuckets[] = {MiB(32), MiB(128), MiB(512)};

// Of a sequence each rank has at least so many, where the context degree is left to the search: shorter ones hardly
// ever gain by it. Llama 3 was trained with 16 ranks on 131,072 tokens, and with none on 8,192 (Grattafiori et al.,
// 2024, table 4).
constexpr int64_t kLeastContextTokens = 8192;

// Of the optimizer alone, replicas that are tried in groups: as many bytes cross nodes either way, and gradients are
// the wider ones, but the more ranks a scatter goes round the longer it takes. Llama 3 8B on H100, groups of 8: 0.4 %
// slower on 64, 1.4 % faster on 512, 10 % on 1,024; GPT-2 1.5B 3 % faster on 128, 5 % on 256 (predicted).
constexpr int64_t kLeastReplicasInGroups = 128;

std::vector<int64_t> DivisorsOf(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<int64_t> OrFixed(const std::optional<int64_t>& fixed, std::vector<int64_t> free) {
  return fixed.has_value() ? std::vector<int64_t>{*fixed} : std::move(free);
}

class Enumeration {
 public:
  Enumeration(const Problem& problem, const DecoderFacts& facts, const SpaceOptions& options)
      : problem_(problem), facts_(facts), options_(options) {}

  Space Run() {
    const int64_t devices = problem_.cluster.num_devices();
    for (const int64_t stages : OrFixed(problem_.stages, DivisorsOf(devices))) {
      if (devices % stages != 0) {
        Prune("the stages do not divide the devices", 1);
        continue;
      }
      if (IsMore(stages, problem_.max_stages, "max_pipeline_stages", 1)) continue;
      for (const int64_t tensor : OrFixed(problem_.tensor_parallel, DivisorsOf(devices / stages))) {
        if (devices / stages % tensor != 0) {
          Prune("the tensor degree does not divide the devices of a stage", 1);
          continue;
        }
        if (IsMore(tensor, problem_.max_tensor_parallel, "max_tensor_parallel", 1)) continue;
        Degrees degrees;
        degrees.pipeline = stages;
        degrees.tensor = tensor;
        Contexts(degrees, devices / stages / tensor);
      }
    }
    for (const auto& [reason, count] : space_.pruned) space_.considered += count;
    space_.considered += static_cast<int64_t>(space_.combinations.size());
    return std::move(space_);
  }

 private:
  void Prune(const std::string& reason, int64_t count) { space_.pruned[reason] += count; }

  // Than the user allows.
  bool IsMore(int64_t degree, const std::optional<int64_t>& most, absl::string_view knob, int64_t count) {
    if (degree <= most.value_or(degree)) return false;
    Prune(absl::StrCat("more than ", knob), count);
    return true;
  }

  bool Divides(const std::string& label, int64_t pieces) const {
    const auto found = facts_.sizes.find(label);
    return found == facts_.sizes.end() || found->second % pieces == 0;
  }

  // Stages and tensor degree are set; each of them has `replicas` parts of the devices.
  void Contexts(Degrees degrees, int64_t replicas) {
    const std::vector<int64_t> free = FreeContexts(replicas);
    for (const int64_t context : OrFixed(problem_.context_parallel, free)) {
      degrees.context = context;
      degrees.data = replicas / context;
      if (IsMore(context, problem_.max_context_parallel, "max_context_parallel", 1)) continue;
      if (replicas % context != 0) {
        Prune("the context degree does not divide the devices", 1);
      } else if (context > 1 && !facts_.context.ok()) {
        Prune(std::string(facts_.context.message()), 1);
      } else if (context > 1 && !Divides(std::string(kSequenceLabel), 2 * context)) {
        Prune("twice the context degree does not divide the sequence", 1);
      } else {
        for (const ContextExchange exchange : Exchanges(context)) {
          degrees.exchange = exchange;
          Tensor(degrees);
        }
      }
    }
  }

  // With the product where nothing of it is left to the search; else the reason of many.
  std::string NotTheDevices(const Degrees& degrees, int64_t data) const {
    if (!problem_.stages.has_value() || !problem_.tensor_parallel.has_value()) {
      return "the degrees do not make up the devices";
    }
    const int64_t made = data * degrees.tensor * degrees.context * degrees.pipeline;
    return absl::StrCat("data ", data, " x tensor ", degrees.tensor, " x context ", degrees.context, " x pipeline ",
                        degrees.pipeline, " are ", made, " devices, wanted ", problem_.cluster.num_devices());
  }

  // Stages, tensor, context and data degree are set.
  void Tensor(Degrees degrees) {
    const int64_t choices = NumChoices(degrees);
    if (problem_.data_parallel.has_value() && degrees.data != *problem_.data_parallel) {
      return Prune(NotTheDevices(degrees, *problem_.data_parallel), choices);
    }
    if (IsMore(degrees.data, problem_.max_data_parallel, "max_data_parallel", choices)) return;
    if (const int64_t parts = degrees.pipeline * FixedChunks().value_or(1);
        degrees.pipeline > 1 && parts > facts_.layers && problem_.layers_per_stage.empty()) {
      return Prune(parts == degrees.pipeline ? "more stages than layers" : "more chunks than layers", choices);
    }
    if (!Divides("g", degrees.tensor) && !RepeatsHeads(degrees.tensor) && !problem_.tensor_parallel.has_value()) {
      return Prune("the tensor degree does not divide the KV heads", choices);
    }
    if (!Divides("f", degrees.tensor)) return Prune("the tensor degree does not divide ffn", choices);
    if (degrees.tensor > problem_.cluster.devices_per_node && !problem_.tensor_parallel.has_value() &&
        !options_.tensor_across_nodes) {
      return Prune("tensor parallelism over more than a node", choices);
    }
    if (problem_.batch % degrees.data != 0) return Prune("the data degree does not divide the batch", choices);
    for (const bool sequence : Sequence(degrees)) {
      degrees.sequence_parallel = sequence;
      if (sequence && !Divides("s", degrees.tensor * degrees.context)) {
        Prune("the tensor degree does not divide the sequence", NumChoices(degrees) / NumSequence(degrees));
        continue;
      }
      for (const int64_t expert : Experts(degrees)) {
        degrees.expert = expert;
        if (degrees.data % degrees.expert_data() != 0 || !Divides("e", expert)) {
          Prune(degrees.context > 1 ? "the expert degree does not divide experts and data x context degree"
                                    : "the expert degree does not divide experts and data degree",
                1);
          continue;
        }
        if (IsMore(expert, problem_.max_expert_parallel, "max_expert_parallel", 1)) continue;
        for (const auto& [groups, spread] : Dispatchers(degrees)) {
          degrees.expert_groups = groups;
          degrees.spread_experts = spread;
          MicroBatches(degrees);
        }
      }
    }
  }

  // Of fewer KV heads than ranks, each is on as many, with its queries: attention is repeated there, and products are
  // not.
  bool RepeatsHeads(int64_t tensor) const {
    const auto heads = facts_.sizes.find("g"), queries = facts_.sizes.find("q");
    if (heads == facts_.sizes.end() || queries == facts_.sizes.end()) return false;
    return tensor % heads->second == 0 && heads->second * queries->second % tensor == 0;
  }

  void MicroBatches(Degrees degrees) {
    const int64_t rows = problem_.batch / degrees.data;  // of a step on one data-parallel rank
    std::vector<int64_t> sizes = OrFixed(problem_.microbatch, DivisorsOf(rows));
    if (problem_.microbatches.has_value() && !problem_.microbatch.has_value()) {
      sizes = {rows % *problem_.microbatches == 0 ? rows / *problem_.microbatches : 0};
    }
    const int64_t choices = NumChoices(degrees) / NumSequence(degrees);
    for (const int64_t microbatch : sizes) {
      const bool divides = microbatch > 0 && rows % microbatch == 0;
      if (!divides || (problem_.microbatches.has_value() && rows / microbatch != *problem_.microbatches)) {
        Prune("the batch does not divide into these micro-batches", choices);
        continue;
      }
      if (rows / microbatch < degrees.pipeline && !options_.fewer_microbatches_than_stages) {
        Prune("fewer micro-batches than stages", choices);
        continue;
      }
      if (rows / microbatch > kMostPasses / FixedChunks().value_or(1)) {
        Prune(absl::StrCat("more than ", kMostPasses, " passes of a stage"), choices);
        continue;
      }
      const std::vector<Pipelining> ways = Pipelinings(degrees.pipeline, rows / microbatch);
      if (ways.empty()) {
        Prune(absl::StrCat("fewer micro-batches than ", NameOf(*problem_.schedule), " takes, twice the stages",
                           DirectionsOf(*problem_.schedule) > 1 ? ", or an odd number of these" : ""),
              choices);
        continue;
      }
      degrees.microbatch = microbatch;
      for (const Pipelining& way : ways) Choices(degrees, way);
    }
  }

  void Choices(const Degrees& degrees, const Pipelining& pipelining) {
    for (const Recompute recompute : Recomputes()) {
      for (const auto& [parallel_optimizer, shard_parameters] : Sharding(degrees)) {
        const std::vector<Bytes> buckets = Buckets(degrees);
        const std::vector<int64_t> copies = Copies(degrees, parallel_optimizer, shard_parameters);
        if (copies.empty()) {
          Prune(absl::StrCat("groups of ", *problem_.optimizer_shard_size,
                             " ranks do not divide those that have the same parameters, or share a sequence or the "
                             "experts with others"),
                static_cast<int64_t>(buckets.size()));
        }
        for (const int64_t number : copies) {
          Degrees with = degrees;
          with.copies = number;
          for (const Bytes bucket : buckets) {
            space_.combinations.push_back(
                {with, pipelining, recompute, parallel_optimizer, shard_parameters, bucket, problem_.layers_per_stage});
          }
        }
      }
    }
  }

  // --- the lists of choices ----------------------------------------------------------------------------------------

  std::vector<int64_t> FreeContexts(int64_t replicas) const {
    if (!facts_.context.ok()) return {1};
    std::vector<int64_t> contexts;
    for (const int64_t context : DivisorsOf(replicas)) {
      const bool long_enough = problem_.tokens_per_row / context >= kLeastContextTokens || !problem_.shards.empty();
      if (context == 1 || (long_enough && Divides(std::string(kSequenceLabel), 2 * context)))
        contexts.push_back(context);
    }
    return contexts;
  }
  std::vector<ContextExchange> Exchanges(int64_t context) const {
    if (context == 1) return {ContextExchange::kNone};
    if (problem_.context_exchange.has_value()) return {*problem_.context_exchange};
    return {ContextExchange::kAllGather, ContextExchange::kRing};
  }
  std::vector<bool> Sequence(const Degrees& degrees) const {
    if (problem_.sequence_parallel.has_value()) return {*problem_.sequence_parallel && degrees.tensor > 1};
    return degrees.tensor > 1 ? std::vector<bool>{true, false} : std::vector<bool>{false};
  }
  int64_t NumSequence(const Degrees& degrees) const { return static_cast<int64_t>(Sequence(degrees).size()); }
  std::vector<int64_t> Experts(const Degrees& degrees) const {
    const auto experts = facts_.sizes.find("e");
    if (experts == facts_.sizes.end()) return {1};
    std::vector<int64_t> free = DivisorsOf(std::gcd(experts->second, degrees.data * degrees.context));
    std::erase_if(free, [with = degrees](int64_t expert) mutable {
      with.expert = expert;
      return with.data % with.expert_data() != 0;
    });
    return OrFixed(problem_.expert_parallel, free);
  }
  // Groups of experts, and whether they are spread over tensor-parallel ranks: each way that differs from the others.
  std::vector<std::pair<int64_t, bool>> Dispatchers(const Degrees& degrees) const {
    const bool experts = facts_.sizes.find("e") != facts_.sizes.end();
    std::vector<std::pair<int64_t, bool>> ways;
    const auto add = [&](int64_t groups, bool spread) {
      if (std::find(ways.begin(), ways.end(), std::make_pair(groups, spread)) == ways.end())
        ways.push_back({groups, spread});
    };
    const bool may_spread = experts && degrees.tensor > 1 && Divides("e", degrees.expert * degrees.tensor);
    if (problem_.spread_experts.value_or(may_spread) && may_spread) add(1, true);
    if (problem_.spread_experts.value_or(false) && may_spread) return ways;
    const auto groups = [&](Dispatcher dispatcher) {
      return ExpertGroups(dispatcher, degrees, problem_.cluster, facts_.sizes);
    };
    if (problem_.dispatcher.has_value()) {
      add(groups(*problem_.dispatcher), false);
      return ways;
    }
    add(1, false);
    // Of several nodes; of one, its ranks.
    const int64_t nodes = groups(Dispatcher::kPerNode);
    add(nodes > 1 ? nodes : groups(Dispatcher::kPerRank), false);
    return ways;
  }
  std::optional<int64_t> FixedChunks() const {
    if (problem_.chunks.has_value() || !problem_.schedule.has_value()) return problem_.chunks;
    return ChunksOf(*problem_.schedule);
  }
  std::vector<int64_t> Chunks(Schedule schedule, int64_t stages) const {
    const std::optional<int64_t> fixed = ChunksOf(schedule);
    if (fixed.has_value() && problem_.chunks.value_or(*fixed) != *fixed) return {};
    if (fixed.has_value() || problem_.chunks.has_value()) return {problem_.chunks.value_or(*fixed)};
    if (schedule != Schedule::kOneFOneB) return {1};
    return DivisorsOf((facts_.layers + stages - 1) / stages);
  }
  // Empty only where the user's own schedule takes more micro-batches.
  std::vector<Pipelining> Pipelinings(int64_t stages, int64_t microbatches) const {
    const Schedule first = problem_.schedule.value_or(Schedule::kOneFOneB);
    if (stages == 1) return {{first, 1}};
    // Without one that is fixed, all but gpipe: 1f1b takes as long and holds less.
    const size_t end = problem_.schedule.has_value() ? static_cast<size_t>(first) + 1 : std::size(kScheduleNames);
    std::vector<Pipelining> ways;
    for (size_t i = static_cast<size_t>(first); i < end; ++i) {
      const auto schedule = static_cast<Schedule>(i);
      if (!CheckSchedule(schedule, stages, microbatches).ok()) continue;
      for (const int64_t chunks : Chunks(schedule, stages)) {
        const bool enough = chunks * stages <= facts_.layers || !problem_.layers_per_stage.empty();
        if (enough && chunks <= kMostPasses / microbatches) ways.push_back({schedule, chunks});
      }
    }
    return ways;
  }
  std::vector<Recompute> Recomputes() const {
    if (problem_.recompute.has_value()) return {*problem_.recompute};
    return {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  }
  // Is the optimizer split over the replicas, and are parameters, too?
  std::vector<std::pair<bool, bool>> Sharding(const Degrees& degrees) const {
    std::vector<std::pair<bool, bool>> choices;
    for (const auto& [optimizer, parameters] : {std::pair(true, false), {true, true}, {false, false}}) {
      if (problem_.shard_parameters.has_value()) {
        if (parameters != *problem_.shard_parameters) continue;
      } else if (parameters && (degrees.data * degrees.context == 1 || degrees.pipeline > 1 || !MaySplitParameters())) {
        continue;
      }
      if (problem_.parallel_optimizer.has_value() && optimizer != *problem_.parallel_optimizer) continue;
      if (!problem_.parallel_optimizer.has_value() && optimizer && !parameters && degrees.data * degrees.context == 1)
        continue;
      choices.push_back({optimizer, parameters});
    }
    return choices;
  }
  // How many groups of ranks have what the optimizer splits. Empty where the user's groups do not divide.
  std::vector<int64_t> Copies(const Degrees& degrees, bool parallel_optimizer, bool shard_parameters) const {
    const int64_t ranks = degrees.data * degrees.context, least = degrees.expert_data() * degrees.context;
    const auto divides = [&](int64_t group) { return ranks % group == 0 && group % least == 0; };
    const int64_t fixed = problem_.optimizer_shard_size.value_or(-1);
    if (!parallel_optimizer) return {1};
    if (fixed > 1) return divides(fixed) ? std::vector<int64_t>{ranks / fixed} : std::vector<int64_t>();
    if (problem_.optimizer_shard_size.has_value()) return {1};
    std::vector<int64_t> copies = {1};
    const auto add = [&](int64_t group) {
      if (group <= 1 || group >= ranks || !divides(group)) return;
      if (std::count(copies.begin(), copies.end(), ranks / group) == 0) copies.push_back(ranks / group);
    };
    const int64_t node = problem_.cluster.devices_per_node;
    if (shard_parameters || ranks >= kLeastReplicasInGroups) {
      add(node % degrees.tensor == 0 ? node / degrees.tensor : 1);  // on one node
    }
    add(DividingGroup(ranks, divides));
    return copies;
  }
  // Where all ranks do not divide the rows of most parameters, which would stay whole, the most that do.
  template <class Divides>
  int64_t DividingGroup(int64_t ranks, const Divides& divides) const {
    const auto hidden = facts_.sizes.find("h");
    if (hidden == facts_.sizes.end() || hidden->second % ranks == 0) return 1;
    int64_t most = 1;
    for (const int64_t group : DivisorsOf(ranks)) {
      if (hidden->second % group == 0 && divides(group)) most = std::max(most, group);
    }
    return most;
  }
  bool MaySplitParameters() const {
    return options_.parameters_split_over_more_devices ||
           problem_.cluster.num_devices() <= kMostDevicesOfSplitParameters;
  }
  std::vector<Bytes> Buckets(const Degrees& degrees) const {
    if (problem_.bucket.has_value()) return {*problem_.bucket};
    if (degrees.data * degrees.context == 1) return {Strategy().bucket};
    return {std::begin(kBuckets), std::end(kBuckets)};
  }
  int64_t NumChoices(const Degrees& degrees) const {
    return static_cast<int64_t>(Sequence(degrees).size() * Recomputes().size() * Sharding(degrees).size() *
                                Buckets(degrees).size());
  }

  const Problem& problem_;
  const DecoderFacts& facts_;
  const SpaceOptions& options_;
  Space space_;
};

}  // namespace

std::vector<Stack> LayersOf(const Graph& graph) {
  std::vector<Stack> layers;
  int chains = 0;
  for (size_t s = 0; s < graph.segments.size();) {
    std::vector<Stack> chain = ChainFrom(graph, s);
    s += chain.size();
    if (LayersOf(chain) == 1) continue;
    ++chains;
    layers = std::move(chain);
  }
  if (chains != 1) layers.clear();
  return layers;
}

DecoderFacts FactsOf(const Graph& graph) {
  DecoderFacts facts;
  facts.sizes = SplittableSizes(graph);
  if (const std::vector<Stack> chain = LayersOf(graph); !chain.empty()) facts.layers = LayersOf(chain);
  Strategy shared;
  shared.mesh = Mesh::RowMajor({{"cp", 1}});
  shared.context = ContextExchange::kAllGather;
  facts.context = SplitContext(graph, shared).status();
  return facts;
}

Space DecoderSpace(const Problem& problem, const DecoderFacts& facts, const SpaceOptions& options) {
  return Enumeration(problem, facts, options).Run();
}

absl::StatusOr<Strategy> StrategyOf(const Problem& problem, const Combination& combination, const LabelSizes& sizes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Strategy strategy, FromDegrees(problem, combination.degrees, sizes));
  strategy.schedule = combination.pipelining.schedule;
  strategy.chunks = combination.pipelining.chunks;
  strategy.layers_per_stage = combination.layers;
  strategy.recompute = combination.recompute;
  SetParallelOptimizer(problem, combination.parallel_optimizer, combination.shard_parameters, strategy);
  strategy.bucket = combination.bucket;
  return strategy;
}

}  // namespace meshwright
