// Index rules: what an operator does to dims, in the manner of an einsum.
//
//   "m k, k n -> m n"           k is in the inputs only: it is reduced; where it is split each rank holds a partial sum
//   "s b h!, h!, h! -> s b h!"  a label marked '!' must stay whole
//   "v h, b s -> s b h"         v is reduced by selection; the same rule serves split and whole tables
//   "s b h, s b e! -> e! =b h"  '=b': a dim of its own size that is split exactly as b is
//   "... c!, ... -> "           '...' stands for the leading dims that a row of the table leaves open; a scalar output
//                               has no labels
//
// A label that stands in outputs only is new: every rank makes its own piece of it.
//
// From the rule follow: the legal layouts of an op, its output layouts with their partial axes, its local shapes, the
// layouts of its backward ops (which use the same labels), and its operation count. See design decision 2.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_IR_INDEX_RULE_H_
#define MESHWRIGHT_IR_INDEX_RULE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/layout.h"
#include "ir/shared.h"

namespace meshwright {

// One dim of one operand. `label` indexes IndexRule::labels; kUnsplit is a broadcast dim of size 1.
struct DimRule {
  static constexpr int8_t kUnsplit = -1;
  int8_t label = kUnsplit;
  bool own_size = false;  // '=label': split with the label, sized on its own
  friend bool operator==(const DimRule&, const DimRule&) = default;
};
using OperandRule = absl::InlinedVector<DimRule, 6>;

struct Label {
  std::string name;
  bool whole = false;  // marked '!'
  friend bool operator==(const Label&, const Label&) = default;
};

struct IndexRule {
  static constexpr size_t kMostLabels = 100;  // that text can be read with

  std::vector<Label> labels;  // in order of first appearance
  std::vector<OperandRule> inputs, outputs;

  // The label's index, or -1.
  int FindLabel(absl::string_view name) const;
  bool InInputs(int label) const;
  bool InOutput(int label, size_t output) const;
  friend bool operator==(const IndexRule&, const IndexRule&) = default;
};

// Parses a rule without '...'. kInvalidArgument names the offending text.
absl::StatusOr<IndexRule> ParseRule(absl::string_view text);
// The same, shared by all that a thread asks for: operators are many, and their rules few.
absl::StatusOr<Shared<IndexRule>> ParsedRule(absl::string_view text);
std::string ToText(const IndexRule& rule);

// "d0 d1, d0 d1 -> d0 d1": of an elementwise op, each operand of `rank` dims.
IndexRule ElementwiseRule(size_t rank, size_t inputs, size_t outputs);

// Instantiates a template row for given input shapes: expands '...' to as many labels d0, d1, ... as the inputs need
// (right-aligned, as broadcasting does; an input dim of size 1 beside a larger one, or a missing one, is not split and
// not named), and repeats the last input pattern for further inputs where the template ends in ", *".
absl::StatusOr<IndexRule> InstantiateRule(absl::string_view row, absl::Span<const Shape> inputs);

// The extent of every label, from the operands that name it. kInvalidArgument when two operands disagree:
// "k is 32 in input 0 and 4 in input 1". Labels that stand in outputs only get theirs from `outputs` where given.
absl::StatusOr<Shape> LabelExtents(const IndexRule& rule, absl::Span<const Shape> inputs,
                                   absl::Span<const Shape> outputs);

// Shapes of the outputs from the label extents. Dims with a size of their own are 0 until the caller fills them in.
std::vector<Shape> InferShapes(const IndexRule& rule, const Shape& extents);

// How an op's index space is laid out: for each label the axes that split it. The one thing a strategy decides per op.
using Assignment = absl::InlinedVector<AxisList, 8>;

Layout InputLayout(const IndexRule& rule, const Assignment& assignment, size_t input);
// With the axes of labels that this output lacks, and some input has, as partial axes.
Layout OutputLayout(const IndexRule& rule, const Assignment& assignment, size_t output, Reduction reduction);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_INDEX_RULE_H_
