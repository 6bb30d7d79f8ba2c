// Where the labels of a kernel call's rule lie in its operands: what every back end asks before it computes.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_
#define MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "executor/kernel_call.h"
#include "ir/index_rule.h"
#include "ir/layout.h"

namespace meshwright {

Shape RowMajorStrides(const Shape& shape);  // in elements

// In elements, per label of a rule; 0 where an operand does not have the label.
using LabelStrides = absl::InlinedVector<int64_t, 8>;
LabelStrides StridesByLabel(const IndexRule& rule, const OperandRule& operand, const Shape& shape);

// How far each label of the call's rule reaches in this rank's pieces. kInvalidArgument where the call has no rule, the
// rule has other operands than the call, their shapes do not agree, or a dim that the rule writes as 1 is longer.
absl::StatusOr<Shape> LabelExtentsOf(const KernelCall& call);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_
