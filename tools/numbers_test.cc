#include "tools/numbers.h"

#include <string>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(ShortestNumberTest, ReadsBackTheSame) {
  for (const double x : {0.1, 1.0 / 3, 6.02e23, 0.29478240883880513, 2.3e-308}) {
    EXPECT_EQ(std::stod(ShortestNumber(x)), x);
  }
  EXPECT_EQ(ShortestNumber(0.1), "0.1");
  EXPECT_EQ(ShortestNumber(1.0f / 3), "0.33333334");  // a float
  EXPECT_EQ(ShortestNumber(48.0), "48");
}

TEST(ShowTest, FourDigits) {
  EXPECT_EQ(ShowTime(Nanos(0)), "0 s");
  EXPECT_EQ(ShowTime(Nanos(950)), "950 ns");
  EXPECT_EQ(ShowTime(Micros(12.345)), "12.35 us");
  EXPECT_EQ(ShowTime(Millis(812.34)), "812.3 ms");
  EXPECT_EQ(ShowSeconds(36.1234), "36.12 s");
  EXPECT_EQ(ShowSeconds(130.2), "130.2 s");  // steps of large models, which differ in the second
  EXPECT_EQ(ShowSeconds(600), "10.0 min");
  EXPECT_EQ(ShowSeconds(36000), "10.0 h");
  EXPECT_EQ(ShowSeconds(864000), "10.0 d");
}

TEST(ShowTest, Sizes) {
  EXPECT_EQ(ShowBytes(Bytes(17)), "17 B");
  EXPECT_EQ(ShowBytes(MiB(64)), "64 MiB");
  EXPECT_EQ(ShowBytes(Bytes(65'802'338'304)), "61.3 GiB");
  EXPECT_EQ(ShowCount(1234567), "1,234,567");
  EXPECT_EQ(ShowCount(-1234), "-1,234");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowLarge(174'604'259'328), "174.6 B");
  EXPECT_EQ(ShowLarge(300e9), "300 B");
  EXPECT_EQ(ShowLarge(999'960), "1 M");
  EXPECT_EQ(ShowLarge(999'940), "999.9 k");
  EXPECT_EQ(ShowPercent(0.4734), "47.3 %");
  EXPECT_EQ(ShowDollars(3.4), "$3.40");
  EXPECT_EQ(ShowDollars(1234.4), "$1,234");
  EXPECT_EQ(ShowDollars(3.36e6), "$3.36 M");
  EXPECT_EQ(ShowTuples({{2, 4}, {4, 1}}), "((2, 4), (4, 1))");
  EXPECT_EQ(ShowTuples({{8}}), "((8,),)");
}

}  // namespace
}  // namespace meshwright
