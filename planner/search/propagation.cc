#include "planner/search/propagation.h"

#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "planner/redistribute.h"
#include "planner/search/op_candidates.h"

namespace meshwright {
namespace {

// Larger than any number of local steps: what can be done without communication is.
constexpr Nanos kCall = Nanos(1000);

int64_t LocalBytesOf(const Tensor& tensor, const Layout& layout, const Mesh& mesh) {
  return (SizeOf(tensor.dtype) * NumElements(LocalShape(tensor.shape, layout, mesh))).raw();
}

Layout WithoutPartial(Layout layout) {
  layout.partial.clear();
  layout.reduction = Reduction::kSum;
  return layout;
}

class Propagation {
 public:
  Propagation(const Graph& graph, const Mesh& mesh, int64_t ranks_per_stage,
              const std::map<std::string, Layout>& inputs)
      : graph_(graph), mesh_(mesh), ranks_(ranks_per_stage), inputs_(inputs), chosen_(graph.ops.size()) {
    users_.resize(graph.tensors.size());
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId id : graph.ops[i].inputs) users_[id.index()].insert(i);
    }
  }

  absl::StatusOr<Propagated> Run(const std::map<std::string, OpStrategy>& configured) {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const auto found = configured.find(graph_.ops[i].name);
      if (found == configured.end()) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(chosen_[i], MakeCandidate(graph_.ops[i], graph_, found->second, mesh_));
      anchors_.push_back(i);
    }
    for (const size_t anchor : anchors_) MESHWRIGHT_RETURN_IF_ERROR(From(anchor));
    MESHWRIGHT_RETURN_IF_ERROR(FromInputs());
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (chosen_[i].has_value()) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OpCandidate> candidates, Allowed(i));
      chosen_[i] = candidates.front();
      MESHWRIGHT_RETURN_IF_ERROR(From(i));
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) result_.ops[graph_.ops[i].name] = chosen_[i]->strategy;
    return std::move(result_);
  }

 private:
  // Breadth first from one op.
  absl::Status From(size_t first) {
    std::deque<size_t> queue = {first};
    while (!queue.empty()) {
      const size_t op = queue.front();
      queue.pop_front();
      for (const size_t next : Neighbours(op)) {
        if (chosen_[next].has_value()) continue;
        MESHWRIGHT_RETURN_IF_ERROR(Choose(next, op));
        queue.push_back(next);
      }
    }
    return absl::OkStatus();
  }

  // Inputs whose layout the user gave count as configured operators before their users.
  absl::Status FromInputs() {
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      const Tensor& tensor = graph_.tensors[t];
      const auto layout = inputs_.find(tensor.name);
      if (tensor.kind != TensorKind::kInput || layout == inputs_.end()) continue;
      for (const size_t user : users_[t]) {
        if (chosen_[user].has_value()) continue;
        MESHWRIGHT_RETURN_IF_ERROR(ChooseBy(user, tensor.name, [&](const OpCandidate& candidate) {
          return Edge(TensorId(t), layout->second, user, candidate);
        }));
        MESHWRIGHT_RETURN_IF_ERROR(From(user));
      }
    }
    return absl::OkStatus();
  }

  // Successors in graph order, then predecessors, then the other users of its parameters.
  std::vector<size_t> Neighbours(size_t op) const {
    std::vector<size_t> neighbours;
    std::set<size_t> successors, sharers;
    for (TensorId id : graph_.ops[op].outputs) successors.insert(users_[id.index()].begin(), users_[id.index()].end());
    neighbours.assign(successors.begin(), successors.end());
    for (TensorId id : graph_.ops[op].inputs) {
      const OpId producer = graph_.tensor(id).producer;
      if (producer.valid()) neighbours.push_back(producer.index());
      if (graph_.tensor(id).kind != TensorKind::kParameter) continue;
      sharers.insert(users_[id.index()].begin(), users_[id.index()].end());
    }
    neighbours.insert(neighbours.end(), sharers.begin(), sharers.end());
    return neighbours;
  }

  // Candidates that read every parameter as its other users do (S5.15); all where none does.
  absl::StatusOr<std::vector<OpCandidate>> Allowed(size_t op) const {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OpCandidate> all,
                                CandidatesOf(graph_.ops[op], graph_, mesh_, ranks_));
    std::vector<OpCandidate> allowed;
    for (const OpCandidate& candidate : all) {
      if (Agrees(op, candidate)) allowed.push_back(candidate);
    }
    return allowed.empty() ? all : allowed;
  }
  bool Agrees(size_t op, const OpCandidate& candidate) const {
    for (size_t i = 0; i < graph_.ops[op].inputs.size(); ++i) {
      const TensorId id = graph_.ops[op].inputs[i];
      if (graph_.tensor(id).kind != TensorKind::kParameter) continue;
      for (const size_t user : users_[id.index()]) {
        if (!chosen_[user].has_value()) continue;
        const Op& other = graph_.ops[user];
        for (size_t k = 0; k < other.inputs.size(); ++k) {
          if (other.inputs[k] != id) continue;
          if (!SamePlacement(graph_.tensor(id).shape, candidate.strategy.inputs[i], chosen_[user]->strategy.inputs[k],
                             mesh_)) {
            return false;
          }
        }
      }
    }
    return true;
  }

  absl::Status Choose(size_t op, size_t neighbour) {
    return ChooseBy(op, graph_.ops[neighbour].name,
                    [&](const OpCandidate& candidate) { return Between(op, candidate, neighbour); });
  }

  template <class CostOf>
  absl::Status ChooseBy(size_t op, const std::string& neighbour, const CostOf& cost_of) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<OpCandidate> candidates, Allowed(op));
    std::optional<std::pair<EdgeCost, int64_t>> best;
    for (const OpCandidate& candidate : candidates) {
      MESHWRIGHT_ASSIGN_OR_RETURN(const EdgeCost edge, cost_of(candidate));
      const std::pair<EdgeCost, int64_t> cost = {edge, ForwardCommunication(op, candidate)};
      if (best.has_value() && *best <= cost) continue;
      best = cost;
      chosen_[op] = candidate;
    }
    if (best->first.communication > 0) {
      result_.warnings.push_back(absl::StrCat("operator \"", graph_.ops[op].name,
                                              "\": no strategy goes with that of \"", neighbour,
                                              "\" without communication"));
    }
    return absl::OkStatus();
  }

  // All edges between the two, in either direction.
  absl::StatusOr<EdgeCost> Between(size_t op, const OpCandidate& candidate, size_t neighbour) const {
    EdgeCost sum;
    for (const auto& [from, to] : {std::pair(op, neighbour), std::pair(neighbour, op)}) {
      const OpCandidate& source = from == op ? candidate : *chosen_[from];
      const OpCandidate& target = to == op ? candidate : *chosen_[to];
      for (size_t k = 0; k < graph_.ops[from].outputs.size(); ++k) {
        const TensorId id = graph_.ops[from].outputs[k];
        if (users_[id.index()].count(to) == 0) continue;
        MESHWRIGHT_ASSIGN_OR_RETURN(const EdgeCost edge, Edge(id, Output(from, source, k), to, target));
        sum.communication += edge.communication;
        sum.computation += edge.computation;
      }
    }
    return sum;
  }

  // As an op leaves its output: whole, since its own reduction is its own cost.
  Layout Output(size_t op, const OpCandidate& candidate, size_t output) const {
    if (candidate.strategy.output.has_value() && output == 0) return *candidate.strategy.output;
    return WithoutPartial(OutputLayout(graph_.ops[op].rule, candidate.assignment, output, Reduction::kSum));
  }

  absl::StatusOr<EdgeCost> Edge(TensorId id, const Layout& from, size_t user, const OpCandidate& candidate) const {
    EdgeCost sum;
    for (size_t i = 0; i < graph_.ops[user].inputs.size(); ++i) {
      if (graph_.ops[user].inputs[i] != id) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(const EdgeCost edge,
                                  EdgeCostOf(graph_.tensor(id), from, candidate.strategy.inputs[i], mesh_));
      sum.communication += edge.communication;
      sum.computation += edge.computation;
    }
    return sum;
  }

  // What the reduction of its outputs moves.
  int64_t ForwardCommunication(size_t op, const OpCandidate& candidate) const {
    int64_t bytes = 0;
    for (size_t k = 0; k < graph_.ops[op].outputs.size(); ++k) {
      const Layout layout = OutputLayout(graph_.ops[op].rule, candidate.assignment, k, Reduction::kSum);
      if (mesh_.SizeOf(layout.partial) > 1)
        bytes += LocalBytesOf(graph_.tensor(graph_.ops[op].outputs[k]), layout, mesh_);
    }
    return bytes;
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const int64_t ranks_;
  const std::map<std::string, Layout>& inputs_;
  std::vector<std::set<size_t>> users_;  // by tensor: ops
  std::vector<size_t> anchors_;
  std::vector<std::optional<OpCandidate>> chosen_;
  Propagated result_;
};

}  // namespace

absl::StatusOr<EdgeCost> EdgeCostOf(const Tensor& tensor, const Layout& from, const Layout& to, const Mesh& mesh) {
  // What a step receives is what it holds afterwards, at most; backward sends as much back.
  const auto moved = [&](const Work& work, const Layout& before, const Layout& after) {
    const bool local = std::holds_alternative<Slice>(work);
    return local ? 0 : LocalBytesOf(tensor, before, mesh) + LocalBytesOf(tensor, after, mesh);
  };
  const StepPrice price = [&](const Shape&, DType, const Work& work, const Layout& before, const Layout& after) {
    const int64_t bytes = moved(work, before, after);
    return bytes == 0 ? Nanos(1) : kCall + Nanos(bytes);
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const Redistribution way,
                              Redistribute(tensor.shape, tensor.dtype, from, to, mesh, price));
  EdgeCost cost;
  Layout before = from;
  for (const RedistributionStep& step : way.steps) {
    cost.communication += moved(step.work, before, step.after);
    cost.computation += LocalBytesOf(tensor, before, mesh);
    before = step.after;
  }
  return cost;
}

absl::StatusOr<Propagated> Propagate(const Graph& graph, const Mesh& mesh, int64_t ranks_per_stage,
                                     const std::map<std::string, OpStrategy>& configured,
                                     const std::map<std::string, Layout>& inputs) {
  if (configured.empty() && inputs.empty()) {
    return absl::FailedPreconditionError(
        "sharding_propagation starts from operators that the user configured, and there are none; give at least one a "
        "`shard:`, or the inputs a dataset_strategy of tuples");
  }
  return Propagation(graph, mesh, ranks_per_stage, inputs).Run(configured);
}

}  // namespace meshwright
