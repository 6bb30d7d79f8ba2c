#include "planner/search/parameter_users.h"

#include "ir/error_kind.h"

namespace meshwright {

ParameterUsers::ParameterUsers(const Graph& graph, const Mesh& mesh) : graph_(graph), mesh_(mesh) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (size_t k = 0; k < graph.ops[i].inputs.size(); ++k) {
      const TensorId id = graph.ops[i].inputs[k];
      if (graph.tensor(id).kind == TensorKind::kParameter) uses_[id].push_back({i, k});
    }
  }
}

std::optional<ParameterUsers::Conflict> ParameterUsers::Find(size_t op, const OpCandidate& candidate,
                                                             const Chosen& chosen) const {
  for (size_t i = 0; i < graph_.ops[op].inputs.size(); ++i) {
    const auto uses = uses_.find(graph_.ops[op].inputs[i]);
    if (uses == uses_.end()) continue;
    for (const Use& use : uses->second) {
      if (use.op == op || !chosen[use.op].has_value()) continue;
      if (!SamePlacement(graph_.tensor(uses->first).shape, candidate.strategy.inputs[i],
                         chosen[use.op]->strategy.inputs[use.input], mesh_)) {
        return Conflict{i, use};
      }
    }
  }
  return std::nullopt;
}

bool ParameterUsers::Agrees(size_t op, const OpCandidate& candidate, const Chosen& chosen) const {
  return !Find(op, candidate, chosen).has_value();
}

absl::Status ParameterUsers::Check(size_t op, const OpCandidate& candidate, const Chosen& chosen) const {
  const std::optional<Conflict> conflict = Find(op, candidate, chosen);
  if (!conflict.has_value()) return absl::OkStatus();
  const Use& other = conflict->other;
  return LayoutError("parameter \"", graph_.tensor(graph_.ops[op].inputs[conflict->input]).name, "\" is ",
                     ToText(chosen[other.op]->strategy.inputs[other.input], mesh_), " for operator \"",
                     graph_.ops[other.op].name, "\" and ", ToText(candidate.strategy.inputs[conflict->input], mesh_),
                     " for operator \"", graph_.ops[op].name, "\"; all users of a parameter must split it alike");
}

}  // namespace meshwright
