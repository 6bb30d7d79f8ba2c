#include "costmodel/variability.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

// The expected largest of n standard normal draws (tables of order statistics): 0 for 1, 0.564 for 2, 1.424 for
// 8, 2.508 for 100. Blom's formula is within 2 % of them.
TEST(SlowestClockTest, FollowsTheExpectedLargestOfSoManyDraws) {
  EXPECT_EQ(SlowestClock(1), 1);
  EXPECT_NEAR(1 / SlowestClock(2) - 1, 0.564 * kDeviceDeviation, 0.05 * kDeviceDeviation);
  EXPECT_NEAR(1 / SlowestClock(8) - 1, 1.424 * kDeviceDeviation, 0.05 * kDeviceDeviation);
  EXPECT_NEAR(1 / SlowestClock(100) - 1, 2.508 * kDeviceDeviation, 0.05 * kDeviceDeviation);
}

TEST(ExpectedLargestTest, IsThatOfOrderStatistics) {
  EXPECT_EQ(ExpectedLargest(1), 0);
  EXPECT_NEAR(ExpectedLargest(8), 1.424, 0.03);
}

TEST(SlowestClockTest, MoreDevicesAreNeverFaster) {
  for (int64_t n = 1; n < (1 << 20); n *= 2) EXPECT_GT(SlowestClock(n), SlowestClock(2 * n)) << n;
}

}  // namespace
}  // namespace meshwright
