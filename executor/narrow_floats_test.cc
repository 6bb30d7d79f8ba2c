#include "executor/narrow_floats.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(NarrowFloatsTest, EveryFloat16IsItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(ToFloat16(value), bits) << value;
  }
}

TEST(NarrowFloatsTest, RoundsToTheNearestTiesToEven) {
  EXPECT_EQ(FromFloat16(0x3c00), 1.0f);
  EXPECT_EQ(FromFloat16(0x7bff), 65504.0f);
  EXPECT_EQ(FromFloat16(0x0001), 0x1p-24f);
  EXPECT_EQ(FromFloat16(ToFloat16(1 + 0x1p-11f)), 1.0f);             // halfway to 1 + 2^-10: the even one
  EXPECT_EQ(FromFloat16(ToFloat16(1 + 3 * 0x1p-11f)), 1 + 0x1p-9f);  // halfway again, the even one is above
  EXPECT_EQ(FromFloat16(ToFloat16(1 + 0x1p-11f + 0x1p-20f)), 1 + 0x1p-10f);
  EXPECT_EQ(FromFloat16(ToFloat16(65519)), 65504.0f);
  EXPECT_EQ(FromFloat16(ToFloat16(-65520)), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(FromFloat16(ToFloat16(0x1p-25f)), 0.0f);  // halfway to the smallest
  EXPECT_EQ(FromFloat16(ToFloat16(3 * 0x1p-26f)), 0x1p-24f);
  EXPECT_TRUE(std::isnan(FromFloat16(ToFloat16(std::nanf("")))));
}

TEST(NarrowFloatsTest, BFloat16IsTheUpperHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromBFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(ToBFloat16(value), bits) << value;
  }
  EXPECT_EQ(FromBFloat16(ToBFloat16(1 + 0x1p-8f)), 1.0f);  // halfway to 1 + 2^-7
  EXPECT_EQ(FromBFloat16(ToBFloat16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  EXPECT_TRUE(std::isnan(FromBFloat16(ToBFloat16(std::nanf("")))));
}

}  // namespace
}  // namespace meshwright
