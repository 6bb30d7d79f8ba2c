#include "executor/call_operands.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "ir/status.h"

namespace meshwright {
namespace {

absl::Status CheckUnsplitDims(absl::Span<const OperandRule> operands, absl::Span<const Shape> shapes) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].size(); ++d) {
      if (operands[i][d].label != DimRule::kUnsplit || shapes[i][d] == 1) continue;
      return absl::InvalidArgumentError(absl::StrCat("dim ", d, " of ", ToText(shapes[i]), " must be 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (call.rule == nullptr || call.rule->inputs.size() != call.inputs.size() ||
      call.rule->outputs.size() != call.outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", call.inputs.size(), " inputs and ", call.outputs.size(),
                                                   " outputs, its rule is \"",
                                                   call.rule == nullptr ? "" : ToText(*call.rule), "\""));
  }
  std::vector<Shape> inputs, outputs;
  for (const TensorView& view : call.inputs) inputs.push_back(view.shape);
  for (const TensorView& view : call.outputs) outputs.push_back(view.shape);
  MESHWRIGHT_ASSIGN_OR_RETURN(const Shape extents, LabelExtents(*call.rule, inputs, outputs));
  MESHWRIGHT_RETURN_IF_ERROR(CheckUnsplitDims(call.rule->inputs, inputs));
  MESHWRIGHT_RETURN_IF_ERROR(CheckUnsplitDims(call.rule->outputs, outputs));
  return extents;
}

}  // namespace meshwright
