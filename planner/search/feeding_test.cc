#include "planner/search/feeding.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// An image batch and its labels.
Graph Inputs(int64_t rows) {
  GraphBuilder b("inputs");
  b.BeginSegment("model");
  b.Input("x", DType::kFloat32, {rows, 3, 8, 8}, {});
  b.Input("y", DType::kInt32, {rows}, {});
  return std::move(b).Build();
}

absl::StatusOr<std::map<std::string, Layout>> Feed(Feeding feeding, std::vector<std::vector<int64_t>> tuples = {},
                                                   int64_t rows = 16) {
  Problem problem;
  problem.feeding = feeding;
  problem.feeding_tuples = std::move(tuples);
  return FeedingLayouts(problem, Inputs(rows), Mesh::Factored(1, 8), 8);
}

// First element that each of the 8 ranks feeds along `dim`.
std::vector<int64_t> Begins(const Layout& layout, const Shape& shape, size_t dim) {
  std::vector<int64_t> begins;
  for (int64_t rank = 0; rank < 8; ++rank) begins.push_back(SliceBegin(shape, layout, Mesh::Factored(1, 8), rank)[dim]);
  return begins;
}

// S9.1: rank p feeds rows [p b, (p + 1) b).
TEST(FeedingTest, DataParallelGivesEachRankItsRows) {
  ASSERT_OK_AND_ASSIGN(const auto layouts, Feed(Feeding::kDataParallel));
  EXPECT_EQ(Begins(layouts.at("x"), {16, 3, 8, 8}, 0), (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(Begins(layouts.at("y"), {16}, 0), (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(FeedingTest, FullBatchIsReplicated) {
  ASSERT_OK_AND_ASSIGN(const auto layouts, Feed(Feeding::kFullBatch));
  EXPECT_TRUE(layouts.at("x").IsReplicated());
  EXPECT_TRUE(layouts.at("y").IsReplicated());
}

// S9.4: repeats vary slowest.
TEST(FeedingTest, RepeatsOfTuplesVarySlowest) {
  ASSERT_OK_AND_ASSIGN(auto layouts, Feed(Feeding::kTuples, {{1, 1, 1, 4}, {1}}));
  EXPECT_EQ(Begins(layouts.at("x"), {16, 3, 8, 8}, 3), (std::vector<int64_t>{0, 2, 4, 6, 0, 2, 4, 6}));
  EXPECT_TRUE(layouts.at("y").IsReplicated());
  ASSERT_OK_AND_ASSIGN(layouts, Feed(Feeding::kTuples, {{2, 1, 1, 1}, {2}}));
  EXPECT_EQ(Begins(layouts.at("y"), {16}, 0), (std::vector<int64_t>{0, 8, 0, 8, 0, 8, 0, 8}));
}

// S9.3.
TEST(FeedingTest, RefusesTuplesThatDoNotFit) {
  const auto wrong = [](const char* what) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)); };
  EXPECT_THAT(Feed(Feeding::kTuples, {{2, 1, 1, 1}}), wrong("found 1 tuples, wanted one for each of the 2 inputs"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{2, 1, 2, 1}, {2}}), wrong("\"x\" is split in 2 dims"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{4, 1, 1, 1}, {2}}), wrong("split into 2 pieces, another into 4"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{1, 1, 1, 1}, {2}}), wrong("highest rank must be split"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{2, 1, 1, 0}, {2}}), wrong("found 0 pieces"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{1, 3, 1, 1}, {1}}), wrong("must divide them"));
  EXPECT_THAT(Feed(Feeding::kTuples, {{2, 1, 1}, {2}}), wrong("does not fit a tensor"));
  EXPECT_THAT(Feed(Feeding::kDataParallel, {}, 12), wrong("input \"x\" of (12, 3, 8, 8) in a micro-batch"));
  const std::string once(Feed(Feeding::kDataParallel, {}, 12).status().message());
  EXPECT_EQ(once.find("[E-LAYOUT]"), once.size() - 10) << once;
}

}  // namespace
}  // namespace meshwright
