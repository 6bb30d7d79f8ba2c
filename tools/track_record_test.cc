#include "tools/track_record.h"

#include "costmodel/testing.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(TrackRecordTest, TheFirstKindThatARunIsOf) {
  const Cluster few = A100Cluster(8), many = A100Cluster(9);  // 64 and 72 devices
  EXPECT_EQ(KindOf({}, few), RunKind::kFew);
  EXPECT_EQ(KindOf({}, many), RunKind::kMany);
  EXPECT_EQ(KindOf({.shard_parameters = true}, few), RunKind::kSplitFew);
  EXPECT_EQ(KindOf({.shard_parameters = true}, many), RunKind::kSplitMany);
  EXPECT_EQ(KindOf({.sequence = 65535}, few), RunKind::kFew);
  EXPECT_EQ(KindOf({.sequence = 65536}, few), RunKind::kLongRows);
  EXPECT_EQ(KindOf({.sequence = 8192, .context = 2}, few), RunKind::kLongRows);
  EXPECT_EQ(KindOf({.experts = 8, .context = 2}, many), RunKind::kExperts);
  EXPECT_EQ(KindOf({.experts = 8, .expert_loop = true}, many), RunKind::kExpertLoops);
  EXPECT_EQ(KindOf({.expert_loop = true}, many), RunKind::kMany);
  EXPECT_EQ(KindOf({.adapters = true, .experts = 8}, few), RunKind::kAdapters);
}

TEST(TrackRecordTest, CardsCountBeforeLayouts) {
  Cluster cluster = A100Cluster(9);
  cluster.device.generation = Generation::kVolta;
  EXPECT_EQ(KindOf({.shard_parameters = true}, cluster), RunKind::kVolta);
  cluster.device.generation = Generation::kBlackwell;
  EXPECT_EQ(KindOf({.shard_parameters = true}, cluster), RunKind::kBlackwell);
  cluster.intra_kind = LinkKind::kPcie;
  EXPECT_EQ(KindOf({.shard_parameters = true}, cluster), RunKind::kPcie);
}

}  // namespace
}  // namespace meshwright
