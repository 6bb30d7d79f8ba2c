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

std::vector<Nanos> Alike(size_t layers, int64_t nanos) { return std::vector<Nanos>(layers, Nanos(nanos)); }

// 61 layers and a head as long as 2.9 of them, on 16 stages: 63.9 / 16 is a little less than 4, so the last has one.
TEST(BalanceTest, TheHeadCountsAsLayers) {
  const PartCosts costs = {Alike(61, 1000), Nanos(), Nanos(2900)};
  const std::vector<int64_t> layers = BalancedLayers(costs, 16);
  ASSERT_EQ(layers.size(), 16u);
  EXPECT_EQ(layers.back(), 1);
  EXPECT_EQ(*std::max_element(layers.begin(), layers.end()), 4);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), 61);
  // On 32 parts the head is alone.
  EXPECT_EQ(BalancedLayers(costs, 32).back(), 0);
}

// 13 layers and a head of two: 15 for four parts, of which the first has three.
TEST(BalanceTest, WhatIsLeftOverIsBehind) {
  EXPECT_THAT(BalancedLayers({Alike(13, 10), Nanos(), Nanos(20)}, 4), ElementsAre(3, 4, 4, 2));
  EXPECT_THAT(BalancedLayers({Alike(13, 10), Nanos(20), Nanos(20)}, 4), ElementsAre(1, 4, 5, 3));
}

// Even numbers are as good: no head; a head that is less than what a layer more would cost.
TEST(BalanceTest, NothingWhereEvenNumbersAreAsGood) {
  EXPECT_THAT(BalancedLayers({Alike(32, 10), Nanos(), Nanos()}, 4), IsEmpty());
  EXPECT_THAT(BalancedLayers({Alike(96, 100), Nanos(), Nanos(35)}, 16), IsEmpty());
  EXPECT_THAT(BalancedLayers({Alike(3, 10), Nanos(), Nanos(100)}, 4), IsEmpty());
}

TEST(BalanceTest, LayersOfSeveralKinds) {
  // Four of half the cost in front: 160 in all, and 80 on each of two parts.
  std::vector<Nanos> layers = Alike(4, 10);
  for (const Nanos more : Alike(6, 20)) layers.push_back(more);
  EXPECT_THAT(BalancedLayers({layers, Nanos(), Nanos()}, 2), ElementsAre(6, 4));
  // Layers of 5 and of 15 in turns, 120 in all, and a head of 40: 80 on each of two parts, which are 8 and 4 of them.
  layers.clear();
  for (int i = 0; i < 12; ++i) layers.push_back(Nanos(i % 2 == 0 ? 5 : 15));
  EXPECT_THAT(BalancedLayers({layers, Nanos(), Nanos(40)}, 2), ElementsAre(8, 4));
}

}  // namespace
}  // namespace meshwright
