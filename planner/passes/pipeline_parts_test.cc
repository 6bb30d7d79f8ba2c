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

TEST(PipelinePartsTest, EvenLayers) {
  EXPECT_EQ(EvenLayers(7, 3), (Numbers{3, 2, 2}));
  EXPECT_EQ(EvenLayers(61, 16), (Numbers{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3}));
  EXPECT_EQ(EvenLayers(48, 4), (Numbers{12, 12, 12, 12}));
  EXPECT_EQ(EvenLayers(4, 5), (Numbers{1, 1, 1, 1, 0}));
}

// embed; one layer; three pairs; head.
Graph OneAndPairs() {
  Graph graph;
  graph.segments.resize(4);
  for (size_t s = 0; s < 4; ++s) graph.segments[s].name = absl::StrCat("s", s);
  graph.segments[2].repeat = 3;
  graph.segments[2].layer_ends = {TensorId(9)};
  for (const size_t s : {1, 2}) graph.segments[s].carries = {{TensorId(s), {}, {}, TensorId(s + 1)}};
  return graph;
}

TEST(PipelinePartsTest, AChainIsOneSequence) {
  Strategy strategy;
  strategy.stages = 2;
  strategy.layers_per_stage = {3, 4};
  ASSERT_OK_AND_ASSIGN(std::vector<Part> parts, PartsOf(OneAndPairs(), strategy));
  EXPECT_EQ(ToText(parts), "0:0+1 1:0+1 2:0+1 | 2:1+2 3:0+1");
  strategy.layers_per_stage = {1, 6};
  ASSERT_OK_AND_ASSIGN(parts, PartsOf(OneAndPairs(), strategy));
  EXPECT_EQ(ToText(parts), "0:0+1 1:0+1 | 2:0+3 3:0+1");
  strategy.layers_per_stage = {0, 7};
  ASSERT_OK_AND_ASSIGN(parts, PartsOf(OneAndPairs(), strategy));
  EXPECT_EQ(ToText(parts), "0:0+1 | 1:0+1 2:0+3 3:0+1");
  strategy.layers_per_stage = {2, 5};
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(absl::StatusCode::kInternal,
                       "stage 0 begins or ends within a run of layers, which was to be cut there"));
  strategy.layers_per_stage = {3, 3};
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(kInvalid, "layers_per_stage adds up to 6, segments \"s1\" and \"s2\" have 7"));
  strategy.layers_per_stage.clear();
  strategy.stages = 8;
  EXPECT_THAT(PartsOf(OneAndPairs(), strategy),
              StatusIs(kInvalid, "segments \"s1\" and \"s2\" have 7 layers for 8 stages; every stage needs one"));
}

}  // namespace
}  // namespace meshwright
