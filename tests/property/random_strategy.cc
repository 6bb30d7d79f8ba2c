#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "tests/property/random_model.h"

namespace meshwright {
namespace {

class StrategyMaker {
 public:
  StrategyMaker(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage)
      : draw_(seed), graph_(graph), ranks_per_stage_(ranks_per_stage) {
    strategy_.stages = stages;
    strategy_.mesh = Mesh::Factored(stages, ranks_per_stage);
    for (size_t i = stages > 1 ? 1 : 0; i < strategy_.mesh.axes().size(); ++i) axes_.push_back(AxisId(i));
  }

  Strategy Run(int64_t microbatches) {
    Rules();
    Assignments();
    Inputs();
    strategy_.microbatches = microbatches;
    strategy_.loss_divisor = static_cast<double>(microbatches);
    strategy_.schedule = draw_.Chance(50) ? Schedule::kGpipe : Schedule::kOneFOneB;
    strategy_.recompute =
        draw_.Of(std::vector<Recompute>{Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayer});
    strategy_.parallel_optimizer = draw_.Chance(50);
    strategy_.parallel_optimizer_threshold = Bytes(draw_.Of(std::vector<int64_t>{0, 0, 512}));
    strategy_.bucket = Bytes(draw_.Of(std::vector<int64_t>{0, 256, 1024, 1 << 26}));
    if (draw_.Chance(30)) strategy_.scatter_bucket = Bytes(512);
    if (draw_.Chance(30)) strategy_.gather_bucket = Bytes(512);
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.kind == TensorKind::kParameter && draw_.Chance(20)) strategy_.fusion_ids[tensor.name] = draw_.Below(4);
    }
    if (graph_.segments.size() == 1 && draw_.Chance(30)) strategy_.bucket_ends = {1, 2};
    strategy_.gradient_dtype = DType::kFloat64;
    return strategy_;
  }

 private:
  bool Free(AxisId id, const AxisList& used) const {
    return absl::c_all_of(used, [&](AxisId other) { return strategy_.mesh.Orthogonal(id, other); });
  }

  // Whether the label's dims, of all operands, divide by so many pieces.
  bool Divides(const Op& op, int label, int64_t pieces) const {
    const auto all = [&](const std::vector<OperandRule>& operands, const std::vector<TensorId>& ids) {
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < operands[i].size(); ++d) {
          if (operands[i][d].label == label && graph_.tensor(ids[i]).shape[d] % pieces != 0) return false;
        }
      }
      return true;
    };
    return all(op.rule.inputs, op.inputs) && all(op.rule.outputs, op.outputs);
  }

  // Label rules over mutually orthogonal axes; one that does not divide somewhere is left out.
  void Rules() {
    std::vector<AxisId> axes = axes_;
    draw_.Shuffle(axes);
    AxisList chain;
    for (AxisId id : axes) {
      if (Free(id, chain)) chain.push_back(id);
    }
    std::vector<std::string> labels = {"b", "h", "n", "f", "s", "g", "e", "v", "c", "d0", "d1"};
    draw_.Shuffle(labels);
    for (size_t i = 0; i < 5; ++i) {
      LabelRule rule{labels[i], {}};
      for (AxisId id : chain) {
        if (draw_.Chance(40)) rule.axes.push_back(id);
      }
      draw_.Shuffle(rule.axes);
      const int64_t pieces = strategy_.mesh.SizeOf(rule.axes);
      const bool fits = absl::c_all_of(graph_.ops, [&](const Op& op) {
        const int label = op.rule.FindLabel(rule.label);
        return label < 0 || op.rule.labels[label].whole || Divides(op, label, pieces);
      });
      if (fits && !rule.axes.empty()) strategy_.rules.push_back(std::move(rule));
    }
  }

  void Assignments() {
    assignments_.resize(graph_.ops.size());
    std::vector<bool> own(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const bool shares = absl::c_any_of(graph_.ops[i].inputs, [&](TensorId id) { return NumUsers(id) > 1; });
      own[i] = shares || draw_.Chance(75);
      if (own[i]) assignments_[i] = RandomAssignment(graph_.ops[i]);
    }
    while (ClearOneConflict()) {
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (!own[i]) continue;
      OpStrategy& strategy = strategy_.ops[op.name];
      for (size_t k = 0; k < op.inputs.size(); ++k) strategy.inputs.push_back(InputLayout(op.rule, assignments_[i], k));
      if (op.kind == OpKind::kMatMul && draw_.Chance(40)) strategy.output = OutputOf(op, assignments_[i]);
    }
  }

  // How many operands are this parameter.
  int NumUsers(TensorId id) const {
    if (graph_.tensor(id).kind != TensorKind::kParameter) return 0;
    int users = 0;
    for (const Op& op : graph_.ops) users += static_cast<int>(absl::c_count(op.inputs, id));
    return users;
  }

  Assignment RandomAssignment(const Op& op) {
    Assignment assignment(op.rule.labels.size());
    AxisList used;
    const auto take = [&](size_t label, AxisId id) {
      AxisList wider = assignment[label];
      wider.push_back(id);
      const int index = static_cast<int>(label);
      if (!Free(id, used) || op.rule.labels[label].whole || !op.rule.InInputs(index)) return;
      if (!Divides(op, index, strategy_.mesh.SizeOf(wider))) return;
      assignment[label] = wider;
      used.push_back(id);
    };
    // As the parameter's earlier user has it, where that is possible.
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const auto known = layouts_.find(op.inputs[k]);
      if (known == layouts_.end()) continue;
      for (size_t d = 0; d < op.rule.inputs[k].size(); ++d) {
        const int label = op.rule.inputs[k][d].label;
        if (label < 0) continue;
        for (AxisId id : known->second.dims[d]) take(static_cast<size_t>(label), id);
      }
    }
    std::vector<size_t> order;
    for (size_t label = 0; label < op.rule.labels.size(); ++label) order.push_back(label);
    draw_.Shuffle(order);
    const int eager = draw_.Of(std::vector<int>{30, 60, 90});
    for (size_t label : order) {
      std::vector<AxisId> axes = axes_;
      draw_.Shuffle(axes);
      const bool fixed = absl::c_any_of(op.inputs, [&](TensorId id) { return layouts_.count(id) > 0; });
      if (fixed && !assignment[label].empty()) continue;
      for (AxisId id : axes) {
        if (!draw_.Chance(eager)) break;
        take(label, id);
      }
    }
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (NumUsers(op.inputs[k]) > 1) layouts_.try_emplace(op.inputs[k], InputLayout(op.rule, assignment, k));
    }
    return assignment;
  }

  // Where two users of a parameter still disagree, it is whole for both (S5.15).
  bool ClearOneConflict() {
    for (size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (NumUsers(TensorId(t)) < 2) continue;
      std::vector<std::pair<size_t, size_t>> users;
      for (size_t i = 0; i < graph_.ops.size(); ++i) {
        for (size_t k = 0; k < graph_.ops[i].inputs.size(); ++k) {
          if (graph_.ops[i].inputs[k] == TensorId(t)) users.push_back({i, k});
        }
      }
      const auto layout = [&](std::pair<size_t, size_t> user) {
        return InputLayout(graph_.ops[user.first].rule, assignments_[user.first], user.second);
      };
      const bool agree = absl::c_all_of(users, [&](const auto& user) { return layout(user) == layout(users[0]); });
      if (agree) continue;
      for (const auto& [i, k] : users) {
        for (const DimRule& dim : graph_.ops[i].rule.inputs[k]) {
          if (dim.label >= 0) assignments_[i][dim.label].clear();
        }
      }
      return true;
    }
    return false;
  }

  // The two legal outputs (S5.7).
  std::optional<Layout> OutputOf(const Op& op, const Assignment& assignment) {
    Layout layout = OutputLayout(op.rule, assignment, 0, Reduction::kSum);
    const AxisList contracted = std::exchange(layout.partial, {});
    if (layout.dims.empty() || draw_.Chance(50)) return layout;
    layout.dims[0].insert(layout.dims[0].end(), contracted.begin(), contracted.end());
    if (!CheckLayout(graph_.tensor(op.outputs[0]).shape, layout, strategy_.mesh).ok()) return std::nullopt;
    return layout;
  }

  // How inputs arrive.
  void Inputs() {
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.kind != TensorKind::kInput || draw_.Chance(60)) continue;
      Layout layout = Layout::Replicated(tensor.shape.size());
      AxisList used;
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        for (AxisId id : axes_) {
          AxisList wider = layout.dims[d];
          wider.push_back(id);
          if (draw_.Chance(60) || !Free(id, used) || tensor.shape[d] % strategy_.mesh.SizeOf(wider) != 0) continue;
          layout.dims[d] = wider;
          used.push_back(id);
        }
      }
      strategy_.inputs[tensor.name] = layout;
    }
  }

  Draw draw_;
  const Graph& graph_;
  const int64_t ranks_per_stage_;
  Strategy strategy_;
  std::vector<AxisId> axes_;
  std::vector<Assignment> assignments_;
  std::map<TensorId, Layout> layouts_;  // of parameters with several users
};

}  // namespace

Strategy RandomStrategy(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage,
                        int64_t microbatches) {
  return StrategyMaker(seed, graph, stages, ranks_per_stage).Run(microbatches);
}

UpdateRule RandomOptimizer(uint64_t seed) {
  Draw draw(seed);
  UpdateRule rule;
  rule.kind = draw.Of(std::vector<OpKind>{OpKind::kSgd, OpKind::kMomentum, OpKind::kAdamW});
  rule.attrs.learning_rate = rule.kind == OpKind::kAdamW ? 0.01 : 0.005;
  rule.attrs.beta1 = 0.75;
  rule.attrs.beta2 = 0.875;
  rule.attrs.weight_decay = rule.kind == OpKind::kAdamW ? 0.125 : 0;
  return rule;
}

StepPrice RandomPrice(uint64_t seed) {
  Draw draw(seed);
  std::vector<int64_t> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(1 + draw.Below(9));
  return [weights](const Shape& global, DType dtype, const Work& work, const Layout&, const Layout&) {
    size_t kind = 5;
    if (const auto* collective = std::get_if<Collective>(&work)) kind = static_cast<size_t>(collective->kind);
    if (std::holds_alternative<Permute>(work)) kind = 6;
    return Nanos(weights[kind] * (SizeOf(dtype) * NumElements(global)).raw());
  };
}

}  // namespace meshwright
