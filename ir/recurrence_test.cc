#include "ir/recurrence.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

// Qwen3-Next's heads: 16 queries and keys of 128, two values of 128 for each.
TEST(RecurrenceTest, SizesFollowFromTheOperands) {
  const Shape x = {4096, 1, 16, 512}, gates = {4096, 1, 16, 4}, heads = {16, 2}, y = {4096, 1, 16, 2, 128};
  const auto delta = RecurrenceShapeOf({x, gates, heads, heads}, y);
  ASSERT_TRUE(delta.has_value());
  EXPECT_EQ(delta->width, 128);
  EXPECT_EQ(delta->heads, 2);
  EXPECT_EQ(delta->of_group(), 512);
  EXPECT_TRUE(delta->delta);
  // A state space has one gate and a weight a head.
  EXPECT_FALSE(RecurrenceShapeOf({x, gates, heads, heads, heads}, y).has_value());
  const auto space = RecurrenceShapeOf({x, {4096, 1, 16, 2}, heads, heads, heads}, y);
  ASSERT_TRUE(space.has_value());
  EXPECT_FALSE(space->delta);
}

// Kimi Linear's: 32 heads of 128, each row of which decays apart.
TEST(RecurrenceTest, RowsMayDecayApart) {
  const Shape x = {512, 1, 32, 384}, decays = {512, 1, 32, 128}, rates = {32, 1}, biases = {32, 1, 128},
              amounts = {512, 1, 32, 1}, y = {512, 1, 32, 1, 128};
  const auto shape = RecurrenceShapeOf({x, decays, rates, biases, amounts}, y);
  ASSERT_TRUE(shape.has_value());
  EXPECT_TRUE(shape->delta);
  EXPECT_TRUE(shape->by_row);
  EXPECT_EQ(shape->decays(), 128);
  EXPECT_EQ(shape->of_gates(), 128);
  EXPECT_FALSE(RecurrenceShapeOf({x, decays, rates, biases}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, amounts, rates, biases, amounts}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, decays, rates, {32, 1, 64}, amounts}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, decays, biases, biases, amounts}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, decays, rates, biases, rates}, y).has_value());
}

TEST(RecurrenceTest, OperandsThatDoNotFitAreNone) {
  const Shape x = {8, 1, 2, 12}, gates = {8, 1, 2, 4}, heads = {2, 2}, y = {8, 1, 2, 2, 4};
  ASSERT_TRUE(RecurrenceShapeOf({x, gates, heads, heads}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({{8, 1, 2, 11}, gates, heads, heads}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({{8, 1, 2, 8}, gates, heads, heads}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({{7, 1, 2, 12}, gates, heads, heads}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, gates, heads, {2}}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, gates, heads}, y).has_value());
  EXPECT_FALSE(RecurrenceShapeOf({x, gates, heads, heads}, {8, 1, 2, 8}).has_value());
}

}  // namespace
}  // namespace meshwright
