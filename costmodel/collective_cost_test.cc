#include "costmodel/collective_cost.h"

#include <cstdint>

#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/collective.h"

namespace meshwright {
namespace {

constexpr int64_t kMi = 1 << 20;

double Micros(const CollectiveCost& cost) { return ToSeconds(cost.time) * 1e6; }

TEST(CollectiveCostTest, OneRankOrNoBytesCostNothing) {
  for (const CollectiveInfo& row : kCollectives) {
    EXPECT_EQ(PriceCollective(row.kind, MiB(64), Evenly(1, 1), H100Cluster(1)).time, Nanos(0)) << row.name;
    EXPECT_EQ(PriceCollective(row.kind, Bytes(0), Evenly(8, 1), H100Cluster(1)).time, Nanos(0)) << row.name;
  }
}

// A bus cannot carry more than its link: time >= bus factor x S / link, but where the switch reduces.
TEST(CollectiveCostTest, NeverFasterThanTheLink) {
  for (const CollectiveInfo& row : kCollectives) {
    for (int64_t ranks : {2, 4, 8}) {
      for (int64_t size : {int64_t{1} << 10, kMi, 64 * kMi, 1024 * kMi}) {
        const CollectiveCost cost = PriceCollective(row.kind, Bytes(size), Evenly(ranks, 1), A100Cluster(1));
        EXPECT_GE(cost.time, Bytes(size) / (GBps(300) * (1 / BusFactor(row.kind, ranks)))) << row.name << " " << size;
      }
    }
  }
}

TEST(CollectiveCostTest, MoreBytesNeverTakeLess) {
  for (const CollectiveInfo& row : kCollectives) {
    for (int64_t nodes : {1, 2, 16}) {
      Nanos last;
      for (int64_t size = 1; size < int64_t{1} << 34; size *= 2) {
        const Nanos time = PriceCollective(row.kind, Bytes(size), Evenly(8 * nodes, nodes), H100Cluster(nodes)).time;
        EXPECT_GE(time, last) << row.name << " " << size << " bytes over " << nodes << " nodes";
        last = time;
      }
    }
  }
}

TEST(CollectiveCostTest, SwitchReductionTakesSixteenBlocks) {
  const CollectiveCost cost = PriceCollective(CollectiveKind::kAllReduce, MiB(256), Evenly(8, 1), H100Cluster(1));
  EXPECT_EQ(cost.algorithm, Algorithm::kNvls);
  EXPECT_EQ(cost.channels, 16);
  EXPECT_EQ(cost.intra_bytes, MiB(256));  // each rank sends its copy once, the switch adds
  EXPECT_EQ(cost.nic_bytes, Bytes(0));
}

// A ring over 4 nodes of 8 sends 31/32 S from each rank to the next. Each node has one way out per ring, so 1/8 of the
// ranks' sends leave the node.
TEST(CollectiveCostTest, RingAcrossNodesLoadsLinksAndCards) {
  const CollectiveCost cost = PriceCollective(CollectiveKind::kAllGather, MiB(256), Evenly(32, 4), H100Cluster(4));
  EXPECT_EQ(cost.algorithm, Algorithm::kRing);
  EXPECT_EQ(cost.channels, 16);
  EXPECT_EQ(cost.nic_bytes, MiB(31));        // 256 x 31/32 / 8
  EXPECT_EQ(cost.intra_bytes, MiB(31) * 7);  // 256 x 31/32 x 7/8
  EXPECT_TRUE(cost.estimated);
}

TEST(CollectiveCostTest, SmallCallsTakeFewBlocks) {
  EXPECT_EQ(PriceCollective(CollectiveKind::kAllGather, KiB(1), Evenly(8, 1), H100Cluster(1)).channels, 1);
  EXPECT_EQ(PriceCollective(CollectiveKind::kAllGather, MiB(64), Evenly(8, 1), H100Cluster(1)).channels, 24);
}

// Eight groups of one rank per node on machines with one network card take turns.
TEST(CollectiveCostTest, SharingACardAddsTheOthersBytes) {
  Cluster cluster = H100Cluster(4);
  cluster.nics_per_node = 1;
  GroupShape group = Evenly(4, 4);
  const double alone = Micros(PriceCollective(CollectiveKind::kAllGather, MiB(256), group, cluster));
  group.nic_sharing = 8;
  const double shared = Micros(PriceCollective(CollectiveKind::kAllGather, MiB(256), group, cluster));
  EXPECT_GT(shared, 7 * alone);
  EXPECT_LT(shared, 9 * alone);
}

// 32 ranks of 4 nodes: 24/32 of 64 MiB leave through 50 GB/s x 0.74: 1360 us.
TEST(CollectiveCostTest, AllToAllAcrossNodesIsBoundByTheCard) {
  const CollectiveCost cost = PriceCollective(CollectiveKind::kAllToAll, MiB(64), Evenly(32, 4), H100Cluster(4));
  EXPECT_NEAR(Micros(cost), 1360, 60);
  EXPECT_EQ(cost.nic_bytes, MiB(48));
  EXPECT_EQ(cost.intra_bytes, MiB(14));  // 7/32 of 64
}

// 64 MiB over 0.85 x 450 GB/s is 175 us; over 0.97 x 50 GB/s, 1384 us.
TEST(CollectiveCostTest, TransferTakesLinkOrCard) {
  EXPECT_NEAR(Micros(PriceSendRecv(MiB(64), false, H100Cluster(2))), 175 + 6, 3);
  EXPECT_NEAR(Micros(PriceSendRecv(MiB(64), true, H100Cluster(2))), 1384 + 20, 5);
  EXPECT_GT(PriceSendRecv(MiB(64), true, H100Cluster(2), 4).time,
            PriceSendRecv(MiB(64), true, H100Cluster(2)).time * 3);
}

TEST(CollectiveCostTest, NothingLeavesANodeWithoutNetworkCards) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 0;
  EXPECT_EQ(PriceCollective(CollectiveKind::kAllReduce, MiB(1), Evenly(16, 2), cluster).time, kForever);
  EXPECT_EQ(PriceSendRecv(MiB(1), true, cluster).time, kForever);
}

TEST(CollectiveCostTest, HostPricesAreEstimates) {
  Cluster host;
  host.devices_per_node = 8;
  host.device.memory_bandwidth = GBps(20);
  const CollectiveCost cost = PriceCollective(CollectiveKind::kAllReduce, MiB(64), Evenly(8, 1), host);
  EXPECT_EQ(cost.algorithm, Algorithm::kHostMemory);
  EXPECT_TRUE(cost.estimated);
  EXPECT_GT(cost.time, MiB(64) / GBps(20));
}

}  // namespace
}  // namespace meshwright
