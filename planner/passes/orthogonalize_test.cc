#include "planner/passes/orthogonalize.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A layer's queries, keys and values in one matrix of 6 rows and 2 x 4 columns; four experts' in one tensor, of which a
// rank has two.
constexpr char kLayer[] = R"(program layer mesh x=2
class all
  buffer in float32 (8, 6) {- | -} input
  buffer tokens float32 (4, 8, 6) {x | - | -} input
  buffer ids int32 (8) {-} input
  buffer qkv float32 (6, 2, 4) {- | x | -} parameter
  buffer experts float32 (6, 4, 3) {- | x | -} parameter
  buffer table float32 (10, 6) {- | -} parameter
  buffer head float32 (10, 6) {- | -} parameter
  buffer bias float32 (3) {-} parameter
  buffer a float32 (8, 2, 4) {- | x | -} temporary
  buffer b float32 (4, 8, 3) {x | - | -} temporary
  buffer c float32 (8, 6) {- | -} temporary
  buffer d float32 (8, 10) {- | -} temporary
  buffer qkv@step float32 (6, 2, 4) {- | x | -} temporary
  buffer experts@step float32 (6, 4, 3) {- | x | -} temporary
  block "layers forward" forward
    compute Feed writes in
    compute Feed writes tokens
    compute Feed writes ids
    compute MatMul "s h, h g d -> s g d" reads in qkv writes a
    compute MatMul "e c h, h e f, f -> e c f" reads tokens experts bias writes b
    compute Gather "t h, s -> s h" reads table ids writes c
    compute MatMul "s h, t h -> s t" reads c table writes d
    compute MatMul "s h, v h -> s v" reads c head writes d
  block "layers update" backward
    compute Fill "" scale=1 writes qkv@step experts@step
  slot "layers forward" mb 0 layer 0
  slot "layers update" mb 0 layer 0
)";

class OrthogonalizeTest : public ::testing::Test {
 protected:
  BufferId Find(const std::string& name) const {
    for (size_t i = 0; i < all().buffers.size(); ++i) {
      if (all().buffers[i].name == name) return BufferId(i);
    }
    return BufferId();
  }
  RankClass& all() { return program_.classes[0]; }
  const RankClass& all() const { return program_.classes[0]; }

  Program program_ = *ParseProgram(kLayer);
};

constexpr MatrixDim kRow = MatrixDim::kRow, kColumn = MatrixDim::kColumn, kMatrix = MatrixDim::kMatrix;

TEST_F(OrthogonalizeTest, WhatIsAMatrixSaysTheProductThatReadsIt) {
  GraphBuilder b("layer");
  b.BeginSegment("model");
  const auto add = [&b](std::string name, OpKind kind, std::vector<TensorId> inputs, std::string rule) {
    return *b.AddOne({.name = std::move(name), .kind = kind, .inputs = std::move(inputs), .rule = std::move(rule)});
  };
  const auto weight = [&b](std::string name, Shape shape) {
    return b.Parameter(std::move(name), DType::kFloat32, std::move(shape), Initializer());
  };
  const TensorId in = b.Input("in", DType::kFloat32, {8, 6}, {}), ids = b.Input("ids", DType::kInt32, {8}, {}),
                 tokens = b.Input("tokens", DType::kFloat32, {4, 8, 6}, {});
  const TensorId table = weight("table", {10, 6});
  add("a", OpKind::kMatMul, {in, weight("qkv", {6, 2, 4})}, "s h, h g d -> s g d");
  add("b", OpKind::kMatMul, {tokens, weight("experts", {6, 4, 3}), weight("bias", {3})}, "e c h, h e f, f -> e c f");
  const TensorId rows = add("c", OpKind::kGather, {table, ids}, "t h, s -> s h");
  add("d", OpKind::kMatMul, {rows, table}, "s h, t h -> s t");                    // an embedding, too
  add("e", OpKind::kMatMul, {rows, weight("head", {10, 6})}, "s h, v h -> s v");  // over the vocabulary
  EXPECT_THAT(MatricesOf(b.graph()), UnorderedElementsAre(Pair("qkv", ElementsAre(kRow, kColumn, kColumn)),
                                                          Pair("experts", ElementsAre(kRow, kMatrix, kColumn))));
}

// Experts that lie on two ranks each, four of them: two replicas share out two matrices. Where all ranks have all four,
// they share them out as far as the mesh has axes for it: over eight ranks in a row it has none.
TEST_F(OrthogonalizeTest, WhoTakesTurnsAndWhoShares) {
  const std::vector<MatrixDim> experts = {kRow, kMatrix, kColumn};
  EXPECT_TRUE(TakesTurns(all().buffers[Find("qkv").index()], {kRow, kColumn, kColumn}, program_.mesh, 2));
  EXPECT_FALSE(TakesTurns(all().buffers[Find("experts").index()], experts, program_.mesh, 2));
  Buffer whole = all().buffers[Find("experts").index()];
  whole.layout.dims[1].clear();
  EXPECT_FALSE(TakesTurns(whole, experts, program_.mesh, 2));
  EXPECT_FALSE(TakesTurns(whole, experts, Mesh::RowMajor({{"a", 4}, {"b", 2}}), 8));
  EXPECT_TRUE(TakesTurns(whole, experts, Mesh::RowMajor({{"a", 8}}), 8));
}

// 0.2 times the root of the larger side: of 6 x 8 and of 6 x 3.
TEST_F(OrthogonalizeTest, ScalesByTheLargerSide) {
  EXPECT_DOUBLE_EQ(MuonScale({6, 2, 4}, {kRow, kColumn, kColumn}), 0.2 * std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(MuonScale({6, 4, 3}, {kRow, kMatrix, kColumn}), 0.2 * std::sqrt(6.0));
}

TEST_F(OrthogonalizeTest, OneRankDoesItForAllAndSendsIt) {
  std::vector<Instruction>& update = all().blocks[1].instructions;
  const BufferId direction = Orthogonalize(all(), program_.mesh, 2, Find("qkv@step"), {kRow, kColumn, kColumn},
                                           {.first = 1, .step = 3}, "qkv", update);
  ASSERT_OK(VerifyProgram(program_)) << ToText(program_);
  EXPECT_EQ(all().buffers[direction.index()].layout, all().buffers[Find("qkv").index()].layout);
  // Gathered, a norm by five kernels, five iterations of six, sent, and each rank's columns of it.
  const std::vector<std::string> lines = Lines(program_, 0, "layers update");
  ASSERT_EQ(lines.size(), 1u + 1 + 5 + 5 * 6 + 1 + 1);
  EXPECT_THAT(lines[1], ::testing::HasSubstr("all_gather (x) dim 1 parameter"));
  EXPECT_THAT(lines[2], ::testing::HasSubstr("turn 1 step 3 reads qkv@whole1"));
  // Rows are the smaller side: 6 x 6.
  EXPECT_THAT(lines[7], ::testing::HasSubstr("MatMul \"x0 x1 x2, y0 x1 x2 -> x0 y0\" turn 1 step 3"));
  EXPECT_THAT(lines[10], ::testing::HasSubstr("MatMul \"x0 z0, z0 y0, x0 y0 -> x0 y0\" turn"));
  EXPECT_THAT(lines[12], ::testing::HasSubstr("MatMul \"x0 y0, y0 x1 x2, x0 x1 x2 -> x0 x1 x2\" turn"));
  EXPECT_THAT(lines[37], ::testing::HasSubstr("broadcast (x) root 1 step 3 parameter"));
  EXPECT_THAT(lines[38], ::testing::HasSubstr("slice"));
}

// Two matrices on each rank, which need nothing of the others'; of 6 x 3 the columns are the smaller side.
TEST_F(OrthogonalizeTest, ExpertsStayWhereTheyAre) {
  std::vector<Instruction>& update = all().blocks[1].instructions;
  Orthogonalize(all(), program_.mesh, 2, Find("experts@step"), {kRow, kMatrix, kColumn}, Turn(), "experts", update);
  ASSERT_OK(VerifyProgram(program_)) << ToText(program_);
  const std::vector<std::string> lines = Lines(program_, 0, "layers update");
  ASSERT_EQ(lines.size(), 1u + 5 + 5 * 6);
  EXPECT_THAT(lines[2], ::testing::HasSubstr("ReduceSum \"x0 x1 x2 -> x1\""));
  EXPECT_THAT(lines[6], ::testing::HasSubstr("MatMul \"x0 x1 x2, x0 x1 y2 -> x1 x2 y2\""));
}

}  // namespace
}  // namespace meshwright
