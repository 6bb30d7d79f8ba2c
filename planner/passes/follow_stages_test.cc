#include "planner/passes/follow_stages.h"

#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/program_text.h"
#include "ir/testing.h"
#include "planner/passes/complete_layouts.h"
#include "planner/passes/differentiate.h"
#include "planner/passes/partition.h"
#include "planner/passes/plan_memory.h"
#include "planner/passes/split_stages.h"
#include "planner/passes/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Layers of a stack of `layers` that is tied at its ends, one after the other on `stages`.
absl::StatusOr<Program> Split(int64_t layers, int64_t stages, int64_t microbatches, Followers* followers) {
  Strategy strategy;
  strategy.mesh = Mesh::Factored(stages, 1);
  strategy.stages = stages;
  strategy.microbatches = microbatches;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Graph graph, Differentiate(TiedStack(layers, 8), {}));
  MESHWRIGHT_ASSIGN_OR_RETURN(const ShardedGraph sharded, CompleteLayouts(graph, strategy));
  MESHWRIGHT_ASSIGN_OR_RETURN(Program program, Partition(sharded, PriceByBytes));
  return SplitStages(std::move(program), graph, strategy, {OpKind::kSgd, {}}, followers);
}

// Four stages of one layer: the first has the embedding, the last the head. The third differs from the second in one
// layer (2 instead of 1), in what it keeps at once (2 micro-batches instead of 3), and in its neighbours.
TEST(FollowStagesTest, StagesInTheMiddleFollowTheFirstOfThem) {
  Followers followers;
  ASSERT_OK_AND_ASSIGN(Program program, Split(4, 4, 8, &followers));
  ASSERT_THAT(followers.leaders, SizeIs(1));
  ASSERT_THAT(followers.followers, SizeIs(1));
  const Leader& leader = followers.leaders[0];
  const Follower& follower = followers.followers[0];
  EXPECT_EQ(leader.class_index, 1u);
  EXPECT_EQ(follower.class_index, 2u);
  EXPECT_EQ(follower.layers_later, 1);
  EXPECT_THAT(program.classes[2].blocks, IsEmpty());
  const auto& buffers = program.classes[1].buffers;
  const auto up = std::find_if(buffers.begin(), buffers.end(), [](const Buffer& b) { return b.name == "up"; });
  ASSERT_NE(up, buffers.end());
  EXPECT_EQ(up->microbatches, 3);
  EXPECT_EQ(follower.microbatches[static_cast<size_t>(up - buffers.begin())], 2);
  EXPECT_THAT(follower.crossings,
              ElementsAre("layers/stream 1->2", "layers/stream 2->3", "layers/gradient 2->1", "layers/gradient 3->2"));
  ASSERT_OK_AND_ASSIGN(const Program own, Split(4, 4, 8, nullptr));
  EXPECT_EQ(ToText(FollowStages(std::move(program), followers)), ToText(own));
  EXPECT_FALSE(followers.in_vain);
}

// Beside its slots a follower then has what the simulator asks for: as many events as the leader, for 2 micro-batches
// instead of 3 what arrives, and the memory that it would have.
TEST(FollowStagesTest, TellsWhomAFollowerCopiesInsteadOfWritingItOut) {
  Followers followers;
  ASSERT_OK_AND_ASSIGN(Program program, Split(4, 4, 8, &followers));
  ClassCopies copies;
  const Program outline = FollowStages(PlanMemory(std::move(program)), followers, &copies);
  ASSERT_OK_AND_ASSIGN(Program own, Split(4, 4, 8, nullptr));
  own = PlanMemory(std::move(own));
  EXPECT_THAT(copies.of, ElementsAre(0, 1, 1, 3));
  const RankClass &copy = outline.classes[2], &written = own.classes[2];
  EXPECT_THAT(copy.blocks, IsEmpty());
  EXPECT_THAT(copy.buffers, IsEmpty());
  EXPECT_EQ(copy.arena, written.arena);
  EXPECT_NE(copy.arena, own.classes[1].arena);
  ASSERT_EQ(copy.slots.size(), written.slots.size());
  ASSERT_EQ(copy.events.size(), written.events.size());
  for (size_t i = 0; i < copy.events.size(); ++i) {
    EXPECT_EQ(copy.events[i].layers, written.events[i].layers);
    EXPECT_EQ(copy.events[i].microbatches, written.events[i].microbatches) << written.events[i].name;
  }
  ASSERT_EQ(copies.microbatches[2].size(), written.buffers.size());
  for (size_t i = 0; i < written.buffers.size(); ++i) {
    EXPECT_EQ(copies.microbatches[2][i], written.buffers[i].microbatches) << written.buffers[i].name;
  }
}

// Six layers on four stages are 2, 2, 1 and 1; and with one micro-batch a stage's first pass reduces gradients, too, so
// that there is no middle.
TEST(FollowStagesTest, WhatIsNotAlikeIsBuilt) {
  Followers followers;
  EXPECT_OK(Split(6, 4, 8, &followers));
  EXPECT_OK(Split(4, 4, 1, &followers));
  EXPECT_THAT(followers.followers, IsEmpty());
}

// As a pass does that gathers parameters for each micro-batch.
TEST(FollowStagesTest, SaysWhereAPassHasChangedTheMiddle) {
  Followers followers;
  ASSERT_OK_AND_ASSIGN(Program program, Split(4, 4, 8, &followers));
  auto& slots = program.classes[1].slots;
  slots.insert(slots.begin() + static_cast<std::ptrdiff_t>(followers.leaders[0].slots.middle + 1), slots[0]);
  FollowStages(std::move(program), followers);
  EXPECT_TRUE(followers.in_vain);
}

}  // namespace
}  // namespace meshwright
