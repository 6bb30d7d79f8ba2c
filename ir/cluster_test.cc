#include "ir/cluster.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

Cluster TwoNodes() {
  Cluster cluster;
  cluster.device.name = "h100-sxm";
  cluster.nodes = 2;
  cluster.devices_per_node = 8;
  cluster.intra_kind = LinkKind::kNvSwitch;
  cluster.intra_bandwidth = GBps(450);
  cluster.nics_per_node = 8;
  cluster.nic_bandwidth = GBps(50);
  return cluster;
}

TEST(ClusterTest, RanksFillOneNodeAfterTheOther) {
  const Cluster cluster = TwoNodes();
  EXPECT_EQ(cluster.num_devices(), 16);
  EXPECT_EQ(cluster.NodeOf(7), 0);
  EXPECT_EQ(cluster.NodeOf(8), 1);
}

TEST(ClusterTest, TextNamesDevicesAndLinks) {
  Cluster cluster = TwoNodes();
  EXPECT_EQ(ToText(cluster), "2 nodes x 8 h100-sxm, nvswitch 450 GB/s, 8 NICs x 50 GB/s");
  cluster.oversubscription = 2;
  EXPECT_EQ(ToText(cluster), "2 nodes x 8 h100-sxm, nvswitch 450 GB/s, 8 NICs x 50 GB/s, oversubscribed 2:1");
  cluster.nodes_per_leaf = 16;
  EXPECT_EQ(ToText(cluster),
            "2 nodes x 8 h100-sxm, nvswitch 450 GB/s, 8 NICs x 50 GB/s, oversubscribed 2:1 above leaves of 16 nodes");
}

TEST(ClusterTest, TextLeavesOutLinksThatNothingCrosses) {
  Cluster cluster = TwoNodes();
  cluster.nodes = 1;
  EXPECT_EQ(ToText(cluster), "1 node x 8 h100-sxm, nvswitch 450 GB/s");
  cluster.devices_per_node = 1;
  EXPECT_EQ(ToText(cluster), "1 node x 1 h100-sxm");
}

}  // namespace
}  // namespace meshwright
