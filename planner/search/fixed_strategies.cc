#include "planner/search/fixed_strategies.h"

#include <algorithm>
#include <iterator>

#include "ir/sharding.h"
#include "ir/status.h"
#include "planner/passes/complete_layouts.h"
#include "planner/search/space.h"

namespace meshwright {

absl::StatusOr<FixedStrategies> FixedStrategies::Make(const Problem& problem, const LabelSizes& sizes) {
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, problem.graph(problem.batch));
  return FixedStrategies(problem, sizes, std::move(graph));
}

size_t FixedStrategies::NumKept(const Degrees& degrees) {
  Degrees key = degrees;
  key.microbatch = 1;
  const auto [known, added] = known_.emplace(key, 0);
  size_t& kept = known->second;
  if (!added || problem_->shards.empty()) return kept;
  const absl::StatusOr<Strategy> strategy = FromDegrees(*problem_, degrees, *sizes_);
  if (!strategy.ok()) return kept;
  const absl::StatusOr<ShardedGraph> sharded = CompleteLayouts(graph_, *strategy);
  if (!sharded.ok()) return kept;  // an operator does not divide
  const Mesh& mesh = strategy->mesh;
  for (const auto& [name, sharding] : problem_->shards) {
    const OpId id = graph_.FindOp(name);
    if (!id.valid()) return kept;
    const Op& op = graph_.op(id);
    const absl::StatusOr<OpStrategy> wanted = Resolve(sharding, op, graph_, mesh, mesh.num_ranks() / strategy->stages);
    if (!wanted.ok() || wanted->output.has_value() || wanted->interleaved.has_value()) return kept;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Layout layout = InputLayout(op.rule, sharded->assignments[id.index()], i);
      if (!SamePlacement(graph_.tensor(op.inputs[i]).shape, layout, wanted->inputs[i], mesh)) return kept;
    }
    ++kept;
  }
  return kept;
}

absl::StatusOr<std::string> FirstThatNoPlanHas(const Problem& problem) {
  if (problem.shards.empty()) return std::string();
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, problem.graph(1));
  const DecoderFacts facts = FactsOf(graph);
  MESHWRIGHT_ASSIGN_OR_RETURN(FixedStrategies fixed, FixedStrategies::Make(problem, facts.sizes));
  const Space space = DecoderSpace(problem, facts, kWidening[std::size(kWidening) - 1]);
  size_t most = 0;
  for (const Combination& combination : space.combinations) most = std::max(most, fixed.NumKept(combination.degrees));
  if (space.combinations.empty() || most == problem.shards.size()) return std::string();
  return std::next(problem.shards.begin(), static_cast<std::ptrdiff_t>(most))->first;
}

}  // namespace meshwright
