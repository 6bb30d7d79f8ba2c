// How one tensor lies on the ranks.
//
// For each dim the mesh axes that split it, in order (the first most significant), and the axes over which the ranks
// hold partial results that still have to be reduced. Axes that a layout does not name hold replicas.
//
//   (s, b, h) with {tp | dp | -}       dim 0 in pieces over tp, dim 1 over dp, dim 2 whole
//   {- | dp.sp | -} partial sum tp     dim 1 split by dp first, then sp; every tp rank holds one summand
//
// Shapes in a Graph are global; LocalShape gives what one rank holds. All pieces are equal (S4.3).
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_IR_LAYOUT_H_
#define MESHWRIGHT_IR_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "ir/mesh.h"

namespace meshwright {

using Shape = absl::InlinedVector<int64_t, 6>;

// How partial values combine.
enum class Reduction : uint8_t { kSum, kMax, kMin, kProd };

struct Layout {
  absl::InlinedVector<AxisList, 6> dims;
  AxisList partial;
  Reduction reduction = Reduction::kSum;  // of the partial values; kSum where there are none

  static Layout Replicated(size_t rank) { return Layout{absl::InlinedVector<AxisList, 6>(rank), {}, Reduction::kSum}; }
  bool IsReplicated() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

int64_t NumElements(const Shape& shape);
std::string ToText(const Shape& shape);  // "(16, 32)", "()" for a scalar

// kInvalidArgument when ranks differ, an axis is used twice or two axes are not orthogonal, or a dim does not divide.
absl::Status CheckLayout(const Shape& global, const Layout& layout, const Mesh& mesh);

// What one rank holds. REQUIRES: CheckLayout is OK.
Shape LocalShape(const Shape& global, const Layout& layout, const Mesh& mesh);

// Where `rank`'s piece begins in each dim. REQUIRES: CheckLayout is OK.
Shape SliceBegin(const Shape& global, const Layout& layout, const Mesh& mesh, int64_t rank);

// True when every rank of the mesh holds the same slice under both (spelling aside) and neither is partial or both are
// partial over the same axes.
bool SamePlacement(const Shape& global, const Layout& a, const Layout& b, const Mesh& mesh);

// "{tp | dp.sp | -} partial sum x1"; a scalar is "{}".
std::string ToText(const Layout& layout, const Mesh& mesh);
absl::StatusOr<Layout> ParseLayout(const std::string& text, const Mesh& mesh);

absl::string_view NameOf(Reduction reduction);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_LAYOUT_H_
