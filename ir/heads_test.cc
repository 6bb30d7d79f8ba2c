#include "ir/heads.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(HeadsTest, HeadsOfOneWidthStandBesideEachOther) {
  // Two queries, a key and a value of 4 elements.
  const std::optional<HeadSizes> sizes = HeadSizesOf({6, 2, 3, 4, 4}, {6, 2, 3, 4, 4}, false, {6, 2, 3, 2, 4});
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(sizes->queries, 2);
  EXPECT_EQ(sizes->width, 4);
  EXPECT_EQ(sizes->value_width, 4);
  EXPECT_EQ(sizes->query_stride, 16);
  EXPECT_EQ(sizes->key_at, 8);
}

// DeepSeek-V3: a query and a key of 128 + 64, a value of 128.
TEST(HeadsTest, ValuesMayBeNarrowerWhereHeadsLieOneBehindTheOther) {
  const std::optional<HeadSizes> sizes = HeadSizesOf({6, 2, 3, 512}, {6, 2, 3, 512}, false, {6, 2, 3, 1, 128});
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(sizes->width, 192);
  EXPECT_EQ(sizes->value_width, 128);
  EXPECT_EQ(sizes->key_at, 192);
  const std::optional<HeadSizes> apart = HeadSizesOf({6, 2, 3, 192}, {12, 2, 3, 320}, true, {6, 2, 3, 1, 128});
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(apart->width, 192);
  EXPECT_EQ(apart->key_at, 0);
  EXPECT_EQ(apart->key_stride, 320);
}

TEST(HeadsTest, WhatDoesNotFitIsNothing) {
  EXPECT_FALSE(HeadSizesOf({6, 2, 3, 4, 4}, {6, 2, 3, 4, 4}, false, {6, 2, 3, 3, 4}).has_value());  // three queries
  EXPECT_FALSE(HeadSizesOf({6, 2, 3, 4, 4}, {6, 2, 3, 4, 4}, false, {6, 2, 3, 2, 2}).has_value());  // narrow values
  EXPECT_FALSE(HeadSizesOf({6, 2, 3, 4, 4}, {6, 2, 3, 4, 4}, false, {6, 1, 3, 2, 4}).has_value());  // another batch
  EXPECT_FALSE(HeadSizesOf({6, 2, 3, 511}, {6, 2, 3, 511}, false, {6, 2, 3, 1, 128}).has_value());  // 383 is odd
  EXPECT_FALSE(HeadSizesOf({6, 2, 3, 192}, {6, 2, 3, 321}, true, {6, 2, 3, 1, 128}).has_value());
  EXPECT_FALSE(HeadSizesOf({6, 2}, {6, 2}, false, {6, 2, 3, 1, 128}).has_value());
}

}  // namespace
}  // namespace meshwright
