#include "planner/search/time_costs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "planner/lower.h"
#include "planner/passes/differentiate.h"

namespace meshwright {
namespace {

// A backward op's labels are split as the forward op's of the same name.
Assignment OfBackward(const Op& backward, const Op& forward, const Assignment& of_forward) {
  Assignment assignment(backward.rule->labels.size());
  for (size_t label = 0; label < assignment.size(); ++label) {
    const int same = forward.rule->FindLabel(backward.rule->labels[label].name);
    if (same >= 0) assignment[label] = of_forward[static_cast<size_t>(same)];
  }
  return assignment;
}

Layout Whole(Layout layout) {
  layout.partial.clear();
  layout.reduction = Reduction::kSum;
  return layout;
}

}  // namespace

absl::StatusOr<TimeCosts> TimeCosts::Make(const Graph& graph, const Mesh& mesh, const CostModel& costs,
                                          const CompatibleCosts& memory, const UpdateRule& update) {
  TimeCosts times(mesh, costs, memory);
  times.graph_ = graph;
  times.wanted_ = WantsGradient(graph);
  times.update_ = update.kind;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId id : graph.ops[i].inputs) {
      if (graph.tensor(id).kind == TensorKind::kParameter && graph.tensor(id).trainable) {
        times.first_user_.try_emplace(id, i);
      }
    }
  }
  if (graph.loss.valid()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(times.graph_, Differentiate(graph, DifferentiateOptions()));
  }
  times.backward_.resize(graph.ops.size());
  for (size_t i = graph.ops.size(); i < times.graph_.ops.size(); ++i) {
    const OpId forward = times.graph_.ops[i].forward;
    if (forward.valid()) times.backward_[forward.index()].push_back(OpId(i));
  }
  return times;
}

absl::StatusOr<double> TimeCosts::Redistribution(const Tensor& tensor, const Layout& from, const Layout& to) const {
  const std::string key = absl::StrCat(ToText(tensor.shape), NameOf(tensor.dtype), ToText(from, mesh_),
                                       NameOf(from.reduction), ToText(to, mesh_));
  {
    const std::lock_guard<std::mutex> lock(known_->mutex);
    const auto found = known_->times.find(key);
    if (found != known_->times.end()) return found->second;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const meshwright::Redistribution way,
                              Redistribute(tensor.shape, tensor.dtype, from, to, mesh_, PriceSteps(costs_, mesh_)));
  const double time = static_cast<double>(way.cost.raw());
  const std::lock_guard<std::mutex> lock(known_->mutex);
  known_->times[key] = time;
  return time;
}

double TimeCosts::Kernel(const Op& op, const Assignment& assignment) const {
  std::vector<Shape> inputs, outputs;
  std::vector<DType> input_dtypes, output_dtypes;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& tensor = graph_.tensor(op.inputs[i]);
    inputs.push_back(LocalShape(tensor.shape, InputLayout(op.rule, assignment, i), mesh_));
    input_dtypes.push_back(tensor.dtype);
  }
  for (size_t k = 0; k < op.outputs.size(); ++k) {
    const Tensor& tensor = graph_.tensor(op.outputs[k]);
    outputs.push_back(LocalShape(tensor.shape, OutputLayout(op.rule, assignment, k, Reduction::kSum), mesh_));
    output_dtypes.push_back(tensor.dtype);
  }
  const KernelWork work = WorkOf(op.kind, op.attrs, op.rule, inputs, input_dtypes, outputs, output_dtypes);
  return work.kernel == KernelClass::kNone ? 0 : static_cast<double>(costs_.Kernel(work).raw());
}

// As the step's end has it (planner/passes/step_end.h): a float32 master where the parameter is narrower, gradient and
// states in float32.
absl::StatusOr<double> TimeCosts::Update(const Tensor& parameter, const Layout& layout) const {
  const Shape local = LocalShape(parameter.shape, layout, mesh_);
  const bool master = SizeOf(parameter.dtype) < SizeOf(DType::kFloat32);
  // Of LAMB the second step, whose states are the first's; of Muon the first.
  const OpKind update = update_ == OpKind::kMuon ? OpKind::kMuonStep : update_;
  const size_t states = update == OpKind::kLamb ? 0 : NumStates(update);
  const DType dtype = master ? DType::kFloat32 : parameter.dtype;
  const std::vector<Shape> inputs(2 + states, local);
  std::vector<Shape> outputs(1 + states, local);
  std::vector<DType> output_dtypes(1 + states, dtype);
  if (master) {
    outputs.push_back(local);
    output_dtypes.push_back(parameter.dtype);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const IndexRule rule, InstantiateRule(InfoOf(update).rule, inputs));
  const KernelWork work =
      WorkOf(update, OpAttrs(), rule, inputs, std::vector<DType>(inputs.size(), dtype), outputs, output_dtypes);
  return static_cast<double>(costs_.Kernel(work).raw());
}

absl::StatusOr<Cost> TimeCosts::OfOperator(size_t number, const OpCandidate& candidate) const {
  const Op& op = graph_.ops[number];
  Cost cost;
  cost.memory = memory_.Memory(number, candidate);
  cost.computation = Kernel(op, candidate.assignment);
  for (size_t k = 0; k < op.outputs.size(); ++k) {
    const Tensor& tensor = graph_.tensor(op.outputs[k]);
    // The loss stays partial until the end of the step.
    if (tensor.kind == TensorKind::kLoss) continue;
    const Layout made = OutputLayout(op.rule, candidate.assignment, k, InfoOf(op.kind).reduction);
    if (mesh_.SizeOf(made.partial) <= 1) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(const double time, Redistribution(tensor, made, OutputOf(op, candidate, k)));
    cost.communication += time;
  }
  double kernels = 0, gradients = 0;
  for (const OpId id : backward_[number]) {
    const Op& backward = graph_.op(id);
    const Assignment assignment = OfBackward(backward, op, candidate.assignment);
    kernels += Kernel(backward, assignment);
    for (size_t k = 0; k < backward.outputs.size(); ++k) {
      const Tensor& gradient = graph_.tensor(backward.outputs[k]);
      if (!gradient.gradient_of.valid() || graph_.tensor(gradient.gradient_of).kind != TensorKind::kParameter) continue;
      const Layout made = OutputLayout(backward.rule, assignment, k, Reduction::kSum);
      if (mesh_.SizeOf(made.partial) <= 1) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(const double time, Redistribution(gradient, made, Whole(made)));
      gradients += time;
    }
  }
  cost.computation += kernels;
  cost.communication += std::max(0.0, gradients - kernels);
  for (size_t i = 0; i < op.inputs.size() && graph_.loss.valid(); ++i) {
    const auto first = first_user_.find(op.inputs[i]);
    if (first == first_user_.end() || first->second != number) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(const double update, Update(graph_.tensor(op.inputs[i]), candidate.strategy.inputs[i]));
    cost.computation += update;
  }
  return cost;
}

absl::StatusOr<Cost> TimeCosts::OfUse(const TensorSide& from, size_t user, size_t input,
                                      const OpCandidate& candidate) const {
  const Op& op = graph_.ops[user];
  const TensorId id = op.inputs[input];
  const Tensor& tensor = graph_.tensor(id);
  MESHWRIGHT_ASSIGN_OR_RETURN(double time, Redistribution(tensor, from.layout, candidate.strategy.inputs[input]));
  const Layout& read = candidate.strategy.inputs[input];
  const bool kept_as_made =
      NumElements(LocalShape(tensor.shape, from.layout, mesh_)) <= NumElements(LocalShape(tensor.shape, read, mesh_));
  bool returned = false, read_again = false;
  for (const OpId backward_id : backward_[user]) {
    const Op& backward = graph_.op(backward_id);
    const Assignment assignment = OfBackward(backward, op, candidate.assignment);
    for (size_t i = 0; i < backward.inputs.size() && kept_as_made && !read_again; ++i) {
      if (backward.inputs[i] != id) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(const double again,
                                  Redistribution(tensor, from.layout, InputLayout(backward.rule, assignment, i)));
      time += again;
      read_again = true;
    }
    for (size_t k = 0; k < backward.outputs.size(); ++k) {
      const Tensor& gradient = graph_.tensor(backward.outputs[k]);
      if (gradient.gradient_of != id) continue;
      MESHWRIGHT_ASSIGN_OR_RETURN(
          const double back,
          Redistribution(gradient, OutputLayout(backward.rule, assignment, k, Reduction::kSum), from.layout));
      time += back;
      returned = true;
    }
  }
  // Sums hand on the gradient of their output.
  if (!returned && wanted_[id.index()] && graph_.loss.valid() && op.rule->inputs[input] == op.rule->outputs[0]) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const double back, Redistribution(tensor, read, from.layout));
    time += back;
  }
  return Cost{0, time, 0};
}

}  // namespace meshwright
