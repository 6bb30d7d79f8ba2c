#include "planner/passes/cut_runs.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Its layers in front of the head: "layers 2 x 3 from 1" is two runs of three layers, the first of them run 1.
std::vector<std::string> Stretches(const Graph& graph) {
  std::vector<std::string> stretches;
  for (const Segment& segment : graph.segments) {
    if (segment.carries.empty()) continue;
    stretches.push_back(
        absl::StrCat(segment.name, " ", segment.repeat, " x ", segment.layers(), " from ", segment.first));
  }
  return stretches;
}

Strategy Dealt(std::vector<int64_t> layers) {
  Strategy strategy;
  strategy.stages = static_cast<int64_t>(layers.size());
  strategy.layers_per_stage = std::move(layers);
  return strategy;
}

// Two dense layers, and then one with experts: four times.
constexpr ToyDecoder kThirds = {.layers = 12, .experts = 4, .expert_every = 3};

TEST(CutRunsTest, WhereAPartBeginsWithinARun) {
  ASSERT_OK_AND_ASSIGN(const Graph whole, BuildToyDecoder(kThirds, 2));
  EXPECT_THAT(Stretches(whole), ElementsAre("layers 4 x 3 from 0"));
  const auto cut = [&](std::vector<int64_t> layers) {
    const Graph graph = CutRuns(whole, Dealt(std::move(layers)));
    EXPECT_OK(VerifyGraph(graph));
    EXPECT_EQ(graph.NumParameters(), whole.NumParameters());
    return Stretches(graph);
  };
  EXPECT_THAT(cut({6, 6}), ElementsAre("layers 4 x 3 from 0"));
  EXPECT_THAT(cut({0, 12}), ElementsAre("layers 4 x 3 from 0"));
  EXPECT_THAT(cut({4, 8}), ElementsAre("layers 1 x 3 from 0", "layers@cut1 1 x 1 from 1", "layers@cut2 1 x 2 from 1",
                                       "layers@cut3 2 x 3 from 2"));
  EXPECT_THAT(cut({1, 1, 7, 3}), ElementsAre("layers 1 x 1 from 0", "layers@cut1 1 x 1 from 0",
                                             "layers@cut2 1 x 1 from 0", "layers@cut3 3 x 3 from 1"));
  EXPECT_THAT(cut({11, 1}), ElementsAre("layers 3 x 3 from 0", "layers@cut1 1 x 2 from 3", "layers@cut2 1 x 1 from 3"));
}

// 12 layers on 5 stages are 3, 3, 2, 2 and 2: the third run is cut behind its second layer, the fourth behind its
// first.
TEST(CutRunsTest, WhereNobodyDealsLayers) {
  ASSERT_OK_AND_ASSIGN(const Graph whole, BuildToyDecoder(kThirds, 2));
  Strategy strategy;
  strategy.stages = 5;
  EXPECT_THAT(CutsOf(whole, strategy), ElementsAre(Cut{1, 8}, Cut{1, 10}));
  strategy.stages = 2;
  EXPECT_THAT(CutsOf(whole, strategy), IsEmpty());
  strategy.chunks = 4;  // 8 parts of 2, 2, 2, 2, 1, 1, 1 and 1: in front of 2, 4, 8, 10 and 11, and of 6 and 9
  EXPECT_THAT(CutsOf(whole, strategy), ElementsAre(Cut{1, 2}, Cut{1, 4}, Cut{1, 8}, Cut{1, 10}, Cut{1, 11}));
  // All layers alike: each begins a run.
  ASSERT_OK_AND_ASSIGN(const Graph alike, BuildToyDecoder({.layers = 12}, 2));
  strategy.stages = 5;
  EXPECT_THAT(CutsOf(alike, strategy), IsEmpty());
}

// Of 12 layers 4, 4 and 4: the first and the last run are whole, and alike, the parts of the two between are not.
TEST(CutRunsTest, PiecesThatAreAlike) {
  ASSERT_OK_AND_ASSIGN(const Graph whole, BuildToyDecoder(kThirds, 2));
  const auto kinds_of = [&](std::vector<int64_t> layers) {
    return KindsOf(whole, CutsOf(whole, Dealt(std::move(layers))));
  };
  const std::optional<PieceKinds> kinds = kinds_of({4, 4, 4});
  ASSERT_TRUE(kinds.has_value());
  EXPECT_OK(VerifyGraph(kinds->graph));
  EXPECT_THAT(Stretches(kinds->graph),
              ElementsAre("layers@cut0 1 x 1 from 1", "layers@cut1 1 x 2 from 1", "layers@cut2 1 x 2 from 2",
                          "layers@cut3 1 x 1 from 2", "layers@cut4 1 x 3 from 3"));
  std::vector<std::string> pieces;
  for (const PieceKinds::Piece& piece : kinds->of) {
    pieces.push_back(absl::StrCat(kinds->graph.segments[piece.kind].name, piece.mark.empty() ? "" : " as ",
                                  piece.mark.empty() ? "" : absl::StrCat("layers", piece.mark_in_cut)));
  }
  EXPECT_THAT(pieces, ElementsAre("embed", "layers@cut4 as layers", "layers@cut0 as layers@cut1",
                                  "layers@cut1 as layers@cut2", "layers@cut2 as layers@cut3",
                                  "layers@cut3 as layers@cut4", "layers@cut4 as layers@cut5", "head"));
  EXPECT_FALSE(kinds_of({4, 8}).has_value()) << "one run and several are not alike";
}

TEST(CutRunsTest, MarksOfNames) {
  EXPECT_EQ(PieceMark("norm1.gamma@cut12"), "@cut12");
  EXPECT_EQ(PieceMark("norm1.gamma"), "");
}

// A cut counts from the beginning of its segment.
TEST(CutRunsTest, OfAChain) {
  ASSERT_OK_AND_ASSIGN(const Graph whole,
                       BuildToyDecoder({.layers = 7, .experts = 4, .dense_layers = 1, .expert_every = 2}, 2));
  EXPECT_THAT(Stretches(whole), ElementsAre("dense_layers 1 x 1 from 0", "layers 3 x 2 from 0"));
  EXPECT_THAT(CutsOf(whole, Dealt({2, 5})), ElementsAre(Cut{2, 1}));
  EXPECT_THAT(CutsOf(whole, Dealt({1, 6})), IsEmpty());
  // Of numbers that do not add up those that can be are cut; PartsOf says what is wrong.
  EXPECT_THAT(CutsOf(whole, Dealt({2, 50, 4})), ElementsAre(Cut{2, 1}));
}

// Operators keep their names, tensors say which piece they are of, and a piece begins with what the one before ends
// with.
TEST(CutRunsTest, NamesAndCarries) {
  ASSERT_OK_AND_ASSIGN(const Graph whole, BuildToyDecoder({.layers = 2, .experts = 4, .expert_every = 2}, 2));
  const Graph cut = CutRuns(whole, Dealt({1, 1}));
  EXPECT_EQ(cut.ops.size(), whole.ops.size());
  for (size_t i = 0; i < cut.ops.size(); ++i) EXPECT_EQ(cut.ops[i].name, whole.ops[i].name);
  EXPECT_TRUE(cut.FindTensor("dense0_qkv.weight").valid());
  EXPECT_FALSE(cut.FindTensor("qkv.weight").valid());
  const TensorId weight = cut.FindTensor("qkv.weight@cut1");
  ASSERT_TRUE(weight.valid());
  EXPECT_EQ(cut.tensor(weight).segment, SegmentId(2));
  const Carry &first = cut.segments[1].carries[0], &second = cut.segments[2].carries[0];
  EXPECT_EQ(cut.tensor(first.out).name, "dense0_add2");
  EXPECT_EQ(second.initial, first.final);
  EXPECT_EQ(cut.tensor(second.out).name, "add2@cut1");
  EXPECT_EQ(cut.op(cut.FindOp("norm1")).inputs[0], second.in);
  EXPECT_EQ(cut.op(cut.FindOp("norm")).inputs[0], second.final);
  EXPECT_EQ(cut.tensor(cut.loss).name, whole.tensor(whole.loss).name);
}

TEST(CutRunsTest, SortedLayersAreOfOneKindEach) {
  ASSERT_OK_AND_ASSIGN(const Graph whole,
                       BuildToyDecoder({.layers = 13, .experts = 4, .dense_layers = 1, .expert_every = 3}, 2));
  const Graph sorted = SortLayers(whole);
  EXPECT_OK(VerifyGraph(sorted));
  EXPECT_THAT(Stretches(sorted), ElementsAre("dense_layers 1 x 1 from 0", "layers 4 x 1 from 0",
                                             "layers@cut1 4 x 1 from 0", "layers@cut2 4 x 1 from 0"));
  EXPECT_EQ(sorted.NumParameters(), whole.NumParameters());
  EXPECT_EQ(ToText(SortLayers(sorted)), ToText(sorted));
}

}  // namespace
}  // namespace meshwright
