#include "planner/passes/split_context.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/testing.h"
#include "planner/passes/group_experts.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 8 tokens a row, 2 rows, width 4; 2 of 8 experts a token with 6 slots each, 3 of a row. `other` is added to the slots.
absl::StatusOr<Graph> OneLayer(bool other = false) {
  GraphBuilder b("one");
  b.BeginSegment("all");
  const TensorId x = b.Parameter("x", DType::kFloat32, {8, 2, 4}, {});
  const TensorId w = b.Parameter("w", DType::kFloat32, {4, 8}, {});
  const TensorId expert = b.Parameter("expert", DType::kFloat32, {4, 8, 4}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId logits,
      b.AddOne({.name = "router", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "s b h, h r -> s b r"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      TensorId slots,
      b.AddOne({.name = "dispatch", .kind = OpKind::kDispatch, .inputs = {x, logits}, .output_shapes = {{8, 6, 4}}}));
  if (other) {
    const TensorId more = b.Parameter("more", DType::kFloat32, {8, 6, 4}, {});
    MESHWRIGHT_ASSIGN_OR_RETURN(
        slots,
        b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {slots, more}, .rule = "e c h, e c h -> e c h"}));
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(
      slots,
      b.AddOne(
          {.name = "product", .kind = OpKind::kMatMul, .inputs = {slots, expert}, .rule = "e c f, h e f -> e c h"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y,
                              b.AddOne({.name = "combine", .kind = OpKind::kCombine, .inputs = {slots, logits}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId loss,
                              b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {y, x}}));
  b.SetLoss(loss);
  return std::move(b).Build();
}

Strategy Shared(int64_t ranks, int64_t groups = 1) {
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"ep", groups}, {"cp", ranks}});
  strategy.context = ContextExchange::kAllGather;
  strategy.expert_groups = groups;
  return strategy;
}

Shape ShapeOf(const Graph& graph, const std::string& op) {
  return graph.tensor(graph.op(graph.FindOp(op)).outputs[0]).shape;
}
std::string RuleOf(const Graph& graph, const std::string& op) { return ToText(graph.op(graph.FindOp(op)).rule); }

// Of 3 slots of a row, 1.5 of a part: 2, of 2 rows 4.
TEST(SplitContextTest, PartsOfASequenceHaveSlotsOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, OneLayer());
  ASSERT_OK_AND_ASSIGN(const Graph shared, SplitContext(graph, Shared(2)));
  EXPECT_THAT(ShapeOf(shared, "dispatch"), ElementsAre(8, 2, 4, 4));
  EXPECT_THAT(ShapeOf(shared, "product"), ElementsAre(8, 2, 4, 4));
  EXPECT_THAT(ShapeOf(shared, "combine"), ElementsAre(8, 2, 4));
  EXPECT_EQ(RuleOf(shared, "router"), "s b h, h r -> s b r");
  EXPECT_EQ(RuleOf(shared, "dispatch"), "z b h, z b e! -> x =z =b h");
  EXPECT_EQ(RuleOf(shared, "product"), "e z c f, h e f -> e z c h");
  EXPECT_EQ(RuleOf(shared, "combine"), "x =z =b h, z b e! -> z b h");
}

// 16 tokens x 2 choices over 8 experts are 4 each, for 6 slots: of 8 tokens of a row 8 x 11 / 14 go to a group of two,
// times 6 / 4 more than all 8.
TEST(SplitContextTest, GroupsHavePlacesOfEachPart) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, OneLayer());
  ASSERT_OK_AND_ASSIGN(const Graph grouped, GroupExperts(graph, Shared(2, 2)));
  ASSERT_OK_AND_ASSIGN(const Graph shared, SplitContext(grouped, Shared(2, 2)));
  EXPECT_THAT(ShapeOf(shared, "dispatch/groups"), ElementsAre(2, 8, 2, 4));
  EXPECT_EQ(RuleOf(shared, "dispatch/groups"), "z b h!, z b e! -> n! =z b h!, n! =z b e!");
  EXPECT_EQ(RuleOf(shared, "dispatch"), "n z b h, n z b e! -> =n =z =b h");
  EXPECT_EQ(RuleOf(shared, "combine"), "=n =z =b h, n z b e! -> n z b h");
  EXPECT_EQ(RuleOf(shared, "combine/groups"), "n! =z b h, z b e! -> z b h");
}

// 3 of 8 experts for a token, of 8 groups of one: 3 of 8 tokens, times 6 / 6. Of 2 parts 2 each, so that the groups'
// results, and what comes back, are of 4 places.
TEST(SplitContextTest, PlacesThatPartsDoNotDivideAreRoundedUp) {
  ASSERT_OK_AND_ASSIGN(Graph graph, OneLayer());
  for (Op& op : graph.ops) {
    if (op.kind == OpKind::kDispatch || op.kind == OpKind::kCombine) op.attrs.top_k = 3;
  }
  ASSERT_OK_AND_ASSIGN(const Graph grouped, GroupExperts(graph, Shared(2, 8)));
  EXPECT_THAT(ShapeOf(grouped, "dispatch/groups"), ElementsAre(8, 3, 2, 4));
  ASSERT_OK_AND_ASSIGN(const Graph shared, SplitContext(grouped, Shared(2, 8)));
  EXPECT_THAT(ShapeOf(shared, "dispatch/groups"), ElementsAre(8, 4, 2, 4));
  EXPECT_THAT(ShapeOf(shared, "combine"), ElementsAre(8, 4, 2, 4));
  EXPECT_THAT(ShapeOf(shared, "combine/groups"), ElementsAre(8, 2, 4));
}

TEST(SplitContextTest, SlotsBesideSomethingElseAreRefused) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, OneLayer(true));
  EXPECT_THAT(SplitContext(graph, Shared(2)).status().message(),
              HasSubstr("operator \"sum\" (Add) with context parallelism: it reads slots of experts beside something"));
}

TEST(SplitContextTest, RanksThatShareExpertsAreAPartOfThoseThatShareRows) {
  ASSERT_OK_AND_ASSIGN(const Graph graph, OneLayer());
  Strategy strategy = Shared(1);
  strategy.mesh = Mesh::RowMajor({{"cp", 2}, {"ce", 2}});
  ASSERT_OK_AND_ASSIGN(const Graph shared, SplitContext(graph, strategy));
  EXPECT_THAT(ShapeOf(shared, "dispatch"), ElementsAre(8, 4, 2, 4));
}

}  // namespace
}  // namespace meshwright
