// Where the labels of a kernel call's rule lie in its operands, and which elements go where in calls that move them:
// what every back end asks before it computes.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_
#define MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "executor/kernel_call.h"
#include "ir/index_rule.h"
#include "ir/layout.h"
#include "ir/recurrence.h"

namespace meshwright {

Shape RowMajorStrides(const Shape& shape);  // in elements

// In elements, per label of a rule; 0 where an operand does not have the label.
using LabelStrides = absl::InlinedVector<int64_t, 8>;
LabelStrides StridesByLabel(const IndexRule& rule, const OperandRule& operand, const Shape& shape);

// How far each label of the call's rule reaches in this rank's pieces. kInvalidArgument where the call has no rule, the
// rule has other operands than the call, their shapes do not agree, or a dim that the rule writes as 1 is longer.
absl::StatusOr<Shape> LabelExtentsOf(const KernelCall& call);

// A walk over two operands, outermost dim first: how many steps, and how many elements each step moves in either.
struct PairDim {
  int64_t extent;
  std::array<int64_t, 2> strides;
};
using PairDims = absl::InlinedVector<PairDim, 8>;

// Gather and its gradient: over the points of the ids (strides in ids and values), and along a row (in table and
// values). kInvalidArgument where ids are not int32, or the table has two dims that the values lack.
struct TableRows {
  PairDims points, row;
  int64_t begin = 0, rows = 0;  // of the table, here
  int64_t whole = -1;           // rows of the whole table
  int64_t row_stride = 0;
};
absl::StatusOr<TableRows> TableRowsOf(const KernelCall& call);

// Concat and Split: along the first dim whose label differs, the pieces (inputs or outputs) stand behind each other.
// kInvalidArgument where they do not make up that dim.
struct JoinedRows {
  int64_t rows = 1;                          // of the whole
  int64_t width = 0;                         // of such a row, in elements
  absl::InlinedVector<int64_t, 8> of_piece;  // of its rows
};
absl::StatusOr<JoinedRows> JoinedRowsOf(const KernelCall& call);

// LatentHeads and its gradient: the heads' sizes, in elements. kInvalidArgument where they do not fit together.
struct LatentShape {
  int64_t s = 0, b = 0, g = 0;
  int64_t width = 0, value_width = 0;  // of a query or key, and of a value
  int64_t positions = 0;               // the last elements of query and key, which are turned

  constexpr int64_t plain() const { return width - positions; }
  constexpr int64_t of_latent() const { return plain() + value_width; }
  constexpr int64_t packed() const { return 2 * width + value_width; }
};
absl::StatusOr<LatentShape> LatentShapeOf(const KernelCall& call);

// Rotary and its gradient. Of each group at one position: heads that are turned, one behind the other, of `width`
// elements each, of which the first `turned` are; behind them what is not, the value.
struct TurnedHeads {
  int64_t groups = 0, heads = 0, width = 0, turned = 0, value_width = 0;

  constexpr int64_t stride() const { return heads * width + value_width; }
};
// kInvalidArgument where these are not pairs, or the operands are neither (s, b, g, r, d) nor (s, b, g, w) with a
// width.
absl::StatusOr<TurnedHeads> TurnedHeadsOf(const KernelCall& call);

// NormHeads and its gradient: heads of a group: queries, a key and a value. kInvalidArgument where the first operands
// are not (s, b, g, r, d) with at least one query, or gamma is not (2, d).
absl::StatusOr<int64_t> NormedHeadsOf(const KernelCall& call);

// CausalConv and its gradient: sizes, and whether there is a bias. kInvalidArgument where operands are not (s, b, y,
// w), (y, w, k) and perhaps (y, w).
struct ConvShape {
  int64_t s = 0, b = 0, channels = 0, taps = 0;
  bool bias = false;
};
absl::StatusOr<ConvShape> ConvShapeOf(const KernelCall& call);

// LinearAttention and its gradient (ir/recurrence.h). kInvalidArgument where operands do not fit together.
absl::StatusOr<RecurrenceShape> RecurrenceOf(const KernelCall& call);

// GatedRMSNorm and its gradient: how many rows gamma has, the dim in front of the last, or one. kInvalidArgument where
// x and gate are not alike or gamma does not fit them.
absl::StatusOr<int64_t> GammaRowsOf(const KernelCall& call);

// StridedSlice and its gradient: where in the larger operand the first element is, and the walk over the larger and the
// smaller one. kInvalidArgument where the larger is too small.
struct StridedPart {
  int64_t begin = 0;
  PairDims dims;
};
absl::StatusOr<StridedPart> StridedPartOf(const KernelCall& call);

// Backend::RunSlice: the element of `from` where `to` begins. kInvalidArgument where `to` is no part of it.
absl::StatusOr<int64_t> BeginOfSlice(const TensorView& from, const TensorView& to);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_CALL_OPERANDS_H_
