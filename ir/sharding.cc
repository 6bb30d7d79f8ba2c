#include "ir/sharding.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status OpError(const Op& op, absl::string_view what) {
  return LayoutError("operator \"", op.name, "\" (", NameOf(op.kind), "): ", what);
}

// A user's device matrix over the mesh: each named axis as the mesh axes that make it up. The axis of
// interleaved_parallel counts no devices.
class Matrix {
 public:
  static absl::StatusOr<Matrix> Make(const OpSharding& sharding, const Mesh& mesh, int64_t ranks) {
    Matrix matrix;
    const bool interleaved = !sharding.axes.empty() && sharding.axes.back() == kInterleavedAxis;
    const size_t num_axes = sharding.axes.size() - (interleaved ? 1 : 0);
    int64_t product = 1;
    for (size_t i = 0; i < num_axes && i < sharding.device_matrix.size(); ++i) product *= sharding.device_matrix[i];
    if (product != ranks || sharding.device_matrix.size() != sharding.axes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the device matrix (", absl::StrJoin(sharding.device_matrix, ", "), ") has ", product,
                       " devices", interleaved ? " but for interleaved_parallel" : "", ", a stage has ", ranks));
    }
    if (interleaved) matrix.pieces_ = sharding.device_matrix.back();
    int64_t stride = ranks;
    for (size_t i = 0; i < num_axes; ++i) {
      stride /= sharding.device_matrix[i];
      MESHWRIGHT_ASSIGN_OR_RETURN(matrix.axes_[sharding.axes[i]], mesh.Compose(sharding.device_matrix[i], stride));
    }
    return matrix;
  }

  int64_t pieces() const { return pieces_; }

  // Which dim of a tensor is interleaved, and how many mesh axes of it are more significant.
  using Place = std::optional<std::pair<size_t, size_t>>;

  absl::StatusOr<Layout> LayoutOf(const TensorSharding& tensor, Place& place) const {
    Layout layout;
    for (const std::vector<std::string>& names : tensor.dims) {
      AxisList axes;
      for (const std::string& name : names) {
        if (name == kInterleavedAxis && pieces_ > 0) {
          place = {layout.dims.size(), axes.size()};
          continue;
        }
        const auto found = axes_.find(name);
        if (found == axes_.end())
          return absl::InvalidArgumentError(absl::StrCat("no axis \"", name, "\" in the layout"));
        axes.insert(axes.end(), found->second.begin(), found->second.end());
      }
      layout.dims.push_back(std::move(axes));
    }
    return layout;
  }

 private:
  std::map<std::string, AxisList> axes_;
  int64_t pieces_ = 0;  // of interleaved_parallel; 0: there is no such axis
};

// S6.14: the label that the interleaved dims of the inputs have. All its dims must be interleaved, at the same place.
absl::StatusOr<std::optional<Interleaving>> InterleavingOf(const Op& op, const std::vector<Matrix::Place>& inputs,
                                                           int64_t pieces) {
  int label = DimRule::kUnsplit;
  size_t before = 0;
  for (size_t i = 0; i < inputs.size() && i < op.rule->inputs.size(); ++i) {
    if (!inputs[i].has_value() || inputs[i]->first >= op.rule->inputs[i].size()) continue;
    const int own = op.rule->inputs[i][inputs[i]->first].label;
    if (own == DimRule::kUnsplit) {
      return OpError(op, absl::StrCat("input ", i, " has size 1 in dim ", inputs[i]->first,
                                      " and cannot be split by interleaved_parallel"));
    }
    if (label != DimRule::kUnsplit && own != label) {
      return OpError(op, absl::StrCat("interleaved_parallel splits both \"", op.rule->labels[label].name, "\" and \"",
                                      op.rule->labels[own].name, "\""));
    }
    label = own;
    before = inputs[i]->second;
  }
  if (label == DimRule::kUnsplit || pieces == 1) return std::nullopt;
  for (size_t i = 0; i < inputs.size() && i < op.rule->inputs.size(); ++i) {
    for (size_t d = 0; d < op.rule->inputs[i].size(); ++d) {
      if (op.rule->inputs[i][d].label != label || inputs[i] == Matrix::Place({d, before})) continue;
      return OpError(op, absl::StrCat("\"", op.rule->labels[label].name,
                                      "\" must be split by interleaved_parallel at the same place in every input, in "
                                      "input ",
                                      i, " it is not"));
    }
  }
  return Interleaving{op.rule->labels[label].name, pieces, static_cast<int64_t>(before)};
}

// The out layout names the pieces where the output has them, and nowhere else.
absl::Status CheckOutputPlace(const Op& op, const std::optional<Interleaving>& pieces, const Matrix::Place& found) {
  const int label = pieces.has_value() ? op.rule->FindLabel(pieces->label) : DimRule::kUnsplit;
  Matrix::Place wanted;
  for (size_t d = 0; pieces.has_value() && d < op.rule->outputs[0].size(); ++d) {
    if (op.rule->outputs[0][d].label == label) wanted = {d, static_cast<size_t>(pieces->axes_before)};
  }
  if (found == wanted) return absl::OkStatus();
  return OpError(op, wanted.has_value() ? absl::StrCat("out_strategy must name interleaved_parallel in dim ",
                                                       wanted->first, ", behind the same axes as the inputs do")
                                        : "out_strategy names interleaved_parallel, which splits no input");
}

// S5.7 and S6.7: the output as inferred (all-reduce), or with the contracted axes appended to dim 0 (reduce-scatter).
absl::Status CheckOutput(const Op& op, const Graph& graph, const OpStrategy& strategy, const Layout& wanted,
                         const Mesh& mesh) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(op, graph, strategy, mesh));
  Layout inferred = OutputLayout(op.rule, assignment, 0, InfoOf(op.kind).reduction);
  const AxisList contracted = inferred.partial;
  inferred.partial.clear();
  const Shape& shape = graph.tensor(op.outputs[0]).shape;
  Layout scattered = inferred;
  if (!scattered.dims.empty()) scattered.dims[0].insert(scattered.dims[0].end(), contracted.begin(), contracted.end());
  if (wanted.dims.size() == shape.size() && (wanted == inferred || wanted == scattered)) return absl::OkStatus();
  return OpError(op, absl::StrCat("out_strategy ", ToText(wanted, mesh), " is neither ", ToText(inferred, mesh),
                                  " nor ", ToText(scattered, mesh)));
}

}  // namespace

absl::StatusOr<OpStrategy> Resolve(const OpSharding& sharding, const Op& op, const Graph& graph, const Mesh& mesh,
                                   int64_t ranks_per_stage) {
  OpStrategy strategy;
  const bool matrix_product = op.kind == OpKind::kMatMul && graph.tensor(op.outputs[0]).shape.size() == 2;
  if (sharding.output.has_value() && !matrix_product) {
    return OpError(op, "only a MatMul of two matrices takes an out_strategy");
  }
  if (!sharding.is_layout()) {
    std::vector<std::vector<int64_t>> tuples;
    for (const TensorSharding& tensor : sharding.inputs) tuples.push_back(tensor.pieces);
    MESHWRIGHT_ASSIGN_OR_RETURN(strategy, FromTuples(op, graph, tuples, mesh, ranks_per_stage));
    if (!sharding.output.has_value()) return strategy;
    // The output's pieces, in the two legal forms of S5.7.
    MESHWRIGHT_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(op, graph, strategy, mesh));
    Layout layout = OutputLayout(op.rule, assignment, 0, InfoOf(op.kind).reduction);
    const AxisList contracted = std::exchange(layout.partial, {});
    std::vector<int64_t> rows;
    if (!layout.dims.empty())
      rows = {mesh.SizeOf(layout.dims[0]), mesh.SizeOf(layout.dims[0]) * mesh.SizeOf(contracted)};
    const std::vector<int64_t>& asked = sharding.output->pieces;
    bool known = asked.size() == layout.dims.size();
    for (size_t d = 1; known && d < asked.size(); ++d) known = asked[d] == mesh.SizeOf(layout.dims[d]);
    if (!known || (asked[0] != rows[0] && asked[0] != rows[1])) {
      return OpError(op, absl::StrCat("out_strategy (", absl::StrJoin(asked, ", "), "): rows must be ",
                                      absl::StrJoin(rows, " or "), ", the other dims as inferred"));
    }
    if (asked[0] == rows[1]) layout.dims[0].insert(layout.dims[0].end(), contracted.begin(), contracted.end());
    strategy.output = std::move(layout);
    return strategy;
  }
  const absl::StatusOr<Matrix> matrix = Matrix::Make(sharding, mesh, ranks_per_stage);
  if (!matrix.ok()) return OpError(op, matrix.status().message());
  std::vector<Matrix::Place> places;
  for (const TensorSharding& tensor : sharding.inputs) {
    absl::StatusOr<Layout> layout = matrix->LayoutOf(tensor, places.emplace_back());
    if (!layout.ok()) return OpError(op, layout.status().message());
    strategy.inputs.push_back(*std::move(layout));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(strategy.interleaved, InterleavingOf(op, places, matrix->pieces()));
  MESHWRIGHT_RETURN_IF_ERROR(CheckInterleaving(op, graph, strategy, mesh));
  if (!sharding.output.has_value()) return strategy;
  Matrix::Place place;
  MESHWRIGHT_ASSIGN_OR_RETURN(Layout output, matrix->LayoutOf(*sharding.output, place));
  MESHWRIGHT_RETURN_IF_ERROR(CheckOutput(op, graph, strategy, output, mesh));
  // One piece is none, and may be named or not.
  if (matrix->pieces() > 1) MESHWRIGHT_RETURN_IF_ERROR(CheckOutputPlace(op, strategy.interleaved, place));
  strategy.output = std::move(output);
  return strategy;
}

absl::StatusOr<Layout> LayoutFromTuple(const std::vector<int64_t>& pieces, const Shape& shape, const Mesh& mesh,
                                       int64_t ranks_per_stage, bool repeat_first) {
  if (pieces.size() != shape.size()) {
    return LayoutError("(", absl::StrJoin(pieces, ", "), ") does not fit a tensor ", ToText(shape));
  }
  int64_t product = 1;
  for (int64_t p : pieces) product *= p;
  if (product < 1 || ranks_per_stage % product != 0) {
    return LayoutError("(", absl::StrJoin(pieces, ", "), ") needs ", product, " of ", ranks_per_stage,
                       " devices; the product must divide them");
  }
  Layout layout;
  int64_t stride = repeat_first ? product : ranks_per_stage;
  for (size_t d = 0; d < pieces.size(); ++d) {
    stride /= pieces[d];
    MESHWRIGHT_ASSIGN_OR_RETURN(AxisList axes, mesh.Compose(pieces[d], stride));
    layout.dims.push_back(std::move(axes));
  }
  MESHWRIGHT_RETURN_IF_ERROR(WithKind("E-LAYOUT", CheckLayout(shape, layout, mesh)));
  return layout;
}

}  // namespace meshwright
