#include "costmodel/cost_model.h"

#include "costmodel/testing.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(CostModelTest, PricesAreThoseOfTheFormulas) {
  const CostModel model(H100Cluster(2));
  KernelWork work;
  work.kernel = KernelClass::kMemory;
  work.read = MiB(64);
  EXPECT_EQ(model.Kernel(work), PriceKernel(work, model.cluster().device));
  EXPECT_EQ(model.Collective(CollectiveKind::kAllReduce, MiB(8), Evenly(16, 2)).time,
            PriceCollective(CollectiveKind::kAllReduce, MiB(8), Evenly(16, 2), model.cluster()).time);
  EXPECT_EQ(model.SendRecv(MiB(8), true).time, PriceSendRecv(MiB(8), true, model.cluster()).time);
  EXPECT_EQ(model.HostLaunch(), Micros(5));
}

// 24 blocks cost 1.9 multiprocessors each, 45.6 of 132: 132 / 86.4, between what was published of 24 blocks, 1.35 and
// 1.70.
TEST(CostModelTest, ComputeSlowsByTheMultiprocessorsThatAreTaken) {
  const CostModel model(H100Cluster(1));
  EXPECT_DOUBLE_EQ(model.ComputeSlowdown(0), 1);
  EXPECT_DOUBLE_EQ(model.ComputeSlowdown(24), 132.0 / 86.4);
  EXPECT_DOUBLE_EQ(model.ComputeSlowdown(1000), 10);  // never entirely
}

// A ring at 340 GB/s touches memory at 3 x 340 = 1020 of 3350 GB/s.
TEST(CostModelTest, MemoryBoundKernelsSlowByTheBandwidthThatIsTaken) {
  const CostModel model(H100Cluster(1));
  EXPECT_DOUBLE_EQ(model.MemorySlowdown(GBps(0)), 1);
  EXPECT_NEAR(model.MemorySlowdown(GBps(340)), 1 / (1 - 1020.0 / 3350), 1e-12);
}

}  // namespace
}  // namespace meshwright
