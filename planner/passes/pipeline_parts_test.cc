#include "planner/passes/pipeline_parts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using Numbers = std::vector<int64_t>;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// "0:0+3 1:0+2 | 1:2+4": segment, first run and number of runs.
std::string ToText(const std::vector<Part>& parts) {
  std::vector<std::string> texts;
  for (const Part& part : parts) {
    texts.push_back(absl::StrJoin(part, " ", [](std::string* out, const LayerRange& range) {
      absl::StrAppend(out, range.segment, ":", range.first, "+", range.count);
    }));
  }
  return absl::StrJoin(texts, " | ");
}

// DeepSeek-V3's 3 and 58 layers, Maverick's 24 pairs, and one layer before three pairs.
const std::vector<Stack> kFirst = {{1, 3, 1}, {2, 58, 1}}, kPairs = {{1, 24, 2}}, kBoth = {{1, 1, 1}, {2, 3, 2}};

TEST(PipelinePartsTest, EvenLayers) {
  EXPECT_EQ(EvenLayers({{1, 7, 1}}, 3), (Numbers{3, 2, 2}));
  EXPECT_EQ(EvenLayers(kFirst, 16), (Numbers{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3}));
  EXPECT_EQ(EvenLayers(kPairs, 4), (Numbers{12, 12, 12, 12}));
  EXPECT_EQ(EvenLayers(kPairs, 5), (Numbers{10, 10, 10, 10, 8}));
  // Of 7 layers 4 are wanted, and one and a pair are 3: the next pair is on the first part, too.
  EXPECT_EQ(EvenLayers(kBoth, 2), (Numbers{5, 2}));
  EXPECT_EQ(EvenLayers(kBoth, 4), (Numbers{1, 2, 2, 2}));
  EXPECT_EQ(EvenLayers(kBoth, 5), (Numbers{1, 2, 2, 2, 0}));
}

TEST(PipelinePartsTest, SpreadLayers) {
  EXPECT_EQ(ToText(SpreadLayers(kFirst, {2, 4, 55})), "1:0+2 | 1:2+1 2:0+3 | 2:3+55");
  EXPECT_EQ(ToText(SpreadLayers(kBoth, {0, 3, 4, 0})), " | 1:0+1 2:0+1 | 2:1+2 | ");
  EXPECT_EQ(ToText(SpreadLayers(kPairs, {3, 45})), "1:0+2 | 1:2+22") << "a pair is not cut";
}

// embed; one layer; three pairs; head.
Graph OneAndPairs() {
  Graph graph;
  graph.segments.resize(4);
  for (size_t s = 0; s < 4; ++s) graph.segments[s].name = absl::StrCat("s", s);
  graph.segments[2].repeat = 3;
  graph.segments[2].layers = 2;
  for (const size_t s : {1, 2}) graph.segments[s].carries = {{TensorId(s), {}, {}, TensorId(s + 1)}};
  return graph;
}

TEST(PipelinePartsTest, AChainIsOneSequence) {
  Strategy strategy;
  strategy.stages = 2;
  ASSERT_OK_AND_ASSIGN(std::vector<Part> parts, PartsOf(OneAndPairs(), strategy));
  EXPECT_EQ(ToText(parts), "0:0+1 1:0+1 2:0+2 | 2:2+1 3:0+1");
  strategy.layers_per_stage = {1, 6};
  ASSERT_OK_AND_ASSIGN(parts, PartsOf(OneAndPairs(), strategy));
  EXPECT_EQ(ToText(parts), "0:0+1 1:0+1 | 2:0+3 3:0+1");
  strategy.layers_per_stage = {2, 5};
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(kInvalid,
                       "layers_per_stage gives stage 0 2 layers, which cut a piece of several layers in two; "
                       "wanted a number such as 3"));
  strategy.layers_per_stage = {3, 3};
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(kInvalid, "layers_per_stage adds up to 6, segments \"s1\" and \"s2\" have 7"));
  strategy.layers_per_stage.clear();
  strategy.stages = 5;
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(kInvalid,
                       "segments \"s1\" and \"s2\" have 7 layers, in 4 pieces that are never cut, for 5 "
                       "stages; every stage needs one"));
}

}  // namespace
}  // namespace meshwright
