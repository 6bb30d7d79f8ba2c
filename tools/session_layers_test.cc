// Layers that a model file deals to the stages of a pipeline.
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "models/decoder.h"
#include "tools/session.h"

namespace meshwright {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Of 4 layers.
std::string Decoder(const std::string& parallel) {
  return absl::StrCat(
      "name: d\narchitecture: {decoder: {hidden: 16, layers: 4, heads: 2, vocab: 32}}\n"
      "training: {batch: 16, sequence: 8, dtype: bfloat16}\ncluster: {device: h100-sxm, nodes: 1}\nparallel: {",
      parallel, "}\n");
}

absl::StatusOr<Session> Open(const std::string& text, const std::vector<std::string>& flags_text = {}) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), flags_text));
  return OpenModel({"m.yaml", text}, flags);
}

TEST(SessionLayersTest, LayersOfStagesAreThoseOfTheModel) {
  ASSERT_OK_AND_ASSIGN(const Session session, Open(Decoder("pipeline_stages: 2, layers_per_stage: [1, 3]")));
  EXPECT_EQ(session.problem.layers_per_stage, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(session.problem.chunks, 1);
  EXPECT_THAT(Open(Decoder("pipeline_stages: 2, layers_per_stage: [1, 2]")),
              StatusIs(kInvalid, "layers_per_stage adds up to 3, segment \"layers\" has 4"));
  EXPECT_THAT(Open(Decoder("pipeline_stages: 2, layers_per_stage: [1, 2, 1]")),
              StatusIs(kInvalid, "layers_per_stage: found 3 numbers, wanted 2, one for each of 2 stages"));
  EXPECT_THAT(Open(Decoder("layers_per_stage: [4]")),
              StatusIs(kInvalid, "wanted `pipeline_stages` of several stages beside it, or --stages"));
}

TEST(SessionLayersTest, FlagsSayHowManyPartsThereAre) {
  const std::string file = Decoder("layers_per_stage: [1, 1, 1, 1]");
  ASSERT_OK_AND_ASSIGN(const Session stages, Open(file, {"--stages=4"}));
  EXPECT_EQ(stages.problem.stages, 4);
  EXPECT_EQ(stages.problem.chunks, 1);
  ASSERT_OK_AND_ASSIGN(const Session chunks, Open(file, {"--stages=2", "--virtual_pipeline_stages=2"}));
  EXPECT_EQ(chunks.problem.chunks, 2);
  ASSERT_OK_AND_ASSIGN(const Session laid, Open(file, {"--stages=2", "--schedule=zero_bubble_v"}));
  EXPECT_EQ(laid.problem.chunks, 2);
  EXPECT_THAT(Open(file, {"--stages=2"}),
              StatusIs(kInvalid,
                       "layers_per_stage: found 4 numbers, wanted 2, one for each of 2 stages; chunks are "
                       "`virtual_pipeline_stages`"));
  EXPECT_THAT(Open(file, {"--stages=4", "--virtual_pipeline_stages=2"}),
              StatusIs(kInvalid, "layers_per_stage: found 4 numbers, wanted 8, one for each of 4 stages x 2 chunks"));
}

// Two layers see 4 tokens, then one sees all: stages of one and of three layers cut the first three.
TEST(SessionLayersTest, LayersOfStagesMayCutRuns) {
  const std::string file =
      absl::StrReplaceAll(Decoder("pipeline_stages: 2, layers_per_stage: [1, 5]"),
                          {{"layers: 4", "layers: 6, sliding_window: 4, full_attention_every: 3"}});
  ASSERT_OK_AND_ASSIGN(const Session session, Open(file));
  EXPECT_EQ(session.problem.layers_per_stage, (std::vector<int64_t>{1, 5}));
}

}  // namespace
}  // namespace meshwright
