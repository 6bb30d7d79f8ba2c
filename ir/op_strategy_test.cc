// The tables of sections 4 to 6 of the semantics: slices and groups of every rank, exactly, and the errors.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/sharding.h"
#include "ir/strategy.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using Tuples = std::vector<std::vector<int64_t>>;

// One MatMul of x and w.
struct Product {
  Graph graph;
  const Op& op() const { return graph.ops[0]; }
};
Product MakeProduct(Shape x, Shape w, std::string rule = "m k, k n -> m n") {
  GraphBuilder b("product");
  b.BeginSegment("model");
  const TensorId tx = b.Input("x", DType::kFloat32, std::move(x), {});
  const TensorId tw = b.Parameter("w", DType::kFloat32, std::move(w), {});
  EXPECT_OK(b.AddOne({.name = "matmul", .kind = OpKind::kMatMul, .inputs = {tx, tw}, .rule = std::move(rule)}));
  return {std::move(b).Build()};
}

// "8:16, 0:16": what `rank` holds.
std::string SliceText(const Shape& shape, const Layout& layout, const Mesh& mesh, int64_t rank) {
  const Shape begin = SliceBegin(shape, layout, mesh, rank), local = LocalShape(shape, layout, mesh);
  std::vector<std::string> dims;
  for (size_t d = 0; d < shape.size(); ++d) dims.push_back(absl::StrCat(begin[d], ":", begin[d] + local[d]));
  return absl::StrJoin(dims, ", ");
}
// The ranks that hold the same slice as `rank`, ascending (S4.4).
std::string Replicas(const Shape& shape, const Layout& layout, const Mesh& mesh, int64_t rank) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    if (SliceBegin(shape, layout, mesh, r) == SliceBegin(shape, layout, mesh, rank)) ranks.push_back(r);
  }
  return absl::StrJoin(ranks, ",");
}

// A MatMul under a strategy, on 8 ranks.
class Split {
 public:
  explicit Split(Product product, const Tuples& tuples) : product_(std::move(product)) {
    const auto strategy = FromTuples(product_.op(), product_.graph, tuples, mesh_, 8);
    EXPECT_OK(strategy);
    if (strategy.ok()) Set(*strategy);
  }
  Split(Product product, const OpSharding& sharding) : product_(std::move(product)) {
    const auto strategy = Resolve(sharding, product_.op(), product_.graph, mesh_, 8);
    EXPECT_OK(strategy);
    if (strategy.ok()) Set(*strategy);
  }

  std::string X(int64_t rank) const { return SliceText(ShapeOf(0), strategy_.inputs[0], mesh_, rank); }
  std::string W(int64_t rank) const { return SliceText(ShapeOf(1), strategy_.inputs[1], mesh_, rank); }
  std::string Y(int64_t rank) const { return SliceText(Out(), output_, mesh_, rank); }
  std::string AskedY(int64_t rank) const { return SliceText(Out(), *strategy_.output, mesh_, rank); }
  std::string XReplicas(int64_t rank) const { return Replicas(ShapeOf(0), strategy_.inputs[0], mesh_, rank); }
  std::string WReplicas(int64_t rank) const { return Replicas(ShapeOf(1), strategy_.inputs[1], mesh_, rank); }
  // Of the output once it is reduced.
  std::string YReplicas(int64_t rank) const {
    Layout whole = output_;
    whole.partial.clear();
    return Replicas(Out(), whole, mesh_, rank);
  }
  std::string AllReduce(int64_t rank) const { return absl::StrJoin(mesh_.Group(rank, output_.partial), "-"); }
  std::string Local() const {
    return absl::StrCat(ToText(LocalShape(ShapeOf(0), strategy_.inputs[0], mesh_)),
                        ToText(LocalShape(ShapeOf(1), strategy_.inputs[1], mesh_)), "->",
                        ToText(LocalShape(Out(), output_, mesh_)));
  }
  const OpStrategy& strategy() const { return strategy_; }

 private:
  void Set(const OpStrategy& strategy) {
    strategy_ = strategy;
    const auto assignment = AssignmentOf(product_.op(), product_.graph, strategy, mesh_);
    EXPECT_OK(assignment);
    if (assignment.ok()) output_ = OutputLayout(product_.op().rule, *assignment, 0, Reduction::kSum);
  }
  const Shape& ShapeOf(size_t input) const { return product_.graph.tensor(product_.op().inputs[input]).shape; }
  const Shape& Out() const { return product_.graph.tensor(product_.op().outputs[0]).shape; }

  const Mesh mesh_ = Mesh::Factored(1, 8);
  Product product_;
  OpStrategy strategy_;
  Layout output_;
};

// S4.6 and S5.6: seed B.
TEST(FromTuplesTest, SeedB) {
  const Split s(MakeProduct({16, 32}, {32, 16}), Tuples{{2, 4}, {4, 1}});
  const struct {
    const char *x, *w, *y, *all_reduce, *mirror;
  } table[] = {
      {"0:8, 0:8", "0:8, 0:16", "0:8, 0:16", "0-1-2-3", "0,4"},
      {"0:8, 8:16", "8:16, 0:16", "0:8, 0:16", "0-1-2-3", "1,5"},
      {"0:8, 16:24", "16:24, 0:16", "0:8, 0:16", "0-1-2-3", "2,6"},
      {"0:8, 24:32", "24:32, 0:16", "0:8, 0:16", "0-1-2-3", "3,7"},
      {"8:16, 0:8", "0:8, 0:16", "8:16, 0:16", "4-5-6-7", "0,4"},
      {"8:16, 8:16", "8:16, 0:16", "8:16, 0:16", "4-5-6-7", "1,5"},
      {"8:16, 16:24", "16:24, 0:16", "8:16, 0:16", "4-5-6-7", "2,6"},
      {"8:16, 24:32", "24:32, 0:16", "8:16, 0:16", "4-5-6-7", "3,7"},
  };
  for (int64_t rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(s.X(rank), table[rank].x);
    EXPECT_EQ(s.W(rank), table[rank].w);
    EXPECT_EQ(s.Y(rank), table[rank].y);
    EXPECT_EQ(s.AllReduce(rank), table[rank].all_reduce);
    EXPECT_EQ(s.WReplicas(rank), table[rank].mirror);
  }
}

// S4.7: the repeat axis is the last and fastest, so the groups are 0-2 and 1-3.
TEST(FromTuplesTest, RepeatedCalculation) {
  const Split s(MakeProduct({16, 32}, {32, 16}), Tuples{{2, 2}, {2, 1}});
  const struct {
    const char *x, *all_reduce, *w_replicas, *x_replicas, *y_replicas;
  } table[] = {
      {"0:8, 0:16", "0-2", "0,1,4,5", "0,1", "0,1,2,3"},   {"0:8, 0:16", "1-3", "0,1,4,5", "0,1", "0,1,2,3"},
      {"0:8, 16:32", "0-2", "2,3,6,7", "2,3", "0,1,2,3"},  {"0:8, 16:32", "1-3", "2,3,6,7", "2,3", "0,1,2,3"},
      {"8:16, 0:16", "4-6", "0,1,4,5", "4,5", "4,5,6,7"},  {"8:16, 0:16", "5-7", "0,1,4,5", "4,5", "4,5,6,7"},
      {"8:16, 16:32", "4-6", "2,3,6,7", "6,7", "4,5,6,7"}, {"8:16, 16:32", "5-7", "2,3,6,7", "6,7", "4,5,6,7"},
  };
  for (int64_t rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(s.X(rank), table[rank].x);
    EXPECT_EQ(s.AllReduce(rank), table[rank].all_reduce);
    EXPECT_EQ(s.WReplicas(rank), table[rank].w_replicas);
    EXPECT_EQ(s.XReplicas(rank), table[rank].x_replicas);
    EXPECT_EQ(s.YReplicas(rank), table[rank].y_replicas);
  }
}

// S5.8.
TEST(FromTuplesTest, MoreProducts) {
  const auto product = [] { return MakeProduct({16, 32}, {32, 16}); };
  const Split rows_and_columns(product(), Tuples{{4, 1}, {1, 2}});
  EXPECT_EQ(rows_and_columns.Local(), "(4, 32)(32, 8)->(4, 8)");
  EXPECT_EQ(rows_and_columns.AllReduce(3), "3");
  EXPECT_EQ(rows_and_columns.WReplicas(0), "0,2,4,6");
  EXPECT_EQ(rows_and_columns.WReplicas(1), "1,3,5,7");

  const Split columns(product(), Tuples{{1, 1}, {1, 8}});
  EXPECT_EQ(columns.Local(), "(16, 32)(32, 2)->(16, 2)");
  EXPECT_EQ(columns.AllReduce(3), "3");
  EXPECT_EQ(columns.WReplicas(3), "3");

  const Split rows(product(), Tuples{{8, 1}, {1, 1}});
  EXPECT_EQ(rows.Local(), "(2, 32)(32, 16)->(2, 16)");
  EXPECT_EQ(rows.WReplicas(3), "0,1,2,3,4,5,6,7");

  const Split contraction(product(), Tuples{{1, 8}, {8, 1}});
  EXPECT_EQ(contraction.Local(), "(16, 4)(4, 16)->(16, 16)");
  EXPECT_EQ(contraction.AllReduce(3), "0-1-2-3-4-5-6-7");
  EXPECT_EQ(contraction.WReplicas(3), "3");

  // transpose_b: the tuple is in the stored order.
  const Split transposed(MakeProduct({256, 784}, {512, 784}, "m k, n k -> m n"), Tuples{{4, 2}, {1, 2}});
  EXPECT_EQ(transposed.Local(), "(64, 392)(512, 392)->(64, 512)");
  EXPECT_EQ(transposed.AllReduce(0), "0-1");
  EXPECT_EQ(transposed.AllReduce(3), "2-3");
  EXPECT_EQ(transposed.AllReduce(7), "6-7");
  EXPECT_EQ(transposed.WReplicas(0), "0,2,4,6");
  EXPECT_EQ(transposed.WReplicas(5), "1,3,5,7");
}

// R10 and S5.8's last rows.
// S5.4: transpose flags swap the entries of a tuple, not the device matrix: x stored (K, M), ((4, 2), (4, 1)) means
// rows in 2, contraction in 4, as seed B's ((2, 4), (4, 1)) does: rank 5 is row part 1, contraction part 1.
TEST(FromTuplesTest, TransposedInputsKeepTheDeviceMatrix) {
  const Product product = MakeProduct({32, 16}, {32, 16}, "k m, k n -> m n");
  const Mesh mesh = Mesh::Factored(1, 8);
  ASSERT_OK_AND_ASSIGN(const OpStrategy strategy, FromTuples(product.op(), product.graph, {{4, 2}, {4, 1}}, mesh, 8));
  EXPECT_EQ(SliceText({32, 16}, strategy.inputs[0], mesh, 5), "8:16, 8:16");
  EXPECT_EQ(SliceText({32, 16}, strategy.inputs[1], mesh, 5), "8:16, 0:16");
}

TEST(FromTuplesTest, Errors) {
  const Product product = MakeProduct({16, 32}, {32, 16});
  const Mesh mesh = Mesh::Factored(1, 8);
  const std::pair<Tuples, const char*> cases[] = {
      {{{2, 4}, {2, 1}}, "the contracting dimension must be split equally: found 4 and 2 pieces"},
      {{{2, 4}, {4, 2}}, "the strategy needs 16 of 8 devices; the product must divide them"},
      {{{3, 1}, {1, 1}}, "strategy (3, 1) of input 0: dim 0 is 16, not divisible by 3"},
      {{{2, 4}}, "the strategy has 1 tuples, the operator 2 inputs"},
      {{{2, 4, 1}, {4, 1}}, "strategy (2, 4, 1) of input 0 has 3 entries, the tensor (16, 32) has 2 dims"},
      {{{0, 1}, {1, 1}}, "strategy (0, 1) of input 0: found 0, wanted pieces >= 1"},
      {{{-2, 1}, {1, 1}}, "strategy (-2, 1) of input 0: found -2, wanted pieces >= 1"},
  };
  for (const auto& [tuples, message] : cases) {
    EXPECT_THAT(FromTuples(product.op(), product.graph, tuples, mesh, 8),
                StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("operator \"matmul\" (MatMul): ", message)));
  }
}

// A product that does not divide the devices, though each piece count divides its dim: 6 of 8.
TEST(FromTuplesTest, TheProductDividesTheDevices) {
  const Product product = MakeProduct({12, 32}, {32, 16});
  EXPECT_THAT(FromTuples(product.op(), product.graph, {{6, 1}, {1, 1}}, Mesh::Factored(1, 8), 8),
              StatusIs(absl::StatusCode::kInvalidArgument, "needs 6 of 8 devices"));
}

// 6 devices as 2 x 3 and as 3 x 2: S4.1 holds where the sizes have no common factor too.
TEST(FromTuplesTest, SixDevices) {
  const Product product = MakeProduct({12, 12}, {12, 12});
  const Mesh mesh = Mesh::Factored(1, 6);
  ASSERT_OK_AND_ASSIGN(const OpStrategy two_three, FromTuples(product.op(), product.graph, {{2, 3}, {3, 1}}, mesh, 6));
  ASSERT_OK_AND_ASSIGN(const OpStrategy three_two, FromTuples(product.op(), product.graph, {{3, 2}, {2, 1}}, mesh, 6));
  for (int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(SliceBegin({12, 12}, two_three.inputs[0], mesh, rank), (Shape{rank / 3 * 6, rank % 3 * 4}));
    EXPECT_EQ(SliceBegin({12, 12}, three_two.inputs[0], mesh, rank), (Shape{rank / 2 * 4, rank % 2 * 6}));
  }
}

// S5.11: a dim of size 1 is never split, one that is broadcast over has the pieces of its partner.
TEST(FromTuplesTest, BroadcastAdd) {
  const auto add = [](Shape bias, const Tuples& tuples) {
    GraphBuilder b("add");
    b.BeginSegment("model");
    const TensorId x = b.Input("x", DType::kFloat32, {256, 64}, {});
    const TensorId y = b.Input("b", DType::kFloat32, std::move(bias), {});
    EXPECT_OK(b.AddOne({.name = "add", .kind = OpKind::kAdd, .inputs = {x, y}}));
    return FromTuples(b.graph().ops[0], b.graph(), tuples, Mesh::Factored(1, 8), 8);
  };
  const Mesh mesh = Mesh::Factored(1, 8);
  ASSERT_OK_AND_ASSIGN(const OpStrategy s, add({64}, {{2, 4}, {4}}));
  EXPECT_EQ(LocalShape({256, 64}, s.inputs[0], mesh), (Shape{128, 16}));
  EXPECT_EQ(LocalShape({64}, s.inputs[1], mesh), (Shape{16}));
  EXPECT_THAT(add({64}, {{2, 4}, {1}}), StatusIs(absl::StatusCode::kInvalidArgument, "found 4 and 1 pieces"));
  EXPECT_OK(add({1, 64}, {{2, 4}, {1, 4}}));
}

// Softmax along a split dim (R16).
TEST(FromTuplesTest, WholeDimsStayWhole) {
  GraphBuilder b("softmax");
  b.BeginSegment("model");
  const TensorId x = b.Input("x", DType::kFloat32, {16, 32}, {});
  ASSERT_OK(b.AddOne({.name = "softmax", .kind = OpKind::kSoftmax, .inputs = {x}}));
  const Mesh mesh = Mesh::Factored(1, 8);
  EXPECT_OK(FromTuples(b.graph().ops[0], b.graph(), {{8, 1}}, mesh, 8));
  EXPECT_THAT(FromTuples(b.graph().ops[0], b.graph(), {{4, 2}}, mesh, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "operator \"softmax\" (Softmax): dim 1 of input 0 must stay whole, found 2 pieces"));
}

TensorSharding Pieces(std::vector<int64_t> pieces) { return {std::move(pieces), {}}; }
TensorSharding Dims(std::vector<std::vector<std::string>> dims) { return {{}, std::move(dims)}; }

// S5.7, R11: only two outputs are legal.
TEST(ResolveTest, OutStrategyOfTuples) {
  OpSharding sharding;
  sharding.inputs = {Pieces({2, 4}), Pieces({4, 1})};
  sharding.output = Pieces({8, 1});
  const Split scatter(MakeProduct({16, 32}, {32, 16}), sharding);
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(scatter.AskedY(rank), absl::StrCat(2 * rank, ":", 2 * rank + 2, ", 0:16"));
  }
  sharding.output = Pieces({2, 1});
  const Split reduce(MakeProduct({16, 32}, {32, 16}), sharding);
  EXPECT_EQ(reduce.AskedY(5), "8:16, 0:16");
  const Product product = MakeProduct({16, 32}, {32, 16});
  sharding.output = Pieces({4, 1});
  EXPECT_THAT(Resolve(sharding, product.op(), product.graph, Mesh::Factored(1, 8), 8),
              StatusIs(absl::StatusCode::kInvalidArgument, "out_strategy (4, 1): rows must be 2 or 8"));
}

// S6.9: seed D. The rows after its ReduceScatter follow the layout's order of axes, not the ranks'.
TEST(ResolveTest, SeedD) {
  OpSharding sharding;
  sharding.device_matrix = {2, 2, 2};
  sharding.axes = {"dp", "sp", "mp"};
  sharding.inputs = {Dims({{"mp"}, {"sp", "dp"}}), Dims({{"sp", "dp"}, {}})};
  sharding.output = Dims({{"mp", "sp", "dp"}, {}});
  const Split s(MakeProduct({256, 784}, {784, 512}), sharding);
  const struct {
    const char *x, *w, *mirror, *rows;
  } table[] = {
      {"0:128, 0:196", "0:196, 0:512", "0,1", "0:32, 0:512"},
      {"128:256, 0:196", "0:196, 0:512", "0,1", "128:160, 0:512"},
      {"0:128, 392:588", "392:588, 0:512", "2,3", "64:96, 0:512"},
      {"128:256, 392:588", "392:588, 0:512", "2,3", "192:224, 0:512"},
      {"0:128, 196:392", "196:392, 0:512", "4,5", "32:64, 0:512"},
      {"128:256, 196:392", "196:392, 0:512", "4,5", "160:192, 0:512"},
      {"0:128, 588:784", "588:784, 0:512", "6,7", "96:128, 0:512"},
      {"128:256, 588:784", "588:784, 0:512", "6,7", "224:256, 0:512"},
  };
  for (int64_t rank = 0; rank < 8; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(s.X(rank), table[rank].x);
    EXPECT_EQ(s.W(rank), table[rank].w);
    EXPECT_EQ(s.WReplicas(rank), table[rank].mirror);
    EXPECT_EQ(s.AskedY(rank), table[rank].rows);
    // In the order in which the layout wants the chunks (S6.8).
    EXPECT_EQ(s.AllReduce(rank), rank % 2 == 0 ? "0-4-2-6" : "1-5-3-7");
  }
  EXPECT_EQ(s.Local(), "(128, 196)(196, 512)->(128, 512)");
}

// S6.10.
TEST(ResolveTest, ContractionOverOneAxis) {
  OpSharding sharding;
  sharding.device_matrix = {8};
  sharding.axes = {"tp"};
  sharding.inputs = {Dims({{}, {"tp"}}), Dims({{"tp"}, {}})};
  const Split s(MakeProduct({256, 512}, {512, 512}), sharding);
  EXPECT_EQ(s.Local(), "(256, 64)(64, 512)->(256, 512)");
  EXPECT_EQ(s.AllReduce(3), "0-1-2-3-4-5-6-7");
  EXPECT_EQ(s.WReplicas(3), "3");
  EXPECT_FALSE(s.strategy().output.has_value());
}

// S6.5 and S6.11: a tensor by itself, as the first input of a product.
TEST(ResolveTest, OneElementPerRank) {
  OpSharding sharding;
  sharding.device_matrix = {2, 2, 2};
  sharding.axes = {"dp", "sp", "mp"};
  sharding.inputs = {Dims({{"mp"}, {"sp", "dp"}}), Dims({{"sp", "dp"}, {}})};
  const Split s(MakeProduct({2, 4}, {4, 2}), sharding);
  // Row 0: ranks 0, 4, 2, 6; row 1: ranks 1, 5, 3, 7.
  const std::vector<int64_t> row0 = {0, 4, 2, 6}, row1 = {1, 5, 3, 7};
  for (int64_t column = 0; column < 4; ++column) {
    EXPECT_EQ(s.X(row0[column]), absl::StrCat("0:1, ", column, ":", column + 1));
    EXPECT_EQ(s.X(row1[column]), absl::StrCat("1:2, ", column, ":", column + 1));
  }

  // 128 devices, Layout((8,4,4)).
  const Product product = MakeProduct({4, 32}, {32, 4});
  const Mesh mesh = Mesh::Factored(1, 128);
  sharding.device_matrix = {8, 4, 4};
  ASSERT_OK_AND_ASSIGN(const OpStrategy large, Resolve(sharding, product.op(), product.graph, mesh, 128));
  const auto at = [&](int64_t rank) { return SliceBegin({4, 32}, large.inputs[0], mesh, rank); };
  EXPECT_EQ(at(1), (Shape{1, 0}));
  EXPECT_EQ(at(4), (Shape{0, 8}));
  EXPECT_EQ(at(16), (Shape{0, 1}));
  EXPECT_EQ(at(127), (Shape{3, 31}));
}

// R14, R11 for layouts.
TEST(ResolveTest, Errors) {
  const Product product = MakeProduct({256, 784}, {784, 512});
  const auto resolve = [&](std::vector<int64_t> matrix, TensorSharding x, TensorSharding w,
                           std::optional<TensorSharding> out = {}) {
    OpSharding sharding{std::move(matrix), {"dp", "sp", "mp"}, {std::move(x), std::move(w)}, std::move(out)};
    return Resolve(sharding, product.op(), product.graph, Mesh::Factored(1, 8), 8);
  };
  const TensorSharding x = Dims({{"mp"}, {"sp", "dp"}}), w = Dims({{"sp", "dp"}, {}});
  EXPECT_OK(AssignmentOf(product.op(), product.graph, *resolve({2, 2, 2}, x, w), Mesh::Factored(1, 8)));
  EXPECT_THAT(resolve({2, 2, 1}, x, w),
              StatusIs(absl::StatusCode::kInvalidArgument, "the device matrix (2, 2, 1) has 4 devices, a stage has 8"));
  EXPECT_THAT(resolve({2, 2, 2}, x, Dims({{"tp"}, {}})),
              StatusIs(absl::StatusCode::kInvalidArgument, "no axis \"tp\" in the layout"));
  EXPECT_THAT(resolve({2, 2, 2}, x, w, Dims({{"mp", "dp", "sp"}, {}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "out_strategy {x1.x4.x2 | -} is neither {x1 | -} nor {x1.x2.x4 | -}"));
  // The same pieces in another order, or an axis for rows of x and columns of w: no product of the pieces a rank has.
  ASSERT_OK_AND_ASSIGN(const OpStrategy swapped, resolve({2, 2, 2}, x, Dims({{"dp", "sp"}, {}})));
  EXPECT_THAT(AssignmentOf(product.op(), product.graph, swapped, Mesh::Factored(1, 8)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the contracting dimension must be split equally, over the same axes in the same order"));
  ASSERT_OK_AND_ASSIGN(const OpStrategy both, resolve({2, 2, 2}, Dims({{"mp"}, {}}), Dims({{}, {"mp"}})));
  EXPECT_THAT(AssignmentOf(product.op(), product.graph, both, Mesh::Factored(1, 8)),
              StatusIs(absl::StatusCode::kInvalidArgument, "axis x1 splits both \"m\" and \"n\""));
}

// S9.4: the operator that feeds the data has its repeat axis first.
TEST(LayoutFromTupleTest, RepeatsOfTheDataComeFirst) {
  const Mesh mesh = Mesh::Factored(1, 8);
  ASSERT_OK_AND_ASSIGN(const Layout data, LayoutFromTuple({4, 1}, {16, 32}, mesh, 8, /*repeat_first=*/true));
  ASSERT_OK_AND_ASSIGN(const Layout other, LayoutFromTuple({4, 1}, {16, 32}, mesh, 8, /*repeat_first=*/false));
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(SliceBegin({16, 32}, data, mesh, rank), (Shape{rank % 4 * 4, 0}));
    EXPECT_EQ(SliceBegin({16, 32}, other, mesh, rank), (Shape{rank / 2 * 4, 0}));
  }
  EXPECT_THAT(LayoutFromTuple({3, 1}, {16, 32}, mesh, 8, true),
              StatusIs(absl::StatusCode::kInvalidArgument, "(3, 1) needs 3 of 8 devices"));
  EXPECT_THAT(LayoutFromTuple({4}, {16, 32}, mesh, 8, true),
              StatusIs(absl::StatusCode::kInvalidArgument, "(4) does not fit a tensor (16, 32)"));
}

}  // namespace
}  // namespace meshwright
