#include "executor/product_groups.h"

#include <algorithm>

#include "executor/call_operands.h"
#include "ir/status.h"

namespace meshwright {

absl::StatusOr<ProductGroups> GroupsOf(const KernelCall& call) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Shape extents, LabelExtentsOf(call));
  const IndexRule& rule = *call.rule;
  const LabelStrides a = StridesByLabel(rule, rule.inputs[0], call.inputs[0].shape);
  const LabelStrides b = StridesByLabel(rule, rule.inputs[1], call.inputs[1].shape);
  const LabelStrides c = StridesByLabel(rule, rule.outputs[0], call.outputs[0].shape);
  ProductGroups p;
  for (size_t label = 0; label < rule.labels.size(); ++label) {
    const LabelDim dim = {extents[label], a[label], b[label], c[label], label};
    const bool in_a = dim.a != 0, in_b = dim.b != 0, in_c = dim.c != 0;
    if (dim.extent == 1 || (!in_a && !in_b && !in_c)) continue;
    LabelGroup* const groups[2][2][2] = {{{nullptr, &p.c_only}, {&p.b_only, &p.n}},
                                         {{&p.a_only, &p.m}, {&p.k, &p.batch}}};
    groups[in_a][in_b][in_c]->push_back(dim);
  }
  const auto by = [](int64_t LabelDim::*stride) {
    return [stride](const LabelDim& x, const LabelDim& y) { return x.*stride > y.*stride; };
  };
  for (LabelGroup* group : {&p.batch, &p.m, &p.n}) std::stable_sort(group->begin(), group->end(), by(&LabelDim::c));
  std::stable_sort(p.k.begin(), p.k.end(), by(&LabelDim::a));
  return p;
}

int64_t Extent(const LabelGroup& group) {
  int64_t extent = 1;
  for (const LabelDim& dim : group) extent *= dim.extent;
  return extent;
}

int64_t MergedStride(const LabelGroup& group, int64_t LabelDim::*stride) {
  for (size_t i = 0; i + 1 < group.size(); ++i) {
    if (group[i].*stride != group[i + 1].*stride * group[i + 1].extent) return 0;
  }
  return group.empty() ? 1 : group.back().*stride;
}

std::optional<MatrixPlace> PlaceOf(const LabelGroup& rows, const LabelGroup& columns, int64_t LabelDim::*stride) {
  const int64_t row = MergedStride(rows, stride), column = MergedStride(columns, stride);
  if (row == 0 || column == 0) return std::nullopt;
  if (columns.empty() || column == 1) {
    const int64_t leading = rows.empty() ? Extent(columns) : row;
    if (leading < Extent(columns)) return std::nullopt;
    return MatrixPlace{leading, false};
  }
  if (rows.empty() || row == 1) {
    if (column < Extent(rows)) return std::nullopt;
    return MatrixPlace{column, true};
  }
  return std::nullopt;
}

}  // namespace meshwright
