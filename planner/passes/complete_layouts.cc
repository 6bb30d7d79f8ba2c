#include "planner/passes/complete_layouts.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status OpError(const Op& op, absl::string_view what) {
  return LayoutError("operator \"", op.name, "\" (", NameOf(op.kind), "): ", what);
}

// The smallest size of any dim that the label splits: own-size dims must divide too.
bool Divides(const Op& op, const Graph& graph, size_t label, int64_t pieces) {
  const auto check = [&](const std::vector<OperandRule>& operands, const std::vector<TensorId>& ids) {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t d = 0; d < operands[i].size(); ++d) {
        if (operands[i][d].label != static_cast<int>(label)) continue;
        if (graph.tensor(ids[i]).shape[d] % pieces != 0) return false;
      }
    }
    return true;
  };
  return check(op.rule->inputs, op.inputs) && check(op.rule->outputs, op.outputs);
}

absl::StatusOr<Assignment> FromRules(const Op& op, const Graph& graph, const Strategy& strategy) {
  Assignment assignment(op.rule->labels.size());
  AxisList used;
  for (const LabelRule& rule : strategy.rules) {
    const int label = op.rule->FindLabel(rule.label);
    if (label < 0 || op.rule->labels[label].whole || !assignment[label].empty()) continue;
    const bool taken = absl::c_any_of(rule.axes, [&](AxisId id) { return absl::c_linear_search(used, id); });
    if (taken) continue;
    const int64_t pieces = strategy.mesh.SizeOf(rule.axes);
    if (!Divides(op, graph, label, pieces)) {
      return OpError(op, absl::StrCat("\"", rule.label, "\" is not divisible by ", pieces, " pieces"));
    }
    assignment[label] = rule.axes;
    used.insert(used.end(), rule.axes.begin(), rule.axes.end());
  }
  return assignment;
}

Assignment FromForward(const Op& op, const Op& forward, const Assignment& of_forward) {
  Assignment assignment(op.rule->labels.size());
  for (size_t label = 0; label < op.rule->labels.size(); ++label) {
    const int same = forward.rule->FindLabel(op.rule->labels[label].name);
    if (same >= 0) assignment[label] = of_forward[same];
  }
  return assignment;
}

class Completion {
 public:
  Completion(Graph graph, const Strategy& strategy) : strategy_(strategy) {
    result_.graph = std::move(graph);
    result_.mesh = strategy.mesh;
    result_.assignments.resize(result_.graph.ops.size());
    result_.natural.resize(result_.graph.tensors.size());
    known_.resize(result_.graph.tensors.size(), false);
  }

  absl::StatusOr<ShardedGraph> Run() {
    const Graph& graph = result_.graph;
    MESHWRIGHT_RETURN_IF_ERROR(CheckNames());
    MESHWRIGHT_RETURN_IF_ERROR(CheckStages());
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (graph.ops[i].phase == Phase::kForward) MESHWRIGHT_RETURN_IF_ERROR(Forward(OpId(i)));
    }
    // Carried values: layers see them as the last op of a layer leaves them, of a chain's last segment.
    const std::vector<size_t> chains = ChainsOf(graph);
    for (size_t s = graph.segments.size(); s-- > 0;) {
      const bool goes_on = s + 1 < chains.size() && chains[s + 1] == chains[s];
      for (const Carry& carry : graph.segments[s].carries) {
        Layout layout = result_.natural[goes_on ? graph.segments[s + 1].carries[0].in.index() : carry.out.index()];
        layout.partial.clear();
        for (TensorId id : {carry.in, carry.final}) SetNatural(id, layout);
      }
    }
    MESHWRIGHT_RETURN_IF_ERROR(Parameters());
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (graph.ops[i].phase == Phase::kBackward) MESHWRIGHT_RETURN_IF_ERROR(Backward(OpId(i)));
    }
    for (const Segment& segment : graph.segments) {
      for (size_t k = 0; k < segment.gradient_carries.size(); ++k) {
        const Carry& carry = segment.gradient_carries[k];
        const Layout layout = result_.natural[segment.carries[k].in.index()];
        for (TensorId id : {carry.in, carry.final}) SetNatural(id, layout);
      }
    }
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      if (!known_[i]) result_.natural[i] = Layout::Replicated(graph.tensors[i].shape.size());
    }
    return std::move(result_);
  }

 private:
  absl::Status CheckNames() const {
    const auto unknown = [](absl::string_view what, absl::string_view name) {
      return ValueError("the strategy names an ", what, " \"", name, "\" that the model does not have");
    };
    for (const auto& [name, unused] : strategy_.ops) {
      if (!result_.graph.FindOp(name).valid()) return unknown("operator", name);
    }
    for (const auto& [name, unused] : strategy_.inputs) {
      const TensorId id = result_.graph.FindTensor(name);
      if (!id.valid() || result_.graph.tensor(id).kind != TensorKind::kInput) return unknown("input", name);
    }
    return absl::OkStatus();
  }

  // No tensor is split over the stages.
  absl::Status CheckStages() const {
    const AxisId pp = strategy_.stages > 1 ? strategy_.mesh.Find("pp") : AxisId();
    const auto uses = [&](const Layout& layout) {
      return absl::c_any_of(layout.dims, [&](const AxisList& axes) { return absl::c_linear_search(axes, pp); });
    };
    bool found =
        absl::c_any_of(strategy_.rules, [&](const LabelRule& rule) { return absl::c_linear_search(rule.axes, pp); });
    for (const auto& [name, layout] : strategy_.inputs) found |= uses(layout);
    for (const auto& [name, op] : strategy_.ops) {
      found |= absl::c_any_of(op.inputs, uses) || (op.output.has_value() && uses(*op.output));
    }
    if (!found || !pp.valid()) return absl::OkStatus();
    return LayoutError("\"pp\" is the axis of the pipeline stages; it splits no tensor");
  }

  void SetNatural(TensorId id, Layout layout) {
    result_.natural[id.index()] = std::move(layout);
    known_[id.index()] = true;
  }

  void SetOutputs(OpId id) {
    const Op& op = result_.graph.op(id);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      Layout layout = OutputLayout(op.rule, result_.assignments[id.index()], i, InfoOf(op.kind).reduction);
      if (const auto passed = result_.passed.find(id); passed != result_.passed.end()) {
        layout.partial.insert(layout.partial.end(), passed->second.begin(), passed->second.end());
      }
      if (result_.graph.tensor(op.outputs[i]).kind != TensorKind::kGradient)
        SetNatural(op.outputs[i], std::move(layout));
    }
  }

  absl::Status Check(OpId id) const {
    const Op& op = result_.graph.op(id);
    const auto check = [&](TensorId tensor, const Layout& layout) -> absl::Status {
      const absl::Status status = CheckLayout(result_.graph.tensor(tensor).shape, layout, result_.mesh);
      return status.ok() ? status : OpError(op, status.message());
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      MESHWRIGHT_RETURN_IF_ERROR(check(op.inputs[i], InputLayout(op.rule, result_.assignments[id.index()], i)));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      MESHWRIGHT_RETURN_IF_ERROR(
          check(op.outputs[i], OutputLayout(op.rule, result_.assignments[id.index()], i, InfoOf(op.kind).reduction)));
    }
    return absl::OkStatus();
  }

  absl::Status Forward(OpId id) {
    const Graph& graph = result_.graph;
    const Op& op = graph.op(id);
    const auto own = strategy_.ops.find(op.name);
    if (own != strategy_.ops.end()) {
      absl::StatusOr<Assignment> assignment = AssignmentOf(op, graph, own->second, result_.mesh);
      if (!assignment.ok()) return assignment.status();
      result_.assignments[id.index()] = *std::move(assignment);
      MESHWRIGHT_RETURN_IF_ERROR(SetWantedOutput(op, id, own->second));
    } else if (InfoOf(op.kind).kernel == KernelClass::kNone && strategy_.rules.empty()) {
      result_.assignments[id.index()] = FromProducer(op);
    } else {
      MESHWRIGHT_ASSIGN_OR_RETURN(result_.assignments[id.index()], FromRules(op, graph, strategy_));
      PassSumOn(op, id);
    }
    MESHWRIGHT_RETURN_IF_ERROR(Check(id));
    SetOutputs(id);
    return absl::OkStatus();
  }

  // An op that only looks at its input in another way takes over how that lies, for the dims that stay (S5.10).
  Assignment FromProducer(const Op& op) const {
    const TensorId input = op.inputs[0];
    Layout layout = Layout::Replicated(result_.graph.tensor(input).shape.size());
    if (known_[input.index()]) layout = result_.natural[input.index()];
    if (const auto wanted = result_.outputs.find(input); wanted != result_.outputs.end()) layout = wanted->second;
    if (const auto fed = strategy_.inputs.find(result_.graph.tensor(input).name); fed != strategy_.inputs.end()) {
      if (result_.graph.tensor(input).kind == TensorKind::kInput) layout = fed->second;
    }
    Assignment assignment(op.rule->labels.size());
    for (size_t d = 0; d < layout.dims.size() && d < op.rule->inputs[0].size(); ++d) {
      const int label = op.rule->inputs[0][d].label;
      if (label >= 0 && !op.rule->labels[label].whole) assignment[label] = layout.dims[d];
    }
    return assignment;
  }

  // An op's own strategy says what its output becomes at once: what it asks for, or the whole value (S5.5, S5.7). Label
  // rules leave that to the consumers.
  absl::Status SetWantedOutput(const Op& op, OpId id, const OpStrategy& strategy) {
    const TensorId output = op.outputs[0];
    Layout layout = OutputLayout(op.rule, result_.assignments[id.index()], 0, InfoOf(op.kind).reduction);
    if (result_.graph.tensor(output).kind == TensorKind::kLoss) return absl::OkStatus();
    if (strategy.output.has_value()) {
      const absl::Status fits = CheckLayout(result_.graph.tensor(output).shape, *strategy.output, result_.mesh);
      if (!fits.ok()) return OpError(op, fits.message());
      if (!strategy.output->partial.empty()) {
        return OpError(op, absl::StrCat("the output ", ToText(*strategy.output, result_.mesh), " is to stay partial"));
      }
      result_.outputs[output] = *strategy.output;
    } else if (!layout.partial.empty()) {
      layout.partial.clear();
      layout.reduction = Reduction::kSum;
      result_.outputs[output] = std::move(layout);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(OpId id) {
    const Graph& graph = result_.graph;
    const Op& op = graph.op(id);
    Assignment& assignment = result_.assignments[id.index()];
    assignment.resize(op.rule->labels.size());
    if (op.forward.valid()) {
      assignment = FromForward(op, graph.op(op.forward), result_.assignments[op.forward.index()]);
    } else if (const TensorId of = graph.tensor(op.outputs[0]).gradient_of; of.valid()) {
      // A sum of gradients: dims are labels in order.
      const Layout& layout = result_.natural[of.index()];
      for (size_t d = 0; d < layout.dims.size(); ++d) assignment[op.rule->outputs[0][d].label] = layout.dims[d];
    }
    PassSumOn(op, id);
    MESHWRIGHT_RETURN_IF_ERROR(Check(id));
    NotePassed(op, id);
    SetOutputs(id);
    return absl::OkStatus();
  }

  // What sums several partial sums that nothing else reads leaves a partial sum, where they lie: its readers bring that
  // together once, in place of each of them.
  void PassSumOn(const Op& op, OpId id) {
    if (!PassesSums(op) || op.inputs.size() < 2 || EndsInGradient(op.outputs[0])) return;
    const Layout& first = result_.natural[op.inputs[0].index()];
    if (first.partial.empty() || first.reduction != Reduction::kSum) return;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId input = op.inputs[i];
      const bool alone = ReadersOf(input).size() == 1 && result_.outputs.count(input) == 0;
      if (!alone || op.rule->inputs[i] != op.rule->outputs[0] ||
          !SamePlacement(result_.graph.tensor(input).shape, result_.natural[input.index()], first, result_.mesh)) {
        return;
      }
    }
    result_.assignments[id.index()] = FromProducer(op);
    result_.passed[id] = first.partial;
  }

  // A linear op on the way to a parameter's gradient leaves a partial sum partial: it is added up once, with the other
  // gradients. With gradient_fp32_sync that holds for a cast too: the sum is in the parameter's type (S8.6).
  void NotePassed(const Op& op, OpId id) {
    const Graph& graph = result_.graph;
    if (result_.passed.count(id) > 0 || !PassesSums(op) || !EndsInGradient(op.outputs[0])) return;
    const AxisList partial = result_.natural[op.inputs[0].index()].partial;
    if (partial.empty()) return;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Layout& layout = result_.natural[op.inputs[i].index()];
      if (layout.partial != partial || layout.reduction != Reduction::kSum) return;
      Layout wanted = InputLayout(op.rule, result_.assignments[id.index()], i);
      wanted.partial = partial;
      // Summands are passed on where they lie; another layout takes the sum.
      if (!SamePlacement(graph.tensor(op.inputs[i]).shape, layout, wanted, result_.mesh)) return;
    }
    result_.passed[id] = partial;
  }
  bool PassesSums(const Op& op) const {
    if (!IsLinear(op.kind) || op.inputs.empty() || op.outputs.size() != 1) return false;
    const DType from = result_.graph.tensor(op.inputs[0]).dtype, to = result_.graph.tensor(op.outputs[0]).dtype;
    return strategy_.gradient_fp32_sync || from == to;
  }
  // Whether it is a parameter's gradient, or nothing but such ops lie between it and one.
  bool EndsInGradient(TensorId id) {
    if (result_.graph.tensor(id).kind == TensorKind::kGradient) return true;
    const std::vector<const Op*>& readers = ReadersOf(id);
    return !readers.empty() && absl::c_all_of(readers, [this](const Op* reader) {
      return PassesSums(*reader) && EndsInGradient(reader->outputs[0]);
    });
  }

  const std::vector<const Op*>& ReadersOf(TensorId id) {
    if (readers_.empty()) {
      readers_.resize(result_.graph.tensors.size());
      for (const Op& op : result_.graph.ops) {
        for (TensorId input : op.inputs) readers_[input.index()].push_back(&op);
      }
    }
    return readers_[id.index()];
  }

  // How an input arrives: as the strategy says, else as its first user wants it.
  absl::Status Arrival(TensorId id, Layout wanted) {
    const Tensor& tensor = result_.graph.tensor(id);
    if (const auto given = strategy_.inputs.find(tensor.name); given != strategy_.inputs.end()) {
      const absl::Status fits = CheckLayout(tensor.shape, given->second, result_.mesh);
      if (!fits.ok()) return LayoutError("input \"", tensor.name, "\": ", fits.message());
      if (!given->second.partial.empty()) {
        return LayoutError("input \"", tensor.name, "\": data cannot arrive as partial sums");
      }
      wanted = given->second;
    }
    SetNatural(id, std::move(wanted));
    return absl::OkStatus();
  }

  // A parameter lies as its users read it; all of them must agree (S5.15).
  absl::Status Parameters() {
    const Graph& graph = result_.graph;
    std::vector<OpId> first_user(graph.tensors.size());
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const Op& op = graph.ops[i];
      if (op.phase != Phase::kForward) continue;
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        const TensorId id = op.inputs[k];
        const Tensor& tensor = graph.tensor(id);
        if (tensor.kind == TensorKind::kInput) {
          if (!known_[id.index()])
            MESHWRIGHT_RETURN_IF_ERROR(Arrival(id, InputLayout(op.rule, result_.assignments[i], k)));
          continue;
        }
        if (tensor.kind != TensorKind::kParameter) continue;
        const Layout layout = InputLayout(op.rule, result_.assignments[i], k);
        if (!known_[id.index()]) {
          SetNatural(id, layout);
          first_user[id.index()] = OpId(i);
        } else if (!SamePlacement(tensor.shape, layout, result_.natural[id.index()], result_.mesh)) {
          return LayoutError("parameter \"", tensor.name, "\" is used by \"", graph.op(first_user[id.index()]).name,
                             "\" as ", ToText(result_.natural[id.index()], result_.mesh), " and by \"", op.name,
                             "\" as ", ToText(layout, result_.mesh), "; all its users must split it the same way");
        }
      }
    }
    return absl::OkStatus();
  }

  const Strategy& strategy_;
  ShardedGraph result_;
  std::vector<bool> known_;
  std::vector<std::vector<const Op*>> readers_;  // by tensor; made where it is needed
};

}  // namespace

absl::StatusOr<ShardedGraph> CompleteLayouts(Graph graph, const Strategy& strategy) {
  return Completion(std::move(graph), strategy).Run();
}

}  // namespace meshwright
