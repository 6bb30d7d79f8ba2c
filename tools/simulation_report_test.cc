#include "tools/simulation_report.h"

#include <vector>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

MemoryPoint At(int64_t time, int64_t bytes) { return {0, Nanos(time), Bytes(bytes)}; }

TEST(MemoryLineTest, TenthsOfTheWhole) {
  // 20 of 100 until 50, then 99, from 90 on all of it.
  const std::vector<MemoryPoint> points = {At(0, 20), At(50, 99), At(90, 100)};
  EXPECT_EQ(MemoryLine(points, Nanos(100), Bytes(100), 10), "222229999#");
}

TEST(MemoryLineTest, APartShowsTheMostInUse) {
  // A peak of one nanosecond in the third of four parts.
  const std::vector<MemoryPoint> points = {At(0, 10), At(60, 70), At(61, 10)};
  EXPECT_EQ(MemoryLine(points, Nanos(100), Bytes(100), 4), "1171");
}

TEST(MemoryLineTest, NothingHappens) {
  EXPECT_EQ(MemoryLine({}, Nanos(0), Bytes(0), 3), "000");
  EXPECT_EQ(MemoryLine({At(0, 5)}, Nanos(10), Bytes(10), 3), "555");
}

}  // namespace
}  // namespace meshwright
