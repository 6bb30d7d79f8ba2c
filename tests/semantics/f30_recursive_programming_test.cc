// F30: recursive programming. The table of S15.10; what it chooses between products; strategies of the user (X33);
// E-VALUE for other numbers of devices than powers of two up to 1024.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "planner/search/recursive_programming.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// Products one after the other, x (i, k) with weights (k, j), (j, j2), ...; relu between them. With transpose_b weights
// are stored as (j, k).
Graph Products(const std::vector<int64_t>& sizes, bool transpose_b = false) {
  GraphBuilder b("products");
  b.BeginSegment("model");
  TensorId x = b.Input("x", DType::kFloat32, {sizes[0], sizes[1]}, {});
  for (size_t n = 1; n + 1 < sizes.size(); ++n) {
    const int64_t k = sizes[n], j = sizes[n + 1];
    const Shape shape = transpose_b ? Shape{j, k} : Shape{k, j};
    const TensorId w = b.Parameter(absl::StrCat("w", n), DType::kFloat32, shape, {});
    x = *b.AddOne({.name = absl::StrCat("matmul", n),
                   .kind = OpKind::kMatMul,
                   .inputs = {x, w},
                   .rule = transpose_b ? "m k, n k -> m n" : "m k, k n -> m n"});
    if (n + 2 < sizes.size()) x = *b.AddOne({.name = absl::StrCat("relu", n), .kind = OpKind::kRelu, .inputs = {x}});
  }
  return std::move(b).Build();
}

struct Setting {
  explicit Setting(Graph g, int64_t ranks = 8) : graph(std::move(g)), mesh(Mesh::Factored(1, ranks)) {
    problem.graph = &graph;
    problem.mesh = &mesh;
    problem.ranks_per_stage = ranks;
  }
  Setting(const Setting&) = delete;
  // "((4,2),(1,2))".
  std::string Pieces(const OpStrategy& strategy) const {
    std::vector<std::string> tuples;
    for (const Layout& layout : strategy.inputs) {
      std::vector<int64_t> pieces;
      for (const AxisList& axes : layout.dims) pieces.push_back(mesh.SizeOf(axes));
      tuples.push_back(absl::StrCat("(", absl::StrJoin(pieces, ","), ")"));
    }
    return absl::StrCat("(", absl::StrJoin(tuples, ","), ")");
  }
  Graph graph;
  Mesh mesh;
  RecursiveProblem problem;
};

TEST(RecursiveProgrammingTest, Table) {
  struct Row {
    int64_t i, k, j;
    bool transpose_b, parallel_optimizer;
    const char *cuts, *pieces;
  };
  const std::vector<Row> rows = {
      {256, 784, 512, true, false, "IKI", "((4,2),(1,2))"},   {1024, 256, 256, false, false, "III", "((8,1),(1,1))"},
      {64, 1024, 4096, false, false, "JJJ", "((1,1),(1,8))"}, {16, 32, 16, false, false, "---", "((1,1),(1,1))"},
      {16, 32, 16, false, true, "I--", "((2,1),(1,1))"},
  };
  for (const Row& row : rows) {
    Setting setting(Products({row.i, row.k, row.j}, row.transpose_b));
    setting.problem.parallel_optimizer = row.parallel_optimizer;
    ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
    EXPECT_EQ(plan.cuts.at("matmul1"), row.cuts);
    EXPECT_EQ(setting.Pieces(plan.ops.at("matmul1")), row.pieces) << row.cuts;
  }
}

// rp_matmul_mem_coef x j x k / 2 against i x k / 2 and i x j / 2: (1024, 256, 256) cuts columns first once rows cost
// more than 131072, at a coefficient above 4.
TEST(RecursiveProgrammingTest, WeightOfRows) {
  Setting setting(Products({1024, 256, 256}));
  setting.problem.knobs.rp_matmul_mem_coef = 4.5;
  ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
  EXPECT_EQ(plan.cuts.at("matmul1")[0], 'J');
}

// Rows are in fewer pieces than the batch, here 2: one cut by rows, then 0.25 x 64 x 64 / 2 = 512 is not to be had and
// columns cost 1 x 64 / 2 = 32.
TEST(RecursiveProgrammingTest, RowsEndWithTheBatch) {
  Setting setting(Products({2, 64, 64}));
  setting.problem.parallel_optimizer = true;
  ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
  EXPECT_EQ(plan.cuts.at("matmul1")[0], 'I');
  EXPECT_EQ(plan.cuts.at("matmul1").find('I', 1), Cuts::npos);
}

// matmul2 of (64, 4096) (4096, 64) is decided first: I 0.25 x 64 x 4096 / 2 = 32768, J 64 x 4096 / 2 = 131072,
// K 64 x 64 / 2 = 2048 -> K, which halves the columns of its input. matmul1 of (64, 1024) (1024, 4096) has I 524288,
// J 32768, K 131072. J halves the columns of its output, as matmul2 wants them: the row of operator-level tensor
// parallelism, columns and then rows of the weights, three times.
TEST(RecursiveProgrammingTest, ColumnsThenRows) {
  const Setting setting(Products({64, 1024, 4096, 64}));
  ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
  EXPECT_EQ(plan.cuts.at("matmul2"), "KKK");
  EXPECT_EQ(plan.cuts.at("matmul1"), "JJJ");
  EXPECT_EQ(setting.Pieces(plan.ops.at("matmul1")), "((1,1),(1,8))");
  EXPECT_EQ(setting.Pieces(plan.ops.at("relu1")), "((1,8))");  // as its producer leaves it
  EXPECT_EQ(setting.Pieces(plan.ops.at("matmul2")), "((1,8),(8,1))");
}

// matmul1 alone would take rows: (1024, 256) (256, 256) has I 8192, K and J 131072. Behind it stands a product that the
// user split by columns of what it reads: 16 x 1024 x 256 elements for each cut that differs outweigh the rest.
TEST(RecursiveProgrammingTest, AgreesWithDecidedNeighbours) {
  Setting setting(Products({1024, 256, 256, 256}));
  setting.problem.configured["matmul2"] =
      *FromTuples(setting.graph.op(setting.graph.FindOp("matmul2")), setting.graph, {{1, 8}, {8, 1}}, setting.mesh, 8);
  ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
  EXPECT_EQ(plan.cuts.count("matmul2"), 0);
  EXPECT_EQ(setting.Pieces(plan.ops.at("matmul2")), "((1,8),(8,1))");  // X33
  EXPECT_EQ(plan.cuts.at("matmul1"), "JJJ");
}

TEST(RecursiveProgrammingTest, UsersOfAParameterAgree) {
  GraphBuilder b("tied");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", DType::kFloat32, {64, 256}, {});
  const TensorId w = b.Parameter("w", DType::kFloat32, {256, 256}, {});
  ASSERT_OK_AND_ASSIGN(
      const TensorId y,
      b.AddOne({.name = "first", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}));
  ASSERT_OK(
      b.AddOne({.name = "second", .kind = OpKind::kMatMul, .inputs = {y, w}, .rule = "m k, n k -> m n"}).status());
  const Setting setting(b.graph());
  ASSERT_OK_AND_ASSIGN(const RecursivePlan plan, PlanByRecursiveProgramming(setting.problem));
  EXPECT_TRUE(SamePlacement({256, 256}, plan.ops.at("first").inputs[1], plan.ops.at("second").inputs[1], setting.mesh));
}

TEST(RecursiveProgrammingTest, PowersOfTwoOnly) {
  for (const int64_t ranks : {1, 2, 1024})
    EXPECT_OK(PlanByRecursiveProgramming(Setting(Products({2048, 64, 64}), ranks).problem));
  for (const int64_t ranks : {3, 6, 12, 2048}) {
    const absl::Status status = PlanByRecursiveProgramming(Setting(Products({2048, 64, 64}), ranks).problem).status();
    EXPECT_EQ(KindOf(status), "E-VALUE");
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("found ", ranks, " devices")));
  }
}

}  // namespace
}  // namespace meshwright
