#include "models/by_hand.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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

// "from0! from1! " or without marks.
std::string Several(absl::string_view name, size_t count, absl::string_view mark) {
  std::string text;
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&text, name, i, mark, " ");
  return text;
}

Shape Joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string ShowRanks(const std::vector<int64_t>& ranks) { return absl::StrCat("[", absl::StrJoin(ranks, ", "), "]"); }

}  // namespace

absl::StatusOr<GroupAxis> GroupAxisOf(const std::vector<std::vector<int64_t>>& groups, int64_t ranks) {
  std::vector<bool> listed(static_cast<size_t>(ranks), false);
  for (const std::vector<int64_t>& group : groups) {
    if (group.empty()) return ValueError("a group of no ranks");
    for (const int64_t rank : group) {
      if (rank < 0 || rank >= ranks) return ValueError("there is no rank ", rank, " in a job of ", ranks);
      if (listed[static_cast<size_t>(rank)]) return ValueError("rank ", rank, " is there twice");
      listed[static_cast<size_t>(rank)] = true;
    }
  }
  const auto missing = std::find(listed.begin(), listed.end(), false);
  if (missing != listed.end()) {
    return ValueError("rank ", missing - listed.begin(), " of ", ranks, " is in no group; all ranks run one program");
  }
  GroupAxis axis{static_cast<int64_t>(groups[0].size()), 1};
  if (axis.size > 1) axis.stride = groups[0][1] - groups[0][0];
  for (const std::vector<int64_t>& group : groups) {
    bool even = axis.stride > 0 && static_cast<int64_t>(group.size()) == axis.size;
    even = even && group[0] / axis.stride % axis.size == 0;
    for (size_t i = 1; even && i < group.size(); ++i) even = group[i] == group[i - 1] + axis.stride;
    if (even) continue;
    return ValueError(ShowRanks(group), " beside ", ShowRanks(groups[0]),
                      "; wants groups of one size, ranks in ascending order and evenly apart, as along the axis of a "
                      "mesh");
  }
  return axis;
}

absl::StatusOr<Shape> RankDimsFor(absl::Span<const GroupAxis> groups, int64_t ranks) {
  std::set<int64_t> cuts = {1, ranks};  // distances at which a dim ends
  for (const GroupAxis& group : groups) {
    cuts.insert(group.stride);
    cuts.insert(group.stride * group.size);
  }
  Shape dims;
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
    if (*std::next(at) % *at != 0) {
      return absl::UnimplementedError(absl::StrCat("groups that begin at distances of ", *at, " and ", *std::next(at),
                                                   " ranks lie across each other; use such as divide each other"));
    }
    dims.insert(dims.begin(), *std::next(at) / *at);
  }
  if (dims.empty()) dims.push_back(1);
  return dims;
}

RankGraph::Group RankGraph::GroupOf(const GroupAxis& axis) const {
  Group group{rank_dims_.size(), rank_dims_.size()};
  for (int64_t at = 1; at < axis.stride; at *= rank_dims_[group.end]) --group.begin, --group.end;
  for (int64_t size = 1; size < axis.size; size *= rank_dims_[group.begin]) --group.begin;
  return group;
}

int64_t RankGraph::SizeOf(const Group& group) const {
  return NumElements(Shape(rank_dims_.begin() + group.begin, rank_dims_.begin() + group.end));
}

// The labels of rank dims, "rank " or "rank0 rank1 ".
std::string RankGraph::Ranks(size_t begin, size_t end) const {
  if (rank_dims_.size() == 1) return begin < end ? "rank " : "";
  return begin < end ? absl::StrCat("rank", begin, " ", Ranks(begin + 1, end)) : "";
}

std::string RankGraph::Others(const Group& group) const {
  return absl::StrCat(Ranks(0, group.begin), Ranks(group.end, rank_dims_.size()));
}

Shape RankGraph::InFront(const Shape& shape) const { return Joined(rank_dims_, shape); }

Shape RankGraph::ShapeOf(TensorId id) const {
  const Shape& shape = builder_.graph().tensor(id).shape;
  return IsOwn(id) ? Shape(shape.begin() + rank_dims_.size(), shape.end()) : shape;
}

TensorId RankGraph::OwnParameter(std::string name, DType dtype, Shape shape, Initializer init, bool trainable) {
  init.by_rank = static_cast<int64_t>(rank_dims_.size());
  const TensorId id = builder_.Parameter(std::move(name), dtype, InFront(shape), init, trainable);
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
  MESHWRIGHT_ASSIGN_OR_RETURN(made_own_[id], ToAll(id, World()));
  return made_own_[id];
}

// What the ranks of a group have in common (dims: the other rank dims, then the value's) as each rank's own.
absl::StatusOr<TensorId> RankGraph::ToAll(TensorId x, const Group& group) {
  const Tensor tensor = builder_.graph().tensor(x);
  const size_t others = rank_dims_.size() - (group.end - group.begin);
  const Shape shape(tensor.shape.begin() + others, tensor.shape.end());
  const std::string dims = Dims(0, shape.size());
  OpSpec spec{.name = absl::StrCat(tensor.name, "/own"), .kind = OpKind::kBroadcast, .inputs = {x}};
  spec.rule = absl::StrCat(Others(group), dims, "-> ", Ranks(0, rank_dims_.size()), dims);
  spec.output_shapes = {InFront(shape)};
  spec.output_dtypes = {tensor.dtype};
  return AddOwn(std::move(spec));
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
  const std::string names = Ranks(0, rank_dims_.size());
  std::vector<DimRule> ranks;
  for (const absl::string_view name : absl::StrSplit(names, ' ', absl::SkipEmpty())) {
    ranks.push_back({static_cast<int8_t>(rule.labels.size()), false});
    rule.labels.push_back({std::string(name), false});
  }
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (IsOwn(spec.inputs[i])) rule.inputs[i].insert(rule.inputs[i].begin(), ranks.begin(), ranks.end());
  }
  for (OperandRule& output : rule.outputs) output.insert(output.begin(), ranks.begin(), ranks.end());
  for (Shape& shape : spec.output_shapes) shape = InFront(shape);
  // Numbers for each dim, of a StridedSlice: ranks are taken whole.
  const auto front = static_cast<std::ptrdiff_t>(rank_dims_.size());
  for (auto [numbers, whole] : {std::pair(&spec.attrs.begin, 0), std::pair(&spec.attrs.strides, 1)}) {
    if (!numbers->empty()) numbers->insert(numbers->begin(), static_cast<size_t>(front), whole);
  }
  spec.rule = ToText(rule);
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, builder_.Add(std::move(spec)));
  own_.insert(outputs.begin(), outputs.end());
  return outputs;
}

absl::StatusOr<TensorId> RankGraph::ReduceOver(const std::string& name, TensorId x, OpKind reduction,
                                               const Group& group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const std::string dims = Dims(0, ShapeOf(x).size());
  OpSpec sum{.name = name, .kind = reduction, .inputs = {x}};
  sum.rule = absl::StrCat(Ranks(0, rank_dims_.size()), dims, "-> ", Others(group), dims);
  return builder_.AddOne(std::move(sum));
}

absl::StatusOr<TensorId> RankGraph::AllReduce(const std::string& name, TensorId x, Reduction reduction,
                                              const Group& group) {
  OpKind kind = OpKind::kReduceSum;
  switch (reduction) {
    case Reduction::kProd:
      return Product(name, x, group);
    case Reduction::kMax:
      kind = OpKind::kReduceMax;
      break;
    case Reduction::kMin:
      kind = OpKind::kReduceMin;
      break;
    case Reduction::kSum:
      break;
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId reduced, ReduceOver(name, x, kind, group));
  const bool world = SizeOf(group) == ranks();
  return world ? Own(reduced) : ToAll(reduced, group);
}

// The own value with the group's dims behind the other ranks', so that its members stand beside each other.
absl::StatusOr<TensorId> RankGraph::GroupLast(const std::string& name, TensorId x, const Group& group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  if (group.end == rank_dims_.size()) return x;
  const std::string dims = Dims(0, ShapeOf(x).size());
  OpSpec turn{.name = absl::StrCat(name, "/group_last"), .kind = OpKind::kTranspose, .inputs = {x}};
  turn.rule =
      absl::StrCat(Ranks(0, rank_dims_.size()), dims, "-> ", Others(group), Ranks(group.begin, group.end), dims);
  return builder_.AddOne(std::move(turn));
}

// Every rank gathers the values and multiplies them: unlike y / x, the derivative of that is right where x is 0.
absl::StatusOr<TensorId> RankGraph::Product(const std::string& name, TensorId x, const Group& group) {
  const size_t members = group.end - group.begin;
  const Shape own = ShapeOf(x);
  const std::string dims = Dims(0, own.size()), others = Others(group);
  Shape other_dims(rank_dims_.begin(), rank_dims_.begin() + group.begin);
  other_dims.insert(other_dims.end(), rank_dims_.begin() + group.end, rank_dims_.end());
  MESHWRIGHT_ASSIGN_OR_RETURN(x, GroupLast(name, x, group));
  OpSpec rows{.name = absl::StrCat(name, "/all"), .kind = OpKind::kReshape, .inputs = {x}};
  rows.rule = absl::StrCat(others, Several("from", members, "!"), dims, "-> ", others, "all! ", dims);
  rows.output_shapes = {Joined(Joined(other_dims, {SizeOf(group)}), own)};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId all, builder_.AddOne(std::move(rows)));
  OpSpec cut{.name = absl::StrCat(name, "/each"), .kind = OpKind::kSplit, .inputs = {all}};
  cut.rule = absl::StrCat(others, "all! ", dims, "-> ");
  for (int64_t i = 0; i < SizeOf(group); ++i) {
    absl::StrAppend(&cut.rule, i == 0 ? "" : ", ", others, "one", i, "! ", dims);
    cut.output_shapes.push_back(Joined(Joined(other_dims, {1}), own));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<TensorId> factors, builder_.Add(std::move(cut)));
  for (int64_t n = 0; factors.size() > 1; ++n) {
    OpSpec product{.name = absl::StrCat(name, "/product", n), .kind = OpKind::kMul};
    product.inputs = {factors[0], factors[1]};
    const std::string operand = absl::StrCat(others, "1 ", dims);
    product.rule = absl::StrCat(operand, ", ", operand, "-> ", operand);
    MESHWRIGHT_ASSIGN_OR_RETURN(factors[1], builder_.AddOne(std::move(product)));
    factors.erase(factors.begin());
  }
  OpSpec drop{.name = name, .kind = OpKind::kReduceSum, .inputs = factors};
  drop.rule = absl::StrCat(others, "one! ", dims, "-> ", others, dims);
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId product, builder_.AddOne(std::move(drop)));
  return ToAll(product, group);
}

absl::StatusOr<TensorId> RankGraph::AllGather(const std::string& name, TensorId x, const Group& group) {
  Shape shape = ShapeOf(x);
  if (shape.empty()) return ValueError("AllGather of a scalar; wants at least one dim");
  MESHWRIGHT_ASSIGN_OR_RETURN(x, GroupLast(name, x, group));
  const std::string rest = Dims(1, shape.size()), others = Others(group);
  OpSpec rows{.name = name, .kind = OpKind::kReshape, .inputs = {x}};
  rows.rule =
      absl::StrCat(others, Several("from", group.end - group.begin, "!"), "d0! ", rest, "-> ", others, "all! ", rest);
  shape[0] *= SizeOf(group);
  const Shape front(builder_.graph().tensor(x).shape.begin(),
                    builder_.graph().tensor(x).shape.begin() + (rank_dims_.size() - (group.end - group.begin)));
  rows.output_shapes = {Joined(front, shape)};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId beside, builder_.AddOne(std::move(rows)));
  return ToAll(beside, group);
}

absl::StatusOr<TensorId> RankGraph::ReduceScatter(const std::string& name, TensorId x, const Group& group) {
  Shape shape = ShapeOf(x);
  const int64_t members = SizeOf(group);
  if (shape.empty()) return ValueError("ReduceScatter of a scalar; wants at least one dim");
  if (shape[0] % members != 0) {
    return ValueError("ReduceScatter: dim 0 of ", ToText(shape), " is ", shape[0], ", which ", members,
                      " ranks do not divide");
  }
  // Dim by dim of the ranks, the slowest first: each cuts what the one before left.
  for (size_t d = group.begin; d < group.end; ++d) {
    const std::string step = d + 1 == group.end ? name : absl::StrCat(name, "/over", d);
    MESHWRIGHT_ASSIGN_OR_RETURN(x, ScatterSum(step, x, d));
  }
  return Own(x);
}

absl::StatusOr<TensorId> RankGraph::ScatterSum(const std::string& name, TensorId x, size_t dim) {
  const Group along{dim, dim + 1};
  Shape shape = ShapeOf(x);
  shape[0] /= rank_dims_[dim];
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId sum, ReduceOver(absl::StrCat(name, "/sum"), x, OpKind::kReduceSum, along));
  const std::string rest = Dims(1, shape.size()), dims = Dims(0, shape.size()), others = Others(along);
  const std::string own = Ranks(dim, dim + 1);
  const bool last = along.end == rank_dims_.size();
  OpSpec cut{.name = last ? name : absl::StrCat(name, "/pieces"), .kind = OpKind::kReshape, .inputs = {sum}};
  cut.rule = absl::StrCat(others, "=", own, rest, "-> ", others, own, "d0! ", rest);
  Shape pieces = rank_dims_;
  pieces.erase(pieces.begin() + dim);
  pieces.push_back(rank_dims_[dim]);
  cut.output_shapes = {Joined(pieces, shape)};
  if (last) return AddOwn(std::move(cut));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId in_pieces, builder_.AddOne(std::move(cut)));
  OpSpec turn{.name = name, .kind = OpKind::kTranspose, .inputs = {in_pieces}};
  turn.rule = absl::StrCat(others, own, dims, "-> ", Ranks(0, rank_dims_.size()), dims);
  return AddOwn(std::move(turn));
}

// The rank at place p of its group gets the value of the one at places[p], zeros where that is -1.
absl::StatusOr<TensorId> RankGraph::Exchange(const std::string& name, TensorId x, const std::vector<int64_t>& places,
                                             const Group& group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const std::string operand = absl::StrCat(Ranks(0, rank_dims_.size()), Dims(0, ShapeOf(x).size()));
  OpSpec spec{.name = name, .kind = OpKind::kExchange, .inputs = {x}};
  spec.rule = absl::StrCat(operand, "-> ", operand);
  const int64_t stride = SizeOf({group.end, rank_dims_.size()}), members = SizeOf(group);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    const int64_t place = rank / stride % members, source = places[static_cast<size_t>(place)];
    spec.attrs.sources.push_back(source < 0 ? -1 : rank + (source - place) * stride);
  }
  return AddOwn(std::move(spec));
}

absl::StatusOr<TensorId> RankGraph::Broadcast(const std::string& name, TensorId x, int64_t root, const Group& group) {
  const int64_t members = SizeOf(group);
  if (root < 0 || root >= members) {
    return ValueError("Broadcast: the root is rank ", root, "; there are ranks 0 to ", members - 1);
  }
  return Exchange(name, x, std::vector<int64_t>(static_cast<size_t>(members), root), group);
}

absl::StatusOr<TensorId> RankGraph::NeighborExchange(const std::string& name, TensorId x,
                                                     const std::vector<int64_t>& send_ranks, const Group& group) {
  const int64_t members = SizeOf(group);
  if (static_cast<int64_t>(send_ranks.size()) != members) {
    return ValueError("NeighborExchange: send_ranks says it for ", send_ranks.size(), " ranks, wanted ", members);
  }
  std::vector<int64_t> sources(send_ranks.size(), -1);
  for (size_t p = 0; p < send_ranks.size(); ++p) {
    const int64_t to = send_ranks[p];
    if (to < -1 || to >= members) {
      return ValueError("NeighborExchange: rank ", p, " sends to ", to, "; there are ranks 0 to ", members - 1,
                        ", and -1 for nobody");
    }
    if (to < 0) continue;
    int64_t& source = sources[static_cast<size_t>(to)];
    if (source >= 0) {
      return WithKind("E-LAYOUT", absl::InvalidArgumentError(absl::StrCat(
                                      "NeighborExchange: ranks ", source, " and ", p, " both send to rank ", to,
                                      ", which receives one value; use two operators")));
    }
    source = static_cast<int64_t>(p);
  }
  return Exchange(name, x, sources, group);
}

// Elements [begin, begin + length) of one dim.
absl::StatusOr<TensorId> RankGraph::Border(const std::string& name, TensorId x, size_t dim, int64_t begin,
                                           int64_t length) {
  Shape shape = ShapeOf(x);
  OpSpec cut{.name = name, .kind = OpKind::kStridedSlice, .inputs = {x}};
  cut.rule = absl::StrCat(Dims(0, dim), "all! ", Dims(dim + 1, shape.size()), "-> ", Dims(0, dim), "border! ",
                          Dims(dim + 1, shape.size()));
  cut.attrs.begin = Shape(shape.size(), 0);
  cut.attrs.strides = Shape(shape.size(), 1);
  cut.attrs.begin[dim] = begin;
  shape[dim] = length;
  cut.output_shapes = {shape};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> border, Add(std::move(cut)));
  return border[0];
}

// What the neighbours before and after along one dim of the grid have next to the tile, on both sides of it.
absl::StatusOr<TensorId> RankGraph::Halo(const std::string& name, TensorId x, size_t dim, const Grid& grid,
                                         int64_t before, int64_t after, const Group& group) {
  const bool down = dim == 2;
  const int64_t extent = down ? grid.rows : grid.columns, step = down ? grid.columns : 1;
  Shape shape = ShapeOf(x);
  const int64_t size = shape[dim];
  OpSpec join{.name = name, .kind = OpKind::kConcat};
  // Of the rank before this one its last elements, of the one after it its first.
  const auto side = [&](absl::string_view which, int64_t length, int64_t begin, int64_t distance) -> absl::Status {
    if (length == 0) return absl::OkStatus();
    const std::string own = absl::StrCat(name, "/", which);
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId border, Border(absl::StrCat(own, "/border"), x, dim, begin, length));
    if (extent == 1) {  // around a grid of one rank it is its own neighbour
      join.inputs.push_back(border);
      return absl::OkStatus();
    }
    std::vector<int64_t> sources;
    for (int64_t p = 0; p < grid.rows * grid.columns; ++p) {
      const int64_t at = p / step % extent, from = at + distance;
      const int64_t wrapped = (from + extent) % extent;
      sources.push_back(from == wrapped || grid.periodic ? p + (wrapped - at) * step : -1);
    }
    MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId got, Exchange(own, border, sources, group));
    join.inputs.push_back(got);
    return absl::OkStatus();
  };
  MESHWRIGHT_RETURN_IF_ERROR(side("before", before, size - before, -1));
  join.inputs.push_back(x);
  MESHWRIGHT_RETURN_IF_ERROR(side("after", after, 0, 1));
  for (size_t i = 0; i < join.inputs.size(); ++i) {
    absl::StrAppend(&join.rule, i == 0 ? "" : ", ", Dims(0, dim), "part", i, "! ", Dims(dim + 1, shape.size()));
  }
  absl::StrAppend(&join.rule, "-> ", Dims(0, dim), "all! ", Dims(dim + 1, shape.size()));
  shape[dim] += before + after;
  join.output_shapes = {shape};
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> joined, Add(std::move(join)));
  return joined[0];
}

absl::StatusOr<TensorId> RankGraph::NeighborExchangeV2(const std::string& name, TensorId x, const Grid& grid,
                                                       const std::array<int64_t, 4>& lens, const Group& group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const Shape shape = ShapeOf(x);
  if (shape.size() != 4) return ValueError("NeighborExchangeV2 of a tensor ", ToText(shape), "; wants (N, C, H, W)");
  if (grid.rows * grid.columns != SizeOf(group)) {
    return ValueError("NeighborExchangeV2: a grid of ", grid.rows, " x ", grid.columns, " on ", SizeOf(group),
                      " ranks");
  }
  constexpr absl::string_view kSides[] = {"top", "bottom", "left", "right"};
  for (size_t s = 0; s < lens.size(); ++s) {
    const int64_t ranks = s < 2 ? grid.rows : grid.columns, most = ranks == 1 && !grid.periodic ? 0 : shape[2 + s / 2];
    if (lens[s] >= 0 && lens[s] <= most) continue;
    return ValueError("NeighborExchangeV2: ", lens[s], " at the ", kSides[s], " of a tile ", ToText(shape), ", with ",
                      ranks, ranks == 1 ? " rank" : " ranks", " in that direction; wants 0 to ", most);
  }
  // First rows, then columns of the higher tile: so the corners come from the ranks across.
  const bool columns = lens[2] + lens[3] > 0;
  if (lens[0] + lens[1] > 0 || !columns) {
    const std::string rows = columns ? absl::StrCat(name, "/rows") : name;
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Halo(rows, x, 2, grid, lens[0], lens[1], group));
  }
  return columns ? Halo(name, x, 3, grid, lens[2], lens[3], group) : absl::StatusOr<TensorId>(x);
}

absl::StatusOr<TensorId> RankGraph::AlltoAll(const std::string& name, TensorId x, size_t split_dim, size_t concat_dim,
                                             const Group& group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  const Shape shape = ShapeOf(x);
  const size_t dims = shape.size(), parts = group.end - group.begin;
  const int64_t members = SizeOf(group);
  const Shape group_dims(rank_dims_.begin() + group.begin, rank_dims_.begin() + group.end);
  const std::string ranks = Ranks(0, rank_dims_.size());
  if (split_dim >= dims || concat_dim >= dims) {
    return ValueError("AlltoAll: split_dim ", split_dim, ", concat_dim ", concat_dim, "; the tensor has ", dims,
                      " dims");
  }
  if (shape[split_dim] % members != 0) {
    return ValueError("AlltoAll: split_dim ", split_dim, " of ", ToText(shape), " is ", shape[split_dim], ", which ",
                      members, " ranks do not divide");
  }
  // The dim in pieces: (.., pieces, rest, ..).
  OpSpec split{.name = absl::StrCat(name, "/pieces"), .kind = OpKind::kReshape, .inputs = {x}};
  split.rule =
      absl::StrCat(ranks, Dims(0, split_dim), "all! ", Dims(split_dim + 1, dims), "-> ", ranks, Dims(0, split_dim),
                   Several("to", parts, "!"), "d", split_dim, "! ", Dims(split_dim + 1, dims));
  Shape pieces = shape;
  pieces[split_dim] /= members;
  Shape in_pieces = pieces;
  in_pieces.insert(in_pieces.begin() + static_cast<int64_t>(split_dim), group_dims.begin(), group_dims.end());
  split.output_shapes = {InFront(in_pieces)};
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId as_pieces, builder_.AddOne(std::move(split)));
  // Piece p of each rank goes to rank p: what was the group's rank is now a dim of its own, before the one to put
  // together.
  OpSpec move{.name = absl::StrCat(name, "/moved"), .kind = OpKind::kTranspose, .inputs = {as_pieces}};
  move.rule = absl::StrCat(Ranks(0, group.begin), Several("from", parts, ""), Ranks(group.end, rank_dims_.size()),
                           Dims(0, split_dim), Ranks(group.begin, group.end), Dims(split_dim, dims), "-> ", ranks,
                           Dims(0, concat_dim), Several("from", parts, ""), Dims(concat_dim, dims));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId moved, builder_.AddOne(std::move(move)));
  OpSpec join{.name = name, .kind = OpKind::kReshape, .inputs = {moved}};
  join.rule =
      absl::StrCat(ranks, Dims(0, concat_dim), Several("from", parts, "!"), "d", concat_dim, "! ",
                   Dims(concat_dim + 1, dims), "-> ", ranks, Dims(0, concat_dim), "all! ", Dims(concat_dim + 1, dims));
  pieces[concat_dim] *= members;
  join.output_shapes = {InFront(pieces)};
  return AddOwn(std::move(join));
}

absl::StatusOr<TensorId> RankGraph::RankSlice(const std::string& name, TensorId x, const Group& group) {
  const Shape shape = ShapeOf(x);
  const int64_t members = SizeOf(group);
  if (shape.empty()) return ValueError("RankSlice of a scalar; wants rows");
  const int64_t rows = shape[0] / members;
  if (rows < 1) {
    return ValueError("a batch of ", shape[0], " rows on ", members, " ranks leaves none for each; wants at least ",
                      members, " rows");
  }
  if (rows * members < shape[0]) {
    warnings_.push_back(absl::StrCat(name, ": a batch of ", shape[0], " rows on ", members, " ranks: each gets ", rows,
                                     ", rows ", rows * members, " to ", shape[0] - 1, " are dropped"));
  }
  if (members < ranks()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(x, Own(x));
  }
  // Row j of place p is row p q + j: counted through, and anew in each micro-batch.
  const Shape group_dims(rank_dims_.begin() + group.begin, rank_dims_.begin() + group.end);
  Initializer numbers;
  numbers.kind = Initializer::Kind::kFormula;
  numbers.a = rows * (group_dims.empty() ? 1 : members / group_dims[0]);
  numbers.b = 1;
  numbers.modulus = rows * members;
  const std::string rest = Dims(1, shape.size()), all = Ranks(0, rank_dims_.size());
  OpSpec pick{.name = name, .kind = OpKind::kGather, .inputs = {x}};
  pick.inputs.push_back(
      builder_.Input(absl::StrCat(name, "/rows"), DType::kInt32, Joined(group_dims, {rows}), numbers));
  pick.rule =
      absl::StrCat(IsOwn(x) ? all : "", "d0! ", rest, ", ", Ranks(group.begin, group.end), "q -> ", all, "q ", rest);
  pick.output_dtypes = {builder_.graph().tensor(x).dtype};
  return AddOwn(std::move(pick));
}

}  // namespace meshwright
