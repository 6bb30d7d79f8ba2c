// Longer than 600 lines because its cases price the same few programs, written once.
#include "simulator/price.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/cost_model.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"

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

constexpr char kTransfer[] = R"(program transfer mesh pp=2 tp=%d
class "stage 0"
  buffer x float32 (1024, 512) {- | -} activation
  block b forward
    send to +1 activation reads x
  slot b mb 0 layer 0
class "stage 1"
  buffer x float32 (1024, 512) {- | -} activation
  block b forward
    receive from -1 activation writes x
  slot b mb 0 layer 0
)";

std::string TransferOver(const std::string& tp) {
  std::string text = kTransfer;
  return text.replace(text.find("%d"), 2, tp);
}

TEST(PriceProgramTest, TransfersUseOneDirectionOfTheLinkBetweenTheirNodes) {
  const CostModel costs(H100Cluster(2));
  // Four ranks a stage: both stages on one node.
  const InstructionPrice near = PriceOf(TransferOver("4"), costs, 0);
  EXPECT_EQ(near.time, costs.SendRecv(MiB(2), false).time);
  EXPECT_GT(near.links[At(Link::kIntraOut)], 0);
  EXPECT_EQ(near.links[At(Link::kIntraIn)], 0);
  // Eight: the other node. A network card for each device, so nobody shares.
  const InstructionPrice far = PriceOf(TransferOver("8"), costs, 0, 1);
  EXPECT_EQ(far.time, costs.SendRecv(MiB(2), true).time);
  EXPECT_GT(far.links[At(Link::kNicIn)], 0);
  EXPECT_EQ(far.links[At(Link::kNicOut)], 0);
  EXPECT_EQ(far.links[At(Link::kIntraIn)], 0);
}

TEST(PriceProgramTest, TransfersThatShareANetworkCardAreSlower) {
  Cluster cluster = H100Cluster(2);
  cluster.nics_per_node = 2;
  const CostModel costs(cluster);
  EXPECT_EQ(PriceOf(TransferOver("8"), costs, 0).time, costs.SendRecv(MiB(2), true, 4).time);
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
  EXPECT_GE(PriceOf(TransferOver("8"), CostModel(cluster), 0).time, kForever);
}

TEST(PriceProgramTest, RefusesMoreRanksThanDevices) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(TransferOver("8")));
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

constexpr char kHostBound[] = R"(program host_bound mesh tp=8
class "stage 0"
  buffer x float32 (1024) {-} activation
  buffer sum float32 (1024) {-} partial sum tp activation
  buffer g float32 (1024) {-} gradient
  block b forward
    compute ReLU reads x writes x
    compute all_reduce sum (tp) activation reads sum writes x
    compute ReLU accumulate reads x writes g
    compute sync
  slot b mb 0 layer 0
)";

// Kernels at 1 ms, of which the accumulating one is two, and a collective at 2 ms: 5 ms to issue, against microseconds
// to run. What the device waits is spread over the kernels, 1 : 2.
TEST(HostPaceTest, ABlockLastsAsLongAsIssuingIt) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kHostBound));
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs));
  ASSERT_OK_AND_ASSIGN(const Prices paced, PriceProgram(program, costs, {Millis(1), Millis(2)}));
  const auto& before = free.classes[0][0];
  const auto& after = paced.classes[0][0];
  Nanos total;
  for (const InstructionPrice& price : after) total += price.time;
  EXPECT_NEAR(static_cast<double>(total.raw()), 5e6, 2);
  EXPECT_EQ(after[1].time, before[1].time);
  EXPECT_NEAR(static_cast<double>((after[2].time - before[2].time).raw()),
              2.0 * static_cast<double>((after[0].time - before[0].time).raw()), 2);
  EXPECT_EQ(after[3].time, Nanos());
  // A CPU that is fast enough is not seen.
  ASSERT_OK_AND_ASSIGN(const Prices fast, PriceProgram(program, costs, {Nanos(1), Nanos(1)}));
  EXPECT_EQ(fast.classes, free.classes);
}

// A norm of eight operators: the first at 10 ms, seven more at 1 ms. What else goes along rows, as a loss does, is
// none.
TEST(HostPaceTest, WhatIsNotOneKernelIsIssuedStepByStep) {
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(R"(program norm mesh dp=1
class all
  buffer x float32 (8, 64) {- | -} activation
  buffer w float32 (64) {-} parameter
  block b forward
    compute RMSNorm "m h!, h! -> m h!" reads x w writes x
  slot b mb 0 layer 0
)"));
  const auto time = [&](Nanos step) {
    HostPace host;
    host.kernel = Millis(10);
    host.step = step;
    const absl::StatusOr<Prices> prices = PriceProgram(program, costs, host);
    EXPECT_OK(prices.status());
    return prices.ok() ? prices->classes[0][0][0].time : Nanos();
  };
  EXPECT_EQ(time(Millis(1)), Millis(10));
  Compute& norm = std::get<Compute>(program.classes[0].blocks[0].instructions[0].work);
  OpAttrs attrs = *norm.attrs;
  attrs.fused = false;
  norm.attrs = std::move(attrs);
  EXPECT_EQ(time(Millis(1)), Millis(17));
  EXPECT_EQ(time(Nanos()), Millis(10));
  norm.op = OpKind::kSoftmax;
  EXPECT_EQ(time(Millis(1)), Millis(10));
}

// An update takes what the CPU takes to issue it, where each parameter has kernels of its own.
TEST(HostPaceTest, UpdatesOfEachParameterAreIssued) {
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program update mesh dp=1
class all
  buffer w float32 (1024) {-} parameter
  buffer g float32 (1024) {-} gradient
  block b forward
    compute SGD reads w g writes w
  slot b mb 0 layer 0
)"));
  HostPace host;
  host.update = Millis(3);
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  EXPECT_EQ(prices.classes[0][0][0].time, Millis(3));
}

// A kernel of 5 ms, tokens that leave, a short kernel; 1 ms to issue each. The CPU runs ahead of the first, and is not
// seen; where it waits for counts behind the second, the third and the next layer's first start when they are issued:
// two milliseconds that the device waits, less what the third runs.
TEST(HostPaceTest, WhereTheCpuWaitsForCountsItRunsAheadFromThere) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer x float32 (1073741824) {-} activation\n"
                                    "  buffer y float32 (1073741824) {-} activation\n"
                                    "  buffer t bfloat16 (4, 2, 6) {- | - | -} activation\n"
                                    "  buffer l bfloat16 (4, 2, 4) {- | - | -} activation\n"
                                    "  buffer e bfloat16 (4, 10, 6) {- | - | -} activation\n"
                                    "  buffer f bfloat16 (4, 10, 6) {- | - | -} activation\n"
                                    "  block b forward\n    compute ReLU reads x writes y\n"
                                    "    compute Dispatch reads t l writes e\n    compute ReLU reads e writes f\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  const auto time_of = [&](const HostPace& host) {
    const absl::StatusOr<Prices> prices = PriceProgram(program, costs, host);
    EXPECT_OK(prices);
    Nanos sum;
    for (const InstructionPrice& price : prices->classes[0][0]) sum += price.time;
    return ToSeconds(sum);
  };
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs));
  HostPace host;
  host.kernel = Millis(1);
  const double busy = time_of({}), last = ToSeconds(free.classes[0][0][2].time);
  EXPECT_GT(busy, 3e-3);
  EXPECT_EQ(time_of(host), busy);
  host.experts.waits = true;
  EXPECT_NEAR(time_of(host), busy + 2e-3 - last, 1e-8);
  // Seven operators for one of ours: nine to issue.
  host.experts = {};
  host.experts.dispatch.forward = 7;
  EXPECT_NEAR(time_of(host), 9e-3, 1e-8);
}

// Of what leaves a node, the share that would leave where a copy for a node stands for those of its experts.
TEST(HostPaceTest, AShareOfWhatIsSentToOtherNodes) {
  ASSERT_OK_AND_ASSIGN(
      const Program program,
      ParseProgram("program p mesh ep=2 tp=8\nclass \"stage 0\"\n"
                   "  buffer e bfloat16 (16, 4096, 1024) {- | ep | -} activation\n"
                   "  buffer f bfloat16 (16, 4096, 1024) {ep | - | -} activation\n"
                   "  buffer g bfloat16 (16, 4096, 1024) {- | tp | -} activation\n"
                   "  buffer h bfloat16 (16, 4096, 1024) {tp | - | -} activation\n"
                   "  block b forward\n    compute all_to_all (ep) dim 1 to 0 activation reads e writes f\n"
                   "    compute all_to_all (tp) dim 1 to 0 activation reads g writes h\n"
                   "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(2));
  HostPace host;
  ASSERT_OK_AND_ASSIGN(const Prices whole, PriceProgram(program, costs, host));
  host.experts.sent_share = 0.5;
  ASSERT_OK_AND_ASSIGN(const Prices share, PriceProgram(program, costs, host));
  const auto &before = whole.classes[0][0], &after = share.classes[0][0];
  EXPECT_NEAR(static_cast<double>(after[0].time.raw()), 0.5 * static_cast<double>(before[0].time.raw()), 1);
  EXPECT_EQ(after[1].time, before[1].time);
}

// All-to-alls beside another micro-batch's kernels, of whose multiprocessors they take 27 x 1.9 of 108: kernels that
// last go on for 0.475 of what is sent, and short ones, at 0.525 of their pace, cover only so much of it.
TEST(HostPaceTest, AllToAllsTakeMultiprocessorsFromWhatCoversThem) {
  const auto prices_of = [](int columns, bool overlaps) {
    const absl::StatusOr<Program> program = ParseProgram(
        absl::StrCat("program p mesh ep=8\nclass \"stage 0\"\n  buffer x float32 (1048576, ", columns,
                     ") {- | -} activation\n  buffer y float32 (1048576, ", columns,
                     ") {- | -} activation\n  buffer e bfloat16 (16, 4096, 1024) {- | ep | -} activation\n"
                     "  buffer f bfloat16 (16, 4096, 1024) {ep | - | -} activation\n  block b forward\n"
                     "    compute ReLU reads x writes y\n"
                     "    compute all_to_all (ep) dim 1 to 0 activation reads e writes f\n  slot b mb 0 layer 0\n"));
    EXPECT_OK(program);
    HostPace host;
    host.experts.overlaps = overlaps;
    host.experts.dispatch_blocks = 27;
    const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(A100Cluster(1)), host);
    EXPECT_OK(prices);
    const auto& block = prices->classes[0][0];
    return std::make_pair(static_cast<double>(block[0].time.raw()), static_cast<double>(block[1].time.raw()));
  };
  const auto [kernel, sent] = prices_of(1024, false);
  ASSERT_GT(kernel, sent);
  EXPECT_NEAR(prices_of(1024, true).first, kernel + 0.475 * sent, 1e-3 * sent);
  EXPECT_EQ(prices_of(1024, true).second, 0);
  const auto [brief, all] = prices_of(4, false);
  ASSERT_LT(brief, 0.5 * all);
  EXPECT_NEAR(prices_of(4, true).first, brief / 0.525, 1e-3 * all);
  EXPECT_NEAR(prices_of(4, true).second, all - brief / 0.525, 1e-3 * all);
}

// A product of 4 experts is issued expert by expert, 2 ms each beside 10, and its parameters' gradients again.
TEST(HostPaceTest, ProductsOfExperts) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 64, 64) {- | - | -} activation\n"
                                    "  buffer w bfloat16 (4, 64, 64) {- | - | -} parameter\n"
                                    "  buffer f bfloat16 (4, 64, 64) {- | - | -} activation\n"
                                    "  buffer g bfloat16 (4, 64, 64) {- | - | -} gradient\n"
                                    "  block b forward\n"
                                    "    compute MatMul \"e c h, e h f -> e c f\" reads e w writes f\n"
                                    "    compute MatMul \"e c h, e c f -> e h f\" reads e f writes g\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.kernel = Millis(10);
  host.experts.launches = 1;
  host.experts.product = Millis(2);
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  const auto& list = prices.classes[0][0];
  EXPECT_NEAR(static_cast<double>((list[0].time + list[1].time).raw()), 18e6 + 26e6, 2);
}

// The gradient of a parameter of 4 experts, of which each expert's product makes all: 4 x 256 bytes an element.
TEST(HostPaceTest, WholeGradientsOfExperts) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 64, 1024) {- | - | -} activation\n"
                                    "  buffer f bfloat16 (4, 64, 1024) {- | - | -} activation\n"
                                    "  buffer g bfloat16 (4, 1024, 1024) {- | - | -} gradient\n"
                                    "  block b backward\n"
                                    "    compute MatMul \"e c h, e c f -> e h f\" reads e f writes g\n"
                                    "  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  ASSERT_OK_AND_ASSIGN(const Prices grouped, PriceProgram(program, costs, host));
  host.experts.whole_gradients = 256;
  ASSERT_OK_AND_ASSIGN(const Prices looped, PriceProgram(program, costs, host));
  // 2^22 elements, a KiB each, as a kernel that reads them.
  KernelWork pass;
  pass.kernel = KernelClass::kMemory;
  pass.read = Bytes(int64_t{1} << 32);
  EXPECT_NEAR(static_cast<double>((looped.classes[0][0][0].time - grouped.classes[0][0][0].time).raw()),
              static_cast<double>(costs.Estimate(pass).time.raw()), 1e4);
}

// What is done to experts' results moves bytes of each, and is issued expert by expert: ten milliseconds each for the
// product of 4 experts and for Combine, and for 2 steps of each expert one.
TEST(HostPaceTest, ResultsOfExpertsInSteps) {
  ASSERT_OK_AND_ASSIGN(const Program program,
                       ParseProgram("program p mesh tp=1\nclass \"stage 0\"\n"
                                    "  buffer e bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  buffer w bfloat16 (4, 64, 64) {- | - | -} parameter\n"
                                    "  buffer f bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  buffer l bfloat16 (4, 16384, 4) {- | - | -} activation\n"
                                    "  buffer t bfloat16 (4, 16384, 64) {- | - | -} activation\n"
                                    "  block b forward\n"
                                    "    compute MatMul \"e c h, e h f -> e c f\" reads e w writes f\n"
                                    "    compute Combine reads f l writes t\n  slot b mb 0 layer 0\n"));
  const CostModel costs(A100Cluster(1));
  HostPace host;
  ASSERT_OK_AND_ASSIGN(const Prices free, PriceProgram(program, costs, host));
  host.experts.results = {1024, 0};
  ASSERT_OK_AND_ASSIGN(const Prices steps, PriceProgram(program, costs, host));
  // 2^22 elements, a KiB each, as a kernel that reads them.
  KernelWork pass;
  pass.kernel = KernelClass::kMemory;
  pass.read = Bytes(int64_t{1} << 32);
  EXPECT_NEAR(static_cast<double>((steps.classes[0][0][1].time - free.classes[0][0][1].time).raw()),
              static_cast<double>(costs.Estimate(pass).time.raw()), 1e4);
  host = {};
  host.kernel = Millis(10);
  host.experts.result_steps = {2, 0};
  host.experts.step = Millis(1);
  ASSERT_OK_AND_ASSIGN(const Prices issued, PriceProgram(program, costs, host));
  const auto& list = issued.classes[0][0];
  EXPECT_NEAR(static_cast<double>((list[0].time + list[1].time).raw()), 28e6, 2);
  // Products that take the CPU twice as long.
  host.products = 2;
  ASSERT_OK_AND_ASSIGN(const Prices twice, PriceProgram(program, costs, host));
  const auto& slow = twice.classes[0][0];
  EXPECT_NEAR(static_cast<double>((slow[0].time + slow[1].time).raw()), 38e6, 2);
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

// A product's 4096 x 4096 gradient in bfloat16 is added to a float32 one by a kernel that reads 6 bytes and writes 4 of
// each element; the product itself adds it where the framework can, and with one micro-batch there is nothing to add
// to.
TEST(HostPaceTest, AutogradAddsGradientsByAKernelOfItsOwn) {
  const auto time_of = [](int microbatches, bool adds_gradients) {
    const absl::StatusOr<Program> program = ParseProgram(
        absl::StrCat("program p mesh tp=1 microbatches ", microbatches,
                     "\nclass \"stage 0\"\n"
                     "  buffer x bfloat16 (1024, 4096) {- | -} activation\n"
                     "  buffer g float32 (4096, 4096) {- | -} gradient\n"
                     "  block b backward\n    compute MatMul \"s m, s n -> m n\" accumulate reads x x writes g\n"
                     "  slot b mb 0 layer 0\n"));
    EXPECT_OK(program);
    const absl::StatusOr<Prices> prices =
        PriceProgram(*program, CostModel(A100Cluster(1)), {Nanos(), Nanos(), adds_gradients});
    EXPECT_OK(prices);
    return ToSeconds(prices->classes[0][0][0].time);
  };
  KernelWork add;
  add.kernel = KernelClass::kMemory;
  add.read = Bytes(6 * 4096 * 4096);
  add.written = Bytes(4 * 4096 * 4096);
  EXPECT_NEAR(time_of(2, true) - time_of(2, false), ToSeconds(CostModel(A100Cluster(1)).Kernel(add)), 1e-8);
  EXPECT_EQ(time_of(1, true), time_of(1, false));
}

// 2^24 elements, 26 bytes of each, in kernels of their own: 0.8 of 2.039 TB/s, the start and the ramp.
TEST(HostPaceTest, OptimizersPassOverGradients) {
  const auto time_of = [](double bytes) {
    const absl::StatusOr<Program> program = ParseProgram(
        "program p mesh tp=1\nclass \"stage 0\"\n"
        "  buffer w float32 (16777216) {-} parameter\n"
        "  buffer g float32 (16777216) {-} gradient\n"
        "  block b backward\n    compute SGD reads w g writes w\n  slot b mb 0 layer 0\n");
    EXPECT_OK(program);
    HostPace host;
    host.optimizer_bytes = bytes;
    const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(A100Cluster(1)), host);
    EXPECT_OK(prices);
    return ToSeconds(prices->classes[0][0][0].time);
  };
  KernelWork passes;
  passes.kernel = KernelClass::kMemory;
  passes.read = Bytes(26 << 24);
  EXPECT_NEAR(time_of(26) - time_of(0), ToSeconds(CostModel(A100Cluster(1)).Kernel(passes)), 1e-8);
}

// A gathered activation of 64 MiB goes into a product that takes longer: one piece of eight is seen. A product of eight
// rows covers next to nothing, and what no product reads stays as it is.
TEST(HostPaceTest, ProductsCoverTheCollectivesBesideThem) {
  const auto prices_of = [](int columns, bool overlaps) {
    const absl::StatusOr<Program> program = ParseProgram(
        absl::StrCat("program p mesh tp=8\nclass \"stage 0\"\n"
                     "  buffer x bfloat16 (8192, 4096) {tp | -} activation\n"
                     "  buffer y bfloat16 (8192, 4096) {- | -} activation\n"
                     "  buffer w bfloat16 (4096, ",
                     columns,
                     ") {- | -} parameter\n"
                     "  buffer z bfloat16 (8192, ",
                     columns,
                     ") {- | -} activation\n"
                     "  block b forward\n"
                     "    compute all_gather (tp) dim 0 activation reads x writes y\n"
                     "    compute MatMul \"s h, h f -> s f\" reads y w writes z\n  slot b mb 0 layer 0\n"));
    EXPECT_OK(program);
    HostPace host;
    host.overlaps_products = overlaps;
    const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(A100Cluster(1)), host);
    EXPECT_OK(prices);
    return std::make_pair(prices->classes[0][0][0].time, prices->classes[0][0][1].time);
  };
  const auto [alone, product] = prices_of(16384, false);
  EXPECT_EQ(prices_of(16384, true), std::make_pair(Nanos(alone.raw() / 8), product));
  const auto [same, little] = prices_of(64, false);
  EXPECT_EQ(same, alone);
  EXPECT_EQ(prices_of(64, true).first, alone - Nanos(little.raw() / 8 * 7));
}

constexpr char kGate[] = R"(program gate mesh tp=8
class "stage 0"
  buffer x bfloat16 (8192, 4096) {tp | -} activation
  buffer y bfloat16 (8192, 4096) {- | -} activation
  buffer w bfloat16 (4096, 2, 1024) {- | - | tp} parameter
  buffer v bfloat16 (4096, 1024) {- | tp} parameter
  buffer wide bfloat16 (8192, 2, 1024) {- | - | tp} activation
  buffer z bfloat16 (8192, 1024) {- | tp} activation
  buffer dy bfloat16 (8192, 4096) {- | -} partial sum tp activation
  buffer dx bfloat16 (8192, 4096) {tp | -} activation
  block f forward
    compute all_gather (tp) dim 0 activation reads x writes y
    compute MatMul "s h, h t f -> s t f" reads y w writes wide
    compute SwiGLU "s t! f -> s f" reads wide writes z
    compute MatMul "s f, h f -> s h" reads z v writes dy
    compute reduce_scatter sum (tp) dim 0 activation reads dy writes dx
  block b backward
    compute all_gather (tp) dim 0 activation reads x writes y
    compute SwiGLUGrad "s f, s t! f -> s t! f" reads z wide writes wide
    compute MatMul "s t f, h t f -> s h" reads wide w writes dy
    compute reduce_scatter sum (tp) dim 0 activation reads dy writes dx
  slot f mb 0 layer 0
  slot b mb 0 layer 0
)";

// Gathered for either matrix of the gate, and the gradients of what each read scattered; what follows the gate and what
// backward gathers is one product's. Where the dimension is not the first, 64 MiB are copied besides.
TEST(HostPaceTest, EachMatrixGathersItsInput) {
  const CostModel costs(A100Cluster(1));
  const auto times_of = [&](const HostPace& host) {
    const absl::StatusOr<Program> program = ParseProgram(kGate);
    EXPECT_OK(program);
    const absl::StatusOr<Prices> prices = PriceProgram(*program, costs, host);
    EXPECT_OK(prices);
    const auto& blocks = prices->classes[0];
    return std::vector<Nanos>{blocks[0][0].time, blocks[0][4].time, blocks[1][0].time, blocks[1][3].time};
  };
  const std::vector<Nanos> once = times_of({});
  HostPace host;
  host.gathers_each = true;
  EXPECT_EQ(times_of(host), (std::vector<Nanos>{once[0] * 2, once[1], once[2], once[3] * 2}));
  host.copies_gathered = true;
  KernelWork copy;
  copy.kernel = KernelClass::kMemory;
  copy.read = MiB(128);
  EXPECT_EQ(times_of(host)[0], (once[0] + costs.Kernel(copy)) * 2);
  EXPECT_EQ(times_of(host)[1], once[1] + costs.Kernel(copy));
}

// The gradient of tokens goes back to where they came from once, whatever the experts' gate is made of.
TEST(HostPaceTest, TokensAreNoGather) {
  const CostModel costs(A100Cluster(1));
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(program experts mesh ep=8
class "stage 0"
  buffer wide bfloat16 (8, 1024, 2, 1024) {ep | - | - | -} activation
  buffer z bfloat16 (8, 1024, 1024) {ep | - | -} activation
  buffer w bfloat16 (8, 512, 2, 1024) {ep | - | - | -} parameter
  buffer dx bfloat16 (8, 1024, 512) {ep | - | -} activation
  buffer dy bfloat16 (8, 1024, 512) {- | ep | -} activation
  block b backward
    compute SwiGLUGrad "e s f, e s t! f -> e s t! f" reads z wide writes wide
    compute MatMul "e s t f, e h t f -> e s h" reads wide w writes dx
    compute all_to_all (ep) dim 0 to 1 activation reads dx writes dy
  slot b mb 0 layer 0
)"));
  HostPace host;
  host.gathers_each = true;
  ASSERT_OK_AND_ASSIGN(const Prices once, PriceProgram(program, costs));
  ASSERT_OK_AND_ASSIGN(const Prices each, PriceProgram(program, costs, host));
  EXPECT_GT(each.classes[0][0][2].time, Nanos());
  EXPECT_EQ(each.classes[0][0][2].time, once.classes[0][0][2].time);
}

// 2^24 elements, 3 bytes of each besides, by a kernel of its own.
TEST(HostPaceTest, ActivationsStepByStep) {
  const auto time_of = [](EagerBytes bytes, const std::string& op = "GeLU") {
    const absl::StatusOr<Program> program =
        ParseProgram(absl::StrCat("program p mesh tp=1\nclass \"stage 0\"\n"
                                  "  buffer x bfloat16 (16777216) {-} activation\n"
                                  "  buffer y bfloat16 (16777216) {-} activation\n"
                                  "  block b forward\n    compute ",
                                  op, " reads x writes y\n  slot b mb 0 layer 0\n"));
    EXPECT_OK(program);
    HostPace host;
    host.activations = bytes;
    const absl::StatusOr<Prices> prices = PriceProgram(*program, CostModel(A100Cluster(1)), host);
    EXPECT_OK(prices);
    return ToSeconds(prices->classes[0][0][0].time);
  };
  KernelWork steps;
  steps.kernel = KernelClass::kMemory;
  steps.read = Bytes(3 << 24);
  EXPECT_NEAR(time_of({3, 9}) - time_of({}), ToSeconds(CostModel(A100Cluster(1)).Kernel(steps)), 1e-8);
  EXPECT_NEAR(time_of({3, 9}, "ReLU") - time_of({}, "ReLU"), ToSeconds(CostModel(A100Cluster(1)).Kernel(steps)), 1e-8);
}

constexpr char kOverReplicas[] = R"(program replicas mesh dp=8
class "stage 0"
  buffer p bfloat16 (1024, 512) {- | -} parameter
  buffer q bfloat16 (1024, 512) {- | -} parameter
  buffer rows bfloat16 (1024, 512) {dp | -} parameter
  buffer sum bfloat16 (1024, 512) {- | -} partial sum dp gradient
  buffer mine bfloat16 (1024, 512) {dp | -} gradient
  block b forward
    comm all_gather (dp) dim 0 parameter reads rows writes p
    comm all_gather (dp) dim 0 parameter reads rows rows writes p q
    comm reduce_scatter sum (dp) dim 0 gradient reads sum writes mine
  slot b mb 0 layer 0
)";

std::vector<Nanos> TimesOf(const std::string& text, const CostModel& costs, const HostPace& host) {
  std::vector<Nanos> times;
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_OK(program);
  const absl::StatusOr<Prices> prices = PriceProgram(*program, costs, host);
  EXPECT_OK(prices);
  for (const InstructionPrice& price : prices->classes[0][0]) times.push_back(price.time);
  return times;
}

// A tensor is 1024 x 512 x 2 bytes = 1 MiB, a rank's piece 128 KiB. One tensor: 8 kernels; two in a call: 8 for the
// call, of 256 KiB, and 16 for the tensors; a scatter: 8. None is faster than its launch.
TEST(HostPaceTest, ListsOfPiecesAreCopiedByAKernelEach) {
  const CostModel costs(A100Cluster(1));
  const auto copies = [&](int64_t kernels, Bytes bytes) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = work.written = bytes;
    return std::max(Micros(5), costs.Kernel(work)) * kernels;
  };
  HostPace host;
  host.copies_pieces = true;
  const std::vector<Nanos> before = TimesOf(kOverReplicas, costs, {}), after = TimesOf(kOverReplicas, costs, host);
  EXPECT_EQ(after[0] - before[0], copies(8, KiB(128)));
  EXPECT_EQ(after[1] - before[1], copies(8, KiB(256)) + copies(16, KiB(128)));
  EXPECT_EQ(after[2] - before[2], copies(8, KiB(128)));
}

// A kernel of 1 ms, and 3 or 5 ms for positions, against microseconds to run.
TEST(HostPaceTest, PositionsExampleByExample) {
  const auto time_of = [](const std::string& phase, const std::string& instruction) {
    HostPace host = {Millis(1), Millis(1)};
    host.positions_forward = Millis(3);
    host.positions_backward = Millis(5);
    const std::string shape = " {- | - | - | - | -} activation\n";
    return TimesOf(
        absl::StrCat("program p mesh tp=1\nclass \"stage 0\"\n  buffer x bfloat16 (64, 1, 8, 3, 64)", shape,
                     "  buffer dx bfloat16 (64, 1, 8, 3, 64)", shape, "  buffer y bfloat16 (64, 1, 8, 1, 64)", shape,
                     "  buffer dy bfloat16 (64, 1, 8, 1, 64)", shape,
                     "  buffer saved float32 (64, 1, 8, 1) {- | - | - | -} activation\n  block b ", phase,
                     "\n    compute ", instruction, "\n  slot b mb 0 layer 0\n"),
        CostModel(A100Cluster(1)), host)[0];
  };
  EXPECT_EQ(time_of("forward", "Attention reads x writes y saved"), Millis(4));
  EXPECT_EQ(time_of("backward", "AttentionGrad reads dy x y saved writes dx"), Millis(6));
}

TEST(HostPaceTest, WholeGradientsAreReduced) {
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.reduces_whole = true;
  const std::vector<Nanos> times = TimesOf(kOverReplicas, costs, host);
  EXPECT_EQ(times[0], costs.Collective(CollectiveKind::kAllGather, MiB(1), Evenly(8, 1)).time);
  EXPECT_EQ(times[2], costs.Collective(CollectiveKind::kAllReduce, MiB(1), Evenly(8, 1)).time);
}

// Four micro-batches: four times the scatter, and what is gathered once.
TEST(HostPaceTest, GradientsAreReducedBehindEachMicroBatch) {
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.reduces_each = true;
  const std::string four = absl::StrReplaceAll(kOverReplicas, {{"mesh dp=8", "mesh dp=8 microbatches 4"}});
  const std::vector<Nanos> before = TimesOf(four, costs, {}), after = TimesOf(four, costs, host);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[2], Nanos(4 * before[2].raw()));
}

TEST(HostPaceTest, WhatIsRunAgainIsGatheredAgain) {
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.gathers_again = 0.5;
  const std::vector<Nanos> before = TimesOf(kOverReplicas, costs, {}), after = TimesOf(kOverReplicas, costs, host);
  EXPECT_NEAR(ToSeconds(after[0]), 1.25 * ToSeconds(before[0]), 2e-9);
  EXPECT_EQ(after[2], before[2]);
}

// Half of 1 MiB in 8 bits; gradients keep their type.
TEST(HostPaceTest, ParametersAreGatheredInANarrowerType) {
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.gathered_share = 0.5;
  const std::vector<Nanos> before = TimesOf(kOverReplicas, costs, {}), after = TimesOf(kOverReplicas, costs, host);
  EXPECT_EQ(after[0], costs.Collective(CollectiveKind::kAllGather, KiB(512), Evenly(8, 1)).time);
  EXPECT_EQ(after[2], before[2]);
}

// 8 ranks on 2 nodes stand for 64: 4 on each of 16 nodes.
TEST(HostPaceTest, ReplicasOfTheProgramStandForMore) {
  Cluster cluster = A100Cluster(2);
  cluster.devices_per_node = 4;
  const CostModel costs(cluster);
  HostPace host;
  host.replicas = 64;
  GroupShape shape = Evenly(8, 2);
  shape.ranks = 64;
  shape.nodes = 16;
  EXPECT_EQ(TimesOf(kOverReplicas, costs, host)[0], costs.Collective(CollectiveKind::kAllGather, MiB(1), shape).time);
}

// The kernels of 1 and 2 ms to issue, the collective of 2 ms: 5 ms besides what the device takes.
TEST(HostPaceTest, WhereLaunchesBlockIssuingAddsToTheTime) {
  const CostModel costs(A100Cluster(1));
  HostPace host = {Millis(1), Millis(2)};
  host.launch_blocking = true;
  Nanos before, after;
  for (const Nanos time : TimesOf(kHostBound, costs, {})) before += time;
  for (const Nanos time : TimesOf(kHostBound, costs, host)) after += time;
  EXPECT_NEAR(static_cast<double>((after - before).raw()), 5e6, 2);
}

// Eight ranks hold the same 2 MiB: each sends 256 KiB, and the next stage's gather them inside their node.
TEST(HostPaceTest, RanksWithTheSameValuesSendAPartEach) {
  const CostModel costs(H100Cluster(2));
  HostPace host;
  host.scatters_transfers = true;
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(TransferOver("8")));
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  const Nanos part = costs.SendRecv(KiB(256), true).time;
  const Nanos gathered = costs.Collective(CollectiveKind::kAllGather, MiB(2), Evenly(8, 1)).time;
  EXPECT_EQ(prices.classes[0][0][0].time, part);
  EXPECT_EQ(prices.classes[1][0][0].time, part + gathered);
  std::string split = TransferOver("8");
  while (split.find("{- | -}") != std::string::npos) split.replace(split.find("{- | -}"), 7, "{tp | -}");
  ASSERT_OK_AND_ASSIGN(const Program parts, ParseProgram(split));
  ASSERT_OK_AND_ASSIGN(const Prices own, PriceProgram(parts, costs, host));
  EXPECT_EQ(own.classes[1][0][0].time, part);
}

TEST(HostPaceTest, SharedParametersAreUpdatedWhereTheyAreUsed) {
  const CostModel costs(H100Cluster(2));
  HostPace host;
  host.updates_shared = true;
  const auto time = [&](const std::string& text) {
    const absl::StatusOr<Program> program = ParseProgram(text);
    EXPECT_OK(program);
    const absl::StatusOr<Prices> prices = PriceProgram(*program, costs, host);
    EXPECT_OK(prices);
    return prices->classes[0][0][0].time;
  };
  EXPECT_GT(time(TransferOver("8")), Nanos());
  EXPECT_EQ(time(absl::StrReplaceAll(TransferOver("8"), {{"1 activation", "1 parameter"}})), Nanos());
}

TEST(SerialTest, AProgramWithStagesStaysAsItIs) {
  std::string text = kOverReplicas;
  std::string next = text.substr(text.find("class"));
  next.replace(next.find("stage 0"), 7, "stage 1");
  text.replace(text.find("mesh dp=8"), 9, "mesh pp=2 dp=8");
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(text + next));
  program = Serial(std::move(program));
  EXPECT_EQ(program.classes[0].blocks[0].instructions[0].stream, Stream::kComm);
}

TEST(SerialTest, GathersRunBesideNothing) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kOverReplicas));
  program = SerialGathers(std::move(program));
  const std::vector<Instruction>& calls = program.classes[0].blocks[0].instructions;
  EXPECT_EQ(calls[0].stream, Stream::kCompute);
  EXPECT_EQ(calls[1].stream, Stream::kCompute);
  EXPECT_EQ(calls[2].stream, Stream::kComm);  // reduce_scatter
}

TEST(SerialTest, CollectivesRunWhereTheyAreIssued) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kOverReplicas));
  ASSERT_EQ(program.classes[0].blocks[0].instructions[0].stream, Stream::kComm);
  program = Serial(std::move(program));
  for (const Instruction& instruction : program.classes[0].blocks[0].instructions) {
    EXPECT_EQ(instruction.stream, Stream::kCompute);
  }
}

// Around the kernels of `text` `host` moves 10, 20 and 30 bytes for each of 4096 x 4096 elements.
void ExpectStepsMove(const std::string& text, const HostPace& host) {
  const CostModel costs(A100Cluster(1));
  const std::vector<Nanos> before = TimesOf(text, costs, {}), after = TimesOf(text, costs, host);
  for (size_t i = 0; i < 3; ++i) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = Bytes(int64_t{10} * static_cast<int64_t>(i + 1) * 4096 * 4096);
    EXPECT_EQ(after[i] - before[i], costs.Kernel(work)) << i;
  }
}

// A norm and a gate of 4096 x 4096 elements, and a product with a parameter as large: each moves its bytes once more.
TEST(HostPaceTest, BytesOfStepsAroundNormsGatesAndParameters) {
  const std::string text = R"(program steps mesh tp=1
class "stage 0"
  buffer x bfloat16 (4096, 4096) {- | -} activation
  buffer y bfloat16 (4096, 4096) {- | -} activation
  buffer wide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer w bfloat16 (4096, 4096) {- | -} parameter
  buffer gamma bfloat16 (4096) {-} parameter
  block b forward
    compute LayerNorm "r h!, h!, h! -> r h!" reads x gamma gamma writes y
    compute SwiGLU "r t! f -> r f" reads wide writes y
    compute MatMul "r h, h f -> r f" reads x w writes y
  slot b mb 0 layer 0
)";
  HostPace host;
  host.norms = {10, 0};
  host.gates = {20, 0};
  host.parameters = {20, 0};
  host.unpacked = {10, 99};  // made of a packed one first
  ExpectStepsMove(text, host);
}

// Backward, bytes are of the result whose gradient comes in: of a gate 4096 x 4096 as well, and not of the two parts
// that its gradient makes.
TEST(HostPaceTest, BytesOfStepsBackwardAreOfTheSameElements) {
  const std::string text = R"(program steps mesh tp=1
class "stage 0"
  buffer x bfloat16 (4096, 4096) {- | -} activation
  buffer dy bfloat16 (4096, 4096) {- | -} activation
  buffer wide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer dwide bfloat16 (4096, 2, 4096) {- | - | -} activation
  buffer gamma bfloat16 (4096) {-} parameter
  buffer dgamma float32 (4096) {-} gradient
  block b backward
    compute LayerNormGrad "r h!, r h!, h! -> r h!, h!, h!" reads dy x gamma writes dy dgamma dgamma
    compute SwiGLUGrad "r f, r t! f -> r t! f" reads dy wide writes dwide
    compute SiLUGrad "r f, r f -> r f" reads dy x writes dy
  slot b mb 0 layer 0
)";
  HostPace host;
  host.norms = {0, 10};
  host.gates = {0, 20};
  host.activations = {0, 30};
  ExpectStepsMove(text, host);
}

// A table of 2^24 elements, of which 8 rows get a gradient: filled with 2 bytes each, then, with several micro-batches,
// read, 2 and 4, and added, 4.
TEST(HostPaceTest, WholeTablesAreFilledAndAdded) {
  constexpr absl::string_view kTable = R"(program table mesh tp=1 microbatches 2
class "stage 0"
  buffer dy bfloat16 (8, 256) {- | -} activation
  buffer ids int32 (8) {-} input
  buffer dtable float32 (65536, 256) {- | -} gradient
  block b backward
    compute GatherGrad "s h, s -> v h" accumulate reads dy ids writes dtable
  slot b mb 0 layer 0
  slot b mb 1 layer 0
)";
  const CostModel costs(A100Cluster(1));
  const auto moved = [&](int64_t read, int64_t written) {
    KernelWork work;
    work.kernel = KernelClass::kMemory;
    work.read = Bytes(read << 24);
    work.written = Bytes(written << 24);
    return costs.Kernel(work);
  };
  HostPace host;
  host.whole_tables = true;
  const auto more = [&](const std::string& text) {
    return TimesOf(text, costs, host)[0] - TimesOf(text, costs, {})[0];
  };
  EXPECT_EQ(more(std::string(kTable)), moved(0, 2) + moved(6, 4));
  EXPECT_EQ(more(absl::StrReplaceAll(kTable, {{" microbatches 2", ""}, {"  slot b mb 1 layer 0\n", ""}})), moved(0, 2));
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
