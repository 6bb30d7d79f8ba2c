#include "planner/search/compatible_costs.h"

#include <limits>
#include <set>
#include <utility>

#include "ir/gradients.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The tensors of the forward pass that the op's gradient asks for.
absl::StatusOr<std::set<TensorId>> ReadByGradient(OpId id, const std::vector<bool>& wanted, GraphBuilder& scratch) {
  const Op op = scratch.graph().op(id);
  std::set<TensorId> read;
  bool any = false;
  for (TensorId input : op.inputs) any |= wanted[input.index()];
  if (!any || !InfoOf(op.kind).differentiable) return read;
  scratch.ContinueSegment(op.segment);
  Tensor gradient = scratch.graph().tensor(op.outputs[0]);
  gradient.kind = TensorKind::kValue;
  gradient.producer = OpId();
  const TensorId dy(scratch.graph().tensors.size());
  scratch.mutable_graph().tensors.push_back(std::move(gradient));
  std::vector<TensorId> output_gradients(op.outputs.size());
  output_gradients[0] = dy;
  MESHWRIGHT_RETURN_IF_ERROR(AddGradient(
      {.builder = scratch,
       .op = id,
       .output_gradients = std::move(output_gradients),
       .saved = [&read](TensorId tensor) -> absl::StatusOr<TensorId> {
         read.insert(tensor);
         return tensor;
       },
       .wanted = [&wanted](TensorId tensor) { return tensor.index() < wanted.size() && wanted[tensor.index()]; },
       .accumulator = [](TensorId) { return TensorId(); },
       .contribute = [](TensorId, TensorId) {}}));
  return read;
}

// Whether the op has one input that is no parameter, and its output the same dims.
bool KeepsItsDims(const Op& op, const Graph& graph) {
  size_t activation = 0, count = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (graph.tensor(op.inputs[i]).kind == TensorKind::kParameter) continue;
    activation = i;
    ++count;
  }
  return count == 1 && op.rule->inputs[activation] == op.rule->outputs[0];
}

}  // namespace

std::vector<bool> WantsGradient(const Graph& graph) {
  std::vector<bool> wanted(graph.tensors.size());
  for (size_t t = 0; t < wanted.size(); ++t) {
    wanted[t] = graph.tensors[t].kind == TensorKind::kParameter && graph.tensors[t].trainable;
  }
  for (const Op& op : graph.ops) {
    bool any = false;
    for (TensorId id : op.inputs) any |= wanted[id.index()];
    for (TensorId id : op.outputs) wanted[id.index()] = any;
  }
  return wanted;
}

double Corrected(double bytes, const CostModelKnobs& knobs) {
  if (bytes == 0) return 0;
  return bytes <= knobs.communi_threshold ? knobs.communi_const : bytes + knobs.communi_bias;
}

absl::StatusOr<CompatibleCosts> CompatibleCosts::Make(const Graph& graph, const Mesh& mesh, int64_t ranks_per_stage,
                                                      const CostModelKnobs& knobs, bool all_to_all) {
  CompatibleCosts costs(graph, mesh, ranks_per_stage, knobs, all_to_all);
  costs.held_.resize(graph.ops.size());
  if (knobs.inference) {
    costs.FindCriticalPath();
  } else {
    MESHWRIGHT_RETURN_IF_ERROR(costs.FindHeld());
  }
  // Parameters: where they are read first.
  std::set<TensorId> counted;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (size_t k = 0; k < graph.ops[i].inputs.size(); ++k) {
      const TensorId id = graph.ops[i].inputs[k];
      if (graph.tensor(id).kind == TensorKind::kParameter && counted.insert(id).second) {
        costs.held_[i].inputs.push_back(k);
      }
    }
  }
  return costs;
}

absl::Status CompatibleCosts::FindHeld() {
  const std::vector<bool> wanted = WantsGradient(graph_);
  GraphBuilder scratch(graph_);
  std::vector<std::set<TensorId>> read(graph_.ops.size());
  std::set<TensorId> counted;
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    MESHWRIGHT_ASSIGN_OR_RETURN(read[i], ReadByGradient(OpId(i), wanted, scratch));
    const bool output = !read[i].empty() && KeepsItsDims(op, graph_);
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const bool as_output = output && k == 0;
      if (!as_output && read[i].count(op.outputs[k]) == 0) continue;
      held_[i].outputs.push_back(k);
      counted.insert(op.outputs[k]);
    }
    if (output) read[i].clear();
  }
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const TensorId id = op.inputs[k];
      if (graph_.tensor(id).kind == TensorKind::kParameter || read[i].count(id) == 0) continue;
      if (counted.insert(id).second) held_[i].inputs.push_back(k);
    }
  }
  return absl::OkStatus();
}

void CompatibleCosts::FindCriticalPath() {
  std::vector<int64_t> length(graph_.ops.size(), 1);
  std::vector<OpId> before(graph_.ops.size());
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    for (TensorId id : graph_.ops[i].inputs) {
      const OpId producer = graph_.tensor(id).producer;
      if (!producer.valid() || length[producer.index()] + 1 <= length[i]) continue;
      length[i] = length[producer.index()] + 1;
      before[i] = producer;
    }
  }
  OpId last;
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!last.valid() || length[i] > length[last.index()]) last = OpId(i);
  }
  for (OpId op = last; op.valid(); op = before[op.index()]) held_[op.index()].outputs = {0};
}

double CompatibleCosts::Slice(TensorId id, const Layout& layout) const {
  const Tensor& tensor = graph_.tensor(id);
  return static_cast<double>((SizeOf(tensor.dtype) * NumElements(LocalShape(tensor.shape, layout, mesh_))).raw());
}

OperatorCost CompatibleCosts::Operator(size_t number, const OpCandidate& candidate) const {
  const Op& op = graph_.ops[number];
  OperatorCost cost;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Layout& layout = candidate.strategy.inputs[i];
    const double slice = Slice(op.inputs[i], layout);
    cost.computation += slice;
    const Tensor& tensor = graph_.tensor(op.inputs[i]);
    int64_t pieces = 1;
    for (const AxisList& axes : layout.dims) pieces *= mesh_.SizeOf(axes);
    if (tensor.kind == TensorKind::kParameter && tensor.trainable && pieces < ranks_) cost.gradient += slice;
  }
  double moved = 0;
  for (size_t k = 0; k < op.outputs.size(); ++k) {
    const Layout layout = OutputLayout(op.rule, candidate.assignment, k, Reduction::kSum);
    if (mesh_.SizeOf(layout.partial) > 1) moved += Slice(op.outputs[k], layout);
  }
  cost.computation += moved;
  cost.forward = Corrected(moved, knobs_);
  if (cost.computation > 1 && !op.inputs.empty() && !candidate.strategy.inputs[0].dims.empty() &&
      mesh_.SizeOf(candidate.strategy.inputs[0].dims[0]) == ranks_) {
    cost.computation -= 1;
  }
  return cost;
}

RedistributionCost CompatibleCosts::Redistribution(const Tensor& tensor, const TensorSide& from,
                                                   const TensorSide& to) const {
  const CanonicalCost elements =
      CostOf(CanonicallyRedistribute(tensor.shape, from.layout, from.matrix, to.layout, to.matrix, mesh_, all_to_all_));
  const double size = static_cast<double>(SizeOf(tensor.dtype).raw());
  RedistributionCost cost{elements.forward * size, elements.backward * size, elements.computation * size,
                          elements.memory * size};
  cost.communication = Corrected(cost.forward, knobs_) + (knobs_.inference ? 0 : Corrected(cost.backward, knobs_));
  if (tensor.dtype == DType::kBool && cost.forward > 0) cost.communication = kInfinite;
  return cost;
}

double CompatibleCosts::Memory(size_t number, const OpCandidate& candidate) const {
  const Op& op = graph_.ops[number];
  double bytes = 0;
  for (const size_t i : held_[number].inputs) bytes += Slice(op.inputs[i], candidate.strategy.inputs[i]);
  for (const size_t k : held_[number].outputs) bytes += Slice(op.outputs[k], OutputOf(op, candidate, k));
  return bytes;
}

absl::StatusOr<Cost> CompatibleCosts::OfOperator(size_t op, const OpCandidate& candidate) const {
  const OperatorCost cost = Operator(op, candidate);
  const double gradient = knobs_.inference ? 0 : knobs_.gamma * cost.gradient;
  return Cost{cost.computation, cost.forward + gradient, Memory(op, candidate)};
}

absl::StatusOr<Cost> CompatibleCosts::OfUse(const TensorSide& from, size_t user, size_t input,
                                            const OpCandidate& candidate) const {
  const TensorSide to = {candidate.strategy.inputs[input], BoundsOf(candidate.assignment, mesh_, ranks_)};
  const RedistributionCost cost = Redistribution(graph_.tensor(graph_.ops[user].inputs[input]), from, to);
  return Cost{cost.computation, cost.communication, 0};
}

}  // namespace meshwright
