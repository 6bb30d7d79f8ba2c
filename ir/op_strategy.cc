// Strategies of single ops: integer tuples to layouts (S5), layouts to label assignments (S5.4, S6.6).
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/strategy.h"

namespace meshwright {
namespace {

absl::Status OpError(const Op& op, absl::string_view what) {
  return LayoutError("operator \"", op.name, "\" (", NameOf(op.kind), "): ", what);
}

std::string TupleText(const std::vector<int64_t>& tuple) { return absl::StrCat("(", absl::StrJoin(tuple, ", "), ")"); }

// Shape and divisibility of one input's tuple (S5.2).
absl::Status CheckTuple(const Op& op, const Shape& shape, size_t input, const std::vector<int64_t>& tuple) {
  if (tuple.size() != shape.size()) {
    return OpError(op, absl::StrCat("strategy ", TupleText(tuple), " of input ", input, " has ", tuple.size(),
                                    " entries, the tensor ", ToText(shape), " has ", shape.size(), " dims"));
  }
  for (size_t d = 0; d < tuple.size(); ++d) {
    if (tuple[d] < 1) {
      return OpError(op, absl::StrCat("strategy ", TupleText(tuple), " of input ", input, ": found ", tuple[d],
                                      ", wanted pieces >= 1"));
    }
    if (shape[d] % tuple[d] != 0) {
      return OpError(op, absl::StrCat("strategy ", TupleText(tuple), " of input ", input, ": dim ", d, " is ", shape[d],
                                      ", not divisible by ", tuple[d]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<size_t> MatrixOrder(const IndexRule& rule) {
  std::vector<size_t> order;
  const auto add = [&](int label) {
    if (label == DimRule::kUnsplit) return;
    const auto index = static_cast<size_t>(label);
    if (std::find(order.begin(), order.end(), index) == order.end()) order.push_back(index);
  };
  const auto in = [](const OperandRule& operand, int label) {
    return std::any_of(operand.begin(), operand.end(), [label](const DimRule& dim) { return dim.label == label; });
  };
  std::vector<int> contracted;
  for (size_t label = 0; rule.inputs.size() > 1 && label < rule.labels.size(); ++label) {
    const int id = static_cast<int>(label);
    if (in(rule.inputs[0], id) && in(rule.inputs[1], id) && !in(rule.outputs[0], id)) contracted.push_back(id);
  }
  if (!contracted.empty()) {
    for (const DimRule& dim : rule.outputs[0]) {
      if (dim.label != DimRule::kUnsplit && in(rule.inputs[0], dim.label)) add(dim.label);
    }
    for (int label : contracted) add(label);
  }
  for (size_t label = 0; label < rule.labels.size(); ++label) add(static_cast<int>(label));
  return order;
}

absl::StatusOr<OpStrategy> FromTuples(const Op& op, const Graph& graph, const std::vector<std::vector<int64_t>>& tuples,
                                      const Mesh& mesh, int64_t ranks_per_stage) {
  if (tuples.size() != op.inputs.size()) {
    return OpError(
        op, absl::StrCat("the strategy has ", tuples.size(), " tuples, the operator ", op.inputs.size(), " inputs"));
  }
  std::vector<int64_t> pieces(op.rule->labels.size(), 0);
  for (size_t i = 0; i < tuples.size(); ++i) {
    MESHWRIGHT_RETURN_IF_ERROR(CheckTuple(op, graph.tensor(op.inputs[i]).shape, i, tuples[i]));
    for (size_t d = 0; d < tuples[i].size(); ++d) {
      const int label = op.rule->inputs[i][d].label;
      if (label == DimRule::kUnsplit) {
        if (tuples[i][d] == 1) continue;
        return OpError(op, absl::StrCat("input ", i, " has size 1 in dim ", d, " and cannot be split"));
      }
      if (pieces[label] != 0 && pieces[label] != tuples[i][d]) {
        const bool contracting = !op.rule->InOutput(label, 0);
        return OpError(op, absl::StrCat(contracting ? "the contracting dimension must be split equally: "
                                                    : "dims that belong together must be split equally: ",
                                        "found ", pieces[label], " and ", tuples[i][d], " pieces"));
      }
      pieces[label] = tuples[i][d];
      if (op.rule->labels[label].whole && tuples[i][d] != 1) {
        return OpError(op,
                       absl::StrCat("dim ", d, " of input ", i, " must stay whole, found ", tuples[i][d], " pieces"));
      }
    }
  }
  int64_t product = 1;
  for (int64_t& p : pieces) product *= p == 0 ? (p = 1) : p;
  if (product > ranks_per_stage || ranks_per_stage % product != 0) {
    return OpError(op, absl::StrCat("the strategy needs ", product, " of ", ranks_per_stage,
                                    " devices; the product must divide them"));
  }
  // The device matrix: one axis per label, the repeat axis last and fastest (S4.5).
  Assignment assignment(op.rule->labels.size());
  int64_t stride = ranks_per_stage;
  for (const size_t label : MatrixOrder(op.rule)) {
    stride /= pieces[label];
    MESHWRIGHT_ASSIGN_OR_RETURN(assignment[label], mesh.Compose(pieces[label], stride));
  }
  OpStrategy strategy;
  for (size_t i = 0; i < op.inputs.size(); ++i) strategy.inputs.push_back(InputLayout(op.rule, assignment, i));
  return strategy;
}

absl::StatusOr<Assignment> AssignmentOf(const Op& op, const Graph& graph, const OpStrategy& strategy,
                                        const Mesh& mesh) {
  if (strategy.inputs.size() != op.inputs.size()) {
    return OpError(op, absl::StrCat("the strategy has ", strategy.inputs.size(), " layouts, the operator ",
                                    op.inputs.size(), " inputs"));
  }
  Assignment assignment(op.rule->labels.size());
  std::vector<bool> set(op.rule->labels.size(), false);
  for (size_t i = 0; i < strategy.inputs.size(); ++i) {
    const Layout& layout = strategy.inputs[i];
    const absl::Status fits = CheckLayout(graph.tensor(op.inputs[i]).shape, layout, mesh);
    if (!fits.ok()) return OpError(op, absl::StrCat("input ", i, ": ", fits.message()));
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      const int label = op.rule->inputs[i][d].label;
      if (label == DimRule::kUnsplit || layout.dims[d].empty()) {
        if (label != DimRule::kUnsplit && set[label] && !assignment[label].empty()) {
          return OpError(
              op, absl::StrCat("\"", op.rule->labels[label].name, "\" is split in one input and whole in input ", i,
                               "; the contracting dimension must be split equally"));
        }
        if (label != DimRule::kUnsplit) set[label] = true;
        if (label == DimRule::kUnsplit && mesh.SizeOf(layout.dims[d]) > 1) {
          return OpError(op, absl::StrCat("input ", i, " has size 1 in dim ", d, " and cannot be split"));
        }
        continue;
      }
      if (op.rule->labels[label].whole && mesh.SizeOf(layout.dims[d]) > 1) {
        return OpError(op, absl::StrCat("dim ", d, " of input ", i, " must stay whole"));
      }
      if (set[label] && assignment[label] != layout.dims[d]) {
        return OpError(
            op,
            absl::StrCat("the contracting dimension must be split equally, over the same axes in the same order: \"",
                         op.rule->labels[label].name, "\" differs in input ", i));
      }
      assignment[label] = layout.dims[d];
      set[label] = true;
    }
  }
  // No axis may split two labels of one op: a rank would lack pieces.
  for (size_t a = 0; a < assignment.size(); ++a) {
    for (size_t b = a + 1; b < assignment.size(); ++b) {
      for (AxisId x : assignment[a]) {
        for (AxisId y : assignment[b]) {
          if (mesh.Orthogonal(x, y)) continue;
          return OpError(op, absl::StrCat("axis ", mesh.axis(x).name, " splits both \"", op.rule->labels[a].name,
                                          "\" and \"", op.rule->labels[b].name, "\""));
        }
      }
    }
  }
  return assignment;
}

namespace {

bool HasLabel(const OperandRule& operand, int label) {
  return std::any_of(operand.begin(), operand.end(), [label](const DimRule& dim) { return dim.label == label; });
}

// Each dim of the label is as many equal pieces on every rank, in order.
absl::Status CheckPieces(const Op& op, const Graph& graph, int label, const AxisList& axes, const Interleaving& pieces,
                         const Mesh& mesh) {
  const int64_t all = mesh.SizeOf(axes) * pieces.pieces;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& tensor = graph.tensor(op.inputs[i]);
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      const DimRule& dim = op.rule->inputs[i][d];
      if (dim.label != label) continue;
      if (dim.own_size) return OpError(op, absl::StrCat("dim ", d, " of input ", i, " has a size of its own"));
      if (tensor.shape[d] % all != 0) {
        return OpError(op, absl::StrCat("interleaved_parallel: dim ", d, " of input ", i, " is ", tensor.shape[d],
                                        ", which ", all, " pieces do not divide"));
      }
      const bool last = mesh.SizeOf(AxisList(axes.begin() + pieces.axes_before, axes.end())) == 1;
      if (tensor.kind == TensorKind::kParameter && !last) {
        return OpError(op,
                       absl::StrCat("interleaved_parallel stands before other axes in dim ", d, " of the parameter \"",
                                    tensor.name, "\", so that a rank would hold no block of it; put it last"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInterleaving(const Op& op, const Graph& graph, const OpStrategy& strategy, const Mesh& mesh) {
  if (!strategy.interleaved.has_value()) return absl::OkStatus();
  const Interleaving& pieces = *strategy.interleaved;
  const int label = op.rule->FindLabel(pieces.label);
  if (label < 0 || !op.rule->InInputs(label)) {
    return OpError(op, absl::StrCat("interleaved: no input has the label \"", pieces.label, "\""));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(op, graph, strategy, mesh));
  const AxisList& axes = assignment[static_cast<size_t>(label)];
  if (pieces.pieces < 1 || pieces.axes_before < 0 || pieces.axes_before > static_cast<int64_t>(axes.size())) {
    return OpError(op, absl::StrCat("interleaved: found ", pieces.pieces, " pieces behind ", pieces.axes_before,
                                    " axes, wanted at least 1, behind at most the ", axes.size(), " of the label"));
  }
  if (op.rule->labels[static_cast<size_t>(label)].whole) {
    return OpError(op, absl::StrCat("interleaved_parallel splits \"", pieces.label, "\", which must stay whole"));
  }
  for (const OperandRule& output : op.rule->outputs) {
    if (HasLabel(output, label)) continue;
    return OpError(op, absl::StrCat("interleaved_parallel splits \"", pieces.label,
                                    "\", which is reduced: the pieces' results would be summands, not parts"));
  }
  const bool reads_values = std::any_of(op.inputs.begin(), op.inputs.end(),
                                        [&](TensorId id) { return InfoOf(graph.tensor(id).dtype).floating; });
  if (!InfoOf(op.kind).differentiable && reads_values) {
    return OpError(op, "interleaved_parallel: it is a step of a larger operator, which alone has a gradient");
  }
  // Of experts and their groups, which ones a rank has.
  const bool experts = (op.kind == OpKind::kDispatch && op.rule->outputs[0][0].label == label) ||
                       (op.kind == OpKind::kCombine && op.rule->inputs[0][0].label == label);
  if (UsesPlace(op.kind) || experts) {
    return OpError(op, "interleaved_parallel: its kernel looks at places in the whole, which a piece does not know");
  }
  if (op.own_batch != OwnBatch::kNo) return OpError(op, "interleaved_parallel does not go with cross_batch");
  MESHWRIGHT_RETURN_IF_ERROR(CheckPieces(op, graph, label, axes, pieces, mesh));
  if (!strategy.output.has_value()) return absl::OkStatus();
  // Of a piece of the output a rank may have less than of one of the inputs.
  const Shape& shape = graph.tensor(op.outputs[0]).shape;
  for (size_t d = 0; d < shape.size() && d < strategy.output->dims.size(); ++d) {
    const int64_t all = mesh.SizeOf(strategy.output->dims[d]) * pieces.pieces;
    if (op.rule->outputs[0][d].label != label || shape[d] % all == 0) continue;
    return OpError(op, absl::StrCat("interleaved_parallel: dim ", d, " of the output is ", shape[d], ", which ", all,
                                    " pieces do not divide"));
  }
  return absl::OkStatus();
}

}  // namespace meshwright
