#include "planner/search/degrees.h"

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

LabelSizes SplittableSizes(const Graph& graph) {
  LabelSizes sizes;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    const auto visit = [&](const std::vector<OperandRule>& operands, const std::vector<TensorId>& ids) {
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < operands[i].size(); ++d) {
          if (operands[i][d].label == DimRule::kUnsplit) continue;
          const Label& label = op.rule->labels[static_cast<size_t>(operands[i][d].label)];
          if (label.whole || label.name == "b" || label.name == "c") continue;
          int64_t& size = sizes[label.name];
          size = std::gcd(size, graph.tensor(ids[i]).shape[d]);
        }
      }
    };
    visit(op.rule->inputs, op.inputs);
    visit(op.rule->outputs, op.outputs);
  }
  return sizes;
}

void SetParallelOptimizer(const Problem& problem, bool parallel_optimizer, bool shard_parameters, Strategy& strategy) {
  strategy.parallel_optimizer = parallel_optimizer;
  strategy.shard_parameters = shard_parameters && parallel_optimizer;
  // S11.10: where nothing is accumulated it means nothing, and so where an update is one rank's.
  strategy.gradient_accumulation_shard = problem.gradient_accumulation_shard && parallel_optimizer &&
                                         strategy.microbatches > 1 &&
                                         strategy.optimizer_group != OptimizerGroup::kOwner;
}

void SetGivenChoices(const Problem& problem, Strategy& strategy) {
  strategy.schedule = problem.schedule.value_or(Schedule::kOneFOneB);
  strategy.chunks = strategy.stages > 1 ? problem.chunks.value_or(ChunksOf(strategy.schedule).value_or(1)) : 1;
  if (strategy.stages > 1) strategy.layers_per_stage = problem.layers_per_stage;
  strategy.recompute = problem.recompute.value_or(Recompute::kNone);
  strategy.parallel_optimizer_threshold = problem.parallel_optimizer_threshold;
  strategy.recompute_ops = problem.recompute_ops;
  const bool shard_parameters = problem.shard_parameters.value_or(false);
  SetParallelOptimizer(problem, problem.parallel_optimizer.value_or(shard_parameters), shard_parameters, strategy);
  strategy.optimizer_whole = problem.optimizer_whole;
  if (problem.bucket.has_value()) strategy.bucket = *problem.bucket;
  strategy.scatter_bucket = problem.scatter_bucket;
  strategy.gather_bucket = problem.gather_bucket;
  strategy.bucket_ends = problem.bucket_ends;
  strategy.fusion_ids = problem.fusion_ids;
  strategy.all_to_all = problem.all_to_all;
  strategy.fuse_epilogues = problem.fuse_epilogues;
  strategy.fuse_loss = problem.fuse_loss;
  strategy.fuse_updates = problem.fuse_updates;
  strategy.gradients_mean = problem.gradients_mean;
  strategy.gradient_fp32_sync = problem.gradient_fp32_sync;
  strategy.own_parameters = problem.own_parameters;
  strategy.parameter_broadcast = problem.parameter_broadcast;
  strategy.gradient_scale = problem.gradient_scale;
  strategy.gradient_dtype = problem.gradient_dtype;
  strategy.loss_divisor = problem.loss_is_sum ? 1 : static_cast<double>(strategy.microbatches);
}

int64_t ExpertGroups(Dispatcher dispatcher, const Degrees& degrees, const Cluster& cluster, const LabelSizes& sizes) {
  const auto experts = sizes.find("e");
  if (dispatcher == Dispatcher::kAllToAll || experts == sizes.end()) return 1;
  int64_t groups = degrees.expert;
  if (dispatcher == Dispatcher::kPerNode) {
    const int64_t apart = degrees.tensor * (degrees.expert_context() > 1 ? 1 : degrees.context);
    const int64_t node = cluster.devices_per_node;
    if (degrees.expert * apart <= node || degrees.expert * apart % node != 0) return 1;
    if (apart < node) groups = node % apart == 0 ? degrees.expert * apart / node : 1;
    // Ranks that share a row are all of one group, or each is one.
    if (groups != degrees.expert && degrees.expert_data() % groups != 0) return 1;
  }
  return groups == experts->second ? 1 : groups;
}

absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees, const LabelSizes& sizes) {
  for (const int64_t degree : {degrees.data, degrees.tensor, degrees.pipeline, degrees.expert, degrees.context,
                               degrees.copies, degrees.expert_groups, degrees.microbatch, problem.batch}) {
    if (degree < 1) return Wrong(absl::StrCat("found a degree of ", degree, ", wanted at least 1"));
  }
  const int64_t expert_data = degrees.expert_data();
  if (degrees.data % expert_data != 0) {
    return Wrong(
        absl::StrCat("expert parallelism ", degrees.expert, " does not divide data parallelism ", degrees.data,
                     degrees.context > 1 ? absl::StrCat(" of ranks that share rows in ", degrees.context, "s") : "",
                     "; experts are split over data-parallel ranks"));
  }
  if (degrees.data % (degrees.copies * expert_data) != 0) {
    return Wrong(absl::StrCat(degrees.copies, " copies of the optimizer's parts, each with all experts, do not divide ",
                              degrees.data, " data-parallel ranks"));
  }
  // Groups of one rank, or of all that share a row and as many data-parallel ones.
  const bool each_rank = degrees.expert_groups == degrees.expert && degrees.expert_context() > 1;
  if (!each_rank && expert_data % degrees.expert_groups != 0) {
    return Wrong(
        absl::StrCat(degrees.expert_groups, " groups of experts do not divide expert parallelism ", degrees.expert));
  }
  if (degrees.spread_experts && degrees.expert_groups > 1) {
    return Wrong(absl::StrCat(degrees.expert_groups, " groups of experts that are spread over tensor-parallel ranks"));
  }
  if ((degrees.context > 1) != (degrees.exchange != ContextExchange::kNone)) {
    return Wrong(
        absl::StrCat("context parallelism ", degrees.context, " with keys exchanged by ", NameOf(degrees.exchange)));
  }
  const int64_t rows = degrees.data * degrees.microbatch;
  if (problem.batch % rows != 0) {
    return Wrong(absl::StrCat("a batch of ", problem.batch, " rows does not divide into micro-batches of ",
                              degrees.microbatch, " rows on ", degrees.data, " data-parallel ranks"));
  }
  // Heads that the tensor degree does not divide are split as far as they go, and computed again over the rest.
  const auto heads = sizes.find("g");
  const int64_t head_pieces = heads == sizes.end() ? degrees.tensor : std::gcd(heads->second, degrees.tensor);
  const int64_t groups = degrees.expert_groups > 1 && !each_rank ? degrees.expert_groups : expert_data;
  const int64_t shared = degrees.expert_context(), part = shared < degrees.context ? shared : 1;
  std::vector<std::pair<std::string, int64_t>> axes;
  for (const auto& [name, size] : {std::pair<std::string, int64_t>{"pp", degrees.pipeline},
                                   {"copy", degrees.copies},
                                   {"dp", degrees.data / degrees.copies / expert_data},
                                   {"ep", groups},
                                   {"eg", expert_data / groups},
                                   {"cp", degrees.context / part},
                                   {"ce", part},
                                   {"tp", head_pieces},
                                   {"again", degrees.tensor / head_pieces}}) {
    if (size > 1) axes.push_back({name, size});
  }
  Strategy strategy;
  if (!axes.empty()) strategy.mesh = Mesh::RowMajor(axes);
  const auto split = [&](const std::string& label, const std::vector<std::string>& names) {
    AxisList axes;
    for (const std::string& name : names) {
      if (const AxisId id = strategy.mesh.Find(name); id.valid()) axes.push_back(id);
    }
    if (!axes.empty()) strategy.rules.push_back({label, axes});
  };
  // Where tokens go to groups first, ranks of one place in their groups hold rows side by side.
  const std::string context = part > 1 ? "ce" : shared > 1 ? "cp" : "";
  if (degrees.expert_groups > 1) split("n", {"ep", each_rank ? context : ""});
  split("b", {"copy", "dp", "eg", "ep"});
  if (degrees.expert_groups > 1) split("b", {"copy", "dp", "eg"});
  if (degrees.spread_experts) {
    split("e", {"tp", "again", "ep", context});
    split("x", {"tp", "again"});
  } else {
    split("e", {"ep", "eg", context});
  }
  split("c", {"copy", "dp"});
  split("g", {"tp"});
  // Groups of heads of linear attention; where the sequence is whole, over the ranks that share it, too.
  if (sizes.contains("o")) {
    for (const bool again : {true, false}) {
      const std::string more = again ? "again" : "";
      split("o", {"tp", more});
      split("y", {"tp", more, "cp", "ce"});
      if (degrees.context > 1) split("y", {"tp", more});
      if (!strategy.mesh.Find("again").valid()) break;
    }
  }
  split("f", {"tp", "again"});
  const auto vocabulary = sizes.find("v");
  if (vocabulary == sizes.end() || vocabulary->second % degrees.tensor == 0) split("v", {"tp", "again"});
  if (degrees.sequence_parallel) split("s", {"cp", "ce", "tp", "again"});
  if (degrees.context > 1) {
    split("s", {"cp", "ce"});
    split("z", {"cp", "ce"});
    if (part > 1) split("z", {"cp"});
  }

  if (degrees.copies > 1) strategy.optimizer_group = OptimizerGroup::kCopy;
  strategy.context = degrees.exchange;
  strategy.expert_groups = degrees.expert_groups;
  strategy.stages = degrees.pipeline;
  strategy.microbatches = problem.batch / rows;
  SetGivenChoices(problem, strategy);
  return strategy;
}

absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(1));
  return FromDegrees(problem, degrees, SplittableSizes(graph));
}

}  // namespace meshwright
