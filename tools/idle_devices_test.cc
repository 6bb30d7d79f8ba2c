#include "tools/idle_devices.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/export/trainer_prediction.h"
#include "tools/session.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "8 x 64": nodes and the devices of each.
std::vector<std::string> Parts(const std::string& device, int64_t nodes, int64_t devices_per_node, int64_t batch) {
  const absl::StatusOr<Cluster> cluster = MakeCluster(device, nodes, devices_per_node);
  EXPECT_OK(cluster);
  std::vector<std::string> parts;
  for (const Cluster& part : PartsWithIdleDevices(*cluster, batch)) {
    parts.push_back(absl::StrCat(part.nodes, " x ", part.devices_per_node));
  }
  return parts;
}

// 9 nodes are 72 devices, with a factor of 9 that 1,536 = 2^9 x 3 has not; 8 nodes are 64. 12 nodes: 96 has a 3, as
// 1,536 has. 10 nodes: 8, since 80 has a 5. 3 nodes: 2 are two thirds. 1,024 = 2^10 is no multiple of 8 x 3.
TEST(PartsWithIdleDevicesTest, NodesWhoseOddFactorTheBatchHas) {
  EXPECT_THAT(Parts("h100", 9, 8, 1536), ElementsAre("8 x 8"));
  EXPECT_THAT(Parts("h100", 12, 8, 1536), IsEmpty());
  EXPECT_THAT(Parts("h100", 10, 8, 1024), ElementsAre("8 x 8"));
  EXPECT_THAT(Parts("h100", 3, 8, 1024), IsEmpty());
  EXPECT_THAT(Parts("h100", 128, 8, 1536), IsEmpty()) << "1,024 devices; 96 nodes would be three quarters";
}

// 64 devices share 56 by eights; 56 devices have one each.
TEST(PartsWithIdleDevicesTest, NodesThatShareTheBatch) {
  EXPECT_THAT(Parts("h100", 8, 8, 56), ElementsAre("7 x 8"));
  EXPECT_THAT(Parts("h100", 8, 8, 64), IsEmpty());
  EXPECT_THAT(Parts("h100", 8, 8, 16), IsEmpty()) << "fewer rows than devices are split otherwise, too";
}

// 32 racks of 72 have a factor of 9 whatever their number; 64 of each are 2,048. Where the batch has a 9, all are a
// candidate, and so are 64 of each, so that no group lies across racks.
TEST(PartsWithIdleDevicesTest, PartOfEachNode) {
  EXPECT_THAT(Parts("gb300", 32, 72, 4096), ElementsAre("32 x 64"));
  EXPECT_THAT(Parts("gb300", 8, 72, 1024), ElementsAre("8 x 64"));
  EXPECT_THAT(Parts("gb300", 8, 72, 1152), ElementsAre("8 x 64"));
  EXPECT_THAT(Parts("gb300", 1, 72, 512), ElementsAre("1 x 64"));
  EXPECT_THAT(Parts("gb300", 9, 72, 4096), ElementsAre("8 x 64")) << "512 of 648";
  EXPECT_THAT(Parts("v100", 4, 6, 64), IsEmpty()) << "16 of 24 are two thirds";
}

absl::StatusOr<Session> Open(const std::string& parallel, const Flags& flags) {
  return OpenModel({"m.yaml", absl::StrCat("{name: m, architecture: {decoder: {hidden: 1024, layers: 24, heads: 16, "
                                           "vocab: 32000}}, training: {batch: 1024, sequence: 1024}, cluster: "
                                           "{device: gb300, nodes: 2, devices_per_node: 72}",
                                           parallel, "}")},
                   flags);
}

// 1,024 rows on 144 devices are shared by 16 of them, in 3 stages or 9; on 128 by all.
TEST(SearchForDevicesTest, FewerAreTakenWhereTheyAreFaster) {
  ASSERT_OK_AND_ASSIGN(Session session, Open("", Flags()));
  ASSERT_OK_AND_ASSIGN(const SearchResult all, SearchFor(nullptr, session, {.keep = 1}));
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchForDevices(nullptr, Flags(), {.keep = 1}, session));
  EXPECT_LT(found.ranked[0].prediction.step, all.ranked[0].prediction.step);
  EXPECT_EQ(session.problem.cluster.devices_per_node, 64);
  EXPECT_EQ(session.idle_devices, 16);
  EXPECT_EQ(found.ranked[0].strategy.mesh.num_ranks(), 128);
  EXPECT_THAT(found.warnings,
              ElementsAre("16 of 144 devices are idle: no plan for all of them is faster; --noidle_devices uses all"));
  EXPECT_GT(found.considered, all.considered);
}

// 1,152 = 2^7 x 9 are shared by all 144, which are searched first; of the part nothing is as fast, and what was looked
// at of it counts.
TEST(SearchForDevicesTest, AllAreTakenWhereTheyAreFaster) {
  ASSERT_OK_AND_ASSIGN(const Flags flags, Flags::Parse({{"batch", "N", ""}}, {"--batch=1152"}));
  ASSERT_OK_AND_ASSIGN(Session session, Open("", flags));
  ASSERT_OK_AND_ASSIGN(const SearchResult all, SearchFor(nullptr, session, {.keep = 1}));
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchForDevices(nullptr, flags, {.keep = 1}, session));
  EXPECT_EQ(session.idle_devices, 0);
  EXPECT_EQ(ToText(found.ranked[0].strategy), ToText(all.ranked[0].strategy));
  EXPECT_EQ(found.ranked[0].prediction.step, all.ranked[0].prediction.step);
  EXPECT_THAT(found.warnings, IsEmpty());
  EXPECT_GT(found.considered, all.considered);
}

// Parts, which are searched first here, have as little memory as all.
TEST(SearchForDevicesTest, WhereNothingFitsTheErrorIsOfAllDevices) {
  ASSERT_OK_AND_ASSIGN(Session session, Open("", Flags()));
  session.problem.cluster.device.memory = MiB(1);
  const absl::Status all = SearchFor(nullptr, session, {.keep = 1}).status();
  EXPECT_EQ(SearchForDevices(nullptr, Flags(), {.keep = 1}, session).status(), all);
  EXPECT_EQ(all.code(), absl::StatusCode::kResourceExhausted);
}

TEST(SearchForDevicesTest, AllAreUsedWhereTheUserSaysSo) {
  const std::vector<FlagSpec> specs = {IdleDevicesFlag(), {"stages", "N", ""}};
  ASSERT_OK_AND_ASSIGN(const Flags none_idle, Flags::Parse(specs, {"--noidle_devices"}));
  ASSERT_OK_AND_ASSIGN(const Flags nine_stages, Flags::Parse(specs, {"--stages=9"}));
  for (const auto& [parallel, flags] : {std::make_pair("", none_idle), std::make_pair("", nine_stages),
                                        std::make_pair(", parallel: {device_num: 144}", Flags())}) {
    ASSERT_OK_AND_ASSIGN(Session session, Open(parallel, flags));
    ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchForDevices(nullptr, flags, {.keep = 1}, session));
    EXPECT_EQ(session.idle_devices, 0);
    EXPECT_EQ(found.ranked[0].strategy.mesh.num_ranks(), 144);
    EXPECT_THAT(found.warnings, IsEmpty());
  }
}

}  // namespace
}  // namespace meshwright
