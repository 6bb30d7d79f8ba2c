// HostPace (simulator/price.h): what a framework does to the collectives and transfers of a block: once more, in other
// types, with copies around them, beside products; and with Serial() beside nothing.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "costmodel/cost_model.h"
#include "costmodel/library.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/kernel_work.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "simulator/price.h"
#include "simulator/price_testing.h"

namespace meshwright {
namespace {

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
    const std::string text =
        absl::StrCat("program p mesh ep=8\nclass \"stage 0\"\n  buffer x float32 (1048576, ", columns,
                     ") {- | -} activation\n  buffer y float32 (1048576, ", columns,
                     ") {- | -} activation\n  buffer e bfloat16 (16, 4096, 1024) {- | ep | -} activation\n"
                     "  buffer f bfloat16 (16, 4096, 1024) {ep | - | -} activation\n  block b forward\n"
                     "    compute ReLU reads x writes y\n"
                     "    compute all_to_all (ep) dim 1 to 0 activation reads e writes f\n  slot b mb 0 layer 0\n");
    HostPace host;
    host.experts.overlaps = overlaps;
    host.experts.dispatch_blocks = 27;
    const std::vector<Nanos> times = TimesOf(text, CostModel(A100Cluster(1)), host);
    return std::make_pair(static_cast<double>(times[0].raw()), static_cast<double>(times[1].raw()));
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

// A gathered activation of 64 MiB goes into a product that takes longer: one piece of eight is seen. A product of eight
// rows covers next to nothing, and what no product reads stays as it is.
TEST(HostPaceTest, ProductsCoverTheCollectivesBesideThem) {
  const auto prices_of = [](int columns, bool overlaps) {
    const std::string text = absl::StrCat(
        "program p mesh tp=8\nclass \"stage 0\"\n"
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
        "    compute MatMul \"s h, h f -> s f\" reads y w writes z\n  slot b mb 0 layer 0\n");
    HostPace host;
    host.overlaps_products = overlaps;
    const std::vector<Nanos> times = TimesOf(text, CostModel(A100Cluster(1)), host);
    return std::make_pair(times[0], times[1]);
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
    const std::vector<Nanos> forward = TimesOf(kGate, costs, host), backward = TimesOf(kGate, costs, host, 1);
    return std::vector<Nanos>{forward[0], forward[4], backward[0], backward[3]};
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

// And the other way round.
TEST(HostPaceTest, GradientsAreScatteredBehindTheLastMicroBatch) {
  const CostModel costs(A100Cluster(1));
  HostPace host;
  host.scatters_once = true;
  const std::string four = absl::StrReplaceAll(kOverReplicas, {{"mesh dp=8", "mesh dp=8 microbatches 4"}});
  const std::vector<Nanos> before = TimesOf(four, costs, {}), after = TimesOf(four, costs, host);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[2], Nanos(before[2].raw() / 4));
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

// Eight ranks hold the same 2 MiB: each sends 256 KiB, and the next stage's gather them inside their node.
TEST(HostPaceTest, RanksWithTheSameValuesSendAPartEach) {
  const CostModel costs(H100Cluster(2));
  HostPace host;
  host.scatters_transfers = true;
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(TransferOver(8)));
  ASSERT_OK_AND_ASSIGN(const Prices prices, PriceProgram(program, costs, host));
  const Nanos part = costs.SendRecv(KiB(256), true).time;
  const Nanos gathered = costs.Collective(CollectiveKind::kAllGather, MiB(2), Evenly(8, 1)).time;
  EXPECT_EQ(prices.classes[0][0][0].time, part);
  EXPECT_EQ(prices.classes[1][0][0].time, part + gathered);
  std::string split = TransferOver(8);
  while (split.find("{- | -}") != std::string::npos) split.replace(split.find("{- | -}"), 7, "{tp | -}");
  ASSERT_OK_AND_ASSIGN(const Program parts, ParseProgram(split));
  ASSERT_OK_AND_ASSIGN(const Prices own, PriceProgram(parts, costs, host));
  EXPECT_EQ(own.classes[1][0][0].time, part);
}

TEST(HostPaceTest, SharedParametersAreUpdatedWhereTheyAreUsed) {
  const CostModel costs(H100Cluster(2));
  HostPace host;
  host.updates_shared = true;
  const auto time = [&](const std::string& text) { return TimesOf(text, costs, host)[0]; };
  EXPECT_GT(time(TransferOver(8)), Nanos());
  EXPECT_EQ(time(absl::StrReplaceAll(TransferOver(8), {{"1 activation", "1 parameter"}})), Nanos());
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

// The host's back end runs one instruction after another, with stages, too; a GPU has streams.
TEST(SerialTest, AHostRunsCollectivesInBetween) {
  ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(kOverReplicas));
  ASSERT_OK_AND_ASSIGN(const Cluster host, MakeCluster("host", 1, 8));
  const Program played = AsPlayed(program, host);
  for (const Instruction& instruction : played.classes[0].blocks[0].instructions) {
    EXPECT_EQ(instruction.stream, Stream::kCompute);
  }
  EXPECT_EQ(ToText(AsPlayed(program, H100Cluster(8))), ToText(program));
}

TEST(SerialTest, GathersRunBesideNothing) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kOverReplicas));
  program = SerialGathers(std::move(program));
  const std::vector<Instruction>& calls = program.classes[0].blocks[0].instructions;
  EXPECT_EQ(calls[0].stream, Stream::kCompute);
  EXPECT_EQ(calls[1].stream, Stream::kCompute);
  EXPECT_EQ(calls[2].stream, Stream::kComm);  // reduce_scatter
}

// G0 F0 B0 with the same block before each: the one before the backward pass gets a copy.
TEST(SerialTest, GathersBeforeBackwardPassesRunBesideNothing) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kOverReplicas));
  RankClass& c = program.classes[0];
  std::erase_if(c.blocks[0].instructions, [](const Instruction& instruction) {
    const auto* collective = std::get_if<Collective>(&instruction.work);
    return collective == nullptr || collective->purpose != Purpose::kParameter;
  });
  ASSERT_FALSE(c.blocks[0].instructions.empty());
  Instruction kernel;
  kernel.work = Compute();
  c.blocks.push_back({"forward", Phase::kForward, {kernel}});
  c.blocks.push_back({"backward", Phase::kBackward, {kernel}});
  c.blocks.push_back({"await", Phase::kForward, {}});
  c.slots = {{BlockId(0)}, {BlockId(1)}, {BlockId(0)}, {BlockId(3)}, {BlockId(2)}};
  program = SerialRegathers(std::move(program));
  const RankClass& after = program.classes[0];
  ASSERT_EQ(after.blocks.size(), 5);
  EXPECT_EQ(after.slots[0].block, BlockId(0));
  EXPECT_EQ(after.slots[2].block, BlockId(4));
  EXPECT_EQ(after.blocks[0].instructions[0].stream, Stream::kComm);
  EXPECT_EQ(after.blocks[4].instructions[0].stream, Stream::kCompute);
}

TEST(SerialTest, CollectivesRunWhereTheyAreIssued) {
  ASSERT_OK_AND_ASSIGN(Program program, ParseProgram(kOverReplicas));
  ASSERT_EQ(program.classes[0].blocks[0].instructions[0].stream, Stream::kComm);
  program = Serial(std::move(program));
  for (const Instruction& instruction : program.classes[0].blocks[0].instructions) {
    EXPECT_EQ(instruction.stream, Stream::kCompute);
  }
}

}  // namespace
}  // namespace meshwright
