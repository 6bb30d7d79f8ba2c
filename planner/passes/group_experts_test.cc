#include "planner/passes/group_experts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/graph.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 8 tokens a row, 2 rows, width 4; 2 of 8 experts a token with `slots` slots each.
absl::StatusOr<Graph> OneLayer(int64_t slots) {
  GraphBuilder b("one");
  b.BeginSegment("all");
  const TensorId x = b.Input("x", DType::kFloat32, {8, 2, 4}, {});
  const TensorId w = b.Parameter("w", DType::kFloat32, {4, 8}, {});
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId logits,
      b.AddOne({.name = "router", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "s b h, h e -> s b e"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      const TensorId sent,
      b.AddOne(
          {.name = "dispatch", .kind = OpKind::kDispatch, .inputs = {x, logits}, .output_shapes = {{8, slots, 4}}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId y,
                              b.AddOne({.name = "combine", .kind = OpKind::kCombine, .inputs = {sent, logits}}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const TensorId loss,
                              b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {y, x}}));
  b.SetLoss(loss);
  return std::move(b).Build();
}

Strategy InGroups(int64_t groups) {
  Strategy strategy;
  strategy.mesh = Mesh::RowMajor({{"ep", groups}});
  strategy.expert_groups = groups;
  return strategy;
}

OpAttrs Choosing(int64_t top_k, int64_t groups = 1, int64_t best = 1) {
  OpAttrs attrs;
  attrs.top_k = top_k;
  attrs.choice_groups = groups;
  attrs.top_choice_groups = best;
  return attrs;
}

// A token misses a group of 4 of 8 experts with (4 x 3) / (8 x 7) = 3 / 14, and one of 1 with 6 / 8.
TEST(GroupExpertsTest, ShareIsHypergeometric) {
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, Choosing(2), 2), 11.0 / 14);
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, Choosing(2), 8), 0.25);
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, Choosing(5), 2), 1);  // there are four others
}

// Two of 8 experts, of two of four groups of two. One of these four: it is chosen with 1/2, and then 2 of its 4 experts
// miss its own two with 1 / C(4, 2). Of two parts with two groups each: one with 4/6, both with 1/6, where nothing
// misses. A single expert is as likely as ever. Three parts, which fit no groups: as without.
TEST(GroupExpertsTest, RoutersThatChooseOfSomeGroupsReachFewer) {
  const OpAttrs routing = Choosing(2, 4, 2);
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, routing, 4), 5.0 / 12);
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, routing, 2), 4.0 / 6 * 5 / 6 + 1.0 / 6);
  EXPECT_DOUBLE_EQ(ShareOfGroup(8, routing, 8), 0.25);
  EXPECT_DOUBLE_EQ(ShareOfGroup(12, routing, 3), ShareOfGroup(12, Choosing(2), 3));
}

// 16 tokens x 2 choices over 8 experts are 4 each, which 4 slots hold: even. Of 8 tokens of a row 8 x 11 / 14 = 6.3 go
// to a group of two.
TEST(GroupExpertsTest, GroupsHaveRoomAsExpertsHave) {
  const auto graph = OneLayer(4);
  ASSERT_OK(graph);
  const auto grouped = GroupExperts(*graph, InGroups(2));
  ASSERT_OK(grouped);
  EXPECT_THAT(grouped->tensor(grouped->FindTensor("dispatch/sent")).shape, ElementsAre(2, 7, 2, 4));
  EXPECT_THAT(grouped->tensor(grouped->FindTensor("dispatch/logits")).shape, ElementsAre(2, 7, 2, 8));
  EXPECT_THAT(grouped->tensor(grouped->op(grouped->FindOp("dispatch")).outputs[0]).shape, ElementsAre(8, 4, 4));
  EXPECT_THAT(grouped->tensor(grouped->FindTensor("combine/parts")).shape, ElementsAre(2, 7, 2, 4));
  // With twice the slots there is room for all.
  const auto ample = OneLayer(8);
  ASSERT_OK(ample);
  const auto all = GroupExperts(*ample, InGroups(2));
  ASSERT_OK(all);
  EXPECT_THAT(all->tensor(all->FindTensor("dispatch/sent")).shape, ElementsAre(2, 8, 2, 4));
}

TEST(GroupExpertsTest, WithoutGroupsNothingChanges) {
  const auto graph = OneLayer(4);
  ASSERT_OK(graph);
  const auto same = GroupExperts(*graph, Strategy());
  ASSERT_OK(same);
  EXPECT_EQ(ToText(*same), ToText(*graph));
}

TEST(GroupExpertsTest, GroupsDivideTheExperts) {
  const auto graph = OneLayer(4);
  ASSERT_OK(graph);
  EXPECT_THAT(GroupExperts(*graph, InGroups(3)).status().message(),
              HasSubstr("operator \"dispatch\": 8 experts in 3 groups"));
}

}  // namespace
}  // namespace meshwright
