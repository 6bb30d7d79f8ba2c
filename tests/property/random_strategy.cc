#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ir/sharding.h"
#include "tests/property/random_model.h"

namespace meshwright {
namespace {

class StrategyMaker {
 public:
  StrategyMaker(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage)
      : draw_(seed),
        draw_again_(~seed),
        draw_pieces_(seed + (uint64_t{1} << 32)),
        graph_(graph),
        ranks_per_stage_(ranks_per_stage) {
    strategy_.stages = stages;
    strategy_.mesh = Mesh::Factored(stages, ranks_per_stage);
    for (size_t i = stages > 1 ? 1 : 0; i < strategy_.mesh.axes().size(); ++i) axes_.push_back(AxisId(i));
  }

  RandomSplit Run(int64_t microbatches) {
    Choices(microbatches);
    NameChoices();
    return {strategy_, forms_};
  }

 private:
  void Choices(int64_t microbatches) {
    Rules();
    Assignments();
    Interleave();
    Inputs();
    strategy_.microbatches = microbatches;
    strategy_.loss_divisor = static_cast<double>(microbatches);
    strategy_.schedule = draw_.Chance(50) ? Schedule::kGpipe : Schedule::kOneFOneB;
    strategy_.recompute =
        draw_.Of(std::vector<Recompute>{Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayer});
    strategy_.parallel_optimizer = draw_.Chance(50);
    strategy_.shard_parameters = strategy_.parallel_optimizer && draw_.Chance(50);
    strategy_.parallel_optimizer_threshold = Bytes(draw_.Of(std::vector<int64_t>{0, 0, 512}));
    strategy_.bucket = Bytes(draw_.Of(std::vector<int64_t>{0, 256, 1024, 1 << 26}));
    if (draw_.Chance(30)) strategy_.scatter_bucket = Bytes(512);
    if (draw_.Chance(30)) strategy_.gather_bucket = Bytes(512);
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.kind == TensorKind::kParameter && draw_.Chance(20)) strategy_.fusion_ids[tensor.name] = draw_.Below(4);
    }
    if (graph_.segments.size() == 1) {
      if (draw_.Chance(30)) strategy_.bucket_ends = {1, 2};
    } else if (draw_again_.Chance(30)) {
      strategy_.bucket_ends = {1, 4};
    }
    if (strategy_.stages > 1 && draw_.Chance(50)) LayersPerStage();
    strategy_.gradient_dtype = DType::kFloat64;
    strategy_.gradient_accumulation_shard = strategy_.parallel_optimizer && draw_again_.Chance(50);
    for (const Op& op : graph_.ops) {
      if (draw_again_.Chance(10)) strategy_.recompute_ops.insert(op.name);
    }
    if (strategy_.shard_parameters || !draw_.Chance(50)) return;
    strategy_.optimizer_group = OptimizerGroup::kReplicas;
    strategy_.optimizer_shard_size = draw_.Of(std::vector<int64_t>{-1, -1, 2, 3});
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.kind == TensorKind::kParameter && draw_.Chance(10)) strategy_.optimizer_whole.insert(tensor.name);
    }
  }

  void NameChoices() {
    const Strategy& s = strategy_;
    const auto name = [&](bool used, const std::string& form) {
      if (used) forms_.insert(form);
    };
    name(!s.inputs.empty(), "input layout");
    name(true, absl::StrCat("stages ", s.stages));
    name(!s.layers_per_stage.empty(), "layers_per_stage");
    name(true, absl::StrCat("microbatches ", s.microbatches));
    name(s.stages > 1, absl::StrCat("schedule ", NameOf(s.schedule)));
    name(true, absl::StrCat("recompute ", NameOf(s.recompute)));
    name(s.parallel_optimizer, "parallel optimizer");
    name(s.shard_parameters, "split parameters");
    name(s.gradient_accumulation_shard && !s.shard_parameters && s.microbatches > 1, "gradients as rows");
    name(!s.recompute_ops.empty(), "single operators again");
    name(s.parallel_optimizer && s.parallel_optimizer_threshold > Bytes(0), "parallel optimizer with a threshold");
    name(s.bucket == Bytes(0), "one by one");
    name(s.bucket > Bytes(0) && s.bucket < MiB(1), "buckets");
    name(s.bucket >= MiB(1), "one bucket");
    name(s.scatter_bucket.has_value(), "scatter_bucket");
    name(s.gather_bucket.has_value(), "gather_bucket");
    name(!s.bucket_ends.empty() && graph_.segments.size() == 1, "bucket_ends");
    name(!s.bucket_ends.empty() && graph_.segments.size() > 1, "bucket_ends of layers");
    for (const auto& [parameter, id] : s.fusion_ids) name(true, absl::StrCat("fusion id ", id));
  }

  // As uneven as may be: the first stage gets the least that leaves no stage empty, none where it has what stands
  // before the layers.
  void LayersPerStage() {
    int64_t layers = 0;
    for (const Segment& segment : graph_.segments) {
      if (!segment.carries.empty()) layers += segment.repeat * segment.layers();
    }
    if (layers < strategy_.stages) return;
    strategy_.layers_per_stage.assign(static_cast<size_t>(strategy_.stages), 0);
    const int64_t first = draw_again_.Chance(50) ? 1 : 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      ++strategy_.layers_per_stage[static_cast<size_t>(std::min(layer + first, strategy_.stages - 1))];
    }
  }

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
    return all(op.rule->inputs, op.inputs) && all(op.rule->outputs, op.outputs);
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
        const int label = op.rule->FindLabel(rule.label);
        return label < 0 || op.rule->labels[label].whole || Divides(op, label, pieces);
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
      if (!own[i]) {
        const bool ruled = absl::c_any_of(
            strategy_.rules, [&](const LabelRule& rule) { return graph_.ops[i].rule->FindLabel(rule.label) >= 0; });
        forms_.insert(ruled ? "label rule" : "no strategy");
        continue;
      }
      const bool fixed = absl::c_any_of(graph_.ops[i].inputs, [&](TensorId id) { return layouts_.count(id) > 0; });
      const int64_t form = fixed ? 2 : draw_.Below(3);
      if (form < 2) said_[i] = form == 0 ? AsTuples(graph_.ops[i]) : AsLayouts(graph_.ops[i]);
      assignments_[i] = said_.count(i) > 0 ? said_[i].assignment : RandomAssignment(graph_.ops[i]);
      Remember(graph_.ops[i], assignments_[i]);
    }
    while (ClearOneConflict()) {
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (!own[i]) continue;
      OpStrategy& strategy = strategy_.ops[op.name];
      if (const auto said = said_.find(i); said != said_.end() && said->second.assignment == assignments_[i]) {
        strategy = said->second.strategy;
        forms_.insert(said->second.forms.begin(), said->second.forms.end());
        continue;
      }
      forms_.insert("axes");
      for (size_t k = 0; k < op.inputs.size(); ++k) strategy.inputs.push_back(InputLayout(op.rule, assignments_[i], k));
      if (op.kind == OpKind::kMatMul && draw_.Chance(40)) strategy.output = OutputOf(op, assignments_[i]);
      if (strategy.output.has_value()) forms_.insert("axes, out_strategy");
    }
  }

  // An operator's strategy in one of the user's two forms, and what it means.
  struct Said {
    OpStrategy strategy;
    Assignment assignment;
    std::vector<std::string> forms;
  };

  Said Resolved(const Op& op, const OpSharding& sharding, std::vector<std::string> forms) {
    const absl::StatusOr<OpStrategy> strategy = Resolve(sharding, op, graph_, strategy_.mesh, ranks_per_stage_);
    if (!strategy.ok()) Fail(strategy.status());
    const absl::StatusOr<Assignment> assignment = AssignmentOf(op, graph_, *strategy, strategy_.mesh);
    if (!assignment.ok()) Fail(assignment.status());
    return {*strategy, *assignment, std::move(forms)};
  }
  static void Fail(const absl::Status& status) {
    std::fprintf(stderr, "a strategy that was made to be legal is not: %s\n", status.ToString().c_str());
    std::abort();
  }

  bool MaySplit(const Op& op, size_t label, int64_t pieces) const {
    const int index = static_cast<int>(label);
    return !op.rule->labels[label].whole && op.rule->InInputs(index) && Divides(op, index, pieces);
  }
  // Labels that the output lacks.
  static bool Contracted(const Op& op, size_t label) {
    const int index = static_cast<int>(label);
    return op.rule->InInputs(index) && !op.rule->InOutput(index, 0);
  }
  // Whether dim 0 of the output can also be split into `more` pieces beyond `pieces`.
  bool Scatters(const Op& op, int64_t pieces, int64_t more) const {
    const Shape& shape = graph_.tensor(op.outputs[0]).shape;
    return !shape.empty() && shape[0] % (pieces * more) == 0;
  }
  // Only products of two matrices may (S5.7).
  bool AsksForOutput(const Op& op) {
    return op.kind == OpKind::kMatMul && op.rule->outputs[0].size() == 2 && draw_.Chance(60);
  }

  Said AsTuples(const Op& op) {
    std::vector<int64_t> pieces(op.rule->labels.size(), 1);
    std::vector<size_t> order;
    for (size_t label = 0; label < pieces.size(); ++label) order.push_back(label);
    draw_.Shuffle(order);
    int64_t left = ranks_per_stage_;
    for (const size_t label : order) {
      std::vector<int64_t> choices;
      for (int64_t p = 1; p <= left; ++p) {
        if (left % p == 0 && MaySplit(op, label, p)) choices.push_back(p);
      }
      if (!choices.empty()) pieces[label] = draw_.Of(choices);
      left /= pieces[label];
    }
    std::vector<std::string> forms = {left > 1 && left < ranks_per_stage_ ? "tuples with repeats" : "tuples"};
    const auto piece = [&](const DimRule& dim) { return dim.label < 0 ? 1 : pieces[static_cast<size_t>(dim.label)]; };
    OpSharding sharding;
    for (const OperandRule& operand : op.rule->inputs) {
      TensorSharding& tuple = sharding.inputs.emplace_back();
      for (const DimRule& dim : operand) tuple.pieces.push_back(piece(dim));
    }
    if (AsksForOutput(op)) {
      TensorSharding& output = sharding.output.emplace();
      for (const DimRule& dim : op.rule->outputs[0]) output.pieces.push_back(piece(dim));
      int64_t contracted = 1;
      for (size_t label = 0; label < pieces.size(); ++label) contracted *= Contracted(op, label) ? pieces[label] : 1;
      const bool scatter = draw_.Chance(60) && !output.pieces.empty() && Scatters(op, output.pieces[0], contracted);
      if (scatter) output.pieces[0] *= contracted;
      if (contracted > 1) {
        forms.push_back(scatter ? "tuples, out_strategy reduce_scatter" : "tuples, out_strategy all_reduce");
      }
    }
    return Resolved(op, sharding, std::move(forms));
  }

  // A device matrix of random factors of the ranks; each of its axes splits some label, or none.
  Said AsLayouts(const Op& op) {
    OpSharding sharding;
    for (int64_t left = ranks_per_stage_; left > 1 || sharding.axes.empty();) {
      int64_t factor = 1 + draw_.Below(left);
      while (left % factor != 0) ++factor;
      left /= factor;
      sharding.axes.push_back(absl::StrCat("a", sharding.axes.size()));
      sharding.device_matrix.push_back(factor);
    }
    std::vector<std::vector<std::string>> names(op.rule->labels.size());
    std::vector<int64_t> pieces(op.rule->labels.size(), 1);
    std::vector<size_t> order;
    for (size_t axis = 0; axis < sharding.axes.size(); ++axis) order.push_back(axis);
    draw_.Shuffle(order);
    std::vector<std::string> forms = {"layouts"};
    for (const size_t axis : order) {
      if (op.rule->labels.empty() || draw_.Chance(15)) continue;
      const auto label = static_cast<size_t>(draw_.Below(static_cast<int64_t>(names.size())));
      const int64_t wider = pieces[label] * sharding.device_matrix[axis];
      if (!MaySplit(op, label, wider)) continue;
      names[label].push_back(sharding.axes[axis]);
      pieces[label] = wider;
      if (names[label].size() > 1) forms.push_back("layouts, several axes on a dim");
    }
    const auto named = [&](const OperandRule& operand) {
      TensorSharding tensor;
      for (const DimRule& dim : operand) {
        tensor.dims.push_back(dim.label < 0 ? std::vector<std::string>() : names[static_cast<size_t>(dim.label)]);
      }
      return tensor;
    };
    for (const OperandRule& operand : op.rule->inputs) sharding.inputs.push_back(named(operand));
    if (AsksForOutput(op)) {
      sharding.output = named(op.rule->outputs[0]);
      std::vector<std::string> contracted;
      int64_t more = 1;
      for (size_t label = 0; label < names.size(); ++label) {
        if (!Contracted(op, label)) continue;
        contracted.insert(contracted.end(), names[label].begin(), names[label].end());
        more *= pieces[label];
      }
      const int first = op.rule->outputs[0].empty() ? -1 : op.rule->outputs[0][0].label;
      const int64_t rows = first < 0 ? 1 : pieces[static_cast<size_t>(first)];
      const bool scatter = draw_.Chance(60) && Scatters(op, rows, more);
      if (scatter) {
        std::vector<std::string>& dim = sharding.output->dims[0];
        dim.insert(dim.end(), contracted.begin(), contracted.end());
      }
      if (more > 1) {
        forms.push_back(scatter ? "layouts, out_strategy reduce_scatter" : "layouts, out_strategy all_reduce");
      }
    }
    return Resolved(op, sharding, std::move(forms));
  }

  // Parameters with several users lie as their first user wants them.
  void Remember(const Op& op, const Assignment& assignment) {
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (NumUsers(op.inputs[k]) > 1) layouts_.try_emplace(op.inputs[k], InputLayout(op.rule, assignment, k));
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
    Assignment assignment(op.rule->labels.size());
    AxisList used;
    const auto take = [&](size_t label, AxisId id) {
      AxisList wider = assignment[label];
      wider.push_back(id);
      const int index = static_cast<int>(label);
      if (!Free(id, used) || op.rule->labels[label].whole || !op.rule->InInputs(index)) return;
      if (!Divides(op, index, strategy_.mesh.SizeOf(wider))) return;
      assignment[label] = wider;
      used.push_back(id);
    };
    // As the parameter's earlier user has it, where that is possible.
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const auto known = layouts_.find(op.inputs[k]);
      if (known == layouts_.end()) continue;
      for (size_t d = 0; d < op.rule->inputs[k].size(); ++d) {
        const int label = op.rule->inputs[k][d].label;
        if (label < 0) continue;
        for (AxisId id : known->second.dims[d]) take(static_cast<size_t>(label), id);
      }
    }
    std::vector<size_t> order;
    for (size_t label = 0; label < op.rule->labels.size(); ++label) order.push_back(label);
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
        for (const DimRule& dim : graph_.ops[i].rule->inputs[k]) {
          if (dim.label >= 0) assignments_[i][dim.label].clear();
        }
      }
      return true;
    }
    return false;
  }

  // Some of the operators with strategies of their own run piece by piece (S6.14); often neighbours alike.
  void Interleave() {
    const int share = draw_pieces_.Of(std::vector<int>{0, 10, 40, 80});
    for (const Op& op : graph_.ops) {
      const auto own = strategy_.ops.find(op.name);
      if (own == strategy_.ops.end() || op.rule->labels.empty() || !draw_pieces_.Chance(share)) continue;
      const absl::StatusOr<Assignment> assignment = AssignmentOf(op, graph_, own->second, strategy_.mesh);
      if (!assignment.ok()) Fail(assignment.status());
      const auto label = static_cast<size_t>(draw_pieces_.Below(static_cast<int64_t>(op.rule->labels.size())));
      const auto num_axes = static_cast<int64_t>((*assignment)[label].size());
      OpStrategy in_pieces = own->second;
      in_pieces.interleaved = {op.rule->labels[label].name, draw_pieces_.Of(std::vector<int64_t>{2, 2, 2, 3}),
                               draw_pieces_.Chance(60) ? num_axes : draw_pieces_.Below(num_axes + 1)};
      if (!CheckInterleaving(op, graph_, in_pieces, strategy_.mesh).ok()) continue;
      own->second = std::move(in_pieces);
      forms_.insert("interleaved");
      if (own->second.interleaved->axes_before > 0) forms_.insert("interleaved behind axes");
      if (own->second.interleaved->axes_before < num_axes) forms_.insert("interleaved before axes");
    }
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
  Draw draw_again_, draw_pieces_;  // choices that came later, so that cases keep their seeds
  const Graph& graph_;
  const int64_t ranks_per_stage_;
  Strategy strategy_;
  std::vector<AxisId> axes_;
  std::vector<Assignment> assignments_;
  std::map<TensorId, Layout> layouts_;  // of parameters with several users
  std::map<size_t, Said> said_;         // by op
  std::set<std::string> forms_;
};

}  // namespace

RandomSplit RandomStrategy(uint64_t seed, const Graph& graph, int64_t stages, int64_t ranks_per_stage,
                           int64_t microbatches) {
  return StrategyMaker(seed, graph, stages, ranks_per_stage).Run(microbatches);
}

UpdateRule RandomOptimizer(uint64_t seed) {
  Draw draw(seed);
  UpdateRule rule;
  rule.kind = draw.Of(std::vector<OpKind>{OpKind::kSgd, OpKind::kMomentum, OpKind::kAdamW, OpKind::kLamb});
  const bool adaptive = rule.kind != OpKind::kSgd && rule.kind != OpKind::kMomentum;
  rule.attrs.learning_rate = adaptive ? 0.01 : 0.005;
  rule.attrs.beta1 = 0.75;
  rule.attrs.beta2 = 0.875;
  rule.attrs.weight_decay = adaptive ? 0.125 : 0;
  if (draw.Below(3) == 0) {
    OpAttrs& scaling = rule.loss_scale.emplace();
    scaling.scale = 1024;
    scaling.growth = 2;
    scaling.backoff = 0.5;
    scaling.interval = 1 + draw.Below(3);
  }
  if (draw.Below(4) == 0) {
    rule.kind = OpKind::kMuon;
    rule.attrs.learning_rate = 0.01;
    rule.attrs.weight_decay = 0.125;
    rule.others = rule.attrs;
  }
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
