#include "executor/call_operands.h"

#include <vector>

#include "absl/status/status.h"

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

}  // namespace meshwright
