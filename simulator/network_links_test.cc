// What a program's classes take of links that they have together, and how long they then take.
#include "simulator/network_links.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/cost_model.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "simulator/simulate.h"

namespace meshwright {
namespace {

// So many nodes of one device with one card, two on each leaf switch.
Cluster Leaves(int64_t nodes, double oversubscription) {
  Cluster cluster = A100Cluster(nodes);
  cluster.devices_per_node = cluster.nics_per_node = 1;
  cluster.nodes_per_leaf = 2;
  cluster.oversubscription = oversubscription;
  return cluster;
}

struct Reduced {
  InstructionPrice price;  // of the first class's collective
  Nanos alone, makespan;
};

// Every class reduces 64 MiB over the axis, all at the same time.
Reduced Reduce(const std::string& mesh, const std::string& axis, const Cluster& cluster) {
  std::string text = absl::StrCat("program reductions mesh ", mesh, "\n");
  const int classes = absl::StrContains(mesh, "pp=2") ? 2 : 1;
  for (int c = 0; c < classes; ++c) {
    absl::StrAppend(&text, "class c", c, R"(
  buffer g float32 (16777216) {-} partial sum AXIS gradient
  buffer g@whole float32 (16777216) {-} gradient alias g
  block "reduce" backward
    comm all_reduce sum (AXIS) gradient reads g writes g@whole @R
  slot "reduce" mb 0 layer 0
)");
  }
  const absl::StatusOr<Program> program = ParseProgram(absl::StrReplaceAll(text, {{"AXIS", axis}}));
  EXPECT_OK(program);
  const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(cluster));
  EXPECT_OK(prices);
  const absl::StatusOr<SimulationResult> result = Simulate(*program, *prices);
  EXPECT_OK(result);
  const InstructionPrice& price = prices->classes[0][0][0];
  return {price, price.time, result->makespan};
}

// How long what takes `alone` by itself takes at so many kWhole-ths of its speed.
Nanos At(int64_t rate, Nanos alone) { return Nanos((alone.raw() * kWhole + rate - 1) / rate); }

// Nodes 0 and 1 are on one leaf, 2 and 3 on the other. The groups over "a", {0, 2} and {1, 3}, both cross the uplink,
// one message up and one down each. Alone on a card each of them fills x of it; the uplink has the bandwidth of 2 cards
// through 2: x + x of one card's, 2 x together. So at 2:1 both run at 1 / (2 x) of their speed, at 1:1 at full speed.
TEST(NetworkLinksTest, TwoGroupsOverOneOversubscribedUplink) {
  const Reduced wide = Reduce("a=2 b=2", "a", Leaves(4, 1));
  EXPECT_TRUE(wide.price.shared.empty());
  EXPECT_EQ(wide.makespan, wide.alone);
  const Reduced narrow = Reduce("a=2 b=2", "a", Leaves(4, 2));
  ASSERT_EQ(narrow.price.shared.size(), 1);  // all four uplinks are used alike
  const int64_t share = narrow.price.shared[0].share;
  EXPECT_EQ(narrow.alone, wide.alone);
  EXPECT_NEAR(static_cast<double>(share), 2.0 * wide.price.links[static_cast<size_t>(Link::kNicOut)], 2);
  EXPECT_GT(share, kWhole);
  EXPECT_EQ(narrow.makespan, At(int64_t{kWhole} * kWhole / share, narrow.alone));
  // Within their leaves, {0, 1} and {2, 3}, they meet nobody.
  const Reduced inside = Reduce("a=2 b=2", "b", Leaves(4, 2));
  EXPECT_TRUE(inside.price.shared.empty());
  EXPECT_EQ(inside.makespan, inside.alone);
}

// Three nodes for each stage: leaf 0 has nodes 0 and 1, leaf 1 nodes 2 and 3, one of either stage, leaf 2 nodes 4
// and 5. A ring over three nodes crosses each border once: 2 -> 0 leaves leaf 1 for the first stage, 3 -> 4 for the
// second, so that both take x of the half card (2 cards, 4:1) that leads out of it: at 1 / (4 x) of their speed. The
// other leaves' uplinks have one of them, at 1 / (2 x).
TEST(NetworkLinksTest, TwoClassesOverOneUplink) {
  const Reduced run = Reduce("pp=2 d=3", "d", Leaves(6, 4));
  const double x = static_cast<double>(run.price.links[static_cast<size_t>(Link::kNicOut)]) / kWhole;
  int64_t share = 0;
  for (const SharedUse& use : run.price.shared) share = std::max<int64_t>(share, use.share);
  EXPECT_NEAR(static_cast<double>(share), 2 * x * kWhole, 2);
  EXPECT_EQ(run.makespan, At(int64_t{kWhole} * kWhole / (2 * share), run.alone));
}

// Two stages of one device each on every node of two, and one card: each stage alone can fill the card.
TEST(NetworkLinksTest, TwoClassesOverOneCard) {
  Cluster cluster = Leaves(3, 1);
  cluster.nodes_per_leaf = 0;
  cluster.devices_per_node = 2;  // stage 0 is ranks 0, 1, 2 on nodes 0, 0, 1, stage 1 ranks 3, 4, 5 on nodes 1, 2, 2
  const Reduced run = Reduce("pp=2 d=3", "d", cluster);
  ASSERT_FALSE(run.price.shared.empty());
  EXPECT_GT(run.makespan, run.alone);
  cluster.nics_per_node = 2;
  EXPECT_TRUE(Reduce("pp=2 d=3", "d", cluster).price.shared.empty());
}

// Everybody sends as much to each of the others: of what the 4 nodes of two leaves send, 2 of 3 messages cross.
TEST(NetworkLinksTest, AllToAllAndTransfers) {
  const absl::StatusOr<Program> program = ParseProgram("program p mesh a=4\nclass c\n");
  ASSERT_OK(program);
  const Cluster cluster = Leaves(4, 2);
  NetworkLinks links(*program, cluster);
  Collective exchange;
  exchange.kind = CollectiveKind::kAllToAll;
  exchange.axes = {AxisId(0)};
  // Up and down of two leaves; 2 ranks x 2 / 3 of x = 0.3, of the one card's bandwidth that there is.
  const auto uses = links.UsesOf(0, exchange, 0.3);
  ASSERT_EQ(uses.size(), 4);
  for (const SharedUse& use : uses) EXPECT_EQ(use.share, 4000);
  // A ring of ranks: 1 -> 2 and 3 -> 0 cross.
  Permute ring{{AxisId(0)}, {3, 0, 1, 2}};
  const auto around = links.UsesOf(0, ring, 0.5);
  ASSERT_EQ(around.size(), 4);
  for (const SharedUse& use : around) EXPECT_EQ(use.share, 5000);
  EXPECT_TRUE(links.UsesOf(0, Transfer{true, 1}, 0).empty());
}

// How long an all-to-all of 64 MiB over the axis takes.
Nanos Exchange(const std::string& axis, const Cluster& cluster) {
  const absl::StatusOr<Program> program = ParseProgram(absl::StrReplaceAll(R"(program exchanges mesh a=2 b=2
class c
  buffer t float32 (4, 4194304) {- | AXIS} activation
  buffer t@moved float32 (4, 4194304) {AXIS | -} activation
  block "exchange" forward
    comm all_to_all (AXIS) dim 1 to 0 activation reads t writes t@moved @R
  slot "exchange" mb 0 layer 0
)",
                                                                           {{"AXIS", axis}}));
  EXPECT_OK(program);
  const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(cluster));
  EXPECT_OK(prices);
  const absl::StatusOr<SimulationResult> result = Simulate(*program, *prices);
  EXPECT_OK(result);
  return result->makespan;
}

// Uplinks at 8:1 hold up who crosses them, and nobody else; where nobody knows who does, all of them.
TEST(NetworkLinksTest, AnAllToAllWithinALeafIsNotHeldUp) {
  Cluster known = Leaves(4, 8), unknown = known;
  unknown.nodes_per_leaf = 0;
  const Nanos wide = Exchange("b", Leaves(4, 1));
  EXPECT_EQ(Exchange("b", known), wide);      // {0, 1} and {2, 3}
  EXPECT_GT(Exchange("a", known), wide * 4);  // {0, 2} and {1, 3}: two over a quarter of a card
  EXPECT_GT(Exchange("b", unknown), wide * 4);
}

}  // namespace
}  // namespace meshwright
