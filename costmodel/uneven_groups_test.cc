// Groups that lie unevenly on nodes, or reach a part of a device's links: no price is below what the links and cards of
// some node have to carry.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "costmodel/collective_cost.h"
#include "costmodel/library.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/collective.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// Of each node that the group is on, how many of its ranks.
std::vector<int64_t> CountsOf(const std::vector<int64_t>& ranks, const Cluster& cluster) {
  std::vector<int64_t> counts(static_cast<size_t>(cluster.nodes));
  for (const int64_t rank : ranks) ++counts[static_cast<size_t>(cluster.NodeOf(rank))];
  counts.erase(std::remove(counts.begin(), counts.end(), 0), counts.end());
  return counts;
}

// What has to leave some node, at the rate of the cards of its ranks, or of one card. Of an all_to_all of S a rank,
// each of r ranks sends S (n - r) / n away. What is gathered from a node's r ranks is S r / n, to which S (n - r) / n
// comes; sums of parts leave it in the same way.
double LeastSeconds(CollectiveKind kind, Bytes size, const std::vector<int64_t>& ranks, const Cluster& cluster) {
  const double n = static_cast<double>(ranks.size()), bytes = static_cast<double>(size.raw());
  double least = 0;
  for (const int64_t on_node : CountsOf(ranks, cluster)) {
    const double r = static_cast<double>(on_node);
    const double cards =
        std::max(1.0, r * static_cast<double>(cluster.nics_per_node) / static_cast<double>(cluster.devices_per_node));
    const double away = bytes * (n - r) / n * (kind == CollectiveKind::kAllToAll ? r : 1);
    least = std::max(least, away / (cards * cluster.nic_bandwidth.raw()));
  }
  return least;
}

TEST(UnevenGroupsTest, NoCallIsFasterThanTheCardsOfANode) {
  ASSERT_OK_AND_ASSIGN(const Cluster wide, MakeCluster("gb200", 3));
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const Cluster& cluster : {H100Cluster(4), A100Cluster(4), wide}) {
    for (int i = 0; i < 200; ++i) {
      std::vector<int64_t> ranks;
      const int64_t chance = 1 + static_cast<int64_t>(random() % 8);
      for (int64_t rank = 0; rank < cluster.num_devices(); ++rank) {
        if (static_cast<int64_t>(random() % 8) < chance) ranks.push_back(rank);
      }
      const GroupShape shape = ShapeOfGroup(ranks, cluster);
      const std::vector<int64_t> counts = CountsOf(ranks, cluster);
      if (counts.size() < 2) continue;
      EXPECT_EQ(shape.ranks_per_node, *std::max_element(counts.begin(), counts.end()));
      EXPECT_EQ(shape.Fewest(), *std::min_element(counts.begin(), counts.end()));
      for (const CollectiveKind kind :
           {CollectiveKind::kAllToAll, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
        EXPECT_GE(ToSeconds(PriceCollective(kind, GiB(1), shape, cluster).time),
                  LeastSeconds(kind, GiB(1), ranks, cluster))
            << NameOf(kind) << " over " << testing::PrintToString(counts) << " of " << cluster.device.name;
      }
    }
  }
}

// 8 ranks on one domain of 72 and 56 on another: each of the eight sends 56/64 of its 64 MiB through its own card of
// 50 GB/s, 1,174 us, where of 32 and 32 each sends half.
TEST(UnevenGroupsTest, LoneRanksSendMoreToOtherNodes) {
  ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster("gb200", 2));
  const auto price = [&](int64_t first) {
    std::vector<int64_t> ranks;
    for (int64_t rank = first; rank < first + 64; ++rank) ranks.push_back(rank);
    return PriceCollective(CollectiveKind::kAllToAll, MiB(64), ShapeOfGroup(ranks, cluster), cluster);
  };
  const CollectiveCost uneven = price(64), even = price(40);
  EXPECT_GT(ToSeconds(uneven.time) * 1e6, 64.0 * (1 << 20) * 56 / 64 / 50e9 * 1e6);
  EXPECT_EQ(uneven.nic_bytes, MiB(56));
  EXPECT_EQ(even.nic_bytes, MiB(32));
  EXPECT_NEAR(ToSeconds(uneven.time) / ToSeconds(even.time), 56.0 / 32, 0.1);
}

// On a board of four a third of a device's links leads to each other one, so a long transfer has 100 of A100's
// 300 GB/s; all three are used by an all_to_all over the board, one by that of a pair.
TEST(UnevenGroupsTest, APairOnABoardHasAThirdOfTheLinks) {
  const Cluster eight = A100Cluster(1);
  Cluster board = eight;
  board.devices_per_node = 4;
  board.intra_kind = LinkKind::kNvLinkMesh;
  const auto seconds = [](const CollectiveCost& cost) { return ToSeconds(cost.time); };
  EXPECT_NEAR(seconds(PriceSendRecv(GiB(64), false, board)) / seconds(PriceSendRecv(GiB(64), false, eight)), 3, 0.05);
  const auto all_to_all = [&](int64_t ranks, const Cluster& cluster) {
    return seconds(PriceCollective(CollectiveKind::kAllToAll, GiB(1), Evenly(ranks, 1), cluster));
  };
  EXPECT_EQ(all_to_all(4, board), all_to_all(4, eight));
  EXPECT_GT(all_to_all(2, board), 2.5 * all_to_all(2, eight));
}

// DGX-1's cube mesh: one of six links of 25 GB/s between two V100.
TEST(UnevenGroupsTest, APairOfTheCubeMeshHasALink) {
  ASSERT_OK_AND_ASSIGN(const Cluster cube, MakeCluster("v100-sxm-32gb", 1));
  ASSERT_EQ(cube.devices_per_node, 8);
  const double link = cube.intra_bandwidth.raw() / 6;
  const double seconds = ToSeconds(PriceSendRecv(GiB(1), false, cube).time);
  EXPECT_GT(seconds, 1073741824 / link);
  EXPECT_LT(seconds, 1.2 * 1073741824 / link);
}

}  // namespace
}  // namespace meshwright
