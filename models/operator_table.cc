#include "models/operator_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright {
namespace {

using OpSpec = GraphBuilder::OpSpec;

// The rule of the operator's row says it all.
absl::Status Plain(const UserOpCall&, OpSpec&) { return absl::OkStatus(); }

std::string Labels(absl::string_view prefix, size_t begin, size_t end, absl::string_view suffix = "") {
  std::string text;
  for (size_t i = begin; i < end; ++i) absl::StrAppend(&text, prefix, i, suffix, " ");
  return text;
}

absl::Status WrongRank(const UserOpCall& call, size_t input, absl::string_view wanted) {
  return call.where["inputs"].children()[input].Error(absl::StrCat("a tensor of shape ", ToText(call.shapes[input])),
                                                      wanted);
}

// (..., m, k) x (..., k, n), each stored the other way round where a transpose flag says so.
absl::Status Product(const UserOpCall& call, OpSpec& spec, size_t min_rank, size_t max_rank) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool transpose_a, call.where["transpose_a"].AsBoolOr(false));
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool transpose_b, call.where["transpose_b"].AsBoolOr(false));
  for (size_t i = 0; i < 2; ++i) {
    if (call.shapes[i].size() >= min_rank && call.shapes[i].size() <= max_rank) continue;
    return WrongRank(call, i, min_rank == max_rank ? absl::StrCat(min_rank, " dims") : "3 to 8 dims");
  }
  const Shape &a = call.shapes[0], &b = call.shapes[1];
  const size_t batch_dims = std::max(a.size(), b.size()) - 2;
  // Leading dims are aligned on the right; a size of 1 goes with any other.
  const auto leading = [&](const Shape& shape, const Shape& other) {
    std::string text;
    for (size_t i = 0; i + 2 < shape.size(); ++i) {
      const size_t from_right = shape.size() - 3 - i;
      const bool broadcast = shape[i] == 1 && from_right + 2 < other.size() && other[other.size() - 3 - from_right] > 1;
      absl::StrAppend(&text, broadcast ? "1" : absl::StrCat("d", batch_dims - 1 - from_right), " ");
    }
    return text;
  };
  spec.rule = absl::StrCat(leading(a, b), transpose_a ? "k m" : "m k", ", ", leading(b, a), transpose_b ? "n k" : "k n",
                           " -> ", Labels("d", 0, batch_dims), "m n");
  return absl::OkStatus();
}

absl::Status MatMul(const UserOpCall& call, OpSpec& spec) { return Product(call, spec, 2, 2); }
absl::Status BatchMatMul(const UserOpCall& call, OpSpec& spec) { return Product(call, spec, 3, 8); }

// The bias goes along dim 1, the channels.
absl::Status BiasAdd(const UserOpCall& call, OpSpec& spec) {
  const Shape &x = call.shapes[0], &bias = call.shapes[1];
  if (x.size() < 2) return WrongRank(call, 0, "at least 2 dims, of which dim 1 counts the channels");
  if (bias.size() != 1 || x[1] != bias[0]) {
    return WrongRank(call, 1, absl::StrCat("one dim, as long as dim 1 of ", ToText(x)));
  }
  const std::string dims = Labels("d", 0, x.size());
  spec.rule = absl::StrCat(dims, ", d1 -> ", dims);
  return absl::OkStatus();
}

absl::Status Neg(const UserOpCall&, OpSpec& spec) {
  spec.attrs.scale = -1;
  return absl::OkStatus();
}

absl::Status Dropout(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.attrs.rate, call.where["rate"].AsDoubleOr(0.5, 0, 1));
  if (spec.attrs.rate == 1) return call.where["rate"].Error("1", "less than 1, the share of elements that become 0");
  // A mask of its own for every operator: FNV-1a of the name.
  uint64_t stream = 0xcbf29ce484222325u;
  for (const char c : spec.name) stream = (stream ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  spec.attrs.stream = static_cast<int64_t>(stream >> 1);
  return absl::OkStatus();
}

absl::Status Scale(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.attrs.scale, call.where["factor"].AsDouble());
  return absl::OkStatus();
}

absl::Status Cast(const UserOpCall& call, OpSpec& spec) {
  if (!call.where["dtype"].present()) return call.where["dtype"].Error("nothing", "a floating dtype");
  MESHWRIGHT_ASSIGN_OR_RETURN(const DType dtype, ReadDType(call.where["dtype"], DType::kFloat32, true));
  spec.output_dtypes = {dtype};
  return absl::OkStatus();
}

absl::Status Norm(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(spec.attrs.epsilon, call.where["epsilon"].AsDoubleOr(1e-5, 0, 1));
  return absl::OkStatus();
}

// A table (v, h) and ids of any shape.
absl::Status Gather(const UserOpCall& call, OpSpec& spec) {
  if (call.shapes[0].size() != 2) return WrongRank(call, 0, "a table of 2 dims");
  const std::string ids = Labels("n", 0, call.shapes[1].size());
  spec.rule = absl::StrCat("v h, ", ids, "-> ", ids, "h");
  return absl::OkStatus();
}

// `axis` of an operator along one dim, from the back where it is negative.
absl::StatusOr<size_t> AxisOf(const UserOpCall& call) {
  const auto rank = static_cast<int64_t>(call.shapes[0].size());
  if (rank == 0) return WrongRank(call, 0, "at least 1 dim");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t axis, call.where["axis"].AsIntOr(0, -rank, rank - 1));
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

// The dims of a tensor, of which `axis` is whole under the label `own`.
std::string WithOwn(size_t rank, size_t axis, absl::string_view own) {
  return absl::StrCat(Labels("d", 0, axis), own, "! ", Labels("d", axis + 1, rank));
}

absl::Status Concat(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const size_t axis, AxisOf(call));
  Shape shape = call.shapes[0];
  shape[axis] = 0;
  for (size_t i = 0; i < call.shapes.size(); ++i) {
    Shape expected = call.shapes[0];
    if (call.shapes[i].size() == expected.size()) expected[axis] = call.shapes[i][axis];
    if (call.shapes[i] != expected) {
      return WrongRank(call, i, absl::StrCat("one that differs from ", ToText(call.shapes[0]), " in dim ", axis));
    }
    shape[axis] += call.shapes[i][axis];
    absl::StrAppend(&spec.rule, i == 0 ? "" : ", ", WithOwn(shape.size(), axis, absl::StrCat("x", i)));
  }
  absl::StrAppend(&spec.rule, "-> ", WithOwn(shape.size(), axis, "y"));
  spec.output_shapes = {shape};
  return absl::OkStatus();
}

absl::Status Split(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const size_t axis, AxisOf(call));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t parts, call.where["parts"].AsInt(2, kMostParts));
  Shape shape = call.shapes[0];
  if (shape[axis] % parts != 0) {
    return call.where["parts"].Error(absl::StrCat(parts), absl::StrCat("a divisor of ", shape[axis], ", dim ", axis));
  }
  spec.rule = absl::StrCat(WithOwn(shape.size(), axis, "x"), "->");
  shape[axis] /= parts;
  for (int64_t i = 0; i < parts; ++i) {
    absl::StrAppend(&spec.rule, i == 0 ? " " : ", ", WithOwn(shape.size(), axis, absl::StrCat("y", i)));
    spec.output_shapes.push_back(shape);
  }
  return absl::OkStatus();
}

// `begin`, `end` and `strides` for each dim; dims that are taken whole may be split.
absl::Status StridedSlice(const UserOpCall& call, OpSpec& spec) {
  const Shape& from = call.shapes[0];
  const auto numbers = [&](absl::string_view key, int64_t least) -> absl::StatusOr<std::vector<int64_t>> {
    const NodeRef in = call.where[key];
    if (!in.present() && key == "strides") return std::vector<int64_t>(from.size(), 1);
    MESHWRIGHT_ASSIGN_OR_RETURN(std::vector<int64_t> list, in.AsInts(least, int64_t{1} << 40));
    if (list.size() == from.size()) return list;
    return in.Error(absl::StrCat("a list of ", list.size()), absl::StrCat("one number for each dim of ", ToText(from)));
  };
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> begin, numbers("begin", 0));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> end, numbers("end", 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, numbers("strides", 1));
  Shape to;
  std::string inputs, outputs;
  for (size_t d = 0; d < from.size(); ++d) {
    // The file says dim 0 of the whole batch; this graph may have fewer rows.
    const bool batch = d == 0 && from[0] == call.rows && end[0] == call.batch;
    const int64_t last = batch ? from[0] : end[d];
    if (begin[d] >= last || last > from[d]) {
      return call.where["end"].children()[d].Error(
          absl::StrCat(end[d]), absl::StrCat("more than begin, ", begin[d], ", and at most ", from[d]));
    }
    const bool whole = begin[d] == 0 && strides[d] == 1 && last == from[d];
    to.push_back((last - begin[d] + strides[d] - 1) / strides[d]);
    absl::StrAppend(&inputs, whole ? "d" : "x", d, whole ? " " : "! ");
    absl::StrAppend(&outputs, whole ? "d" : "y", d, whole ? " " : "! ");
  }
  spec.rule = absl::StrCat(inputs, "-> ", outputs);
  spec.attrs.begin.assign(begin.begin(), begin.end());
  spec.attrs.strides.assign(strides.begin(), strides.end());
  spec.output_shapes = {to};
  return absl::OkStatus();
}

absl::Status OneHot(const UserOpCall& call, OpSpec& spec) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t depth, call.where["depth"].AsInt(1, int64_t{1} << 31));
  const std::string dims = Labels("d", 0, call.shapes[0].size());
  spec.rule = absl::StrCat(dims, "-> ", dims, "c");
  Shape shape = call.shapes[0];
  shape.push_back(depth);
  spec.output_shapes = {shape};
  spec.output_dtypes = {call.dtype};
  return absl::OkStatus();
}

absl::Status Reduce(const UserOpCall& call, OpSpec& spec, bool mean) {
  const Shape& shape = call.shapes[0];
  const NodeRef axis = call.where["axis"];
  std::vector<int64_t> axes;
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (axis.is_list()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(axes, axis.AsInts(-rank, rank - 1));
  } else if (axis.present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t one, axis.AsInt(-rank, rank - 1));
    axes = {one};
  }
  std::vector<bool> reduced(shape.size(), axes.empty());  // no axis: all of them
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool keep_dims, call.where["keep_dims"].AsBoolOr(false));
  for (int64_t a : axes) reduced[static_cast<size_t>(a < 0 ? a + rank : a)] = true;
  std::string kept;
  double count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (reduced[i]) {
      count *= static_cast<double>(shape[i]);
      if (keep_dims) absl::StrAppend(&kept, "1 ");
    } else {
      absl::StrAppend(&kept, "d", i, " ");
    }
  }
  spec.rule = absl::StrCat(Labels("d", 0, shape.size()), "-> ", kept);
  spec.attrs.scale = mean ? 1 / count : 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(const bool own, call.where["cross_batch"].AsBoolOr(false));
  if (own) spec.own_batch = mean ? OwnBatch::kMean : OwnBatch::kSum;
  return absl::OkStatus();
}

absl::Status ReducePlain(const UserOpCall& call, OpSpec& spec) { return Reduce(call, spec, false); }
absl::Status ReduceMean(const UserOpCall& call, OpSpec& spec) { return Reduce(call, spec, true); }

absl::Status Transpose(const UserOpCall& call, OpSpec& spec) {
  const NodeRef perm = call.where["perm"];
  const size_t rank = call.shapes[0].size();
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> order, perm.AsInts(0, static_cast<int64_t>(rank) - 1));
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool each_once = order.size() == rank;
  for (size_t i = 0; each_once && i < rank; ++i) each_once = sorted[i] == static_cast<int64_t>(i);
  if (!each_once) {
    return perm.Error(absl::StrCat("[", absl::StrJoin(order, ", "), "]"),
                      absl::StrCat("each of the ", rank, " dims of ", ToText(call.shapes[0]), " once"));
  }
  spec.rule = absl::StrCat(Labels("d", 0, rank), "->");
  for (int64_t dim : order) absl::StrAppend(&spec.rule, " d", dim);
  return absl::OkStatus();
}

// A row-major view. Dims that are the same at the front and at the back may be split, those between must be whole.
void SetReshapeRule(const Shape& from, const Shape& to, size_t same_front, size_t same_back, OpSpec& spec) {
  const auto operand = [&](const Shape& shape, absl::string_view prefix) {
    std::string back;
    for (size_t i = 0; i < same_back; ++i) absl::StrAppend(&back, "z", i, " ");
    return absl::StrCat(Labels("d", 0, same_front), Labels(prefix, same_front, shape.size() - same_back, "!"), back);
  };
  spec.rule = absl::StrCat(operand(from, "x"), "-> ", operand(to, "y"));
  spec.output_shapes = {to};
}

absl::Status Reshape(const UserOpCall& call, OpSpec& spec) {
  const Shape& from = call.shapes[0];
  const NodeRef in = call.where["shape"];
  if (const NodeRef shard = call.where["shard"]; shard.present()) {
    return WithKind("E-LAYOUT", shard.Error("it on a Reshape", "none: a Reshape takes over how its input lies"));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, in.AsInts(-1, int64_t{1} << 40));
  Shape to(sizes.begin(), sizes.end());
  // The file says the size for the whole batch; this graph may have fewer rows.
  if (!to.empty() && !from.empty() && to[0] == call.batch && from[0] == call.rows) to[0] = call.rows;
  int64_t open = -1;
  double known = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 || (to[i] == -1 && open >= 0)) {
      return in.children()[i].Error(absl::StrCat(to[i]), "a size of at least 1, or once -1 for what is left");
    }
    if (to[i] == -1) {
      open = static_cast<int64_t>(i);
    } else {
      known *= static_cast<double>(to[i]);
    }
  }
  const int64_t elements = NumElements(from);
  const bool divides = known <= static_cast<double>(elements) && elements % static_cast<int64_t>(known) == 0;
  if (!divides || (open < 0 && static_cast<int64_t>(known) != elements)) {
    return in.Error(ToText(to), absl::StrCat("a shape of the ", elements, " elements of ", ToText(from)));
  }
  if (open >= 0) to[static_cast<size_t>(open)] = elements / static_cast<int64_t>(known);
  const size_t shorter = std::min(from.size(), to.size());
  size_t front = 0, back = 0;
  while (front < shorter && from[front] == to[front]) ++front;
  while (front + back < shorter && from[from.size() - 1 - back] == to[to.size() - 1 - back]) ++back;
  SetReshapeRule(from, to, front, back, spec);
  return absl::OkStatus();
}

absl::Status Flatten(const UserOpCall& call, OpSpec& spec) {
  const Shape& from = call.shapes[0];
  if (from.empty()) return WrongRank(call, 0, "at least 1 dim");
  SetReshapeRule(from, Shape{from[0], NumElements(from) / from[0]}, 1, 0, spec);
  return absl::OkStatus();
}

// Losses are sums times a scale: of doubles in float64, of everything else in float32.
void SetLoss(const UserOpCall& call, int64_t terms, OpSpec& spec) {
  spec.attrs.scale = call.loss_reduction == LossReduction::kMean ? 1.0 / static_cast<double>(terms) : 1.0;
  spec.output_dtypes = {call.dtypes[0] == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32};
}

absl::Status MseLoss(const UserOpCall& call, OpSpec& spec) {
  if (call.shapes[0] != call.shapes[1]) return WrongRank(call, 1, absl::StrCat("one of ", ToText(call.shapes[0])));
  SetLoss(call, NumElements(call.shapes[0]), spec);
  return absl::OkStatus();
}

// Logits (..., classes) and class numbers (...).
absl::Status CrossEntropy(const UserOpCall& call, OpSpec& spec) {
  if (call.shapes[0].empty()) return WrongRank(call, 0, "at least 1 dim");
  const Shape rows(call.shapes[0].begin(), call.shapes[0].end() - 1);
  if (call.shapes[1] != rows) return WrongRank(call, 1, absl::StrCat("class numbers of shape ", ToText(rows)));
  SetLoss(call, NumElements(rows), spec);
  return absl::OkStatus();
}

// --- of a program that is split by hand ------------------------------------------------------------------------------

absl::StatusOr<Reduction> ReductionOf(const UserOpCall& call) {
  constexpr absl::string_view kNames[] = {"sum", "max", "min", "prod"};  // in the order of Reduction
  const NodeRef reduction = call.where["reduction"];
  if (!reduction.present()) return Reduction::kSum;
  const absl::StatusOr<size_t> index = reduction.AsChoice(kNames);
  if (!index.ok()) return WithKind("E-VALUE", index.status());
  return static_cast<Reduction>(*index);
}

absl::StatusOr<TensorId> AllReduce(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  return graph.AllReduce(name, x, reduction, call.group);
}
absl::StatusOr<TensorId> AllGather(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  return graph.AllGather(name, x, call.group);
}
absl::StatusOr<TensorId> ReduceScatter(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  if (reduction != Reduction::kSum) {  // S3.8
    return call.where["reduction"].Locate(StateError("a ReduceScatter of ", NameOf(reduction), " has no derivative; ",
                                                     "write sum, or an AllReduce and a RankSlice"));
  }
  return graph.ReduceScatter(name, x, call.group);
}
absl::StatusOr<TensorId> Broadcast(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t root, call.where["root"].AsInt(0));
  return graph.Broadcast(name, x, root, call.group);
}
absl::StatusOr<TensorId> AlltoAll(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  const NodeRef& where = call.where;
  const int64_t last = static_cast<int64_t>(call.shapes[0].size()) - 1, ranks = graph.SizeOf(call.group);
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t count, where["split_count"].AsIntOr(ranks, 1));
  if (count != ranks) {
    return ValueError("AlltoAll: split_count is ", count, ", the group has ", ranks, " ranks; they must be equal");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t split, where["split_dim"].AsInt(0, last));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t concat, where["concat_dim"].AsInt(0, last));
  return graph.AlltoAll(name, x, static_cast<size_t>(split), static_cast<size_t>(concat), call.group);
}
absl::StatusOr<TensorId> NeighborExchange(const UserOpCall& call, RankGraph& graph, const std::string& name,
                                          TensorId x) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> send_ranks,
                              call.where["send_ranks"].AsInts(-1, int64_t{1} << 20));
  return graph.NeighborExchange(name, x, send_ranks, call.group);
}
absl::StatusOr<TensorId> NeighborExchangeV2(const UserOpCall& call, RankGraph& graph, const std::string& name,
                                            TensorId x) {
  const NodeRef& where = call.where;
  RankGraph::Grid grid;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, where["grid"].AsInts(1, int64_t{1} << 20));
  if (sizes.size() != 2) return where["grid"].Error(absl::StrCat("a list of ", sizes.size()), "[rows, columns]");
  grid.rows = sizes[0];
  grid.columns = sizes[1];
  MESHWRIGHT_ASSIGN_OR_RETURN(grid.periodic, where["periodic"].AsBoolOr(false));
  std::array<int64_t, 4> received = {}, sent = {};
  for (auto [key, lens] : {std::pair("recv_lens", &received), std::pair("send_lens", &sent)}) {
    if (key == absl::string_view("send_lens") && !where[key].present()) continue;
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<int64_t> list, where[key].AsInts(0, int64_t{1} << 40));
    if (list.size() != 4) {
      return where[key].Error(absl::StrCat("a list of ", list.size()), "[top, bottom, left, right]");
    }
    std::copy(list.begin(), list.end(), lens->begin());
  }
  const std::array<int64_t, 4> meets = {received[1], received[0], received[3], received[2]};
  if (where["send_lens"].present() && sent != meets) {
    return where["send_lens"].Error(
        absl::StrCat("[", absl::StrJoin(sent, ", "), "]"),
        absl::StrCat("what the neighbours receive there, [", absl::StrJoin(meets, ", "), "]"));
  }
  const NodeRef format = where["data_format"];
  if (format.present() && format.text() != "NCHW") return format.Error(QuoteForMessage(format.text()), "NCHW");
  return graph.NeighborExchangeV2(name, x, grid, received, call.group);
}
absl::StatusOr<TensorId> RankSlice(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  return graph.RankSlice(name, x, call.group);
}

absl::StatusOr<TensorId> DivByGroupSize(const UserOpCall& call, RankGraph& graph, const std::string& name, TensorId x) {
  GraphBuilder::OpSpec spec{.name = name, .kind = OpKind::kScale, .inputs = {x}};
  spec.attrs.scale = 1.0 / static_cast<double>(graph.SizeOf(call.group));
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, graph.Add(std::move(spec)));
  return outputs[0];
}

constexpr absl::string_view kGroupKeys[] = {"group"};
constexpr absl::string_view kReductionKeys[] = {"group", "reduction"};
constexpr absl::string_view kAllReduceKeys[] = {"group", "reduction", "fusion"};
constexpr absl::string_view kAllGatherKeys[] = {"group", "fusion"};
constexpr absl::string_view kRootKeys[] = {"group", "root"};
constexpr absl::string_view kAlltoAllKeys[] = {"group", "split_count", "split_dim", "concat_dim"};
constexpr absl::string_view kNeighborKeys[] = {"group", "send_ranks"};
constexpr absl::string_view kHaloKeys[] = {"group", "grid", "periodic", "recv_lens", "send_lens", "data_format"};
constexpr absl::string_view kTransposeKeys[] = {"transpose_a", "transpose_b"};
constexpr absl::string_view kReduceKeys[] = {"axis", "keep_dims"};
constexpr absl::string_view kAxisKeys[] = {"axis"};
constexpr absl::string_view kSplitKeys[] = {"axis", "parts"};
constexpr absl::string_view kSliceKeys[] = {"begin", "end", "strides"};
constexpr absl::string_view kDepthKeys[] = {"depth"};
constexpr absl::string_view kRateKeys[] = {"rate"};
constexpr absl::string_view kShapeKeys[] = {"shape"};
constexpr absl::string_view kPermKeys[] = {"perm"};
constexpr absl::string_view kDTypeKeys[] = {"dtype"};
constexpr absl::string_view kFactorKeys[] = {"factor"};
constexpr absl::string_view kEpsilonKeys[] = {"epsilon"};

constexpr UserOp kUserOps[] = {
    // Products.
    {"MatMul", OpKind::kMatMul, 2, -1, false, kTransposeKeys, MatMul},
    {"BatchMatMul", OpKind::kMatMul, 2, -1, false, kTransposeKeys, BatchMatMul},
    // Of two tensors, element by element; sizes of 1 and missing leading dims go with any size.
    {"Add", OpKind::kAdd, 2, -1, false, {}, Plain},
    {"Sub", OpKind::kSub, 2, -1, false, {}, Plain},
    {"Mul", OpKind::kMul, 2, -1, false, {}, Plain},
    {"Div", OpKind::kDiv, 2, -1, false, {}, Plain},
    {"BiasAdd", OpKind::kAdd, 2, -1, false, {}, BiasAdd},
    // Of one tensor, element by element.
    {"Scale", OpKind::kScale, 1, -1, false, kFactorKeys, Scale},
    {"Cast", OpKind::kCast, 1, -1, false, kDTypeKeys, Cast},
    {"Neg", OpKind::kScale, 1, -1, false, {}, Neg},
    {"Sqrt", OpKind::kSqrt, 1, -1, false, {}, Plain},
    {"ReLU", OpKind::kRelu, 1, -1, false, {}, Plain},
    {"GeLU", OpKind::kGelu, 1, -1, false, {}, Plain},
    {"Tanh", OpKind::kTanh, 1, -1, false, {}, Plain},
    {"Sigmoid", OpKind::kSigmoid, 1, -1, false, {}, Plain},
    {"SiLU", OpKind::kSilu, 1, -1, false, {}, Plain},
    {"Dropout", OpKind::kDropout, 1, -1, false, kRateKeys, Dropout},
    {"SwiGLU", OpKind::kSwiglu, 1, -1, false, {}, Plain},
    // Along the last dim.
    {"Softmax", OpKind::kSoftmax, 1, -1, false, {}, Plain},
    {"LogSoftmax", OpKind::kLogSoftmax, 1, -1, false, {}, Plain},
    {"LayerNorm", OpKind::kLayerNorm, 3, -1, false, kEpsilonKeys, Norm},
    {"RMSNorm", OpKind::kRmsNorm, 2, -1, false, kEpsilonKeys, Norm},
    // Rows of a table.
    {"Gather", OpKind::kGather, 2, 1, false, {}, Gather},
    {"Embedding", OpKind::kGather, 2, 1, false, {}, Gather},
    {"OneHot", OpKind::kOneHot, 1, 0, false, kDepthKeys, OneHot},
    {"ReduceSum", OpKind::kReduceSum, 1, -1, false, kReduceKeys, ReducePlain},
    {"ReduceMean", OpKind::kReduceSum, 1, -1, false, kReduceKeys, ReduceMean},
    {"ReduceMax", OpKind::kReduceMax, 1, -1, false, kReduceKeys, ReducePlain},
    {"ReduceMin", OpKind::kReduceMin, 1, -1, false, kReduceKeys, ReducePlain},
    {"Transpose", OpKind::kTranspose, 1, -1, false, kPermKeys, Transpose},
    {"Reshape", OpKind::kReshape, 1, -1, false, kShapeKeys, Reshape},
    {"Flatten", OpKind::kReshape, 1, -1, false, {}, Flatten},
    {"Concat", OpKind::kConcat, kSeveral, -1, false, kAxisKeys, Concat},
    {"Split", OpKind::kSplit, 1, -1, false, kSplitKeys, Split},  // outputs NAME.0, NAME.1, ...
    {"StridedSlice", OpKind::kStridedSlice, 1, -1, false, kSliceKeys, StridedSlice},
    // Of all ranks or those of a group, in a program that is split by hand.
    {"AllReduce", OpKind::kReduceSum, 1, -1, false, kAllReduceKeys, nullptr, AllReduce},
    {"AllGather", OpKind::kReshape, 1, -1, false, kAllGatherKeys, nullptr, AllGather},
    {"ReduceScatter", OpKind::kReshape, 1, -1, false, kReductionKeys, nullptr, ReduceScatter},
    {"Broadcast", OpKind::kExchange, 1, -1, false, kRootKeys, nullptr, Broadcast},
    {"AlltoAll", OpKind::kTranspose, 1, -1, false, kAlltoAllKeys, nullptr, AlltoAll},
    {"NeighborExchange", OpKind::kExchange, 1, -1, false, kNeighborKeys, nullptr, NeighborExchange},
    {"NeighborExchangeV2", OpKind::kExchange, 1, -1, false, kHaloKeys, nullptr, NeighborExchangeV2},
    {"RankSlice", OpKind::kGather, 1, kAnyType, false, kGroupKeys, nullptr, RankSlice},
    {"DivByGroupSize", OpKind::kScale, 1, -1, false, kGroupKeys, nullptr, DivByGroupSize},
    // Losses.
    {"MSELoss", OpKind::kMseLoss, 2, -1, true, {}, MseLoss},
    {"CrossEntropyLoss", OpKind::kCrossEntropy, 2, 1, true, {}, CrossEntropy},
    {"SoftmaxCrossEntropyWithLogits", OpKind::kCrossEntropy, 2, 1, true, {}, CrossEntropy},
};

}  // namespace

absl::Span<const UserOp> UserOps() { return kUserOps; }

}  // namespace meshwright
