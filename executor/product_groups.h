// A sum over products of two tensors, a and b, seen as a matrix product: the labels of its rule in groups by the
// operands that have them, and how groups lie in memory.
//
// batch is in a, b and c, m in a and c, n in b and c, k in a and b; what is in one of the inputs alone is summed before
// the product, what is in c alone is repeated over. Further operands (a bias) have no say.
//
// Thread safety: pure functions, plain values.
#ifndef MESHWRIGHT_EXECUTOR_PRODUCT_GROUPS_H_
#define MESHWRIGHT_EXECUTOR_PRODUCT_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/kernel_call.h"

namespace meshwright {

struct LabelDim {
  int64_t extent;
  int64_t a, b, c;  // strides in elements, 0 where the operand lacks the label
  size_t label;     // of the rule
};
using LabelGroup = std::vector<LabelDim>;

struct ProductGroups {
  LabelGroup batch, m, n;  // as they lie in c, outermost first
  LabelGroup k;            // as it lies in a
  LabelGroup a_only, b_only, c_only;
};

// Labels of extent 1 are left out. kInvalidArgument as LabelExtentsOf; the call has two inputs and one output at least.
absl::StatusOr<ProductGroups> GroupsOf(const KernelCall& call);

int64_t Extent(const LabelGroup& group);  // of all its labels together; 1 where it has none

// The stride of the whole group in one operand, as if it were one dim; 0 when its labels do not lie beside each other.
int64_t MergedStride(const LabelGroup& group, int64_t LabelDim::*stride);

// How rows x columns of an operand lie: rows `leading` elements apart, or columns if `transposed`.
struct MatrixPlace {
  int64_t leading = 0;
  bool transposed = false;
};
// None where they do not lie as a matrix, one of the two groups contiguous.
std::optional<MatrixPlace> PlaceOf(const LabelGroup& rows, const LabelGroup& columns, int64_t LabelDim::*stride);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_PRODUCT_GROUPS_H_
