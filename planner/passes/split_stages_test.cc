#include "planner/passes/split_stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/differentiate.h"
#include "planner/passes/partition.h"
#include "planner/passes/testing.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr DType kF = DType::kFloat32;

absl::StatusOr<Program> Split(Graph forward, const Strategy& strategy, OpKind optimizer = OpKind::kSgd) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, Differentiate(std::move(forward), {}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ShardedGraph sharded, CompleteLayouts(graph, strategy));
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, Partition(sharded, PriceByBytes));
  MESHWRIGHT_ASSIGN_OR_RETURN(program, SplitStages(std::move(program), graph, strategy, {optimizer, {}}));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

Strategy Pipeline(int64_t stages, int64_t microbatches, Schedule schedule = Schedule::kOneFOneB) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(stages, 1);
  strategy.stages = stages;
  strategy.microbatches = microbatches;
  strategy.schedule = schedule;
  return strategy;
}

// "F0 F1 B0 ...": the passes of a class, by the slots of its layers. The last backward pass runs layer by layer.
std::string Passes(const RankClass& c) {
  std::vector<std::string> passes;
  for (const Slot& slot : c.slots) {
    const std::string& name = c.blocks[slot.block.index()].name;
    std::string pass;
    if (name == "layers forward") pass = absl::StrCat("F", slot.microbatch);
    if (name == "layers backward") pass = absl::StrCat("B", slot.microbatch);
    if (!pass.empty() && (passes.empty() || passes.back() != pass)) passes.push_back(std::move(pass));
  }
  return absl::StrJoin(passes, " ");
}

const Buffer& Find(const RankClass& c, const std::string& name) {
  for (const Buffer& buffer : c.buffers) {
    if (buffer.name == name) return buffer;
  }
  ADD_FAILURE() << "no buffer " << name << " in " << c.name;
  return c.buffers[0];
}

// S12.8: orders and activations kept, for 1F1B; GPipe keeps all on every stage.
TEST(SplitStagesTest, OrdersAndActivationsOfTheSchedules) {
  struct Row {
    int64_t stages, microbatches;
    size_t stage;
    std::string order;
    int64_t kept;
  };
  for (const Row& row :
       {Row{2, 4, 0, "F0 F1 B0 F2 B1 F3 B2 B3", 2}, Row{2, 4, 1, "F0 B0 F1 B1 F2 B2 F3 B3", 1},
        Row{4, 4, 0, "F0 F1 F2 F3 B0 B1 B2 B3", 4}, Row{4, 4, 1, "F0 F1 F2 B0 F3 B1 B2 B3", 3},
        Row{4, 4, 2, "F0 F1 B0 F2 B1 F3 B2 B3", 2}, Row{4, 8, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7", 4},
        Row{4, 8, 1, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7", 3},
        Row{4, 8, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7", 1}}) {
    SCOPED_TRACE(absl::StrCat(row.stages, " stages, ", row.microbatches, " micro-batches, stage ", row.stage));
    ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(4, 8), Pipeline(row.stages, row.microbatches)));
    const RankClass& c = program.classes[row.stage];
    EXPECT_EQ(Passes(c), row.order);
    EXPECT_EQ(Find(c, "up").microbatches, row.kept);
    EXPECT_EQ(Find(c, "up").layers, 4 / row.stages);
  }
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(4, 8), Pipeline(2, 4, Schedule::kGpipe)));
  for (const RankClass& c : program.classes) {
    EXPECT_EQ(Passes(c), "F0 F1 F2 F3 B0 B1 B2 B3");
    EXPECT_EQ(Find(c, "up").microbatches, 4);
  }
}

// What stands before the layers is on the first stage, what stands behind them on the last.
TEST(SplitStagesTest, PiecesOfStages) {
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(4, 8), Pipeline(2, 2)));
  ASSERT_EQ(program.classes.size(), 2u);
  EXPECT_EQ(program.classes[0].name, "stage 0");
  EXPECT_EQ(program.classes[1].stage, 1);
  EXPECT_EQ(program.num_microbatches, 2);
  EXPECT_THAT(Lines(program, 0, "head forward"), ElementsAre("no block head forward"));
  EXPECT_THAT(Lines(program, 1, "embed forward"), ElementsAre("no block embed forward"));
  EXPECT_EQ(Find(program.classes[1], "u").first_layer, 2);
  // Layer 2 of the model is layer 0 of stage 1; the head reads what the stage's last layer made.
  EXPECT_THAT(SlotLines(program.classes[1]), Contains("layers forward mb 1 layer 0 x2 up"));
  EXPECT_THAT(SlotLines(program.classes[1]), Contains("head forward mb 1 layer 2"));
  EXPECT_THAT(SlotLines(program.classes[0]), Contains("embed forward mb 1 layer 0"));
}

TEST(SplitStagesTest, LayersPerStage) {
  Strategy strategy = Pipeline(3, 3);
  ASSERT_OK_AND_ASSIGN(Program program, Split(TiedStack(4, 8), strategy));
  const auto layers = [&] {
    std::vector<int64_t> counts;
    for (const RankClass& c : program.classes) counts.push_back(Find(c, "u").layers);
    return counts;
  };
  EXPECT_THAT(layers(), ElementsAre(2, 1, 1));  // the first get more
  strategy.layers_per_stage = {1, 1, 2};
  ASSERT_OK_AND_ASSIGN(program, Split(TiedStack(4, 8), strategy));
  EXPECT_THAT(layers(), ElementsAre(1, 1, 2));
  EXPECT_EQ(Find(program.classes[2], "u").first_layer, 2);
}

// The ends hand on what they have no layers for: the embedding's result, and the gradient that the head makes.
TEST(SplitStagesTest, EndsWithoutLayers) {
  Strategy strategy = Pipeline(3, 3);
  strategy.layers_per_stage = {0, 4, 0};
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(4, 8), strategy));
  EXPECT_THAT(SlotLines(program.classes[0]), Contains("embed forward mb 1 layer 0"));
  EXPECT_THAT(SlotLines(program.classes[0]), Contains("send layers/stream 0->1 mb 1 layer 0"));
  EXPECT_THAT(SlotLines(program.classes[1]), Contains("layers forward mb 1 layer 0 x4 up"));
  EXPECT_THAT(SlotLines(program.classes[1]), Contains("send layers/stream 1->2 mb 1 layer 4"));
  EXPECT_THAT(SlotLines(program.classes[2]), Contains("head forward mb 1 layer 0"));
  Strategy chunks = Pipeline(2, 4);
  chunks.chunks = 2;
  chunks.layers_per_stage = {0, 2, 2, 0};
  EXPECT_OK(Split(TiedStack(4, 8), chunks));
  chunks.schedule = Schedule::kZeroBubbleV;
  EXPECT_OK(Split(TiedStack(4, 8), chunks));
}

// One stage: passes without transfers; gradients of a layer are reduced as soon as its last backward pass is through.
TEST(SplitStagesTest, TheStepOfOneStage) {
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"dp", 2}});
  strategy.rules = {{"b", Axes(strategy.mesh, "dp")}};
  strategy.microbatches = 2;
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(2, 8), strategy));
  EXPECT_THAT(
      SlotLines(program.classes[0]),
      ElementsAre("embed zero mb 0 layer 0", "layers zero mb 0 layer 0 x2 up", "loss zero mb 0 layer 0",  //
                  "embed forward mb 0 layer 0", "layers forward mb 0 layer 0 x2 up", "head forward mb 0 layer 2",
                  "head backward mb 0 layer 2", "layers backward mb 0 layer 1 x2 down",
                  "embed backward mb 0 layer 0",  //
                  "embed forward mb 1 layer 0", "layers forward mb 1 layer 0 x2 up", "head forward mb 1 layer 2",
                  "head backward mb 1 layer 2",  //
                  "layers backward mb 1 layer 1", "layers reduce mb 0 layer 1", "layers backward mb 1 layer 0",
                  "layers reduce mb 0 layer 0", "embed backward mb 1 layer 0", "embed reduce mb 0 layer 0",
                  "embed update mb 0 layer 0", "layers update mb 0 layer 0 x2 up", "report mb 0 layer 0"));
  EXPECT_THAT(Lines(program, 0, "layers zero"), ElementsAre("compute Fill scale=0 writes du dv @layers/zero"));
  EXPECT_THAT(Lines(program, 0, "layers reduce"),
              ElementsAre("compute all_reduce sum (dp) gradient reads du writes du@whole @du",
                          "compute all_reduce sum (dp) gradient reads dv writes dv@whole @dv"));
  EXPECT_THAT(Lines(program, 0, "report"),
              ElementsAre("compute all_reduce sum (dp) report reads loss writes loss@whole @loss"));
  EXPECT_TRUE(Find(program.classes[0], "du@whole").alias.valid());
  EXPECT_EQ(Find(program.classes[0], "du@whole").layers, 2);
}

// Sends wait until the pass is through, a buffer is written again when it has left; receives wait until its last
// reader, here the backward pass, has gone.
TEST(SplitStagesTest, TransfersOfTheCarriedValue) {
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(2, 8), Pipeline(2, 4)));
  EXPECT_THAT(Lines(program, 0, "send layers/stream 0->1"),
              ElementsAre("compute sync records \"ready layers/stream 0->1\" @\"layers/stream 0->1\"",
                          "send to +1 activation reads layers/stream waits \"ready layers/stream 0->1\" records \"sent "
                          "layers/stream 0->1\" @\"layers/stream 0->1\""));
  EXPECT_THAT(Lines(program, 0, "await sent layers/stream 0->1"),
              ElementsAre("compute sync waits \"sent layers/stream 0->1\" @\"layers/stream 0->1\""));
  EXPECT_THAT(Lines(program, 1, "receive layers/stream 0->1"),
              ElementsAre("receive from -1 activation writes layers/stream waits \"free layers/stream 0->1\" records "
                          "\"arrived layers/stream 0->1\" @\"layers/stream 0->1\"",
                          "compute sync waits \"arrived layers/stream 0->1\" @\"layers/stream 0->1\""));
  // One layer per stage: it leaves as layer 1 and arrives as layer 0; the gradient the other way.
  const std::vector<std::string> first = SlotLines(program.classes[0]), last = SlotLines(program.classes[1]);
  EXPECT_THAT(first, Contains("send layers/stream 0->1 mb 3 layer 1"));
  EXPECT_THAT(last, Contains("receive layers/stream 0->1 mb 3 layer 0"));
  EXPECT_THAT(last, Contains("send layers/gradient 1->0 mb 3 layer 0"));
  EXPECT_THAT(first, Contains("receive layers/gradient 1->0 mb 3 layer 1"));
  const auto at = [&](const std::string& line) { return std::find(last.begin(), last.end(), line) - last.begin(); };
  EXPECT_LT(at("layers backward mb 0 layer 0"), at("release layers/stream 0->1 mb 0 layer 0"));
  EXPECT_LT(at("release layers/stream 0->1 mb 0 layer 0"), at("receive layers/stream 0->1 mb 2 layer 0"));
  // The next micro-batch may arrive while this one is computed.
  EXPECT_EQ(Find(program.classes[1], "layers/stream").microbatches, 2);
}

// x w0 in part 0, w1 in part 1, .. ; the last part also reads what part 0 made.
Graph Skip(int64_t parts = 3) {
  GraphBuilder b("skip");
  std::vector<TensorId> values;
  for (int64_t s = 0; s < parts; ++s) {
    b.BeginSegment(absl::StrCat("part", s));
    b.mutable_graph().segments.back().stage = s;
    if (s == 0) values.push_back(b.Input("x", kF, {4, 4}, {}));
    const TensorId w = b.Parameter(absl::StrCat("w", s), kF, {4, 4}, {});
    values.push_back(*b.AddOne({.name = absl::StrCat("y", s),
                                .kind = OpKind::kMatMul,
                                .inputs = {values.back(), w},
                                .rule = "m k, k n -> m n"}));
  }
  const TensorId sum = *b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {values.back(), values[1]}});
  b.SetLoss(*b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {sum, values[0]}}));
  return std::move(b).Build();
}

// S12.6: from stage 0 to stage 2 directly, not by way of stage 1; its gradient comes back the same way.
TEST(SplitStagesTest, TransfersOverSeveralStages) {
  ASSERT_OK_AND_ASSIGN(const Program program, Split(Skip(), Pipeline(3, 3)));
  const auto transfers = [&](size_t c) {
    std::vector<std::string> found;
    for (const Block& block : program.classes[c].blocks) {
      if (absl::StartsWith(block.name, "send") || absl::StartsWith(block.name, "receive")) found.push_back(block.name);
    }
    return found;
  };
  EXPECT_THAT(transfers(0), ElementsAre("send y0 0->1", "send y0 0->2", "receive dsum 2->0", "receive dy0 1->0"));
  EXPECT_THAT(transfers(1), ElementsAre("receive y0 0->1", "send y1 1->2", "receive dy1 2->1", "send dy0 1->0"));
  EXPECT_THAT(transfers(2), ElementsAre("receive y0 0->2", "receive y1 1->2", "send dsum 2->0", "send dy1 2->1"));
  EXPECT_THAT(Lines(program, 0, "send y0 0->2"), Contains(testing::HasSubstr("send to +2 activation reads y0")));
}

// S12.7: the lowest stage owns the table; stage 1 gets its values before the step and gives its gradient back after it,
// which the owner adds before it reduces and updates.
TEST(SplitStagesTest, ASharedParameter) {
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(2, 8), Pipeline(2, 2)));
  EXPECT_THAT(Lines(program, 0, "share"),
              ElementsAre("compute sync records \"ready table 0->1\" @\"table 0->1\"",
                          "send to +1 parameter reads table waits \"ready table 0->1\" records \"sent table 0->1\" "
                          "@\"table 0->1\""));
  EXPECT_THAT(Lines(program, 1, "share"),
              ElementsAre("receive from -1 parameter writes table records \"arrived table 0->1\" @\"table 0->1\"",
                          "compute sync waits \"arrived table 0->1\" @\"table 0->1\""));
  EXPECT_THAT(Lines(program, 1, "give back"),
              ElementsAre("compute sync records \"ready dtable 1->0\" @\"dtable 1->0\"",
                          "send to -1 gradient reads dtable waits \"ready dtable 1->0\" records \"sent dtable 1->0\" "
                          "@\"dtable 1->0\""));
  const std::vector<std::string> reduce = Lines(program, 0, "shared parameters reduce");
  ASSERT_EQ(reduce.size(), 4u);  // one rank a stage: nothing to all-reduce
  EXPECT_EQ(reduce[0], "compute sync waits \"sent table 0->1\" @table");
  EXPECT_EQ(reduce[3],
            "compute ReduceSum \"d0 d1 -> d0 d1\" accumulate reads \"dtable@of stage 1\" writes dtable "
            "@\"dtable@of stage 1\"");
  EXPECT_EQ(SlotLines(program.classes[1]).back(), "layers update mb 0 layer 0");
  EXPECT_THAT(SlotLines(program.classes[1]), Contains("give back mb 0 layer 0"));
  EXPECT_THAT(Lines(program, 1, "head update"), ElementsAre("no block head update"));
}

// Several, of different owners; one stage reads a parameter without having a gradient of it.
TEST(SplitStagesTest, SharedParametersOfDifferentOwners) {
  Graph graph = Skip();
  GraphBuilder b(std::move(graph));
  const TensorId w0 = b.graph().FindTensor("w0"), w1 = b.graph().FindTensor("w1");
  // Stage 0 reads w1 for nothing; stage 2 multiplies by w1 too; w0 is used by stage 1 too.
  b.ContinueSegment(SegmentId(0));
  ASSERT_OK(b.AddOne({.name = "unused", .kind = OpKind::kMul, .inputs = {w0, w1}}));
  Graph& all = b.mutable_graph();
  for (Op& op : all.ops) {
    if (op.name == "y2") op.inputs[1] = w1;
    if (op.name == "y1") op.inputs[1] = w0;
  }
  b.ContinueSegment(SegmentId(1));
  const TensorId y1 = b.graph().FindTensor("y1");
  ASSERT_OK_AND_ASSIGN(
      const TensorId more,
      b.AddOne({.name = "more", .kind = OpKind::kMatMul, .inputs = {y1, w1}, .rule = "m k, k n -> m n"}));
  for (Op& op : all.ops) {
    if (op.name == "y2") op.inputs[0] = more;
  }
  ASSERT_OK_AND_ASSIGN(const Program program, Split(std::move(b).Build(), Pipeline(3, 3)));
  const auto transfers = [&](size_t c, const std::string& block) {
    std::vector<std::string> found;
    for (const Block& candidate : program.classes[c].blocks) {
      if (candidate.name != block) continue;
      for (const Instruction& instruction : candidate.instructions) {
        if (std::holds_alternative<Transfer>(instruction.work)) found.push_back(instruction.origin);
      }
    }
    return found;
  };
  // w0 belongs to stage 0, w1 to stage 1: the lowest stage with a gradient of it.
  EXPECT_THAT(transfers(0, "share"), ElementsAre("w0 0->1", "w1 1->0"));
  EXPECT_THAT(transfers(1, "share"), ElementsAre("w0 0->1", "w1 1->0", "w1 1->2"));
  EXPECT_THAT(transfers(2, "share"), ElementsAre("w1 1->2"));
  EXPECT_THAT(transfers(1, "give back"), ElementsAre("dw0 1->0"));
  EXPECT_THAT(transfers(2, "give back"), ElementsAre("dw1 2->1"));
}

// A parameter of the embedding that all layers use: complete only after the last layer's backward pass, updated once.
TEST(SplitStagesTest, AParameterOfAllLayers) {
  Graph graph = TiedStack(3, 8);
  Tensor common = graph.tensor(graph.FindTensor("u"));
  common.name = "common";
  common.segment = SegmentId(0);
  graph.tensors.push_back(common);
  for (Op& op : graph.ops) {
    if (op.name == "up") op.inputs[1] = TensorId(graph.tensors.size() - 1);
  }
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"dp", 2}});
  strategy.rules = {{"b", Axes(strategy.mesh, "dp")}};
  ASSERT_OK_AND_ASSIGN(const Program program, Split(std::move(graph), strategy));
  EXPECT_EQ(Find(program.classes[0], "dcommon").layers, 1);
  EXPECT_THAT(Lines(program, 0, "shared parameters reduce"),
              ElementsAre("compute all_reduce sum (dp) gradient reads dcommon writes dcommon@whole @dcommon"));
  EXPECT_THAT(SlotLines(program.classes[0]), Contains("shared parameters update mb 0 layer 0"));
}

// S8.2: all of S4.7's four replicas of w count, though only two of them have different summands.
TEST(SplitStagesTest, GradientsMeanDividesByTheReplicas) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 8);  // x4 x2 x1: ((2,2),(2,1)) and a repeat axis
  strategy.rules = {{"m", Axes(strategy.mesh, "x4")}, {"k", Axes(strategy.mesh, "x2")}};
  strategy.gradients_mean = true;
  ASSERT_OK_AND_ASSIGN(const Program program, Split(SeedB(), strategy));
  EXPECT_THAT(Lines(program, 0, "model reduce"),
              ElementsAre("compute all_reduce sum (x4) gradient reads dw writes dw@whole @dw",
                          "compute all_reduce sum (x4) gradient reads dw2 writes dw2@whole @dw2"));
  EXPECT_THAT(Lines(program, 0, "model update"),
              ElementsAre("compute Scale scale=0.25 reads dw@whole writes dw@whole @dw@whole",
                          "compute SGD reads w dw@whole writes w @w",
                          "compute Scale scale=0.25 reads dw2@whole writes dw2@whole @dw2@whole",
                          "compute SGD reads w2 dw2@whole writes w2 @w2"));
}

// State of the optimizers: none, one, two tensors of the parameter's type; a master in float32 where that is narrower.
TEST(SplitStagesTest, Optimizers) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(1, 1);
  ASSERT_OK_AND_ASSIGN(Program program, Split(SeedB(), strategy, OpKind::kMomentum));
  EXPECT_EQ(Lines(program, 0, "model update")[0], "compute Momentum reads w dw w@m writes w w@m @w");
  EXPECT_EQ(Find(program.classes[0], "w@m").role, BufferRole::kOptimizerState);
  Graph graph = SeedB();
  for (Tensor& tensor : graph.tensors) tensor.dtype = DType::kBFloat16;
  ASSERT_OK_AND_ASSIGN(program, Split(std::move(graph), strategy, OpKind::kAdamW));
  EXPECT_EQ(Lines(program, 0, "model update")[0],
            "compute AdamW \"d0 d1, d0 d1, d0 d1, d0 d1 -> d0 d1, d0 d1, d0 d1, d0 d1\" reads w@master dw w@m w@v "
            "writes w@master w@m w@v w @w");
  EXPECT_EQ(Find(program.classes[0], "w@master").dtype, kF);
  EXPECT_EQ(Find(program.classes[0], "w@v").dtype, kF);
  EXPECT_EQ(Find(program.classes[0], "w").dtype, DType::kBFloat16);
}

// S12.10: two chunks of one layer on each of two stages. Part 1 (stage 1) sends to part 2 (stage 0, chunk 1); so stage
// 0 gets activations and gradients from stage 1, in the order in which that sends them, not in which it reads them.
TEST(SplitStagesTest, Chunks) {
  Strategy strategy = Pipeline(2, 4);
  strategy.chunks = 2;
  ASSERT_OK_AND_ASSIGN(const Program program, Split(TiedStack(4, 8), strategy));
  const RankClass &first = program.classes[0], &last = program.classes[1];
  EXPECT_EQ(Find(first, "u").first_layer, 0);
  EXPECT_EQ(Find(first, "u@chunk1").first_layer, 2);
  EXPECT_EQ(Find(last, "u@chunk1").first_layer, 3);
  EXPECT_EQ(Find(first, "u@chunk1").layers, 1);
  EXPECT_THAT(SlotLines(last), Contains("layers chunk 1 forward mb 3 layer 0"));
  EXPECT_THAT(SlotLines(last), Contains("head forward mb 3 layer 1"));
  EXPECT_THAT(Lines(program, 1, "send layers/stream 1->2"),
              Contains(testing::HasSubstr("send to -1 activation reads layers/stream ")));
  EXPECT_THAT(Lines(program, 0, "receive layers/stream 1->2"),
              Contains(testing::HasSubstr("receive from +1 activation writes layers/stream@chunk1 ")));
  const auto order = [](const RankClass& c, absl::string_view what) {
    std::vector<std::string> lines;
    for (const std::string& line : SlotLines(c)) {
      if (!absl::StartsWith(line, what)) continue;
      lines.push_back(line.substr(what.size(), line.find(" layer ") - what.size()));
    }
    return absl::StrJoin(lines, ",");
  };
  EXPECT_EQ(order(last, "send layers/"),
            "stream 1->2 mb 0,stream 1->2 mb 1,gradient 3->2 mb 0,gradient 3->2 mb 1,stream 1->2 mb 2,gradient 1->0 mb "
            "0,stream 1->2 mb 3,gradient 1->0 mb 1,gradient 3->2 mb 2,gradient 3->2 mb 3,gradient 1->0 mb 2,gradient "
            "1->0 mb 3");
  EXPECT_EQ(order(first, "receive layers/"), order(last, "send layers/"));
  // Each chunk's gradients are reduced and updated on their own.
  EXPECT_THAT(SlotLines(first), Contains("layers chunk 1 update mb 0 layer 0"));
}

// Part 0 sends to part 3 on the same stage as part 1: stage 1 takes it when it comes, before the next micro-batch of
// part 1, and waits for it where part 3 begins.
TEST(SplitStagesTest, ChunksThatAreSkipped) {
  Strategy strategy = Pipeline(2, 4);
  strategy.chunks = 2;
  GraphBuilder b(Skip(4));
  b.ContinueSegment(SegmentId(0));
  const TensorId x = b.graph().FindTensor("x"), w0 = b.graph().FindTensor("w0");
  ASSERT_OK_AND_ASSIGN(const TensorId z,
                       b.AddOne({.name = "z", .kind = OpKind::kMatMul, .inputs = {x, w0}, .rule = "m k, k n -> m n"}));
  for (Op& op : b.mutable_graph().ops) {
    if (op.name == "sum") op.inputs[1] = z;
  }
  ASSERT_OK_AND_ASSIGN(const Program program, Split(std::move(b).Build(), strategy));
  const RankClass& last = program.classes[1];
  EXPECT_THAT(Lines(program, 1, "receive z 0->3"), ElementsAre(testing::HasSubstr("receive from -1 activation")));
  EXPECT_THAT(Lines(program, 1, "arrival z 0->3"), ElementsAre(testing::HasSubstr("compute sync waits")));
  const std::vector<std::string> slots = SlotLines(last);
  const auto at = [&](const std::string& line) {
    const auto found = std::find(slots.begin(), slots.end(), line);
    EXPECT_NE(found, slots.end()) << line;
    return found - slots.begin();
  };
  EXPECT_LT(at("receive z 0->3 mb 0 layer 0"), at("receive y0 0->1 mb 1 layer 0"));
  EXPECT_LT(at("receive y0 0->1 mb 1 layer 0"), at("arrival z 0->3 mb 0 layer 0"));
  EXPECT_LT(at("arrival z 0->3 mb 0 layer 0"), at("part3 forward mb 0 layer 0"));
}

TEST(SplitStagesErrorsTest, Chunks) {
  Strategy strategy = Pipeline(2, 4);
  strategy.chunks = 3;
  EXPECT_THAT(Split(TiedStack(5, 8), strategy),
              StatusIs(kInvalid, "segment \"layers\" has 5 layers for 2 stages of 3 chunks; every chunk needs one"));
  strategy.mesh = Mesh::Factored(1, 1);
  strategy.stages = 1;
  EXPECT_THAT(Split(TiedStack(5, 8), strategy), StatusIs(kInvalid, "found 3 chunks on one pipeline stage"));
  // Slots for all of them would take gigabytes.
  EXPECT_THAT(Split(TiedStack(4, 8), Pipeline(1, kMostPasses + 1)),
              StatusIs(kInvalid, "found 65537 micro-batches, wanted at most 65536 passes of a stage"));
  Strategy chunks = Pipeline(2, kMostPasses);
  chunks.chunks = 2;
  EXPECT_THAT(Split(TiedStack(4, 8), chunks), StatusIs(kInvalid, "found 65536 micro-batches through each of 2 chunks"));
}

TEST(SplitStagesErrorsTest, LayersAndStages) {
  EXPECT_THAT(Split(TiedStack(2, 8), Pipeline(4, 4)),
              StatusIs(kInvalid, "segment \"layers\" has 2 layers for 4 stages; every stage needs one"));
  Strategy strategy = Pipeline(2, 2);
  strategy.layers_per_stage = {3, 2};
  EXPECT_THAT(Split(TiedStack(4, 8), strategy),
              StatusIs(kInvalid, "layers_per_stage adds up to 5, segment \"layers\" has 4"));
  strategy.layers_per_stage = {4, 0};  // the last stage has the head
  EXPECT_OK(Split(TiedStack(4, 8), strategy));
  strategy = Pipeline(3, 3);
  strategy.layers_per_stage = {3, 0, 1};
  EXPECT_THAT(Split(TiedStack(4, 8), strategy), StatusIs(kInvalid, "every stage needs one"));
  strategy = Pipeline(2, 2);
  strategy.layers_per_stage = {4};
  EXPECT_THAT(Split(TiedStack(4, 8), strategy), StatusIs(kInvalid, "pipeline stage 1 of 2 has no operators"));
  strategy.layers_per_stage = {2, 1, 1};
  EXPECT_THAT(Split(TiedStack(4, 8), strategy), StatusIs(kInvalid, "every stage needs one"));
}

// R24.
TEST(SplitStagesErrorsTest, StagesMustNotDecreaseAndAllBeUsed) {
  Graph graph = Skip();
  std::swap(graph.segments[0].stage, graph.segments[1].stage);
  EXPECT_THAT(Split(graph, Pipeline(3, 3)),
              StatusIs(kInvalid, "segment \"part1\" is on pipeline stage 0 after one on stage 1 of 3"));
  graph = Skip();
  graph.segments[2].stage = 1;
  EXPECT_THAT(Split(graph, Pipeline(3, 3)), StatusIs(kInvalid, "pipeline stage 2 of 3 has no operators"));
  graph.segments[2].stage = 3;
  EXPECT_THAT(Split(graph, Pipeline(3, 3)), StatusIs(kInvalid, "segment \"part2\" is on pipeline stage 3"));
}

}  // namespace
}  // namespace meshwright
