#include "ir/recurrence.h"

namespace meshwright {

std::optional<RecurrenceShape> RecurrenceShapeOf(absl::Span<const Shape> inputs, const Shape& result) {
  const bool by_row = inputs.size() == 5 && inputs[3].size() == 3, delta = inputs.size() == 4 || by_row;
  if ((!delta && inputs.size() != 5) || result.size() != 5 || inputs[0].size() != 4) return std::nullopt;
  RecurrenceShape shape{.s = result[0],
                        .b = result[1],
                        .groups = result[2],
                        .heads = result[3],
                        .width = 0,
                        .value_width = result[4],
                        .delta = delta,
                        .by_row = by_row};
  const int64_t both = inputs[0][3] - shape.heads * shape.value_width;  // query and key
  if (both < 2 || both % 2 != 0) return std::nullopt;
  shape.width = both / 2;
  if (inputs[0] != Shape{shape.s, shape.b, shape.groups, shape.of_group()}) return std::nullopt;
  if (inputs[1] != Shape{shape.s, shape.b, shape.groups, shape.of_gates()}) return std::nullopt;
  const Shape heads = {shape.groups, shape.heads};
  if (by_row) {
    if (inputs[2] != heads || inputs[3] != Shape{shape.groups, shape.heads, shape.width}) return std::nullopt;
    if (inputs[4] != Shape{shape.s, shape.b, shape.groups, shape.heads}) return std::nullopt;
    return shape;
  }
  for (const Shape& of_heads : inputs.subspan(2)) {
    if (of_heads != heads) return std::nullopt;
  }
  return shape;
}

}  // namespace meshwright
