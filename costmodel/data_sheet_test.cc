#include "costmodel/data_sheet.h"

#include "costmodel/collective_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

TEST(FromDataSheetTest, SharesOfTheOneAndPeaksOfTheOther) {
  ASSERT_OK_AND_ASSIGN(const Cluster a100, MakeCluster("a100", 1, 8));
  ASSERT_OK_AND_ASSIGN(const Cluster h100, MakeCluster("h100", 1, 8));
  const Device device = FromDataSheet(h100.device, a100.device);
  EXPECT_EQ(device.peak, h100.device.peak);
  EXPECT_EQ(device.kernels.matmul_share, a100.device.kernels.matmul_share);
  EXPECT_EQ(device.kernels.matmul_share_fp8, a100.device.kernels.matmul_share);
  EXPECT_EQ(device.kernels.sustained_clock, h100.device.kernels.sustained_clock);
  // 989 against 312 TFLOP/s.
  EXPECT_NEAR(device.kernels.l2_bandwidth.raw() / a100.device.kernels.l2_bandwidth.raw(), 3.170, 0.001);
  EXPECT_TRUE(device.kernels_estimated);
}

TEST(PriceCollectiveFittedOnTest, ItsOwnGenerationIsThePriceItself) {
  ASSERT_OK_AND_ASSIGN(const Cluster h100, MakeCluster("h100", 1, 8));
  ASSERT_OK_AND_ASSIGN(const Cluster a100, MakeCluster("a100", 1, 8));
  const GroupShape group = {8, 1, 8, 1};
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kAllToAll}) {
    const Nanos own = PriceCollective(kind, MiB(1), group, h100).time;
    EXPECT_EQ(PriceCollectiveFittedOn(h100.device, kind, MiB(1), group, h100).time, own);
    EXPECT_GT(PriceCollectiveFittedOn(a100.device, kind, MiB(1), group, h100).time, own);
  }
}

// Eight bytes are all latency. Vector clocks from the float32 peaks: 19.5 TFLOP/s / (108 x 64 x 2) = 1410.6 MHz on
// A100, 67 / (132 x 128 x 2) = 1982.7 on H100, whose ratio is 0.7114.
TEST(PriceCollectiveFittedOnTest, LatenciesShrinkAsTheVectorClockGrows) {
  ASSERT_OK_AND_ASSIGN(const Cluster h100, MakeCluster("h100", 1, 8));
  ASSERT_OK_AND_ASSIGN(const Cluster a100, MakeCluster("a100", 1, 8));
  const GroupShape group = {8, 1, 8, 1};
  const double own = ToSeconds(PriceCollective(CollectiveKind::kAllGather, Bytes(8), group, a100).time);
  const double other =
      ToSeconds(PriceCollectiveFittedOn(a100.device, CollectiveKind::kAllGather, Bytes(8), group, h100).time);
  EXPECT_NEAR(other / own, 0.7114, 1e-3);
}

// Chips of one generation have 64 lanes a multiprocessor or 128, as A100 and A10: twice the peak at the same clock.
TEST(PriceCollectiveFittedOnTest, LanesAreNoClock) {
  ASSERT_OK_AND_ASSIGN(const Cluster h100, MakeCluster("h100", 1, 8));
  ASSERT_OK_AND_ASSIGN(const Cluster narrow, MakeCluster("a100", 1, 8));
  Cluster wide = narrow;
  FlopsPerSecond& peak = wide.device.peak[static_cast<size_t>(DType::kFloat32)];
  peak = FlopsPerSecond(2 * peak.raw());
  const GroupShape group = {8, 1, 8, 1};
  EXPECT_EQ(PriceCollectiveFittedOn(h100.device, CollectiveKind::kAllGather, Bytes(8), group, wide).time,
            PriceCollectiveFittedOn(h100.device, CollectiveKind::kAllGather, Bytes(8), group, narrow).time);
}

}  // namespace
}  // namespace meshwright
