// More bytes take no less time, and hardly more bytes hardly more, while NCCL takes the same algorithm and protocol; it
// takes another by its own tables, where ours of both need not meet.
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "costmodel/collective_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/collective.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// 512 B to 1 GiB, each size a hundredth more than the last.
void ExpectGrowth(CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  constexpr double kLargest = 1 << 30, kMore = 1.01;
  constexpr int64_t kElement = 16;
  CollectiveCost last = PriceCollective(kind, Bytes(512), group, cluster);
  EXPECT_GT(last.time, Nanos(0));
  for (double at = 512 * kMore; at <= kLargest; at *= kMore) {
    const Bytes size = Bytes(static_cast<int64_t>(at) / kElement * kElement);
    const CollectiveCost cost = PriceCollective(kind, size, group, cluster);
    const double before = ToSeconds(last.time), after = ToSeconds(cost.time);
    const bool same = cost.algorithm == last.algorithm && cost.protocol == last.protocol;
    // The most that a change of protocol gains: eight B200's all-gather from LL to LL128, 31 %.
    EXPECT_GE(after, same ? before : 0.65 * before) << size.raw() << " bytes";
    // Pairs go another way above 4 KiB each. Elements of 16 bytes are 3 % of the smallest size.
    if (same && cost.algorithm != Algorithm::kPairs) {
      EXPECT_LE(after, 1.03 * before) << size.raw() << " bytes";
    }
    last = cost;
  }
}

TEST(CollectiveGrowthTest, WithTheBytes) {
  for (const char* const device : {"a100-sxm-80gb", "h100-sxm", "b200"}) {
    for (const auto& [nodes, ranks] : {std::pair(1, 2), {1, 4}, {1, 8}, {2, 2}, {2, 4}, {2, 16}}) {
      ASSERT_OK_AND_ASSIGN(const Cluster cluster, MakeCluster(device, nodes));
      for (const CollectiveInfo& row : kCollectives) {
        SCOPED_TRACE(absl::StrCat(row.name, ", ", ranks, " ", device, " of ", nodes, " nodes"));
        ExpectGrowth(row.kind, {ranks, nodes, ranks / nodes, 1}, cluster);
      }
    }
  }
}

}  // namespace
}  // namespace meshwright
