// The expected numbers are those that the formulas of NCCL 2.28.9 give when worked out by hand for well known machines;
// each test shows the arithmetic of at least one entry.
#include "costmodel/nccl_tuner.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "costmodel/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;

std::string Graph(const NcclGraph& graph) {
  return absl::StrCat(graph.channels, " x ", graph.speed, " on ", graph.blocks);
}

// "tree ll 15.2/44": latency in us, algorithm bandwidth in GB/s.
std::vector<std::string> Rows(CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  std::vector<std::string> rows;
  for (const NcclCandidate& c : CandidatesOf(kind, group, cluster)) {
    rows.push_back(absl::StrCat(NameOf(c.algorithm).data(), " ", NameOf(c.protocol).data(), " ",
                                std::round(c.latency_us * 10) / 10, "/", std::round(c.bandwidth)));
  }
  return rows;
}

// "ring ll 15": choice and predicted time in us for each size.
std::string Choices(CollectiveKind kind, const GroupShape& group, const Cluster& cluster,
                    const std::vector<int64_t>& sizes) {
  std::vector<std::string> choices;
  for (int64_t size : sizes) {
    const NcclChoice choice = ChooseAsNccl(kind, Bytes(size), group, cluster);
    choices.push_back(absl::StrCat(NameOf(choice.candidate.algorithm).data(), " ",
                                   NameOf(choice.candidate.protocol).data(), " ", std::round(choice.predicted_us)));
  }
  return absl::StrJoin(choices, ", ");
}

constexpr int64_t kKi = 1 << 10, kMi = 1 << 20, kGi = 1 << 30;

// A100: 240 GB/s of NVLink take 6 rings of 40, split in two because they are fast. Across nodes each of 8 NICs carries
// one ring at its 24. H100: 370.8 take 6 x 60; across nodes 8 x 45, since 8 x 48 would need 384 of NVLink.
TEST(NcclTunerTest, SearchFindsTheRingsOfKnownMachines) {
  EXPECT_EQ(Graph(RingGraph(Evenly(8, 1), A100Cluster(1))), "12 x 20 on 24");
  EXPECT_EQ(Graph(RingGraph(Evenly(16, 2), A100Cluster(2))), "8 x 24 on 16");
  EXPECT_EQ(Graph(RingGraph(Evenly(8, 1), H100Cluster(1))), "12 x 30 on 24");
  EXPECT_EQ(Graph(RingGraph(Evenly(32, 4), H100Cluster(4))), "8 x 45 on 16");
  EXPECT_EQ(Graph(RingGraph(Evenly(8, 8), H100Cluster(8))), "2 x 24 on 4");
}

// A card of 42 Gb/s has 5.25 GB/s, of which 0.96 are 5.04. 3 goes in once and 2.4 twice, which is more; 1.2, half of
// that, is still tried but is no more, and the search ends there: 0.24 would go in twenty-one times.
TEST(NcclTunerTest, SearchGoesNoFurtherThanHalfTheSpeedThatItFound) {
  Cluster slow = H100Cluster(2);
  slow.nics_per_node = 1;
  slow.nic_bandwidth = BytesPerSecond(5.25e9);
  EXPECT_EQ(Graph(RingGraph(Evenly(16, 2), slow)), "2 x 2.4 on 4");
}

// Four devices wired each to each other: of an H100's 370.8, two of a quad see the third that leads to the other.
TEST(NcclTunerTest, PairsOfAQuadHaveAThirdOfTheLinks) {
  Cluster quad = H100Cluster(1);
  quad.intra_kind = LinkKind::kNvLinkMesh;
  quad.devices_per_node = 4;
  const NcclGraph all = RingGraph(Evenly(4, 1), quad), pair = RingGraph(Evenly(2, 1), quad);
  EXPECT_NEAR(all.channels * all.speed, 370.8, 25);
  EXPECT_NEAR(pair.channels * pair.speed, 370.8 / 3, 10);
}

TEST(NcclTunerTest, SearchOnBlackwellAndOnPcie) {
  Cluster b200 = H100Cluster(1);
  b200.device.generation = Generation::kBlackwell;
  b200.intra_bandwidth = GBps(900);
  EXPECT_EQ(Graph(RingGraph(Evenly(8, 1), b200)), "16 x 45 on 32");  // 721.8: 8 x 90, split in two
  Cluster pcie = A100Cluster(1);
  pcie.intra_kind = LinkKind::kPcie;
  pcie.intra_bandwidth = GBps(31.5);  // counts 24
  EXPECT_EQ(Graph(RingGraph(Evenly(8, 1), pcie)), "2 x 12 on 4");
  for (const NcclCandidate& c : CandidatesOf(CollectiveKind::kAllReduce, Evenly(8, 1), pcie)) {
    EXPECT_NE(c.protocol, Protocol::kLl128);  // it needs the ordering of NVLink
  }
}

// Ring LL on one A100 node: 6.6 + 14 x 0.6 = 15.0 us; min(87.7, 240/2) x 8/14 = 50 GB/s.
// Tree Simple: 8.4 + 2 x 7 x 4.0 = 64.4 us; min(0.92 x 240, 12 x 24)/2 = 110 GB/s.
TEST(NcclTunerTest, CandidatesOnOneA100Node) {
  EXPECT_THAT(Rows(CollectiveKind::kAllReduce, Evenly(8, 1), A100Cluster(1)),
              ElementsAre("tree ll 15.2/29", "ring ll 15/50", "tree ll128 31.5/86", "ring ll128 40.6/126",
                          "tree simple 64.4/110", "ring simple 56/137"));
  EXPECT_THAT(Rows(CollectiveKind::kAllGather, Evenly(8, 1), A100Cluster(1)),
              ElementsAre("ring ll 10.8/100", "ring ll128 27.3/252", "ring simple 32.2/274"));
}

// NVLS: 8 x min(40 x 0.85 x 7/8 x 2, 60) = 476 GB/s of bus, x 8/14 = 272.
TEST(NcclTunerTest, CandidatesOnOneH100Node) {
  EXPECT_THAT(Rows(CollectiveKind::kAllReduce, Evenly(8, 1), H100Cluster(1)),
              ElementsAre("tree ll 15.2/44", "ring ll 15/81", "tree ll128 31.5/129", "ring ll128 40.6/189",
                          "tree simple 64.4/166", "ring simple 56/206", "nvls simple 25/272"));
  EXPECT_THAT(Rows(CollectiveKind::kReduceScatter, Evenly(8, 1), H100Cluster(1)),
              ElementsAre("ring ll 10.8/161", "ring ll128 27.3/379", "ring simple 32.2/411", "nvls simple 25/208"));
}

// Two nodes: LL is limited by the host (39 GB/s of bus on Intel), NVLSTree by 8 x 57.7.
TEST(NcclTunerTest, CandidatesAcrossH100Nodes) {
  EXPECT_THAT(Rows(CollectiveKind::kAllReduce, Evenly(16, 2), H100Cluster(2)),
              ElementsAre("tree ll 25.2/20", "ring ll 40/21", "tree ll128 48.5/147", "ring ll128 75.2/157",
                          "tree simple 92.4/166", "ring simple 131.6/192", "nvls_tree simple 66.8/246"));
  EXPECT_THAT(Rows(CollectiveKind::kAllReduce, Evenly(32, 4), H100Cluster(4)),
              ElementsAre("tree ll 35.2/10", "ring ll 78.8/11", "tree ll128 65.5/116", "ring ll128 144.4/152",
                          "tree simple 120.4/144", "ring simple 282.8/186", "nvls_tree simple 108.6/188"));
  EXPECT_THAT(Rows(CollectiveKind::kAllGather, Evenly(512, 64), H100Cluster(64)),
              ElementsAre("ring ll 624.7/20", "ring ll128 1117.2/294", "ring simple 2413.6/361"));
}

TEST(NcclTunerTest, ChoosesForAllReduceAsNcclDoes) {
  const std::vector<int64_t> sizes = {kKi, 64 * kKi, kMi, 16 * kMi, 256 * kMi, kGi};
  auto choices = [&](int64_t nodes) {
    return Choices(CollectiveKind::kAllReduce, Evenly(8 * nodes, nodes), H100Cluster(nodes), sizes);
  };
  EXPECT_EQ(choices(1), "ring ll 15, ring ll 16, ring ll 28, nvls simple 87, nvls simple 1012, nvls simple 3973");
  EXPECT_EQ(
      choices(2),
      "tree ll 25, tree ll 31, tree ll128 60, nvls_tree simple 135, nvls_tree simple 1157, nvls_tree simple 4428");
  EXPECT_EQ(choices(16),
            "tree ll 55, tree ll 66, tree ll128 115, tree ll128 260, nvls_tree simple 1656, nvls_tree simple 6046");
  EXPECT_EQ(choices(128),
            "tree ll 85, tree ll 96, tree ll128 166, tree ll128 311, nvls_tree simple 1791, nvls_tree simple 6212");
}

TEST(NcclTunerTest, ChoosesForAllGatherAsNcclDoes) {
  const std::vector<int64_t> sizes = {kKi, 64 * kKi, kMi, 16 * kMi, 256 * kMi, kGi};
  auto choices = [&](int64_t nodes) {
    return Choices(CollectiveKind::kAllGather, Evenly(8 * nodes, nodes), H100Cluster(nodes), sizes);
  };
  EXPECT_EQ(choices(1), "ring ll 11, ring ll 11, ring ll 17, ring ll128 72, ring simple 685, ring simple 2642");
  EXPECT_EQ(choices(4), "ring ll 43, ring ll 46, ring ll128 83, ring ll128 135, ring simple 868, ring simple 3035");
  EXPECT_EQ(choices(64), "ring ll 625, ring ll 628, ring ll 676, ring ll128 1174, ring ll128 2030, ring ll128 4767");
}

// One rank on each node, one NIC each: PAT is allowed, and rings take Tree's network latency.
TEST(NcclTunerTest, ChoosesForOneRankPerNodeAsNcclDoes) {
  EXPECT_EQ(
      Choices(CollectiveKind::kAllReduce, Evenly(8, 8), H100Cluster(8), {kKi, 64 * kKi, kMi, 16 * kMi, 256 * kMi, kGi}),
      "tree ll 37, tree ll 56, tree ll128 149, ring ll128 798, ring simple 10073, ring simple 39433");
  EXPECT_EQ(Choices(CollectiveKind::kAllGather, Evenly(8, 8), H100Cluster(8), {kKi, 64 * kKi, kMi, 16 * kMi}),
            "ring ll 42, pat simple 44, pat simple 72, ring ll128 406");
  EXPECT_EQ(Choices(CollectiveKind::kAllGather, Evenly(64, 64), H100Cluster(64), {kKi, kMi, 16 * kMi, kGi}),
            "pat simple 211, pat simple 240, pat simple 677, ring simple 22910");
}

// Two nodes with a device each: a card's 48 are two channels of 24, and the search raises the tree's speed inside the
// nodes to twice that, 48, where there is nothing that could be slow (search.cc, "increase bwIntra for trees"): 2 x
// min(0.92 x 48, 41.4) / 2 = 41 GB/s. Of three nodes what counts lies between them: 2 x 0.92 x 24 / 2 = 22.
TEST(NcclTunerTest, TreesOverTwoNodesOfOneDevice) {
  const auto tree = [](int64_t nodes) {
    for (const NcclCandidate& c : CandidatesOf(CollectiveKind::kAllReduce, Evenly(nodes, nodes), H100Cluster(nodes))) {
      if (c.algorithm == Algorithm::kTree && c.protocol == Protocol::kSimple) return c.bandwidth;
    }
    return 0.0;
  };
  EXPECT_NEAR(tree(2), 41.4, 0.01);
  EXPECT_NEAR(tree(3), 22.08, 0.01);
}

// Over 3 nodes NCCL counts 8 channels of 36 GB/s to send a byte twice, 144 GB/s. Two edges, up and down, are 4/3 of a
// byte for the cards of a node: 8 x 45 x 3/4 = 270, but each of 8 devices in a row sends 2 x 7/8 bytes of 370.8 GB/s,
// 211.9; 0.92 of that. Over 33 nodes a card sends 64/33: 360 x 33/64 = 185.6. Two cards of 48 bind: 96 x 3/4. NCCL's
// own choice is priced so, too: over two nodes of two devices a byte up and one down, 96.
TEST(NcclTunerTest, TreesCarryMoreThanNcclCountsForItsChoice) {
  const NcclPins pins = {Algorithm::kTree, Protocol::kSimple};
  const auto rate = [&pins](const GroupShape& group, const Cluster& cluster) {
    const NcclChoice choice = ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(16 * kGi), group, cluster, pins);
    return 16 * kGi / 1e3 / choice.smooth_transfer_us;
  };
  EXPECT_NEAR(rate(Evenly(24, 3), H100Cluster(3)), 0.92 * 211.9, 0.1);
  EXPECT_NEAR(rate(Evenly(33 * 8, 33), H100Cluster(33)), 0.92 * 185.6, 0.1);
  EXPECT_NEAR(rate(Evenly(6, 3), H100Cluster(3)), 0.92 * 72, 0.1);
  const NcclChoice own = ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(16 * kGi), Evenly(4, 2), H100Cluster(2));
  EXPECT_EQ(own.candidate.algorithm, Algorithm::kTree);
  EXPECT_NEAR(16 * kGi / 1e3 / own.smooth_transfer_us, 0.92 * 96, 0.1);
  // Of a board of four, two devices have a third of the links to each other, of which each sends a byte: 370.8 / 3 =
  // 123.6, so that the cards bind, two of 48.
  Cluster boards = H100Cluster(3);
  boards.devices_per_node = boards.nics_per_node = 4;
  boards.intra_kind = LinkKind::kNvLinkMesh;
  EXPECT_NEAR(rate(Evenly(6, 3), boards), 0.92 * 72, 0.1);
}

// Two nodes of 8 A100 are 8 rings of 24, of which NCCL counts 20 each with LL128; 0.92 of all of them, 16 ranks' share.
TEST(NcclTunerTest, RingsWithLl128MoveMoreThanNcclCountsForItsChoice) {
  const NcclPins pins = {Algorithm::kRing, Protocol::kLl128};
  const NcclChoice choice = ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(kGi), Evenly(16, 2), A100Cluster(2), pins);
  EXPECT_NEAR(choice.candidate.bandwidth, 8 * 20 * 16.0 / 30, 0.1);
  EXPECT_NEAR(kGi / 1e3 / choice.smooth_transfer_us, 0.92 * 8 * 24 * 16 / 30, 0.1);
}

// NCCL counts 282 GB/s of bus for eight B200 with LL, twice Hopper's 141; their 32 blocks carry 32/24 of what Hopper's
// 24 do. With one line of each thread those carry 24 x 4 KiB for each of 8 ranks, a tree's 24 x 4 KiB; a broadcast's
// none.
TEST(NcclTunerTest, LinesOfThreadsWithLl) {
  const auto choice = [](CollectiveKind kind, Algorithm algorithm, const Cluster& cluster) {
    return ChooseAsNccl(kind, Bytes(kMi), Evenly(8, 1), cluster, {algorithm, Protocol::kLl});
  };
  Cluster b200 = H100Cluster(1);
  b200.device.generation = Generation::kBlackwell;
  b200.intra_bandwidth = GBps(900);
  const NcclChoice wide = choice(CollectiveKind::kAllGather, Algorithm::kRing, b200);
  EXPECT_NEAR(wide.candidate.bandwidth, 282 * 8.0 / 7, 0.1);
  EXPECT_NEAR(kMi / 1e3 / wide.smooth_transfer_us, 141 * 32 / 24.0 * 8 / 7, 0.1);
  const Cluster h100 = H100Cluster(1);
  EXPECT_EQ(choice(CollectiveKind::kAllGather, Algorithm::kRing, h100).line_bytes, 24 * 4096 * 8);
  EXPECT_EQ(choice(CollectiveKind::kAllReduce, Algorithm::kTree, h100).line_bytes, 24 * 4096);
  EXPECT_EQ(choice(CollectiveKind::kBroadcast, Algorithm::kRing, h100).line_bytes, 0);
}

// Four devices of a node without peer access move 0.36 of 31.5 GB/s to each other, with LL half of it, whether NCCL
// goes on to a second node through a card of 25 or of 50 GB/s: a ring of 8 sends 14/8 of the bytes so, a tree 6/4.
// Cards of 2.5 bind.
TEST(NcclTunerTest, WhatGoesThroughTheHostsMemoryBindsOverNodes) {
  Cluster cluster = A100Cluster(2);
  cluster.intra_kind = LinkKind::kPcieHost;
  cluster.intra_bandwidth = GBps(31.5);
  cluster.devices_per_node = 4;
  const auto rate = [&cluster](NcclPins pins, int64_t nodes, double card) {
    cluster.nics_per_node = 1;
    cluster.nic_bandwidth = GBps(card);
    const GroupShape group = Evenly(4 * nodes, nodes);
    return kGi / 1e3 / ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(kGi), group, cluster, pins).smooth_transfer_us;
  };
  const NcclPins ring = {Algorithm::kRing, Protocol::kSimple}, tree = {Algorithm::kTree, Protocol::kSimple};
  EXPECT_NEAR(rate(ring, 1, 25), 11.34 * 4 / 6, 0.1);
  for (const double card : {25.0, 50.0}) {
    EXPECT_NEAR(rate(ring, 2, card), 11.34 * 8 / 14, 0.1);
    EXPECT_NEAR(rate(tree, 2, card), 11.34 * 4 / 6, 0.1);
    EXPECT_NEAR(rate({Algorithm::kRing, Protocol::kLl}, 2, card), 5.67 * 8 / 14, 0.1);
  }
  EXPECT_NEAR(rate(ring, 2, 2.5), 2.4 * 8 / 14, 0.1);
}

// NCCL counts log2 of the nodes, rounded down, for its choice; a tree over 3 or 5 nodes has one level more.
TEST(NcclTunerTest, TreesWaitForAllOfTheirLevels) {
  const auto latency = [](int64_t nodes) {
    const NcclPins pins = {Algorithm::kTree, Protocol::kLl};
    return ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(8), Evenly(8 * nodes, nodes), H100Cluster(nodes), pins)
        .latency_us;
  };
  EXPECT_NEAR(latency(3), latency(4), 1e-9);
  EXPECT_NEAR(latency(5) - latency(4), 2 * 5.0, 1e-9);  // up and down
}

// With 5 GPUs the switch gives 5 x 60 = 300 GB/s of bus, less than the ring's 360; with 6 it gives as much at half the
// latency.
TEST(NcclTunerTest, SwitchReductionsWinFromSixDevices) {
  auto algorithm = [](int64_t ranks) {
    return ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(256 * kMi), Evenly(ranks, 1), H100Cluster(1))
        .candidate.algorithm;
  };
  EXPECT_EQ(algorithm(4), Algorithm::kRing);
  EXPECT_EQ(algorithm(5), Algorithm::kRing);
  EXPECT_EQ(algorithm(6), Algorithm::kNvls);
  EXPECT_EQ(algorithm(8), Algorithm::kNvls);
}

// Two domains of 64: 32 heads of NCCL's share of the switch, 721.8 / 32 = 22.6, of its list 20 x 0.74 x 31/32 x 2 =
// 28.7 each, for a bus of 917; but no more blocks than 8 heads have, whose limit is 96, for 768. Three domains: 8 x
// 43.8. Nodes of 8, whose 8 heads of 90 x 0.74 x 7/8 x 2 = 116.6 the limit of 96 binds: what NCCL counts.
TEST(NcclTunerTest, WiderSwitchesHaveNoMoreBlocksForTrees) {
  const auto tree_of_switches = [](int64_t nodes, int64_t per_node) {
    Cluster cluster = H100Cluster(nodes);
    cluster.device.generation = Generation::kBlackwell;
    cluster.intra_bandwidth = GBps(900);
    cluster.devices_per_node = cluster.nics_per_node = per_node;
    cluster.nic_bandwidth = GBps(100);
    for (const NcclCandidate& c : CandidatesOf(CollectiveKind::kAllReduce, Evenly(nodes * per_node, nodes), cluster)) {
      if (c.algorithm == Algorithm::kNvlsTree) return c;
    }
    return NcclCandidate();
  };
  const auto bus = [](const NcclCandidate& c, double ranks) { return c.bandwidth * 2 * (ranks - 1) / ranks; };
  EXPECT_NEAR(bus(tree_of_switches(2, 64), 128), 917.6, 0.1);
  EXPECT_DOUBLE_EQ(tree_of_switches(2, 64).blocks_bus, 768);
  EXPECT_DOUBLE_EQ(tree_of_switches(3, 64).blocks_bus, 8 * 43.8);
  EXPECT_NEAR(bus(tree_of_switches(2, 8), 16), 768, 0.1);
}

// Sums of 64 devices in one switch: those of 8, 720 GB/s of bus, so 720 x 8 / 14 of the algorithm, which is a bus of
// 720 / 14 x 8 x 126 / 64 = 810. Eight are what NCCL counts, 720, and gathers have no such limit.
TEST(NcclTunerTest, WiderSwitchesSumNoFasterThanEight) {
  const auto blocks_bus = [](CollectiveKind kind, int64_t ranks) {
    Cluster cluster = H100Cluster(1);
    cluster.device.generation = Generation::kBlackwell;
    cluster.intra_bandwidth = GBps(900);
    cluster.devices_per_node = ranks;
    double bus = -1;
    for (const NcclCandidate& c : CandidatesOf(kind, Evenly(ranks, 1), cluster)) {
      if (c.algorithm == Algorithm::kNvls) bus = c.blocks_bus;
    }
    return bus;
  };
  EXPECT_DOUBLE_EQ(blocks_bus(CollectiveKind::kAllReduce, 64), 810);
  EXPECT_DOUBLE_EQ(blocks_bus(CollectiveKind::kAllReduce, 8), 720);
  EXPECT_DOUBLE_EQ(blocks_bus(CollectiveKind::kAllReduce, 6), 720 / 14.0 * 8 * 10 / 6);
  EXPECT_EQ(blocks_bus(CollectiveKind::kAllGather, 64), 0);
}

// Rings of 16 x 45 and the switch, 720 both, so that it wins by its latency; links of 1000 GB/s would be rings of 800
// (10 x 80) and no more of the switch, whose channels end at 90. The choice stays, and the transfer shrinks by 9 / 10.
TEST(NcclTunerTest, FasterLinksThanTheGenerationsKeepItsChoice) {
  Cluster cluster = H100Cluster(1);
  cluster.device.generation = Generation::kBlackwell;
  cluster.intra_bandwidth = GBps(900);
  const NcclChoice own = ChooseAsNccl(CollectiveKind::kAllReduce, GiB(1), Evenly(8, 1), cluster);
  cluster.intra_bandwidth = GBps(1000);
  const NcclChoice faster = ChooseAsNccl(CollectiveKind::kAllReduce, GiB(1), Evenly(8, 1), cluster);
  EXPECT_EQ(own.candidate.algorithm, Algorithm::kNvls);
  EXPECT_EQ(faster.candidate.algorithm, Algorithm::kNvls);
  EXPECT_NEAR(faster.smooth_transfer_us, 0.9 * own.smooth_transfer_us, 1e-6);
}

// 1 KiB over an H100 node: LL in a ring (below), 6.6 + 14 x 0.6; the switch, where it is told to, 25.
TEST(NcclTunerTest, PinsLeaveWhatTheyName) {
  const auto latency = [](const NcclPins& pins) {
    return ChooseAsNccl(CollectiveKind::kAllReduce, Bytes(kKi), Evenly(8, 1), H100Cluster(1), pins).latency_us;
  };
  EXPECT_NEAR(latency({}), 15, 1e-6);
  EXPECT_NEAR(latency({Algorithm::kNvls, Protocol::kNone}), 25, 1e-6);
  EXPECT_NEAR(latency({Algorithm::kRing, Protocol::kSimple}), 8.4 + 14 * 3.4, 1e-6);
  EXPECT_NEAR(latency({Algorithm::kPat, Protocol::kNone}), 15, 1e-6);  // not there: as if nothing were said
}

// Flags in the data tell nothing where bytes may overtake each other: between nodes Simple alone is left, inside of one
// nothing changes.
TEST(NcclTunerTest, OutOfOrderNetworksTakeSimpleAlone) {
  Cluster cluster = H100Cluster(2);
  cluster.nic_in_order = false;
  for (const int64_t bytes : {kKi, 64 * kKi, kMi}) {
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      EXPECT_EQ(ChooseAsNccl(kind, Bytes(bytes), Evenly(16, 2), cluster).candidate.protocol, Protocol::kSimple);
      EXPECT_EQ(ChooseAsNccl(kind, Bytes(bytes), Evenly(8, 1), cluster).candidate.protocol,
                ChooseAsNccl(kind, Bytes(bytes), Evenly(8, 1), H100Cluster(2)).candidate.protocol);
    }
  }
}

// Without LL128 the sizes between those of LL and Simple go to one of them, and nothing else changes.
TEST(NcclTunerTest, CardsBehindTheCpuTakeNoLl128) {
  Cluster cluster = H100Cluster(2);
  cluster.nic_ll128 = false;
  for (int64_t bytes = kKi; bytes <= kGi; bytes *= 2) {
    for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather}) {
      const NcclChoice near = ChooseAsNccl(kind, Bytes(bytes), Evenly(16, 2), H100Cluster(2));
      const NcclChoice far = ChooseAsNccl(kind, Bytes(bytes), Evenly(16, 2), cluster);
      EXPECT_NE(far.candidate.protocol, Protocol::kLl128);
      if (near.candidate.protocol == Protocol::kLl128) {
        EXPECT_GT(far.predicted_us, near.predicted_us);
      } else {
        EXPECT_EQ(far.predicted_us, near.predicted_us);
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
