#include "ir/shared.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

using Words = std::vector<std::string>;

TEST(SharedTest, CopiesShareUntilOneIsChanged) {
  const Shared<Words> all = Words{"data", "tensor"};
  Shared<Words> own = all;
  EXPECT_EQ(&*own, &*all);
  own.Change([](Words& words) { words.push_back("pipeline"); });
  EXPECT_EQ(*all, (Words{"data", "tensor"}));
  EXPECT_EQ(*own, (Words{"data", "tensor", "pipeline"}));
}

TEST(SharedTest, WhatWasMadeFromNothingIsTheDefault) {
  Shared<Words> nothing;
  EXPECT_TRUE(nothing->empty());
  EXPECT_EQ(nothing, Shared<Words>(Words()));
  nothing.Change([](Words& words) { words.push_back("data"); });
  EXPECT_EQ(nothing->size(), 1u);
  EXPECT_TRUE(Shared<Words>()->empty());
}

TEST(SharedTest, EqualityIsOfTheValues) {
  const Shared<Words> one = Words{"data"}, same = Words{"data"}, other = Words{"tensor"};
  EXPECT_EQ(one, same);
  EXPECT_FALSE(one == other);
}

// Also where the change reads the value that it replaces.
TEST(SharedTest, ChangeMayReadTheOldValue) {
  Shared<Words> words = Words{"data"};
  words.Change([&words](Words& own) { own.push_back((*words)[0] + " parallel"); });
  EXPECT_EQ(*words, (Words{"data", "data parallel"}));
}

}  // namespace
}  // namespace meshwright
