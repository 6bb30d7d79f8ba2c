#include "executor/call_operands.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace meshwright {

Shape RowMajorStrides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

LabelStrides StridesByLabel(const IndexRule& rule, const OperandRule& operand, const Shape& shape) {
  LabelStrides by_label(rule.labels.size(), 0);
  const Shape strides = RowMajorStrides(shape);
  for (size_t i = 0; i < operand.size(); ++i) {
    if (operand[i].label >= 0 && !operand[i].own_size) by_label[operand[i].label] += strides[i];
  }
  return by_label;
}

absl::StatusOr<Shape> LabelExtentsOf(const KernelCall& call) {
  if (call.rule == nullptr) return absl::InvalidArgumentError("has no rule");
  std::vector<Shape> inputs, outputs;
  for (const TensorView& view : call.inputs) inputs.push_back(view.shape);
  for (const TensorView& view : call.outputs) outputs.push_back(view.shape);
  return LabelExtents(*call.rule, inputs, outputs);
}

absl::StatusOr<TableRows> TableRowsOf(const KernelCall& call) {
  const IndexRule& rule = *call.rule;
  const bool gradient = call.op == OpKind::kGatherGrad;
  const TensorView& table = gradient ? call.outputs[0] : call.inputs[0];
  const TensorView& values = gradient ? call.inputs[0] : call.outputs[0];
  const OperandRule& table_rule = gradient ? rule.outputs[0] : rule.inputs[0];
  const OperandRule& values_rule = gradient ? rule.inputs[0] : rule.outputs[0];
  const TensorView& ids = call.inputs[1];
  if (ids.dtype != DType::kInt32) {
    return absl::InvalidArgumentError(absl::StrCat("row numbers are ", NameOf(ids.dtype), ", wanted int32"));
  }
  const LabelStrides in_values = StridesByLabel(rule, values_rule, values.shape);
  const Shape table_strides = RowMajorStrides(table.shape), ids_strides = RowMajorStrides(ids.shape);
  TableRows rows;
  for (size_t d = 0; d < table_rule.size(); ++d) {
    const int8_t label = table_rule[d].label;
    const bool in_row = std::any_of(values_rule.begin(), values_rule.end(),
                                    [&](const DimRule& dim) { return label >= 0 && dim.label == label; });
    if (in_row) {
      rows.row.push_back({table.shape[d], {table_strides[d], in_values[label]}});
    } else if (rows.whole < 0) {
      rows.whole = table.global[d];
      rows.rows = table.shape[d];
      rows.begin = table.begin[d];
      rows.row_stride = table_strides[d];
    } else {
      return absl::InvalidArgumentError("the table has two dims that the rows lack");
    }
  }
  for (size_t d = 0; d < rule.inputs[1].size(); ++d) {
    const int8_t label = rule.inputs[1][d].label;
    rows.points.push_back({ids.shape[d], {ids_strides[d], label < 0 ? 0 : in_values[label]}});
  }
  return rows;
}

absl::StatusOr<JoinedRows> JoinedRowsOf(const KernelCall& call) {
  const bool split = call.op == OpKind::kSplit;
  const Shape& whole = split ? call.inputs[0].shape : call.outputs[0].shape;
  const OperandRule& operand = split ? call.rule->inputs[0] : call.rule->outputs[0];
  const OperandRule& first = split ? call.rule->outputs[0] : call.rule->inputs[0];
  size_t dim = 0;
  while (dim < operand.size() && dim < first.size() && operand[dim].label == first[dim].label) ++dim;
  if (dim == operand.size() || operand.size() != first.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no dim is joined in \"", ToText(*call.rule), "\""));
  }
  JoinedRows joined;
  int64_t inner = 1, sum = 0;
  for (size_t d = 0; d < dim; ++d) joined.rows *= whole[d];
  for (size_t d = dim + 1; d < whole.size(); ++d) inner *= whole[d];
  joined.width = whole[dim] * inner;
  for (const TensorView& piece : split ? call.outputs : call.inputs) {
    joined.of_piece.push_back(piece.shape[dim] * inner);
    sum += joined.of_piece.back();
  }
  if (sum == joined.width) return joined;
  return absl::InvalidArgumentError(absl::StrCat("the pieces do not make up dim ", dim, " of ", ToText(whole)));
}

absl::StatusOr<LatentShape> LatentShapeOf(const KernelCall& call) {
  const bool back = call.op == OpKind::kLatentHeadsGrad;
  const auto apart = back ? call.outputs : call.inputs;
  const Shape &query = apart[0].shape, &shared = apart[1].shape, &latent = apart[2].shape;
  const Shape& packed = (back ? call.inputs : call.outputs)[0].shape;
  LatentShape l;
  bool fits = query.size() == 4 && shared.size() == 3 && latent.size() == 4 && packed.size() == 4;
  if (fits) {
    l = {query[0], query[1], query[2], query[3], packed[3] - 2 * query[3], shared[2]};
    const auto rows_fit = [&](const Shape& shape, size_t dims) {
      return std::equal(query.begin(), query.begin() + static_cast<int64_t>(dims), shape.begin());
    };
    fits = l.positions % 2 == 0 && l.plain() >= 0 && l.value_width > 0 && latent[3] == l.of_latent() &&
           rows_fit(shared, 2) && rows_fit(latent, 3) && rows_fit(packed, 3);
  }
  if (fits) return l;
  return absl::InvalidArgumentError(absl::StrCat("queries ", ToText(query), ", the keys' shared part ", ToText(shared),
                                                 ", keys with values ", ToText(latent), " and heads ", ToText(packed),
                                                 " do not fit"));
}

absl::StatusOr<TurnedHeads> TurnedHeadsOf(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
  const int64_t given = call.attrs->head_width;
  const bool apart = x.size() == 5 && given == 0, behind = x.size() == 4 && given > 0 && x[3] > given;
  if ((!apart && !behind) || y != x) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants (s, b, g, r, d), or (s, b, g, w) and the width of a head; found ", ToText(x)));
  }
  TurnedHeads heads;
  heads.groups = x[1] * x[2];
  heads.width = apart ? x[4] : given;
  heads.heads = apart ? x[3] - 1 : (x[3] - 1) / given;
  heads.value_width = apart ? x[4] : x[3] - heads.heads * given;
  if (heads.width % 2 != 0 || heads.value_width % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("wants heads of even widths, found ", ToText(x)));
  }
  const int64_t turned = call.attrs->turned;
  if (turned < 0 || turned > heads.width || turned % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("wants an even number of at most ", heads.width, " elements to turn, found ", turned));
  }
  heads.turned = turned == 0 ? heads.width : turned;
  return heads;
}

absl::StatusOr<int64_t> NormedHeadsOf(const KernelCall& call) {
  const bool back = call.op == OpKind::kNormHeadsGrad;
  const Shape &x = call.inputs[back ? 1 : 0].shape, &gamma = call.inputs[back ? 2 : 1].shape;
  if (x.size() == 5 && x[3] >= 3 && gamma == Shape{2, x[4]}) return x[3];
  return absl::InvalidArgumentError(
      absl::StrCat("wants (s, b, g, r, d) with r of 3 or more, and (2, d); found ", ToText(x), " and ", ToText(gamma)));
}

absl::StatusOr<ConvShape> ConvShapeOf(const KernelCall& call) {
  const auto in = call.inputs.subspan(call.op == OpKind::kCausalConvGrad ? 1 : 0);
  if (in.size() == 2 || in.size() == 3) {
    const Shape &x = in[0].shape, &weight = in[1].shape;
    if (x.size() == 4 && weight.size() == 3 && weight[0] == x[2] && weight[1] == x[3] && weight[2] >= 1 &&
        (in.size() == 2 || in[2].shape == Shape{x[2], x[3]})) {
      return ConvShape{.s = x[0], .b = x[1], .channels = x[2] * x[3], .taps = weight[2], .bias = in.size() == 3};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("wants (s, b, y, w), (y, w, k) and perhaps (y, w); found ", in.size(),
                                                 " operands, the first ", in.empty() ? "none" : ToText(in[0].shape)));
}

absl::StatusOr<RecurrenceShape> RecurrenceOf(const KernelCall& call) {
  const bool back = call.op == OpKind::kLinearAttentionGrad;
  std::vector<Shape> shapes;
  for (const TensorView& view : call.inputs.subspan(back ? 1 : 0)) shapes.push_back(view.shape);
  const Shape& result = back ? call.inputs[0].shape : call.outputs[0].shape;
  const std::optional<RecurrenceShape> found = RecurrenceShapeOf(shapes, result);
  if (found.has_value()) return *found;
  return absl::InvalidArgumentError(absl::StrCat(
      "operands ",
      absl::StrJoin(shapes, ", ", [](std::string* out, const Shape& shape) { absl::StrAppend(out, ToText(shape)); }),
      " and ", ToText(result), " do not fit (ir/recurrence.h)"));
}

absl::StatusOr<int64_t> GammaRowsOf(const KernelCall& call) {
  const auto in = call.inputs.subspan(call.op == OpKind::kGatedRmsNormGrad ? 1 : 0);
  const Shape &x = in[0].shape, &gamma = in[2].shape;
  const bool one = gamma.size() == 1, fits = !x.empty() && !gamma.empty() && gamma.back() == x.back();
  if (fits && in[1].shape == x && (one || (gamma.size() == 2 && x.size() >= 2 && gamma[0] == x[x.size() - 2]))) {
    return one ? 1 : gamma[0];
  }
  return absl::InvalidArgumentError(absl::StrCat("wants two alike and gamma of their last dim or two; found ",
                                                 ToText(x), ", ", ToText(in[1].shape), " and ", ToText(gamma)));
}

absl::StatusOr<StridedPart> StridedPartOf(const KernelCall& call) {
  const bool gradient = call.op == OpKind::kStridedSliceGrad;
  const Shape& large = gradient ? call.outputs[0].shape : call.inputs[0].shape;
  const Shape& small = gradient ? call.inputs[0].shape : call.outputs[0].shape;
  const Shape &begin = call.attrs->begin, &by = call.attrs->strides;
  const Shape in_large = RowMajorStrides(large), in_small = RowMajorStrides(small);
  StridedPart part;
  for (size_t d = 0; d < large.size(); ++d) {
    const bool cut = call.rule->inputs[0][d].label != call.rule->outputs[0][d].label;
    const int64_t first = cut && d < begin.size() ? begin[d] : 0, stride = cut && d < by.size() ? by[d] : 1;
    if (first < 0 || stride < 1 || first + (small[d] - 1) * stride >= large[d]) {
      return absl::InvalidArgumentError(absl::StrCat("from ", first, " by ", stride, ": there are no ", small[d],
                                                     " of ", large[d], " elements of dim ", d));
    }
    part.begin += first * in_large[d];
    part.dims.push_back({small[d], {stride * in_large[d], in_small[d]}});
  }
  return part;
}

absl::StatusOr<int64_t> BeginOfSlice(const TensorView& from, const TensorView& to) {
  const size_t dims = from.shape.size();
  if (to.shape.size() != dims || from.dtype != to.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("slice of ", ToText(from.shape), " as ", ToText(to.shape)));
  }
  const Shape strides = RowMajorStrides(from.shape);
  int64_t element = 0;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t begin = to.begin[d] - from.begin[d];
    if (begin < 0 || begin + to.shape[d] > from.shape[d]) {
      return absl::InvalidArgumentError(absl::StrCat("slice ", ToText(to.shape), " at ", ToText(to.begin), " of ",
                                                     ToText(from.shape), " at ", ToText(from.begin)));
    }
    element += begin * strides[d];
  }
  return element;
}

}  // namespace meshwright
