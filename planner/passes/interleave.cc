#include "planner/passes/interleave.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/index_rule.h"
#include "ir/status.h"

namespace meshwright {
namespace {

constexpr absl::string_view kRest = "rest_of_block";  // labels of the dims that are cut
constexpr absl::string_view kPiece = "rest_of_piece";

// One way to hold a tensor in pieces along one of its dims.
struct Pieces {
  size_t dim = 0;
  int64_t count = 1;
  AxisList before;  // more significant than the pieces
  std::vector<TensorId> ids;

  bool SameWay(const Pieces& other) const { return dim == other.dim && count == other.count && before == other.before; }
};

// A tensor that exists in pieces only, so far.
struct Pending {
  Op op;  // as it was
  size_t output = 0;
  std::vector<AxisList> axes;  // of its dims, as each piece has them
  Pieces pieces;
};

class Interleaver {
 public:
  Interleaver(Graph graph, Strategy strategy) {
    result_.graph = std::move(graph);
    result_.strategy = std::move(strategy);
  }

  absl::StatusOr<InterleavedGraph> Run() {
    const bool any = absl::c_any_of(strategy().ops, [](const auto& op) { return op.second.interleaved.has_value(); });
    if (!any) return std::move(result_);
    before_ = std::move(graph().ops);
    graph().ops.clear();
    for (next_ = 0; next_ < before_.size(); ++next_) {
      const Op& op = before_[next_];
      if (op.segment != segment_) MESHWRIGHT_RETURN_IF_ERROR(EndSegment());
      segment_ = op.segment;
      MESHWRIGHT_RETURN_IF_ERROR(Visit(op));
    }
    MESHWRIGHT_RETURN_IF_ERROR(EndSegment());
    for (Tensor& tensor : graph().tensors) tensor.producer = OpId();
    for (size_t i = 0; i < graph().ops.size(); ++i) {
      for (TensorId id : graph().ops[i].outputs) At(id).producer = OpId(i);
    }
    return std::move(result_);
  }

 private:
  Graph& graph() { return result_.graph; }
  Strategy& strategy() { return result_.strategy; }
  Tensor& At(TensorId id) { return graph().tensors[id.index()]; }

  absl::Status Visit(const Op& op) {
    const auto found = strategy().ops.find(op.name);
    if (found == strategy().ops.end() || !found->second.interleaved.has_value()) {
      for (TensorId id : op.inputs) MESHWRIGHT_RETURN_IF_ERROR(MakeWhole(id));
      graph().ops.push_back(op);
      return absl::OkStatus();
    }
    MESHWRIGHT_RETURN_IF_ERROR(CheckInterleaving(op, graph(), found->second, strategy().mesh));
    MESHWRIGHT_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(op, graph(), found->second, strategy().mesh));
    OpStrategy own = std::move(found->second);
    strategy().ops.erase(found);
    const Interleaving pieces = *std::exchange(own.interleaved, std::nullopt);
    return Split(op, own, pieces, assignment);
  }

  // The op once for each piece.
  absl::Status Split(const Op& op, const OpStrategy& own, const Interleaving& pieces, const Assignment& assignment) {
    const int label = op.rule->FindLabel(pieces.label);
    const AxisList& axes = assignment[static_cast<size_t>(label)];
    const AxisList before(axes.begin(), axes.begin() + pieces.axes_before);
    std::vector<Op> copies(static_cast<size_t>(pieces.pieces), op);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int dim = DimOf(op.rule->inputs[i], label);
      if (dim < 0) {
        MESHWRIGHT_RETURN_IF_ERROR(MakeWhole(op.inputs[i]));
        continue;
      }
      const Pieces way{static_cast<size_t>(dim), pieces.pieces, before, {}};
      MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> ids, InPieces(op, i, way, own));
      for (size_t k = 0; k < copies.size(); ++k) copies[k].inputs[i] = ids[k];
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      Pieces way{static_cast<size_t>(DimOf(op.rule->outputs[o], label)), pieces.pieces, before, {}};
      for (size_t k = 0; k < copies.size(); ++k) {
        way.ids.push_back(NewTensor(op.outputs[o], absl::StrCat(At(op.outputs[o]).name, "/", k)));
        At(way.ids.back()).shape[way.dim] /= pieces.pieces;
        copies[k].outputs[o] = way.ids.back();
      }
      Layout layout = OutputLayout(op.rule, assignment, o, Reduction::kSum);
      if (o == 0 && own.output.has_value()) layout = *own.output;
      pieces_[op.outputs[o]].push_back(way);
      pending_[op.outputs[o]] = {op, o, std::vector<AxisList>(layout.dims.begin(), layout.dims.end()), way};
    }
    for (size_t k = 0; k < copies.size(); ++k) {
      copies[k].name = absl::StrCat(op.name, "/", k);
      strategy().ops[copies[k].name] = own;
      Push(op, std::move(copies[k]), true);
    }
    return absl::OkStatus();
  }

  static int DimOf(const OperandRule& operand, int label) {
    for (size_t d = 0; d < operand.size(); ++d) {
      if (operand[d].label == label) return static_cast<int>(d);
    }
    return -1;
  }

  TensorId NewTensor(TensorId like, std::string name) {
    Tensor tensor = At(like);
    tensor.name = std::move(name);
    tensor.kind = TensorKind::kValue;
    tensor.init = Initializer();
    tensor.padding = 0;
    tensor.segment = segment_;
    graph().tensors.push_back(std::move(tensor));
    return TensorId(graph().tensors.size() - 1);
  }

  // Adds an op that stands in the place of `of`: what is recomputed of one is of the other.
  void Push(const Op& of, Op op, bool is_piece) {
    if (strategy().recompute_ops.count(of.name) > 0) strategy().recompute_ops.insert(op.name);
    if (is_piece) result_.pieces.insert(op.name);
    graph().ops.push_back(std::move(op));
  }

  // A tensor's dims as text, with something else in place of one of them.
  static std::string Dims(const IndexRule& rule, const OperandRule& operand, size_t dim, absl::string_view instead) {
    std::vector<std::string> dims;
    for (size_t d = 0; d < operand.size(); ++d) {
      const DimRule& one = operand[d];
      if (d == dim) {
        dims.emplace_back(instead);
      } else if (one.label == DimRule::kUnsplit) {
        dims.emplace_back("1");
      } else {
        const Label& label = rule.labels[static_cast<size_t>(one.label)];
        dims.push_back(absl::StrCat(one.own_size ? "=" : "", label.name, label.whole ? "!" : ""));
      }
    }
    return absl::StrJoin(dims, " ");
  }

  // How one tensor of an op is cut and joined: its forms as text, and the axes of its labels. Where no axes stand
  // before the pieces there are no blocks, and the whole is cut as it is.
  struct Forms {
    std::string flat;                        // "m k": the whole, or a piece
    std::string whole_view, piece_view;      // "=m rest_of_block! k": their views as blocks
    std::string whole_blocks, piece_blocks;  // "m rest_of_block! k": the same, between operators that know only these
    std::map<std::string, AxisList> axes;
    int64_t num_blocks = 1;
  };
  Forms FormsOf(const Op& op, const OperandRule& operand, const Pieces& way, const std::vector<AxisList>& axes) const {
    const std::string& name = op.rule->labels[static_cast<size_t>(operand[way.dim].label)].name;
    Forms forms;
    forms.num_blocks = result_.strategy.mesh.SizeOf(way.before);
    const auto with = [&](absl::string_view instead) { return Dims(op.rule, operand, way.dim, instead); };
    const std::string block = forms.num_blocks == 1 ? "" : absl::StrCat(name, " ");
    forms.flat = with(name);
    forms.whole_view = with(absl::StrCat("=", block, kRest, "!"));
    forms.piece_view = with(absl::StrCat("=", block, kPiece, "!"));
    forms.whole_blocks = with(absl::StrCat(block, kRest, "!"));
    forms.piece_blocks = with(absl::StrCat(block, kPiece, "!"));
    for (size_t d = 0; d < operand.size(); ++d) {
      if (operand[d].label == DimRule::kUnsplit) continue;
      forms.axes[op.rule->labels[static_cast<size_t>(operand[d].label)].name] = d == way.dim ? way.before : axes[d];
    }
    return forms;
  }

  // The tensor (.., n, ..) viewed as (.., blocks, n / blocks, ..).
  Shape Blocked(Shape shape, size_t dim, int64_t blocks) {
    shape[dim] /= blocks;
    shape.insert(shape.begin() + static_cast<int64_t>(dim), blocks);
    return shape;
  }

  // The pieces of input `i` of the op, cut here unless they are there already.
  absl::StatusOr<std::vector<TensorId>> InPieces(const Op& op, size_t i, Pieces way, const OpStrategy& own) {
    const TensorId whole = op.inputs[i];
    for (const Pieces& known : pieces_[whole]) {
      if (known.SameWay(way)) return known.ids;
    }
    MESHWRIGHT_RETURN_IF_ERROR(MakeWhole(whole));
    const std::vector<AxisList> axes(own.inputs[i].dims.begin(), own.inputs[i].dims.end());
    const Forms forms = FormsOf(op, op.rule->inputs[i], way, axes);
    const std::string name = absl::StrCat(op.name, "/in", i);
    const bool blocked = forms.num_blocks > 1;
    TensorId from = whole;
    if (blocked) {
      const TensorId view = NewTensor(whole, absl::StrCat(name, "/blocks"));
      At(view).shape = Blocked(At(whole).shape, way.dim, forms.num_blocks);
      MESHWRIGHT_RETURN_IF_ERROR(Put(op, absl::StrCat(name, "/blocks"), OpKind::kReshape, {from}, {view},
                                     absl::StrCat(forms.flat, " -> ", forms.whole_view), forms.axes, false));
      from = view;
    }
    std::vector<TensorId> cut;
    for (int64_t k = 0; k < way.count; ++k) {
      cut.push_back(NewTensor(from, absl::StrCat(name, blocked ? "/cut/" : "/", k)));
      At(cut.back()).shape[way.dim + (blocked ? 1 : 0)] /= way.count;
    }
    const std::vector<std::string> all(cut.size(), forms.piece_blocks);
    MESHWRIGHT_RETURN_IF_ERROR(Put(op, absl::StrCat(name, "/cut"), OpKind::kSplit, {from}, cut,
                                   absl::StrCat(forms.whole_blocks, " -> ", absl::StrJoin(all, ", ")), forms.axes,
                                   true));
    for (size_t k = 0; k < cut.size() && blocked; ++k) {
      const std::string of_piece = absl::StrCat(name, "/", k);
      const TensorId view = NewTensor(whole, of_piece);
      At(view).shape[way.dim] /= way.count;
      MESHWRIGHT_RETURN_IF_ERROR(Put(op, of_piece, OpKind::kReshape, {cut[k]}, {view},
                                     absl::StrCat(forms.piece_view, " -> ", forms.flat), forms.axes, true));
      cut[k] = view;
    }
    way.ids = cut;
    pieces_[whole].push_back(std::move(way));
    return cut;
  }

  // Joins the pieces of a tensor that is needed whole.
  absl::Status MakeWhole(TensorId whole) {
    const auto found = pending_.find(whole);
    if (found == pending_.end()) return absl::OkStatus();
    const Pending pending = std::move(found->second);
    pending_.erase(found);
    const Pieces& way = pending.pieces;
    const OperandRule& operand = pending.op.rule->outputs[pending.output];
    const Forms forms = FormsOf(pending.op, operand, way, pending.axes);
    const std::string name = absl::StrCat(pending.op.name, "/out", pending.output);
    const bool blocked = forms.num_blocks > 1;
    std::vector<TensorId> parts = way.ids;
    for (size_t k = 0; k < parts.size() && blocked; ++k) {
      const std::string of_piece = absl::StrCat(name, "/", k);
      const TensorId view = NewTensor(whole, of_piece);
      At(view).shape = Blocked(At(parts[k]).shape, way.dim, forms.num_blocks);
      MESHWRIGHT_RETURN_IF_ERROR(Put(pending.op, of_piece, OpKind::kReshape, {parts[k]}, {view},
                                     absl::StrCat(forms.flat, " -> ", forms.piece_view), forms.axes, true));
      parts[k] = view;
    }
    TensorId joined = whole;
    if (blocked) {
      joined = NewTensor(whole, absl::StrCat(name, "/joined"));
      At(joined).shape = Blocked(At(whole).shape, way.dim, forms.num_blocks);
    }
    const std::vector<std::string> all(parts.size(), forms.piece_blocks);
    MESHWRIGHT_RETURN_IF_ERROR(Put(pending.op, absl::StrCat(name, "/joined"), OpKind::kConcat, parts, {joined},
                                   absl::StrCat(absl::StrJoin(all, ", "), " -> ", forms.whole_blocks), forms.axes,
                                   false));
    if (!blocked) return absl::OkStatus();
    return Put(pending.op, absl::StrCat(name, "/whole"), OpKind::kReshape, {joined}, {whole},
               absl::StrCat(forms.whole_view, " -> ", forms.flat), forms.axes, false);
  }

  // Adds an op with its strategy: labels have their axes by name, others are whole.
  absl::Status Put(const Op& of, std::string name, OpKind kind, std::vector<TensorId> inputs,
                   std::vector<TensorId> outputs, const std::string& rule, const std::map<std::string, AxisList>& axes,
                   bool is_piece) {
    Op op;
    op.name = std::move(name);
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.segment = of.segment;
    op.recompute_group = of.recompute_group;
    MESHWRIGHT_ASSIGN_OR_RETURN(op.rule, ParsedRule(rule));
    Assignment assignment(op.rule->labels.size());
    for (size_t label = 0; label < assignment.size(); ++label) {
      const auto found = axes.find(op.rule->labels[label].name);
      if (found != axes.end()) assignment[label] = found->second;
    }
    OpStrategy own;
    for (size_t i = 0; i < op.inputs.size(); ++i) own.inputs.push_back(InputLayout(op.rule, assignment, i));
    strategy().ops[op.name] = std::move(own);
    Push(of, std::move(op), is_piece);
    return absl::OkStatus();
  }

  // Between segments values are whole: a layer's carry, what one stage sends to another.
  absl::Status EndSegment() {
    std::vector<TensorId> open;
    for (const auto& [id, pending] : pending_) open.push_back(id);
    for (TensorId id : open) {
      if (IsReadLater(id)) MESHWRIGHT_RETURN_IF_ERROR(MakeWhole(id));
    }
    pending_.clear();
    pieces_.clear();
    return absl::OkStatus();
  }
  bool IsReadLater(TensorId id) const {
    for (size_t i = next_; i < before_.size(); ++i) {
      if (absl::c_linear_search(before_[i].inputs, id)) return true;
    }
    return absl::c_any_of(result_.graph.segments, [id](const Segment& segment) {
      return absl::c_any_of(segment.carries,
                            [id](const Carry& carry) { return carry.initial == id || carry.out == id; });
    });
  }

  InterleavedGraph result_;
  std::vector<Op> before_;
  size_t next_ = 0;  // of `before_`: what is visited
  SegmentId segment_;
  std::map<TensorId, std::vector<Pieces>> pieces_;  // these two of the current segment
  std::map<TensorId, Pending> pending_;
};

}  // namespace

absl::StatusOr<InterleavedGraph> Interleave(Graph graph, Strategy strategy) {
  return Interleaver(std::move(graph), std::move(strategy)).Run();
}

}  // namespace meshwright
