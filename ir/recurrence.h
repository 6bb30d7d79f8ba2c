// What linear attention and state spaces compute (OpKind::kLinearAttention), and the sizes of a call of it.
//
// Of each head a state S, a matrix of `width` x `value_width`, goes along the sequence. With a token's query q, key k
// and value v, the logit x of its gate, and of the head the logarithm l of a rate and a bias c:
//   step = softplus(x + c),  decay = exp(-exp(l) step)
//   by the delta rule (Yang et al., Gated Delta Networks, arXiv:2412.06464, equation 10), where a second logit y gives
//   beta = sigmoid(y), keys and queries are divided by their length, and queries by the root of the width, too:
//     S' = decay S,  S = S' + beta k (v - S'^T k)^T,  o = S^T q
//   by the delta rule with a decay for each row of S, an element of keys (Kimi Linear, arXiv:2510.26692, equation 1): a
//   logit x and a bias c for each, of one rate
//   of state spaces (Mamba-2: Dao and Gu, arXiv:2405.21060, section 2), of a weight d of the head:
//     S = decay S + step k v^T,  o = S^T q + d v
// Heads of a group share query and key. An operand x holds of a group at one position its query, its key and a value
// for each of its heads; that of the gates x for each head, then y for each. Where rows decay apart, the gates are the
// rows of one head behind those of another, and y is an operand of its own.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_RECURRENCE_H_
#define MESHWRIGHT_IR_RECURRENCE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "ir/layout.h"

namespace meshwright {

// Added to the square of a key's or query's length before its root is taken (flash-linear-attention's l2norm).
inline constexpr double kLengthEpsilon = 1e-6;

struct RecurrenceShape {
  int64_t s = 0, b = 0, groups = 0, heads = 0;  // heads of one group
  int64_t width = 0, value_width = 0;           // of a query or key, and of a value
  bool delta = false, by_row = false;           // by_row: the delta rule, where rows decay apart

  constexpr int64_t of_group() const { return 2 * width + heads * value_width; }  // elements of x at a position
  constexpr int64_t decays() const { return by_row ? width : 1; }                 // of one head
  constexpr int64_t of_gates() const { return heads * (by_row ? width : delta ? 2 : 1); }
};

// `inputs` are x (s, b, y, w), gates (s, b, y, p), rates and biases (y, n), and of state spaces weights (y, n); where
// rows decay apart, biases are (y, n, k) and the fifth is y (s, b, y, n). `result` is (s, b, y, n, u). Nothing where
// they do not fit together.
std::optional<RecurrenceShape> RecurrenceShapeOf(absl::Span<const Shape> inputs, const Shape& result);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_RECURRENCE_H_
