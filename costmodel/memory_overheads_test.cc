#include "costmodel/memory_overheads.h"

#include "costmodel/testing.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(MemoryOverheadsTest, OneRankNeedsNoCommunicator) {
  EXPECT_EQ(CommunicatorBytes({1, 1, true, false}, H100Cluster(1)), Bytes(0));
}

// 392 MiB, and 256 MiB for the switch's reductions, which A100 does not have.
TEST(MemoryOverheadsTest, SwitchReductionsNeedBuffers) {
  EXPECT_EQ(CommunicatorBytes({8, 8, true, false}, A100Cluster(1)), MiB(392));
  EXPECT_EQ(CommunicatorBytes({8, 8, true, false}, H100Cluster(1)), MiB(648));
  EXPECT_EQ(CommunicatorBytes({8, 8, false, false}, H100Cluster(1)), MiB(392));
  EXPECT_EQ(CommunicatorBytes({2, 2, true, false}, H100Cluster(1)), MiB(342));
}

TEST(MemoryOverheadsTest, EarlyCommunicatorsConnectEverything) {
  const Bytes switched = MiB(8 * 192);
  EXPECT_EQ(CommunicatorBytes({8, 8, true, false, true}, A100Cluster(1)), Bytes(688'000'000));
  EXPECT_EQ(CommunicatorBytes({8, 8, true, false, true}, H100Cluster(1)), Bytes(688'000'000) + switched);
  EXPECT_EQ(CommunicatorBytes({2, 2, true, false, true}, A100Cluster(1)), Bytes(544'000'000));
  EXPECT_EQ(CommunicatorBytes({8, 1, true, false, true}, A100Cluster(8)), MiB(100));
}

// 7 peers x 32 channels x 10 MiB = 2240 MiB, however many ranks other nodes add.
TEST(MemoryOverheadsTest, AllToAllOpensChannelsToEveryPeerOfTheNode) {
  EXPECT_EQ(CommunicatorBytes({8, 8, false, true}, A100Cluster(1)), MiB(392 + 2240));
  EXPECT_EQ(CommunicatorBytes({64, 8, false, true}, A100Cluster(8)), MiB(392 + 2240));
}

TEST(MemoryOverheadsTest, GroupsAcrossNodesTakeFewChannels) {
  EXPECT_EQ(CommunicatorBytes({8, 1, true, false}, H100Cluster(8)), MiB(100));
}

TEST(MemoryOverheadsTest, TransposesOfWeightsAreKeptBeforeBlackwell) {
  Device device = H100Cluster(1).device;
  EXPECT_TRUE(KeepsTransposes(device));
  device.generation = Generation::kAda;
  EXPECT_TRUE(KeepsTransposes(device));
  device.generation = Generation::kBlackwell;
  EXPECT_FALSE(KeepsTransposes(device));
  device.generation = Generation::kHost;
  EXPECT_FALSE(KeepsTransposes(device));
}

TEST(MemoryOverheadsTest, ProcessPaysContextAndWorkspaces) {
  EXPECT_EQ(ProcessBytes(H100Cluster(1), 2), MiB(750 + 64));
  EXPECT_LT(ProcessBytes(A100Cluster(1)), ProcessBytes(H100Cluster(1)));
  EXPECT_LT(ProcessBytes(Cluster{}), MiB(64));  // the host
}

}  // namespace
}  // namespace meshwright
