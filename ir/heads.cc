#include "ir/heads.h"

#include <algorithm>

namespace meshwright {
namespace {

// Heads of a group in an operand: of the width `width` where the operand has a dim for them.
int64_t HeldOf(const Shape& shape) { return shape.size() == 5 ? shape[3] * shape[4] : shape[3]; }

bool SameBatch(const Shape& a, const Shape& b) { return std::equal(a.begin() + 1, a.begin() + 3, b.begin() + 1); }

}  // namespace

std::optional<HeadSizes> HeadSizesOf(const Shape& queries, const Shape& keys, bool apart, const Shape& result) {
  const size_t dims = queries.size();
  if ((dims != 4 && dims != 5) || keys.size() != dims || result.size() != 5) return std::nullopt;
  if (!SameBatch(queries, keys) || !SameBatch(queries, result) || queries[0] != result[0]) return std::nullopt;
  HeadSizes sizes;
  sizes.queries = result[3];
  sizes.value_width = result[4];
  sizes.query_stride = HeldOf(queries);
  sizes.key_stride = HeldOf(keys);
  // A query of each head, and in one operand with them the key.
  const int64_t of_keys = apart ? 0 : 1, all = sizes.query_stride - (apart ? 0 : sizes.value_width);
  if (sizes.queries < 1 || all < 0 || all % (sizes.queries + of_keys) != 0) return std::nullopt;
  sizes.width = all / (sizes.queries + of_keys);
  sizes.key_at = apart ? 0 : sizes.queries * sizes.width;
  if (sizes.key_at + sizes.width + sizes.value_width != sizes.key_stride) return std::nullopt;
  if (dims == 5) {
    const bool alike = queries[4] == sizes.width && keys[4] == sizes.width && sizes.value_width == sizes.width;
    if (!alike) return std::nullopt;
  }
  return sizes;
}

}  // namespace meshwright
