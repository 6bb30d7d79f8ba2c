// The canonical redistribution of S7.3: the sequence of split, permute and concatenate steps by which the parallel
// interface that users know brings a tensor from one layout to another. It is what the compatible cost model prices
// (S14.7), and what the sequences of S7.6 to S7.10 show.
//
// It is not what a Program does: the passes redistribute by planner/redistribute.h, which is free to be cheaper (S7.5).
//
//   1. Dims of size 1 are dropped.
//   2. Both device matrices are refined to a common one (the boundaries of both), then the dims of the tensor until
//   each
//      is split by at most one axis on either side.
//   3. Until both sides agree: split every dim that should be split by an axis that no dim uses; move an axis from the
//      dim where it is to the dim where it should be; concatenate dims whose axis nobody wants; if nothing moved,
//      concatenate the first dim that is not as it should be.
//   4. A reshape before and after where refining changed what a rank holds.
// Where the matrices or the dims cannot be refined (2 x 3 against 3 x 2): everything is gathered, then split.
//
// Sizes are in elements, shapes are of one rank. Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_CANONICAL_REDISTRIBUTION_H_
#define MESHWRIGHT_PLANNER_SEARCH_CANONICAL_REDISTRIBUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/index_rule.h"
#include "ir/layout.h"
#include "ir/mesh.h"

namespace meshwright {

// A device matrix by the places where its axes end: strides, descending, from the number of ranks to 1. [2, 4, 1] of 8
// ranks is {8, 4, 1}. The axes matter also where the tensor does not use them (S7.8).
using MatrixBounds = std::vector<int64_t>;

// The matrix of an op of that assignment, the repeat axis included (S4.5); of a tensor by itself.
MatrixBounds BoundsOf(const Assignment& assignment, const Mesh& mesh, int64_t ranks);
MatrixBounds BoundsOf(const Layout& layout, const Mesh& mesh, int64_t ranks);

struct CanonicalStep {
  enum class Kind : uint8_t { kSplit, kConcat, kAllToAll };
  Kind kind = Kind::kSplit;
  size_t dim = 0;         // the dim that is split (kSplit, kAllToAll), or concatenated (kConcat)
  size_t concat_dim = 0;  // kAllToAll: the dim that is concatenated
  AxisList axes;          // along which: the group of ranks
  int64_t pieces = 1;     // the size of the group
  Shape after;            // what a rank then holds
};

struct CanonicalRedistribution {
  Shape before, refined_before;  // of the source, without dims of size 1; as the first step sees it
  std::vector<CanonicalStep> steps;
  Shape refined_after, after;  // as the last step leaves it; of the target, without dims of size 1
  // Whether there are steps and a reshape stands before or after them.
  bool reshapes() const { return !steps.empty() && (before != refined_before || after != refined_after); }
};

// REQUIRES: both layouts pass CheckLayout, are whole (not partial), and use axes whose boundaries are in their matrix.
// `all_to_all`: axes are moved by AlltoAll, else by AllGather and split (the knob enable_alltoall, S7.4).
CanonicalRedistribution CanonicallyRedistribute(const Shape& global, const Layout& from,
                                                const MatrixBounds& from_matrix, const Layout& to,
                                                const MatrixBounds& to_matrix, const Mesh& mesh, bool all_to_all);

// S14.7, in elements: what is sent forward and backward, touched, and held. The size of the refined source counts in
// every step, whatever the steps before made of it.
struct CanonicalCost {
  double forward = 0, backward = 0, computation = 0, memory = 0;
  friend bool operator==(const CanonicalCost&, const CanonicalCost&) = default;
};
CanonicalCost CostOf(const CanonicalRedistribution& way);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_CANONICAL_REDISTRIBUTION_H_
