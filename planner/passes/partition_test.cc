#include "planner/passes/partition.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/differentiate.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr DType kF = DType::kFloat32;

absl::StatusOr<Program> Partitioned(Graph forward, const Strategy& strategy) {
  DifferentiateOptions options;
  options.recompute = strategy.recompute;
  MESHWRIGHT_ASSIGN_OR_RETURN(Graph graph, Differentiate(std::move(forward), options));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ShardedGraph sharded, CompleteLayouts(std::move(graph), strategy));
  return Partition(sharded, PriceByBytes);
}

Strategy On(Mesh mesh, const std::vector<std::pair<std::string, std::string>>& rules) {
  Strategy strategy;
  strategy.mesh = std::move(mesh);
  for (const auto& [label, axes] : rules) strategy.rules.push_back({label, Axes(strategy.mesh, axes)});
  return strategy;
}
void Give(Strategy& strategy, const std::string& op, const std::vector<std::string>& inputs) {
  for (const std::string& text : inputs) {
    absl::StatusOr<Layout> layout = ParseLayout(text, strategy.mesh);
    ASSERT_OK(layout);
    strategy.ops[op].inputs.push_back(*std::move(layout));
  }
}

// The line that declares a buffer of the first class.
std::string Declared(const Program& program, const std::string& name) {
  std::string line;
  const std::string text = ToText(program);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string candidate = text.substr(begin, end - begin);
    if (absl::StartsWith(candidate, absl::StrCat("  buffer ", name, " "))) line = candidate.substr(9);
    begin = end + 1;
  }
  return line;
}

// S5.6, S7.7, S16.11: matmul ((2,4),(4,1)), relu ((2,4)), matmul2 ((2,4),(4,1)), the loss by rows of data: the device
// matrix (2, 4) is x4 and x2.x1. Products are reduced at once, a rank's columns for the next operator are sliced, the
// rows of the loss too.
Strategy SeedBStrategy() {
  Strategy strategy = On(Mesh::Factored(1, 8), {});
  Give(strategy, "matmul", {"{x4 | x2.x1}", "{x2.x1 | -}"});
  Give(strategy, "relu", {"{x4 | x2.x1}"});
  Give(strategy, "matmul2", {"{x4 | x2.x1}", "{x2.x1 | -}"});
  Give(strategy, "loss", {"{x4.x2.x1 | -}", "{x4.x2.x1 | -}"});
  return strategy;
}

TEST(PartitionTest, SeedBForward) {
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(SeedB(), SeedBStrategy()));
  EXPECT_THAT(Lines(program, 0, "model forward"),
              ElementsAre("compute Feed \" -> d0 d1\" writes x @model/x",
                          "compute MatMul \"m k, k n -> m n\" reads x w writes matmul @model/matmul",
                          "compute all_reduce sum (x2, x1) activation reads matmul writes matmul@1 @model/matmul",
                          "compute slice reads matmul@1 writes matmul@2 @model/relu",
                          "compute ReLU \"m n -> m n\" reads matmul@2 writes relu @model/relu",
                          "compute MatMul \"m k, k n -> m n\" reads relu w2 writes matmul2 @model/matmul2",
                          "compute all_reduce sum (x2, x1) activation reads matmul2 writes matmul2@1 @model/matmul2",
                          "compute slice reads matmul2@1 writes matmul2@2 @model/loss",
                          "compute Feed \" -> d0 d1\" writes y @model/y",
                          "compute MSELoss \"m n, m n -> \" accumulate scale=0.00390625 reads matmul2@2 y writes loss "
                          "@model/loss"));
  EXPECT_EQ(Declared(program, "matmul"), "matmul float32 (16, 16) {x4 | -} partial sum x2.x1 temporary");
  EXPECT_EQ(Declared(program, "loss"), "loss float32 () {} partial sum x4.x2.x1 loss");
  // Rank 0 of S7.7 keeps (8, 4); what backward reads is kept in that form, the reduced product is not.
  EXPECT_EQ(Declared(program, "matmul@1"), "matmul@1 float32 (16, 16) {x4 | -} temporary");
  EXPECT_EQ(Declared(program, "matmul@2"), "matmul@2 float32 (16, 16) {x4 | x2.x1} activation");
}

// Backward, dy is gathered by rows for both products of matmul2 (n and k! whole), the gradient of relu by columns for
// dw. Gradients stay partial over the rows (x4).
TEST(PartitionTest, SeedBBackward) {
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(SeedB(), SeedBStrategy()));
  EXPECT_THAT(
      Lines(program, 0, "model backward"),
      ElementsAre("compute Fill \" -> \" writes dloss @model/dloss",
                  "compute MSELossGrad \", m n, m n -> m n\" scale=0.00390625 reads dloss matmul2@2 y writes dmatmul2 "
                  "@model/loss/grad",
                  "compute all_gather (x2, x1) dim 0 activation reads dmatmul2 writes dmatmul2@1 @model/matmul2/grad",
                  "compute MatMul \"m n, k n -> m k\" reads dmatmul2@1 w2 writes drelu @model/matmul2/grad",
                  "compute MatMul \"m k, m n -> k n\" accumulate reads relu dmatmul2@1 writes dw2 @model/matmul2/grad",
                  "compute ReLUGrad \"m n, m n -> m n\" reads drelu matmul@2 writes relu/grad @model/relu/grad",
                  "compute all_gather (x2, x1) dim 1 activation reads relu/grad writes relu/grad@1 @model/matmul/grad",
                  "compute MatMul \"m k, m n -> k n\" accumulate reads x relu/grad@1 writes dw @model/matmul/grad"));
  EXPECT_EQ(Declared(program, "dw"), "dw float32 (32, 16) {x2.x1 | -} partial sum x4 gradient");
  EXPECT_EQ(Declared(program, "w2"), "w2 float32 (16, 16) {x2.x1 | -} parameter");
}

// Label rules leave a product partial, so that what the next operator wants is made in one step.
TEST(PartitionTest, PartialSumsAreScatteredToTheirReader) {
  Strategy strategy = On(Mesh::Factored(1, 8), {{"m", "x4"}, {"k", "x2.x1"}});
  Give(strategy, "relu", {"{x4 | x2.x1}"});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(SeedB(), strategy));
  const std::vector<std::string> lines = Lines(program, 0, "model forward");
  EXPECT_EQ(lines[2], "compute reduce_scatter sum (x2, x1) dim 1 activation reads matmul writes matmul@1 @model/relu");
  EXPECT_EQ(lines[3], "compute ReLU \"m n -> m n\" reads matmul@1 writes relu @model/relu");
}

// Tensor and sequence parallelism: rows s are split over tp where f is not. Each layer gathers before its first product
// and scatters after its last; nothing is all-reduced. dp is for the batch.
TEST(PartitionTest, SequenceParallelLayers) {
  const Strategy strategy = On(Mesh::RowMajor({{"dp", 2}, {"tp", 2}}), {{"b", "dp"}, {"f", "tp"}, {"s", "tp"}});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(TiedStack(3, 8), strategy));
  EXPECT_THAT(Lines(program, 0, "layers forward"),
              ElementsAre("compute all_gather (tp) dim 0 activation reads layers/stream writes layers/in@1 @layers/up",
                          "compute MatMul \"s b h, h f -> s b f\" reads layers/in@1 u writes up @layers/up",
                          "compute ReLU \"s b f -> s b f\" reads up writes relu @layers/relu",
                          "compute MatMul \"s b f, f h -> s b h\" reads relu v writes down @layers/down",
                          "compute reduce_scatter sum (tp) dim 0 activation reads down writes down@1 @layers/sum",
                          "compute Add \"s b h, s b h -> s b h\" reads layers/stream down@1 writes layers/stream+1 "
                          "@layers/sum"));
  EXPECT_THAT(
      Lines(program, 0, "layers backward"),
      ElementsAre(
          "compute all_gather (tp) dim 0 activation reads layers/gradient+1 writes dlayers/out@1 @layers/down/grad",
          "compute MatMul \"s b h, f h -> s b f\" reads dlayers/out@1 v writes drelu @layers/down/grad",
          "compute MatMul \"s b f, s b h -> f h\" accumulate reads relu dlayers/out@1 writes dv @layers/down/grad",
          "compute ReLUGrad \"s b f, s b f -> s b f\" reads drelu up writes relu/grad @layers/relu/grad",
          "compute MatMul \"s b f, h f -> s b h\" reads relu/grad u writes dlayers/in @layers/up/grad",
          // Gathered again, not kept.
          "compute all_gather (tp) dim 0 activation reads layers/stream writes layers/in@2 @layers/up/grad",
          "compute MatMul \"s b h, s b f -> h f\" accumulate reads layers/in@2 relu/grad writes du @layers/up/grad",
          "compute reduce_scatter sum (tp) dim 0 activation reads dlayers/in writes dlayers/in@1 @layers/dlayers/in",
          "compute Add reads layers/gradient+1 dlayers/in@1 writes layers/gradient @layers/dlayers/in"));
  EXPECT_EQ(Declared(program, "layers/in@1"), "layers/in@1 float32 (4, 8, 4) {- | dp | -} temporary");
  EXPECT_EQ(Declared(program, "relu"), "relu float32 (4, 8, 8) {- | dp | tp} activation layers 3");
}

// One buffer holds what a stack of 3 layers carries: what enters each, and what leaves the last.
TEST(PartitionTest, ACarriedValueHasAPlaceBeforeAndAfterEachLayer) {
  const Strategy strategy = On(Mesh::RowMajor({{"dp", 2}}), {{"b", "dp"}});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(TiedStack(3, 8), strategy));
  EXPECT_EQ(Declared(program, "layers/stream"), "layers/stream float32 (4, 8, 4) {- | dp | -} activation layers 4");
  EXPECT_EQ(Declared(program, "layers/gradient"), "layers/gradient float32 (4, 8, 4) {- | dp | -} activation layers 4");
  EXPECT_EQ(Declared(program, "u"), "u float32 (4, 8) {- | -} parameter layers 3");
  EXPECT_EQ(Declared(program, "du"), "du float32 (4, 8) {- | -} partial sum dp gradient layers 3");
  // Made where it is wanted, the embedding writes the first place itself, and the head its gradient the last.
  EXPECT_EQ(Lines(program, 0, "embed forward").back(),
            "compute Gather \"v h, b s -> s b h\" reads table ids writes layers/stream @embed/embed");
  EXPECT_THAT(Lines(program, 0, "head backward"),
              Contains("compute MatMul \"s b v, v h -> s b h\" reads dlogits table writes layers/gradient "
                       "@head/logits/grad"));
}

// The parts of a tied embedding's gradient lie as the parameter does: rows over tp. The lookup's is summed over the
// ranks that had other tokens (dp), the product's too.
TEST(PartitionTest, OneAccumulatorForSeveralUsers) {
  const Strategy strategy = On(Mesh::RowMajor({{"dp", 2}, {"tp", 2}}), {{"b", "dp"}, {"v", "tp"}});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(TiedStack(2, 8), strategy));
  EXPECT_EQ(Declared(program, "dtable"), "dtable float32 (8, 4) {tp | -} partial sum dp gradient");
  EXPECT_THAT(Lines(program, 0, "embed backward"), Contains(HasSubstr("GatherGrad \"s b h, b s -> v h\" accumulate")));
  EXPECT_THAT(Lines(program, 0, "head backward"), Contains(HasSubstr("accumulate reads")));
}

// Where users leave a gradient partial over different axes, only what both have stays so; the other part is reduced
// and added.
TEST(PartitionTest, UnequalPartsAreAddedUp) {
  GraphBuilder b("unequal");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {8, 4}, {}), w = b.Parameter("w", kF, {4}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "first", .kind = OpKind::kMul, .inputs = {x, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId z, b.AddOne({.name = "second", .kind = OpKind::kMul, .inputs = {y, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {z, x}}));
  b.SetLoss(loss);
  Strategy strategy = On(Mesh::RowMajor({{"a", 2}, {"c", 2}}), {});
  Give(strategy, "first", {"{a.c | -}", "{-}"});
  Give(strategy, "second", {"{a | -}", "{-}"});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(std::move(b).Build(), strategy));
  EXPECT_OK(VerifyProgram(program));
  EXPECT_EQ(Declared(program, "dw"), "dw float32 (4) {-} partial sum a gradient");
  const std::vector<std::string> lines = Lines(program, 0, "model backward");
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("ReduceSum \"d0 d1 -> d1\" accumulate"),
                                    HasSubstr("writes dw @model/second/grad"))));
  EXPECT_EQ(lines[lines.size() - 2],
            "compute all_reduce sum (c) activation reads dw/part writes dw@1 @model/first/grad");
  EXPECT_EQ(lines[lines.size() - 1],
            "compute ReduceSum \"d0 -> d0\" accumulate reads dw@1 writes dw @model/first/grad");
}

// Two operators of a block that want the same layout share one redistribution.
TEST(PartitionTest, AVersionIsMadeOnce) {
  GraphBuilder b("twice");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", kF, {8, 4}, {}), w = b.Parameter("w", kF, {8, 4}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "y", .kind = OpKind::kMul, .inputs = {x, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId p, b.AddOne({.name = "p", .kind = OpKind::kSoftmax, .inputs = {y}}));
  ASSERT_OK_AND_ASSIGN(const TensorId q, b.AddOne({.name = "q", .kind = OpKind::kSub, .inputs = {p, y}}));
  ASSERT_OK_AND_ASSIGN(const TensorId loss, b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {q, x}}));
  b.SetLoss(loss);
  Strategy strategy = On(Mesh::RowMajor({{"a", 2}}), {});
  Give(strategy, "y", {"{- | a}", "{- | a}"});
  Give(strategy, "p", {"{a | -}"});
  Give(strategy, "q", {"{a | -}", "{a | -}"});
  Give(strategy, "loss", {"{a | -}", "{a | -}"});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(std::move(b).Build(), strategy));
  int moves = 0;
  for (const std::string& line : Lines(program, 0, "model forward"))
    moves += absl::StrContains(line, " reads y ") ? 1 : 0;
  EXPECT_EQ(moves, 1);
  // x arrives once, split as its first reader wants it; the loss takes its rows from that.
  int feeds = 0;
  for (const std::string& line : Lines(program, 0, "model forward")) feeds += absl::StrContains(line, "Feed") ? 1 : 0;
  EXPECT_EQ(feeds, 1);
  EXPECT_EQ(Declared(program, "x"), "x float32 (8, 4) {- | a} input");
}

// Of two versions of one size backward keeps the one that it reads: the logits, moved to rows by an all-to-all, are not
// moved a second time.
TEST(PartitionTest, KeepsTheVersionThatBackwardWants) {
  const Strategy strategy = On(Mesh::RowMajor({{"tp", 2}}), {{"v", "tp"}, {"s", "tp"}});
  ASSERT_OK_AND_ASSIGN(const Program program, Partitioned(TiedStack(2, 8), strategy));
  EXPECT_THAT(Lines(program, 0, "head forward"),
              Contains("compute all_to_all (tp) dim 2 to 0 activation reads logits writes logits@1 @head/loss"));
  EXPECT_THAT(Lines(program, 0, "head backward"), Not(Contains(HasSubstr("reads logits "))));
  EXPECT_EQ(Declared(program, "logits"), "logits float32 (4, 8, 8) {- | - | tp} temporary");
  EXPECT_EQ(Declared(program, "logits@1"), "logits@1 float32 (4, 8, 8) {tp | - | -} activation");
}

// A maximum over split columns is reduced as one.
TEST(PartitionTest, PartialMaxima) {
  GraphBuilder b("max");
  b.BeginSegment("model");
  const Initializer ids{.kind = Initializer::Kind::kTokens, .high = 4};
  const TensorId x = b.Input("x", kF, {8, 4}, {}), labels = b.Input("labels", DType::kInt32, {8}, ids);
  const TensorId w = b.Parameter("w", kF, {4}, {});
  ASSERT_OK_AND_ASSIGN(const TensorId y, b.AddOne({.name = "y", .kind = OpKind::kAdd, .inputs = {x, w}}));
  ASSERT_OK_AND_ASSIGN(const TensorId top, b.AddOne({.name = "top", .kind = OpKind::kRowMax, .inputs = {y}}));
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorId> sums,
                       b.Add({.name = "sums", .kind = OpKind::kExpSumAndPick, .inputs = {y, top, labels}}));
  ASSERT_OK_AND_ASSIGN(
      const TensorId loss,
      b.AddOne({.name = "loss", .kind = OpKind::kLossFromPartials, .inputs = {top, sums[0], sums[1]}}));
  b.SetLoss(loss);
  ASSERT_OK_AND_ASSIGN(const Program program,
                       Partitioned(std::move(b).Build(), On(Mesh::RowMajor({{"a", 2}}), {{"v", "a"}, {"d1", "a"}})));
  EXPECT_OK(VerifyProgram(program));
  EXPECT_EQ(Declared(program, "top"), "top float32 (8) {-} partial max a temporary");
  const std::vector<std::string> lines = Lines(program, 0, "model forward");
  EXPECT_THAT(lines, Contains("compute all_reduce max (a) activation reads top writes top@1 @model/sums"));
  EXPECT_THAT(lines, Contains("compute all_reduce sum (a) activation reads sums:0 writes sums:0@1 @model/loss"));
}

}  // namespace
}  // namespace meshwright
