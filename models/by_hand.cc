#include "models/by_hand.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/error_kind.h"
#include "ir/index_rule.h"
#include "ir/status.h"

namespace meshwright {
namespace {

using OpSpec = GraphBuilder::OpSpec;

// "d1 d2 " for dims [begin, end).
std::string Dims(size_t begin, size_t end) {
  std::string text;
  for (size_t d = begin; d < end; ++d) absl::StrAppend(&text, "d", d, " ");
  return text;
}

Shape InFront(int64_t extent, const Shape& shape) {
  Shape result = {extent};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

}  // namespace

Shape RankGraph::ShapeOf(TensorId id) const {
  const Shape& shape = builder_.graph().tensor(id).shape;
  return IsOwn(id) ? Shape(shape.begin() + 1, shape.end()) : shape;
}

TensorId RankGraph::OwnParameter(std::string name, DType dtype, Shape shape, Initializer init, bool trainable) {
  init.copies = ranks_;
  const TensorId id = builder_.Parameter(std::move(name), dtype, InFront(ranks_, shape), init, trainable);
  own_.insert(id);
  return id;
}

absl::StatusOr<TensorId> RankGraph::AddOwn(OpSpec spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId id, builder_.AddOne(std::move(spec)));
  own_.insert(id);
  return id;
}

absl::StatusOr<TensorId> RankGraph::Own(TensorId id) {
  if (IsOwn(id)) return id;
  if (const auto made = made_own_.find(id); made != made_own_.end()) return made->second;
  const Tensor tensor = builder_.graph().tensor(id);
  const std::string dims = Dims(0, tensor.shape.size());
  OpSpec spec{.name = absl::StrCat(tensor.name, "/own"), .kind = OpKind::kBroadcast, .inputs = {id}};
  spec.rule = absl::StrCat(dims, "-> ", kRankLabel, " ", dims);
  spec.output_shapes = {InFront(ranks_, tensor.shape)};
  spec.output_dtypes = {tensor.dtype};
  MESHWRIGHT_ASSIGN_OR_RETURN(made_own_[id], AddOwn(std::move(spec)));
  return made_own_[id];
}

absl::StatusOr<std::vector<TensorId>> RankGraph::Add(OpSpec spec) {
  std::vector<Shape> shapes;
  bool own = false;
  for (TensorId id : spec.inputs) {
    shapes.push_back(ShapeOf(id));
    own |= IsOwn(id);
  }
  if (!own) return builder_.Add(std::move(spec));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      IndexRule rule, spec.rule.empty() ? InstantiateRule(InfoOf(spec.kind).rule, shapes) : ParseRule(spec.rule));
  if (rule.inputs.size() != spec.inputs.size()) rule.inputs.resize(spec.inputs.size());
  MESHWRIGHT_RETURN_IF_ERROR(LabelExtents(rule, shapes, {}).status());  // says it of what the user sees
  const DimRule rank{static_cast<int8_t>(rule.labels.size()), false};
  rule.labels.push_back({std::string(kRankLabel), false});
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (IsOwn(spec.inputs[i])) rule.inputs[i].insert(rule.inputs[i].begin(), rank);
  }
  for (OperandRule& output : rule.outputs) output.insert(output.begin(), rank);
  for (Shape& shape : spec.output_shapes) shape = InFront(ranks_, shape);
  spec.rule = ToText(rule);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, builder_.Add(std::move(spec)));
  own_.insert(outputs.begin(), outputs.end());
  return outputs;
}

absl::StatusOr<TensorId> RankGraph::ReduceOverRanks(const std::string& name, TensorId x, OpKind reduction) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const std::string dims = Dims(0, ShapeOf(x).size());
  OpSpec sum{.name = name, .kind = reduction, .inputs = {x}};
  sum.rule = absl::StrCat(kRankLabel, " ", dims, "-> ", dims);
  return builder_.AddOne(std::move(sum));
}

absl::StatusOr<TensorId> RankGraph::AllReduce(const std::string& name, TensorId x, OpKind reduction) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId reduced, ReduceOverRanks(name, x, reduction));
  return Own(reduced);
}

absl::StatusOr<TensorId> RankGraph::AllGather(const std::string& name, TensorId x) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  Shape shape = ShapeOf(x);
  if (shape.empty()) return ValueError("AllGather of a scalar; wants at least one dim");
  const std::string rest = Dims(1, shape.size());
  OpSpec rows{.name = name, .kind = OpKind::kReshape, .inputs = {x}};
  rows.rule = absl::StrCat(kRankLabel, " d0! ", rest, "-> =", kRankLabel, " ", rest);
  shape[0] *= ranks_;
  rows.output_shapes = {shape};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId beside, builder_.AddOne(std::move(rows)));
  return Own(beside);
}

absl::StatusOr<TensorId> RankGraph::ReduceScatter(const std::string& name, TensorId x) {
  Shape shape = ShapeOf(x);
  if (shape.empty()) return ValueError("ReduceScatter of a scalar; wants at least one dim");
  if (shape[0] % ranks_ != 0) {
    return ValueError("ReduceScatter: dim 0 of ", ToText(shape), " is ", shape[0], ", which ", ranks_,
                      " ranks do not divide");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sum, ReduceOverRanks(absl::StrCat(name, "/sum"), x, OpKind::kReduceSum));
  const std::string rest = Dims(1, shape.size());
  OpSpec cut{.name = name, .kind = OpKind::kReshape, .inputs = {sum}};
  cut.rule = absl::StrCat("=", kRankLabel, " ", rest, "-> ", kRankLabel, " d0! ", rest);
  shape[0] /= ranks_;
  cut.output_shapes = {InFront(ranks_, shape)};
  return AddOwn(std::move(cut));
}

absl::StatusOr<TensorId> RankGraph::Broadcast(const std::string& name, TensorId x, int64_t root) {
  if (root < 0 || root >= ranks_) {
    return ValueError("Broadcast: the root is rank ", root, "; there are ranks 0 to ", ranks_ - 1);
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const std::string dims = Dims(0, ShapeOf(x).size());
  Initializer number;
  number.value = static_cast<double>(root);
  OpSpec pick{.name = name, .kind = OpKind::kGather, .inputs = {x}};
  pick.inputs.push_back(builder_.Input(absl::StrCat(name, "/root"), DType::kInt32, {}, number));
  pick.rule = absl::StrCat(kRankLabel, " ", dims, ", -> ", dims);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId picked, builder_.AddOne(std::move(pick)));
  return Own(picked);
}

absl::StatusOr<TensorId> RankGraph::AlltoAll(const std::string& name, TensorId x, size_t split_dim, size_t concat_dim) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const Shape shape = ShapeOf(x);
  const size_t dims = shape.size();
  if (split_dim >= dims || concat_dim >= dims) {
    return ValueError("AlltoAll: split_dim ", split_dim, ", concat_dim ", concat_dim, "; the tensor has ", dims,
                      " dims");
  }
  if (shape[split_dim] % ranks_ != 0) {
    return ValueError("AlltoAll: split_dim ", split_dim, " of ", ToText(shape), " is ", shape[split_dim], ", which ",
                      ranks_, " ranks do not divide");
  }
  // The dim in pieces: (.., pieces, rest, ..).
  OpSpec split{.name = absl::StrCat(name, "/pieces"), .kind = OpKind::kReshape, .inputs = {x}};
  split.rule = absl::StrCat(kRankLabel, " ", Dims(0, split_dim), "all! ", Dims(split_dim + 1, dims), "-> ", kRankLabel,
                            " ", Dims(0, split_dim), "to! d", split_dim, "! ", Dims(split_dim + 1, dims));
  Shape pieces = shape;
  pieces[split_dim] /= ranks_;
  Shape in_pieces = pieces;
  in_pieces.insert(in_pieces.begin() + static_cast<int64_t>(split_dim), ranks_);
  split.output_shapes = {InFront(ranks_, in_pieces)};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId as_pieces, builder_.AddOne(std::move(split)));
  // Piece p of each rank goes to rank p: what was "rank" is now a dim of its own, before the one to put together.
  OpSpec move{.name = absl::StrCat(name, "/moved"), .kind = OpKind::kTranspose, .inputs = {as_pieces}};
  move.rule = absl::StrCat("from ", Dims(0, split_dim), kRankLabel, " ", Dims(split_dim, dims), "-> ", kRankLabel, " ",
                           Dims(0, concat_dim), "from ", Dims(concat_dim, dims));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId moved, builder_.AddOne(std::move(move)));
  OpSpec join{.name = name, .kind = OpKind::kReshape, .inputs = {moved}};
  join.rule =
      absl::StrCat(kRankLabel, " ", Dims(0, concat_dim), "from! d", concat_dim, "! ", Dims(concat_dim + 1, dims), "-> ",
                   kRankLabel, " ", Dims(0, concat_dim), "all! ", Dims(concat_dim + 1, dims));
  pieces[concat_dim] *= ranks_;
  join.output_shapes = {InFront(ranks_, pieces)};
  return AddOwn(std::move(join));
}

absl::StatusOr<TensorId> RankGraph::RankSlice(const std::string& name, TensorId x) {
  const Shape shape = ShapeOf(x);
  if (shape.empty()) return ValueError("RankSlice of a scalar; wants rows");
  const int64_t rows = shape[0] / ranks_;
  if (rows < 1) {
    return ValueError("a batch of ", shape[0], " rows on ", ranks_, " ranks leaves none for each; wants at least ",
                      ranks_, " rows");
  }
  if (rows * ranks_ < shape[0]) {
    warnings_.push_back(absl::StrCat(name, ": a batch of ", shape[0], " rows on ", ranks_, " ranks: each gets ", rows,
                                     ", rows ", rows * ranks_, " to ", shape[0] - 1, " are dropped"));
  }
  // Row j of rank r is row r q + j.
  Initializer numbers;
  numbers.kind = Initializer::Kind::kFormula;
  numbers.a = rows;
  numbers.b = 1;
  numbers.modulus = int64_t{1} << 31;
  const std::string rest = Dims(1, shape.size());
  OpSpec pick{.name = name, .kind = OpKind::kGather, .inputs = {x}};
  pick.inputs.push_back(builder_.Input(absl::StrCat(name, "/rows"), DType::kInt32, {ranks_, rows}, numbers));
  pick.rule = absl::StrCat(IsOwn(x) ? absl::StrCat(kRankLabel, " ") : "", "d0! ", rest, ", ", kRankLabel, " q -> ",
                           kRankLabel, " q ", rest);
  pick.output_dtypes = {builder_.graph().tensor(x).dtype};
  return AddOwn(std::move(pick));
}

}  // namespace meshwright
