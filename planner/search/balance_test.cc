#include "planner/search/balance.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 61 layers and a head as long as 2.9 of them, on 16 stages: 63.9 / 16 is a little less than 4, so the last has one.
TEST(BalanceTest, TheHeadCountsAsLayers) {
  const std::vector<Stack> chain = {{1, 61, 1}};
  const std::vector<int64_t> layers = BalancedLayers(chain, {{Nanos(1000)}, Nanos(), Nanos(2900)}, 16);
  ASSERT_EQ(layers.size(), 16u);
  EXPECT_EQ(layers.back(), 1);
  EXPECT_EQ(*std::max_element(layers.begin(), layers.end()), 4);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), 61);
  // On 32 parts the head is alone.
  EXPECT_EQ(BalancedLayers(chain, {{Nanos(1000)}, Nanos(), Nanos(2900)}, 32).back(), 0);
}

// 13 layers and a head of two: 15 for four parts, of which the first has three.
TEST(BalanceTest, WhatIsLeftOverIsBehind) {
  EXPECT_THAT(BalancedLayers({{1, 13, 1}}, {{Nanos(10)}, Nanos(), Nanos(20)}, 4), ElementsAre(3, 4, 4, 2));
  EXPECT_THAT(BalancedLayers({{1, 13, 1}}, {{Nanos(10)}, Nanos(20), Nanos(20)}, 4), ElementsAre(1, 4, 5, 3));
}

// Even numbers are as good: no head; a head that is less than what a layer more would cost.
TEST(BalanceTest, NothingWhereEvenNumbersAreAsGood) {
  EXPECT_THAT(BalancedLayers({{1, 32, 1}}, {{Nanos(10)}, Nanos(), Nanos()}, 4), IsEmpty());
  EXPECT_THAT(BalancedLayers({{1, 96, 1}}, {{Nanos(100)}, Nanos(), Nanos(35)}, 16), IsEmpty());
  EXPECT_THAT(BalancedLayers({{1, 3, 1}}, {{Nanos(10)}, Nanos(), Nanos(100)}, 4), IsEmpty());
}

// Three layers of half the cost in front, and runs of two that are not cut.
TEST(BalanceTest, LayersOfSeveralKinds) {
  EXPECT_THAT(BalancedLayers({{1, 4, 1}, {2, 6, 1}}, {{Nanos(10), Nanos(20)}, Nanos(), Nanos()}, 2), ElementsAre(6, 4));
  EXPECT_THAT(BalancedLayers({{1, 12, 2}}, {{Nanos(20)}, Nanos(), Nanos(40)}, 2), ElementsAre(14, 10));
}

}  // namespace
}  // namespace meshwright
