#include "planner/passes/separate_ranks.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/index_rule.h"
#include "ir/rows_label.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr absl::string_view kRanks = "ranks";  // the label of the new dim
constexpr absl::string_view kInside = "rows_of_rank";

absl::Status Unsupported(const Op& op, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("operator \"", op.name, "\": ", what));
}

class Separator {
 public:
  Separator(Graph graph, Strategy strategy) : graph_(std::move(graph)), strategy_(std::move(strategy)) {}

  absl::StatusOr<GraphAndStrategy> Run() {
    const bool any = !strategy_.own_parameters.empty() ||
                     absl::c_any_of(graph_.ops, [](const Op& op) { return op.own_batch != OwnBatch::kNo; });
    if (!any) return GraphAndStrategy{std::move(graph_), std::move(strategy_)};
    for (const Op& op : graph_.ops) {
      MESHWRIGHT_ASSIGN_OR_RETURN(Assignment assignment, AssignmentFor(op));
      assignments_.push_back(std::move(assignment));
    }
    MESHWRIGHT_RETURN_IF_ERROR(SeparateParameters());
    const std::vector<Op> before = std::move(graph_.ops);
    graph_.ops.clear();
    for (size_t i = 0; i < before.size(); ++i) MESHWRIGHT_RETURN_IF_ERROR(Visit(before[i], assignments_[i]));
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (TensorId id : graph_.ops[i].outputs) graph_.tensors[id.index()].producer = OpId(i);
    }
    strategy_.own_parameters.clear();
    return GraphAndStrategy{std::move(graph_), std::move(strategy_)};
  }

 private:
  int64_t NumRanks() const { return strategy_.mesh.num_ranks() / strategy_.stages; }
  Tensor& At(TensorId id) { return graph_.tensors[id.index()]; }

  absl::StatusOr<Assignment> AssignmentFor(const Op& op) const {
    const auto own = strategy_.ops.find(op.name);
    if (own != strategy_.ops.end()) return AssignmentOf(op, graph_, own->second, strategy_.mesh);
    return Assignment(op.rule->labels.size());
  }

  // Whose values count ranks along these axes.
  absl::Status SetAxes(const Op* op, const AxisList& axes) {
    if (axes_.empty()) axes_ = axes;
    if (axes_ == axes) return absl::OkStatus();
    return Unsupported(*op, "its batch is split over other ranks than that of another cross_batch operator");
  }

  absl::Status SeparateParameters() {
    if (strategy_.own_parameters.empty() || NumRanks() == 1) return absl::OkStatus();
    MESHWRIGHT_ASSIGN_OR_RETURN(const AxisList all, strategy_.mesh.Compose(NumRanks(), 1));
    MESHWRIGHT_RETURN_IF_ERROR(SetAxes(nullptr, all));
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      Tensor& tensor = graph_.tensors[i];
      if (tensor.kind != TensorKind::kParameter || strategy_.own_parameters.count(tensor.name) == 0) continue;
      if (graph_.segment(tensor.segment).repeat > 1) {
        return absl::UnimplementedError(
            absl::StrCat("parameter \"", tensor.name, "\" of a repeated layer cannot be every rank's own"));
      }
      tensor.init.by_rank = 1;
      Separate(TensorId(i));
    }
    return absl::OkStatus();
  }
  void Separate(TensorId id) {
    Shape& shape = At(id).shape;
    shape.insert(shape.begin(), strategy_.mesh.SizeOf(axes_));
    own_.insert(id);
  }

  // The label of the rows that a reduction adds up on each rank alone, or -1.
  int OwnRows(const Op& op, const Assignment& assignment) const {
    if (op.own_batch == OwnBatch::kNo) return -1;
    for (size_t label = 0; label < assignment.size(); ++label) {
      if (assignment[label].empty() || op.rule->InOutput(static_cast<int>(label), 0)) continue;
      const bool over_all = strategy_.mesh.SizeOf(assignment[label]) == NumRanks();
      if (op.own_batch == OwnBatch::kSum || over_all) return static_cast<int>(label);
    }
    return -1;
  }

  absl::Status Visit(const Op& before, Assignment assignment) {
    const int reduced = OwnRows(before, assignment);
    const bool reads_own = absl::c_any_of(before.inputs, [&](TensorId id) { return own_.count(id) > 0; });
    if (reduced < 0 && !reads_own) {
      graph_.ops.push_back(before);
      return absl::OkStatus();
    }
    if (reduced >= 0) MESHWRIGHT_RETURN_IF_ERROR(SetAxes(&before, assignment[reduced]));
    // An own value is whole on its rank: what would split it over the ranks leaves it as it is.
    for (size_t i = 0; i < before.inputs.size(); ++i) {
      if (own_.count(before.inputs[i]) == 0) continue;
      for (const DimRule& dim : before.rule->inputs[i]) {
        if (dim.label == DimRule::kUnsplit) continue;
        AxisList& axes = assignment[dim.label];
        if (absl::c_any_of(axes, [&](AxisId id) { return absl::c_linear_search(axes_, id); })) axes.clear();
      }
    }
    int rows = -1;  // the label of rows that lie on the ranks as their own values do
    for (size_t label = 0; label < assignment.size(); ++label) {
      if (assignment[label] == axes_) rows = static_cast<int>(label);
      for (AxisId id : assignment[label]) {
        if (assignment[label] != axes_ && absl::c_linear_search(axes_, id)) {
          return Unsupported(before, "it splits its dims over some of the ranks that hold values of their own");
        }
      }
    }
    const auto given = strategy_.ops.find(before.name);
    if (given != strategy_.ops.end() && given->second.output.has_value()) {
      return Unsupported(before, "an out_strategy does not go with values that ranks hold for themselves");
    }
    Op op = before;
    std::vector<std::string> inputs, outputs;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const bool own = own_.count(op.inputs[i]) > 0;
      const OperandRule& operand = before.rule->inputs[i];
      if (!own && DimOf(operand, rows) >= 0) {
        MESHWRIGHT_ASSIGN_OR_RETURN(op.inputs[i], Unfold(before, i, assignment, rows));
      }
      inputs.push_back(Text(before.rule, operand, rows, own));
    }
    std::vector<std::pair<TensorId, size_t>> folds;  // outputs with rows, to be made whole again
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId output = op.outputs[k];
      const OperandRule& operand = before.rule->outputs[k];
      const int dim = DimOf(operand, rows);
      bool own = false;
      if (dim >= 0) {
        op.outputs[k] = Unfolded(output, static_cast<size_t>(dim));
        folds.push_back({output, k});
      } else if (At(output).kind == TensorKind::kLoss) {
        if (rows < 0) op.attrs.scale /= static_cast<double>(strategy_.mesh.SizeOf(axes_));
      } else if (reduced >= 0 || rows < 0) {
        Separate(output);
        own = true;
      }
      outputs.push_back(Text(before.rule, operand, rows, own));
    }
    if (before.own_batch == OwnBatch::kMean && reduced >= 0) {
      op.attrs.scale *= static_cast<double>(strategy_.mesh.SizeOf(axes_));
    }
    op.own_batch = OwnBatch::kNo;
    MESHWRIGHT_RETURN_IF_ERROR(Put(std::move(op),
                                   absl::StrCat(absl::StrJoin(inputs, ", "), " -> ", absl::StrJoin(outputs, ", ")),
                                   before.rule, assignment, rows));
    for (const auto& [whole, k] : folds) MESHWRIGHT_RETURN_IF_ERROR(Fold(before, k, whole, assignment, rows));
    return absl::OkStatus();
  }

  static int DimOf(const OperandRule& operand, int label) {
    for (size_t d = 0; d < operand.size(); ++d) {
      if (label >= 0 && operand[d].label == label) return static_cast<int>(d);
    }
    return -1;
  }

  static std::string DimText(const IndexRule& rule, const DimRule& dim) {
    if (dim.label == DimRule::kUnsplit) return "1";
    const Label& label = rule.labels[dim.label];
    return absl::StrCat(dim.own_size ? "=" : "", label.name, label.whole ? "!" : "");
  }
  // The operand with the dim of ranks: in front of an own value, and of the rows within a rank.
  static std::string Text(const IndexRule& rule, const OperandRule& operand, int rows, bool own) {
    std::vector<std::string> dims;
    if (own) dims.emplace_back(kRanks);
    for (const DimRule& dim : operand) {
      if (dim.label == rows && rows >= 0) {
        dims.emplace_back(kRanks);
        const std::string& name = rule.labels[rows].name;
        dims.push_back(name == kRowsLabel ? name : std::string(kInside));
      } else {
        dims.push_back(DimText(rule, dim));
      }
    }
    return absl::StrJoin(dims, " ");
  }

  // A new tensor like `id` whose dim of rows is one of ranks and one of rows within a rank.
  TensorId Unfolded(TensorId id, size_t dim) {
    Tensor tensor = At(id);
    tensor.name = absl::StrCat(tensor.name, "/by_rank", graph_.tensors.size());
    tensor.kind = TensorKind::kValue;
    tensor.init = Initializer();
    const int64_t ranks = strategy_.mesh.SizeOf(axes_);
    tensor.shape[dim] /= ranks;
    tensor.shape.insert(tensor.shape.begin() + static_cast<int64_t>(dim), ranks);
    graph_.tensors.push_back(std::move(tensor));
    return TensorId(graph_.tensors.size() - 1);
  }

  // "m k -> =m rows_of_rank! k": a rank's rows are a block.
  static std::pair<std::string, std::string> Views(const IndexRule& rule, const OperandRule& operand, int rows) {
    std::vector<std::string> whole, split;
    for (const DimRule& dim : operand) {
      whole.push_back(DimText(rule, dim));
      if (dim.label == rows) {
        split.push_back(absl::StrCat("=", rule.labels[rows].name));
        split.push_back(absl::StrCat(kInside, "!"));
      } else {
        split.push_back(whole.back());
      }
    }
    return {absl::StrJoin(whole, " "), absl::StrJoin(split, " ")};
  }

  absl::StatusOr<TensorId> Unfold(const Op& of, size_t input, const Assignment& assignment, int rows) {
    const OperandRule& operand = of.rule->inputs[input];
    const auto [whole, split] = Views(of.rule, operand, rows);
    Op view;
    view.name = absl::StrCat(of.name, "/by_rank", input);
    view.kind = OpKind::kReshape;
    view.inputs = {of.inputs[input]};
    view.outputs = {Unfolded(of.inputs[input], static_cast<size_t>(DimOf(operand, rows)))};
    view.segment = of.segment;
    const TensorId result = view.outputs[0];
    MESHWRIGHT_RETURN_IF_ERROR(Put(std::move(view), absl::StrCat(whole, " -> ", split), of.rule, assignment, -1));
    return result;
  }

  absl::Status Fold(const Op& of, size_t output, TensorId whole_id, const Assignment& assignment, int rows) {
    const OperandRule& operand = of.rule->outputs[output];
    const auto [whole, split] = Views(of.rule, operand, rows);
    Op view;
    view.name = absl::StrCat(of.name, "/all_ranks", output);
    view.kind = OpKind::kReshape;
    view.inputs = {graph_.ops.back().outputs[output]};
    view.outputs = {whole_id};
    view.segment = of.segment;
    return Put(std::move(view), absl::StrCat(split, " -> ", whole), of.rule, assignment, -1);
  }

  // Adds the op with its rule and strategy: labels keep their axes by name, those of `rows` are now the ranks'.
  absl::Status Put(Op op, const std::string& text, const IndexRule& old, const Assignment& assignment, int rows) {
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(text));
    Assignment axes(op.rule->labels.size());
    for (size_t label = 0; label < axes.size(); ++label) {
      const std::string& name = op.rule->labels[label].name;
      if (name == kRanks) axes[label] = axes_;
      const int before = old.FindLabel(name);
      if (before >= 0 && before != rows) axes[label] = assignment[before];
    }
    OpStrategy strategy;
    for (size_t i = 0; i < op.inputs.size(); ++i) strategy.inputs.push_back(InputLayout(op.rule, axes, i));
    strategy_.ops[op.name] = std::move(strategy);
    graph_.ops.push_back(std::move(op));
    return absl::OkStatus();
  }

  Graph graph_;
  Strategy strategy_;
  std::vector<Assignment> assignments_;  // of the ops as they were
  AxisList axes_;                        // the ranks that are counted
  std::set<TensorId> own_;               // tensors with a dim of ranks in front
};

}  // namespace

absl::StatusOr<GraphAndStrategy> SeparateRanks(Graph graph, Strategy strategy) {
  return Separator(std::move(graph), std::move(strategy)).Run();
}

}  // namespace meshwright
