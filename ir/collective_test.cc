#include "ir/collective.h"

#include "gtest/gtest.h"

namespace meshwright {
namespace {

TEST(CollectiveTest, EveryNameIsReadBackAsItsKind) {
  for (const CollectiveInfo& row : kCollectives) EXPECT_EQ(CollectiveKindFromName(row.name), row.kind) << row.name;
  EXPECT_EQ(CollectiveKindFromName("allreduce"), std::nullopt);
}

// nccl-tests doc/PERFORMANCE.md: 2(n-1)/n for all_reduce, (n-1)/n for the gathers and all_to_all, 1 for broadcast.
TEST(CollectiveTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveKind::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveKind::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveKind::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveKind::kAllToAll, 2), 0.5);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveKind::kBroadcast, 8), 1.0);
}

TEST(CollectiveTest, OneRankMovesNothing) {
  for (const CollectiveInfo& row : kCollectives) EXPECT_EQ(BusFactor(row.kind, 1), 0) << row.name;
}

}  // namespace
}  // namespace meshwright
