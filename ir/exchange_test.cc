#include "ir/exchange.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(ExchangeTest, TheFirstDimsCountRanks) {
  EXPECT_EQ(RankDims({1, 2, 3, 0}, {4, 5}), 1u);
  EXPECT_EQ(RankDims({1, 2, 3, 0}, {2, 2, 5}), 2u);
  EXPECT_EQ(RankDims({0}, {5, 5}), 0u);
}

// Four ranks as (2, 2): 0 = (0,0), 1 = (0,1), 2 = (1,0), 3 = (1,1).
TEST(ExchangeTest, ABroadcastGivesAllOfAGroupOneValue) {
  const Shape shape = {2, 2, 7};
  const auto all = BroadcastOf({3, 3, 3, 3}, shape);  // of the world: both dims, place 3
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->begin, 0u);
  EXPECT_EQ(all->end, 2u);
  EXPECT_EQ(all->root, 3);
  const auto pairs = BroadcastOf({1, 1, 3, 3}, shape);  // {0,1} from 1, {2,3} from 3: the second dim, place 1
  ASSERT_TRUE(pairs.has_value());
  EXPECT_EQ(pairs->begin, 1u);
  EXPECT_EQ(pairs->end, 2u);
  EXPECT_EQ(pairs->root, 1);
  const auto columns = BroadcastOf({0, 1, 0, 1}, shape);  // {0,2} from 0, {1,3} from 1: the first dim, place 0
  ASSERT_TRUE(columns.has_value());
  EXPECT_EQ(columns->begin, 0u);
  EXPECT_EQ(columns->end, 1u);
  EXPECT_EQ(columns->root, 0);
}

TEST(ExchangeTest, OtherExchangesAreNone) {
  EXPECT_FALSE(BroadcastOf({1, 2, 3, 0}, {4, 7}).has_value());     // a ring
  EXPECT_FALSE(BroadcastOf({0, 1, 2, 3}, {4, 7}).has_value());     // everybody keeps its own
  EXPECT_FALSE(BroadcastOf({0, -1, 0, 0}, {4, 7}).has_value());    // one gets zeros
  EXPECT_FALSE(BroadcastOf({1, 1, 2, 2}, {2, 2, 7}).has_value());  // roots at two places
}

}  // namespace
}  // namespace meshwright
