#include "simulator/price.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "costmodel/cost_model.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/kernel_work.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "simulator/price_testing.h"

namespace meshwright {
namespace {

size_t At(Link link) { return static_cast<size_t>(link); }

TEST(ShapeOfTest, CountsNodesAndRanksOnThem) {
  const Cluster cluster = H100Cluster(2);  // 2 nodes of 8, a network card per device
  const Mesh mesh = Mesh::RowMajor({{"dp", 2}, {"tp", 8}});
  const AxisId dp = mesh.Find("dp"), tp = mesh.Find("tp");
  EXPECT_EQ(ShapeOf(mesh, {tp}, 0, 16, cluster), (GroupShape{8, 1, 8, 1}));
  EXPECT_EQ(ShapeOf(mesh, {dp}, 0, 16, cluster), (GroupShape{2, 2, 1, 1}));
  EXPECT_EQ(ShapeOf(mesh, {dp, tp}, 0, 16, cluster), (GroupShape{16, 2, 8, 1}));
  EXPECT_EQ(ShapeOf(mesh, {}, 0, 16, cluster), GroupShape());
}

TEST(ShapeOfTest, CountsGroupsOnANetworkCard) {
  Cluster cluster = H100Cluster(2);
  const Mesh mesh = Mesh::RowMajor({{"dp", 2}, {"ep", 4}, {"tp", 2}});
  const AxisId dp = mesh.Find("dp"), ep = mesh.Find("ep"), tp = mesh.Find("tp");
  // One card per node: the eight pairs {i, i + 8} all use it. Pairs of pairs fill it with half as many groups.
  cluster.nics_per_node = 1;
  EXPECT_EQ(ShapeOf(mesh, {dp}, 0, 16, cluster), (GroupShape{2, 2, 1, 8}));
  EXPECT_EQ(ShapeOf(mesh, {dp, tp}, 0, 16, cluster), (GroupShape{4, 2, 2, 4}));
  EXPECT_EQ(ShapeOf(mesh, {dp, ep, tp}, 0, 16, cluster), (GroupShape{16, 2, 8, 1}));
  // Four cards: two ranks on each.
  cluster.nics_per_node = 4;
  EXPECT_EQ(ShapeOf(mesh, {dp}, 0, 16, cluster), (GroupShape{2, 2, 1, 2}));
  EXPECT_EQ(ShapeOf(mesh, {dp, tp}, 0, 16, cluster), (GroupShape{4, 2, 2, 1}));
}

TEST(ShapeOfTest, TakesTheGroupThatSpansMostNodes) {
  // Groups of three on nodes of eight: {0,1,2} and {3,4,5} stay inside, {6,7,8} has two ranks on one node.
  const Mesh mesh = Mesh::RowMajor({{"dp", 4}, {"tp", 3}});
  const GroupShape shape = ShapeOf(mesh, {mesh.Find("tp")}, 0, 12, H100Cluster(2));
  EXPECT_EQ(shape.nodes, 2);
  EXPECT_EQ(shape.ranks_per_node, 2);
}

TEST(ShapeOfTest, NoGroupIsSpreadMoreAndOneIsSpreadAsMuch) {
  std::mt19937 random(1);
  const auto up = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const Mesh mesh = Mesh::RowMajor({{"a", up(1, 4)}, {"b", up(1, 6)}, {"c", up(1, 4)}});
    Cluster cluster = H100Cluster(100);
    cluster.devices_per_node = up(1, 12);
    AxisList axes;
    for (const char* name : {"a", "b", "c"}) {
      if (up(0, 1) > 0) axes.push_back(mesh.Find(name));
    }
    const GroupShape shape = ShapeOf(mesh, axes, 0, mesh.num_ranks(), cluster);
    int64_t most_nodes = 0, most_ranks = 0;
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      std::map<int64_t, int64_t> ranks_on_node;
      for (const int64_t member : mesh.Group(rank, axes)) ++ranks_on_node[cluster.NodeOf(member)];
      const int64_t nodes = static_cast<int64_t>(ranks_on_node.size());
      if (nodes > most_nodes) most_ranks = 0;
      most_nodes = std::max(most_nodes, nodes);
      if (nodes < most_nodes) continue;
      for (const auto& [node, ranks] : ranks_on_node) most_ranks = std::max(most_ranks, ranks);
    }
    EXPECT_EQ(shape.ranks, mesh.SizeOf(axes));
    EXPECT_EQ(shape.nodes, most_nodes);
    EXPECT_EQ(shape.ranks_per_node, most_ranks);
  }
}

// The price of instruction `index` of the only block of class `class_index`.
InstructionPrice PriceOf(const std::string& text, const CostModel& costs, size_t index, size_t class_index = 0) {
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_OK(program);
  const absl::StatusOr<Prices> prices = PriceProgram(*program, costs);
  EXPECT_OK(prices);
  return prices->classes[class_index][0][index];
}

constexpr char kCollectives[] = R"(program collectives mesh tp=8
class "stage 0"
  buffer shard float32 (1024, 512) {tp | -} activation
  buffer column float32 (1024, 512) {- | tp} activation
  buffer whole float32 (1024, 512) {- | -} activation
  buffer sum float32 (1024, 512) {- | -} partial sum tp activation
  block b forward
    compute all_gather (tp) dim 0 activation reads shard writes whole
    compute all_gather (tp) dim 1 activation reads column writes whole
    compute reduce_scatter sum (tp) dim 0 activation reads sum writes shard
    compute all_reduce sum (tp) gradient reads sum sum writes whole whole
    compute all_to_all (tp) dim 0 to 1 activation reads shard writes column
    compute slice reads whole writes shard
    compute permute reads shard writes column
    compute sync
    compute ReLU reads whole writes whole
  slot b mb 0 layer 0
)";
// A whole tensor is 1024 x 512 x 4 bytes = 2 MiB, a piece 256 KiB.

TEST(PriceProgramTest, CollectivesHaveTheirSizeInTheConventionOfNcclTests) {
  const CostModel costs(H100Cluster(1));
  const GroupShape group = Evenly(8, 1);
  const auto expect = [&](size_t index, CollectiveKind kind, Bytes size) {
    const InstructionPrice price = PriceOf(kCollectives, costs, index);
    const CollectiveCost cost = costs.Collective(kind, size, group);
    EXPECT_EQ(price.time, cost.time);
    EXPECT_EQ(price.slowed_by, SlowedBy::kNothing);
    EXPECT_GT(price.links[At(Link::kIntraOut)], 0);
    EXPECT_EQ(price.links[At(Link::kIntraIn)], price.links[At(Link::kIntraOut)]);
    EXPECT_EQ(price.links[At(Link::kNicOut)], 0);
    // The share of the multiprocessors that its channels cost kernels, 1.9 each.
    EXPECT_NEAR(price.multiprocessors, kWhole * 1.9 * static_cast<double>(cost.channels) / 132, 1);
  };
  expect(0, CollectiveKind::kAllGather, MiB(2));      // the gathered result
  expect(2, CollectiveKind::kReduceScatter, MiB(2));  // a rank's input
  expect(3, CollectiveKind::kAllReduce, MiB(4));      // two tensors in one call
}

TEST(PriceProgramTest, PiecesThatAreNotContiguousCostACopy) {
  const CostModel costs(H100Cluster(1));
  const auto copy = [&](Bytes bytes) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = work.written = bytes;
    return costs.Kernel(work);
  };
  // Gathered along columns: each row's pieces come from eight ranks. Gathered along rows: nothing to do.
  EXPECT_EQ(PriceOf(kCollectives, costs, 1).time - PriceOf(kCollectives, costs, 0).time, copy(MiB(2)));
  // From pieces of rows to pieces of columns: the 512 / 8 columns for each rank are cut out of 128 rows each, and what
  // comes, 128 x 64 from each, already lies in order.
  EXPECT_EQ(PriceOf(kCollectives, costs, 4).time,
            costs.Collective(CollectiveKind::kAllToAll, KiB(256), Evenly(8, 1)).time + copy(KiB(256)));
  EXPECT_EQ(PriceOf(kCollectives, costs, 5).time, copy(KiB(256)));
}

TEST(PriceProgramTest, APermutationIsATransferAndASyncIsFree) {
  const CostModel costs(H100Cluster(1));
  EXPECT_EQ(PriceOf(kCollectives, costs, 6).time, costs.SendRecv(KiB(256), false).time);
  EXPECT_EQ(PriceOf(kCollectives, costs, 7), InstructionPrice());
}

TEST(PriceProgramTest, KernelsCostWhatTheCostModelSays) {
  const CostModel costs(H100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kCollectives));
  const RankClass& rank_class = program.classes[0];
  const Instruction& relu = rank_class.blocks[0].instructions[8];
  const KernelWork work = WorkOf(relu, std::get<Compute>(relu.work), rank_class, program.mesh);
  EXPECT_EQ(work.read, MiB(2));
  const InstructionPrice price = PriceOf(kCollectives, costs, 8);
  EXPECT_EQ(price.time, costs.Kernel(work));
  EXPECT_GT(price.time, Nanos());
  EXPECT_FALSE(price.Takes());
}

// The up-projection of GPT-2 on 8 rows of 1024 tokens. On its own the GELU streams 2 x 8192 x 3072 x 2 bytes and the
// ramp of 4 MiB, 100 MiB in all, at 0.8 x 3350 GB/s: 39.126 us, and 3 us to start. In the epilogue an
// element takes two special functions, 16 in a clock on each of 132 multiprocessors at 1.83 GHz, and eight instructions
// at 67 / 2 TFLOP/s: 8192 x 3072 x (5.1747e-13 + 2.3881e-13) s = 19.032 us, while the product's 51 us of compute hide
// that it writes 50 MB more. So 23.094 us are saved, 42.126 - 19.032.
TEST(PriceProgramTest, AnEpilogueSavesAPassAndAStart) {
  constexpr char kGelu[] = R"(program gelu mesh tp=1
class all
  buffer h bfloat16 (8192, 768) {- | -} temporary
  buffer w bfloat16 (768, 3072) {- | -} parameter
  buffer x bfloat16 (8192, 3072) {- | -} activation
  buffer y bfloat16 (8192, 3072) {- | -} temporary
  block b forward
    compute MatMul "m k!, k! n -> m n" reads h w writes x
    compute GeLU "m n -> m n" reads x writes y
    compute MatMulGeLU "m k!, k! n -> m n, m n" reads h w writes y x
  slot b mb 0 layer 0
)";
  const CostModel costs(H100Cluster(1));
  const Nanos product = PriceOf(kGelu, costs, 0).time, gelu = PriceOf(kGelu, costs, 1).time;
  const Nanos both = PriceOf(kGelu, costs, 2).time;
  EXPECT_NEAR(static_cast<double>(gelu.raw()), 42126, 1);
  EXPECT_NEAR(static_cast<double>((both - product).raw()), 19032, 1);
}

// Two updates in one move the same bytes, and save a ramp of 4 MiB at 0.8 x 3350 GB/s, 1.565 us, and 3 us to start.
TEST(PriceProgramTest, UpdatesInOneSaveAStart) {
  constexpr char kUpdates[] = R"(program updates mesh tp=1
class all
  buffer w float32 (768, 3072) {- | -} parameter
  buffer dw float32 (768, 3072) {- | -} gradient
  buffer b float32 (3072) {-} parameter
  buffer db float32 (3072) {-} gradient
  block u backward
    compute SGD reads w dw writes w
    compute SGD reads b db writes b
    compute SGD tensors=2 reads w dw b db writes w b
  slot u mb 0 layer 0
)";
  const CostModel costs(H100Cluster(1));
  const Nanos apart = PriceOf(kUpdates, costs, 0).time + PriceOf(kUpdates, costs, 1).time;
  EXPECT_NEAR(static_cast<double>((apart - PriceOf(kUpdates, costs, 2).time).raw()), 4565, 2);
}

TEST(PriceProgramTest, TransfersUseOneDirectionOfTheLinkBetweenTheirNodes) {
  const CostModel costs(H100Cluster(2));
  // Four ranks a stage: both stages on one node.
  const InstructionPrice near = PriceOf(TransferOver(4), costs, 0);
  EXPECT_EQ(near.time, costs.SendRecv(MiB(2), false).time);
  EXPECT_GT(near.links[At(Link::kIntraOut)], 0);
  EXPECT_EQ(near.links[At(Link::kIntraIn)], 0);
  // Eight: the other node. A network card for each device, so nobody shares.
  const InstructionPrice far = PriceOf(TransferOver(8), costs, 0, 1);
  EXPECT_EQ(far.time, costs.SendRecv(MiB(2), true).time);
  EXPECT_GT(far.links[At(Link::kNicIn)], 0);
  EXPECT_EQ(far.links[At(Link::kNicOut)], 0);
  EXPECT_EQ(far.links[At(Link::kIntraIn)], 0);
}

TEST(PriceProgramTest, TransfersThatShareANetworkCardAreSlower) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 2;
  const CostModel costs(cluster);
  EXPECT_EQ(PriceOf(TransferOver(8), costs, 0).time, costs.SendRecv(MiB(2), true, 4).time);
}

TEST(PriceProgramTest, APermutationBetweenNodesSharesTheirNetworkCards) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 4;
  const CostModel costs(cluster);
  // All sixteen ranks send their 128 KiB to another; two of a node on each card.
  EXPECT_EQ(PriceOf(R"(program permute mesh x=16
class "stage 0"
  buffer shard float32 (1024, 512) {x | -} activation
  buffer column float32 (1024, 512) {- | x} activation
  block b forward
    compute permute reads shard writes column
)",
                    costs, 0)
                .time,
            costs.SendRecv(KiB(128), true, 2).time);
}

// Two nodes of eight, four network cards each: the message is 128 KiB.
TEST(PriceProgramTest, AnExchangeCostsItsSlowestMessage) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 4;
  const CostModel costs(cluster);
  const auto price = [&](const std::string& sources) {
    return PriceOf(
               "program exchange mesh x=16\nclass \"stage 0\"\n"
               "  buffer a float32 (1024, 512) {x | -} activation\n"
               "  buffer b float32 (1024, 512) {x | -} activation\n"
               "  block b forward\n    compute permute (x) from " +
                   sources + " reads a writes b\n",
               costs, 0)
        .time;
  };
  // A ring: rank 7 sends to 8 and 15 to 0, each alone on its card.
  EXPECT_EQ(price("15 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14"), costs.SendRecv(KiB(128), true, 1).time);
  // Everybody's partner is in the other node: two ranks a card.
  EXPECT_EQ(price("8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7"), costs.SendRecv(KiB(128), true, 2).time);
  // Inside the nodes, and nothing for ranks 1 and 9.
  EXPECT_EQ(price("1 -1 3 2 5 4 7 6 9 -1 11 10 13 12 15 14"), costs.SendRecv(KiB(128), false, 1).time);
  // Nobody sends: a copy, faster than any message.
  EXPECT_LT(price("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 -1"), costs.SendRecv(KiB(128), false, 1).time);
}

TEST(PriceProgramTest, WithoutNetworkCardsATransferBetweenNodesTakesForEver) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 0;
  EXPECT_GE(PriceOf(TransferOver(8), CostModel(cluster), 0).time, kForever);
}

TEST(PriceProgramTest, RefusesMoreRanksThanDevices) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(TransferOver(8)));
  EXPECT_THAT(PriceProgram(program, CostModel(H100Cluster(1))),
              StatusIs(absl::StatusCode::kInvalidArgument, "needs 16 ranks, the cluster has 8 devices"));
}

TEST(PriceProgramTest, RefusesACollectiveOverStages) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program over_stages mesh pp=2
class "stage 0"
  buffer a float32 (4) {-} activation
  block b forward
    compute all_reduce sum (pp) report reads a writes a @loss
class "stage 1"
)"));
  EXPECT_THAT(PriceProgram(program, CostModel(H100Cluster(1))),
              StatusIs(absl::StatusCode::kUnimplemented, "stage 0: all_reduce (loss) is over the stages"));
}

// 64 MiB read, 64 MiB written; an accumulator is read besides.
TEST(PriceProgramTest, AccumulatingReadsWhatIsThere) {
  const auto time_of = [](const std::string& accumulate) {
    const CostModel costs(A100Cluster(1));
    const InstructionPrice price = PriceOf(
        "program p mesh tp=1\nclass \"stage 0\"\n"
        "  buffer x float32 (16777216) {-} activation\n"
        "  buffer g float32 (16777216) {-} gradient\n"
        "  block b backward\n    compute ReLU" +
            accumulate + " reads x writes g\n  slot b mb 0 layer 0\n",
        costs, 0);
    return ToSeconds(price.time);
  };
  EXPECT_NEAR(time_of(" accumulate") - time_of(""), 67108864 / (2.039e12 * 0.8), 1e-8);
}

TEST(OpRoleTest, AGradientHasTheRoleOfItsOp) {
  int pairs = 0;
  for (const OpInfo& row : kOps) {
    const std::optional<OpKind> gradient = OpKindFromName(absl::StrCat(row.name, "Grad"));
    if (!gradient.has_value()) continue;
    EXPECT_EQ(InfoOf(*gradient).role, row.role) << row.name;
    ++pairs;
  }
  EXPECT_GT(pairs, 15);
}

}  // namespace
}  // namespace meshwright
