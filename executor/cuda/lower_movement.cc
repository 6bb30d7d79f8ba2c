// Operators that move elements, or reduce over labels.

#include "absl/strings/str_cat.h"
#include "executor/cuda/lowering.h"
#include "ir/context_order.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

// y (+)= scale * x over the points of `places`, operands y and x.
absl::Status CopyPlaces(const Lowering& l, Ref x, Ref y, double scale, bool add, const Places& places) {
  Pointwise body;
  body.op = PointOp::kCopy;
  body.scale = scale;
  body.add = add;
  body.x[0] = x;
  body.y = y;
  body.places = places;
  return LaunchPointwise(l, body);
}

Ref Offset(const TensorView& view, int64_t elements) {
  return {view.data + elements * SizeOf(view.dtype).raw(), ElemOf(view.dtype)};
}

Places Flat(int64_t n) {
  Places places;
  AddDim(places, n, {1, 1});
  return places;
}

bool ReducesVectors(const Reduce& body) {
  bool aligned = TakesVectors(body.kept, {body.out, body.x}, 2);
  for (int32_t d = 0; d < body.reduced.dims; ++d) aligned = aligned && body.reduced.stride[d][0] % kVector == 0;
  return aligned;
}

// A thread for one or eight points: in parts of what is reduced where there are too few points for a device, each of
// which leaves its results in scratch memory, and then over the parts.
absl::Status LaunchByThread(const Lowering& l, Reduce body) {
  body.vectors = ReducesVectors(body);
  const int64_t points = body.kept.total, parts = body.reduced.dims == 0 ? 1 : PartsOf(body.reduced.extent[0], points);
  if (parts == 1) return l.LaunchVectors(points, body);
  MESHWRIGHT_ASSIGN_OR_RETURN(std::byte* const scratch, l.scratch.Get(l.stream, Bytes(parts * points * 8)));
  Reduce first = body, last = body;
  first.add = false;
  first.scale = 1;
  first.out = last.x = {scratch, l.wide ? Elem::kFloat64 : Elem::kFloat32};
  first.reduced.total /= parts;
  first.reduced.extent[0] /= parts;
  first.kept = Places();
  AddDim(first.kept, parts, {points, body.reduced.stride[0][0] * first.reduced.extent[0]});
  int64_t in_part = points;
  for (int32_t d = 0; d < body.kept.dims; ++d) {
    in_part /= body.kept.extent[d];
    AddDim(first.kept, body.kept.extent[d], {in_part, body.kept.stride[d][1]});
    last.kept.stride[d][1] = in_part;
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(first.kept));
  last.reduced = Places();
  AddDim(last.reduced, parts, {points});
  first.vectors = ReducesVectors(first);
  last.vectors = ReducesVectors(last);
  MESHWRIGHT_RETURN_IF_ERROR(l.LaunchVectors(first.kept.total, first));
  return l.LaunchVectors(points, last);
}

absl::Status LowerReduce(const Lowering& l) {
  const IndexRule& rule = *l.call.rule;
  const TensorView &x = l.call.inputs[0], &y = l.call.outputs[0];
  const LabelStrides in_y = StridesByLabel(rule, rule.outputs[0], y.shape);
  const Shape strides = RowMajorStrides(x.shape);
  Reduce body;
  const Reduction reduction = InfoOf(l.call.op).reduction;
  body.kind = reduction == Reduction::kMax   ? ReduceKind::kMax
              : reduction == Reduction::kMin ? ReduceKind::kMin
                                             : ReduceKind::kSum;
  body.add = l.call.Adds(0);
  body.scale = l.call.attrs->scale;
  body.x = RefOf(x);
  body.out = RefOf(y);
  for (size_t d = 0; d < x.shape.size(); ++d) {
    const int8_t label = rule.inputs[0][d].label;
    const int64_t to = label < 0 ? 0 : in_y[label];
    if (to != 0 || x.shape[d] == 1) {
      AddDim(body.kept, x.shape[d], {to, strides[d]});
      if (x.shape[d] > 1) body.by_thread = strides[d] == 1;
    } else {
      AddDim(body.reduced, x.shape[d], {strides[d]});
    }
  }
  if (body.kept.total != y.size()) return absl::InvalidArgumentError("the output has dims that the input lacks");
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.kept));
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.reduced));
  if (body.by_thread) return LaunchByThread(l, body);
  return l.LaunchRows(body.kept.total, body.reduced.total, body);
}

absl::Status LowerGather(const Lowering& l) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TableRows rows, TableRowsOf(l.call));
  GatherRows body;
  body.add = l.call.Adds(0);
  body.table = RefOf(l.call.inputs[0]);
  body.out = RefOf(l.call.outputs[0]);
  body.ids = l.call.inputs[1].as<int32_t>();
  body.begin = rows.begin;
  body.rows = rows.rows;
  body.whole = rows.whole;
  body.row_stride = rows.row_stride;
  for (const PairDim& dim : rows.points) AddDim(body.places, dim.extent, {dim.strides[1], dim.strides[0], 0});
  for (const PairDim& dim : rows.row) AddDim(body.places, dim.extent, {dim.strides[1], 0, dim.strides[0]});
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.places));
  return l.LaunchPoints(body.places.total, body);
}

absl::Status LowerGatherGrad(const Lowering& l) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TableRows rows, TableRowsOf(l.call));
  GatherRowsGrad body;
  body.add = l.call.Adds(0);
  body.dy = RefOf(l.call.inputs[0]);
  body.table = RefOf(l.call.outputs[0]);
  body.ids = l.call.inputs[1].as<int32_t>();
  body.begin = rows.begin;
  body.rows = rows.rows;
  body.row_stride = rows.row_stride;
  for (const PairDim& dim : rows.points) AddDim(body.points, dim.extent, {dim.strides[0], dim.strides[1]});
  for (const PairDim& dim : rows.row) AddDim(body.row, dim.extent, {dim.strides[0], dim.strides[1]});
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.points));
  MESHWRIGHT_RETURN_IF_ERROR(CheckDims(body.row));
  return l.LaunchRows(rows.rows, std::max(body.row.total, body.points.total), body, sizeof(int64_t));
}

// "s b h, p! h -> s b h": of x the places [first, first + steps), which stand for adjacent positions from `position`
// on.
absl::Status LaunchAddPositions(const Lowering& l, bool gradient, int64_t first, int64_t steps, int64_t position) {
  const TensorView &x = l.call.inputs[0], &table = gradient ? l.call.outputs[0] : l.call.inputs[1];
  const int64_t rows = x.shape[1], width = x.shape[2], from = first * rows * width;
  if (gradient) {
    Reduce body;
    body.add = body.by_thread = true;
    body.x = Offset(x, from);
    body.out = Offset(table, position * width);
    AddDim(body.kept, steps, {width, rows * width});
    AddDim(body.kept, width, {1, 1});
    AddDim(body.reduced, rows, {width});
    return LaunchByThread(l, body);
  }
  Pointwise body;
  body.op = PointOp::kAdd;
  body.inputs = 2;
  body.add = l.call.Adds(0);
  body.y = Offset(l.call.outputs[0], from);
  body.x[0] = Offset(x, from);
  body.x[1] = Offset(table, position * width);
  AddDim(body.places, steps, {rows * width, rows * width, width});
  AddDim(body.places, rows, {width, width, 0});
  AddDim(body.places, width, {1, 1, 1});
  return LaunchPointwise(l, body);
}

absl::Status LowerAddPositions(const Lowering& l, bool gradient) {
  const TensorView &x = l.call.inputs[0], &table = gradient ? l.call.outputs[0] : l.call.inputs[1];
  if (x.shape.size() != 3 || table.shape.size() != 2 || x.global[0] > table.shape[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("positions ", ToText(table.shape), " for a sequence ", ToText(x.global)));
  }
  if (gradient && !l.call.Adds(0)) MESHWRIGHT_RETURN_IF_ERROR(LaunchFill(l, {table}, 0));
  const auto position = [&](int64_t i) { return PositionOf(x.begin[0] + i, x.global[0], l.call.attrs->context); };
  for (int64_t first = 0, end = 0; first < x.shape[0]; first = end) {
    for (end = first + 1; end < x.shape[0] && position(end) == position(end - 1) + 1;) ++end;
    MESHWRIGHT_RETURN_IF_ERROR(LaunchAddPositions(l, gradient, first, end - first, position(first)));
  }
  return absl::OkStatus();
}

absl::Status LowerRotary(const Lowering& l) {
  const TensorView &x = l.call.inputs[0], &y = l.call.outputs[0];
  Rotary body;
  body.add = l.call.Adds(0);
  body.direction = l.call.op == OpKind::kRotaryGrad ? -1 : 1;
  body.theta = l.call.attrs->theta;
  body.x = RefOf(x);
  body.y = RefOf(y);
  body.steps = x.shape[0];
  MESHWRIGHT_ASSIGN_OR_RETURN(const TurnedHeads heads, TurnedHeadsOf(l.call));
  body.group = heads.heads + 1;
  body.heads = heads.groups * body.group;
  body.d = heads.width;
  body.value_width = heads.value_width;
  body.turned = heads.turned;
  body.order = {x.begin[0], x.global[0], l.call.attrs->context};
  const int64_t half = body.d / 2;
  body.vectors = half % kVector == 0 && body.turned / 2 % kVector == 0 && body.value_width / 2 % kVector == 0 &&
                 TakesVectors({body.x, body.y});
  body.parts = PartsOf(body.heads, body.steps * half);
  return l.LaunchVectors(body.steps * half * body.parts, body);
}

absl::Status LowerOneHot(const Lowering& l) {
  const TensorView &ids = l.call.inputs[0], &y = l.call.outputs[0];
  if (y.shape.size() != ids.shape.size() + 1 || ids.dtype != DType::kInt32) {
    return absl::InvalidArgumentError("the classes are the last dim, ids are int32");
  }
  OneHot body;
  body.add = l.call.Adds(0);
  body.y = RefOf(y);
  body.ids = ids.as<int32_t>();
  body.count = ids.size();
  body.classes = y.shape.back();
  body.begin = y.begin.back();
  body.whole = y.global.back();
  return l.LaunchPoints(y.size(), body);
}

absl::Status LowerJoin(const Lowering& l) {
  const bool split = l.call.op == OpKind::kSplit;
  MESHWRIGHT_ASSIGN_OR_RETURN(const JoinedRows joined, JoinedRowsOf(l.call));
  const TensorView& whole = split ? l.call.inputs[0] : l.call.outputs[0];
  const auto pieces = split ? l.call.outputs : l.call.inputs;
  int64_t begin = 0;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const int64_t run = joined.of_piece[k];
    const Ref in_whole = Offset(whole, begin), in_piece = RefOf(pieces[k]);
    Places places;  // to, from
    AddDim(places, joined.rows, {split ? run : joined.width, split ? joined.width : run});
    AddDim(places, run, {1, 1});
    MESHWRIGHT_RETURN_IF_ERROR(
        CopyPlaces(l, split ? in_whole : in_piece, split ? in_piece : in_whole, 1, l.call.Adds(split ? k : 0), places));
    begin += run;
  }
  return absl::OkStatus();
}

absl::Status LowerStridedSlice(const Lowering& l, bool gradient) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const StridedPart part, StridedPartOf(l.call));
  Places places;  // to, from
  for (const PairDim& dim : part.dims)
    AddDim(places, dim.extent, {dim.strides[gradient ? 0 : 1], dim.strides[gradient ? 1 : 0]});
  const TensorView &x = l.call.inputs[0], &y = l.call.outputs[0];
  if (!gradient) return CopyPlaces(l, Offset(x, part.begin), RefOf(y), 1, l.call.Adds(0), places);
  if (!l.call.Adds(0)) MESHWRIGHT_RETURN_IF_ERROR(LaunchFill(l, {y}, 0));
  return CopyPlaces(l, RefOf(x), Offset(y, part.begin), 1, true, places);
}

}  // namespace

absl::Status LowerMovement(const Lowering& l) {
  const bool add = l.call.Adds(0);
  const TensorView &x = l.call.inputs[0], &y = l.call.outputs[0];
  switch (l.call.op) {
    case OpKind::kCast:
    case OpKind::kReshape:
      if (x.size() != y.size()) {
        return absl::InvalidArgumentError(absl::StrCat(ToText(x.shape), " cannot be seen as ", ToText(y.shape)));
      }
      if (x.data == y.data && x.dtype == y.dtype && !add) return absl::OkStatus();
      return CopyPlaces(l, RefOf(x), RefOf(y), 1, add, Flat(y.size()));
    case OpKind::kScale:
    case OpKind::kBroadcast:
    case OpKind::kTranspose: {
      const double scale = l.call.op == OpKind::kTranspose ? 1 : l.call.attrs->scale;
      return CopyPlaces(l, RefOf(x), RefOf(y), scale, add, OverOutput(l.call, {0}));
    }
    case OpKind::kReduceSum:
    case OpKind::kReduceMax:
    case OpKind::kReduceMin:
      return LowerReduce(l);
    case OpKind::kGather:
      return LowerGather(l);
    case OpKind::kGatherGrad:
      return LowerGatherGrad(l);
    case OpKind::kAddPositions:
      return LowerAddPositions(l, false);
    case OpKind::kAddPositionsGrad:
      return LowerAddPositions(l, true);
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
      return LowerRotary(l);
    case OpKind::kOneHot:
      return LowerOneHot(l);
    case OpKind::kConcat:
    case OpKind::kSplit:
      return LowerJoin(l);
    case OpKind::kStridedSlice:
      return LowerStridedSlice(l, false);
    case OpKind::kStridedSliceGrad:
      return LowerStridedSlice(l, true);
    default:
      return absl::UnimplementedError("there is no kernel for devices");
  }
}

}  // namespace meshwright::cuda
