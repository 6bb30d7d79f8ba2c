// How the operands of an attention hold its heads.
//
// A group's heads lie beside each other, (s, b, g, r, d), all of one width: its queries, then key and value. Or they
// lie one behind the other, (s, b, g, w), where values have another width than keys, as latent attention's do. Both are
// the same in memory where the widths are equal. Queries may stand apart from keys and values, (s, b, g, q, d) and (t,
// b, g, 2, d), or (s, b, g, q d) and (t, b, g, d + u).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_HEADS_H_
#define MESHWRIGHT_IR_HEADS_H_

#include <cstdint>
#include <optional>

#include "ir/layout.h"

namespace meshwright {

// Of one group. Strides and places are elements of the operand that holds it.
struct HeadSizes {
  int64_t queries = 0;                       // heads with a query; they share key and value
  int64_t width = 0, value_width = 0;        // of a query or key, and of a value
  int64_t query_stride = 0, key_stride = 0;  // what the operands hold of a group at one position
  int64_t key_at = 0;                        // where the key begins; the value follows it
};

// `queries` and `keys` are the same shape where one operand holds both; `result` is (s, b, g, q, u). Nothing where they
// do not fit together.
std::optional<HeadSizes> HeadSizesOf(const Shape& queries, const Shape& keys, bool apart, const Shape& result);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_HEADS_H_
