#include "tools/validate/pipeline_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/strategy.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PipelineTextTest, Schedules) {
  const auto of = [](const char* options) { return ReadPipelineText(options).schedule; };
  EXPECT_EQ(of(""), Schedule::kOneFOneB);
  EXPECT_EQ(of("megatron-lm; schedule 1f1b"), Schedule::kOneFOneB);
  EXPECT_EQ(of("schedule zb-1p"), Schedule::kZeroBubbleH1);
  EXPECT_EQ(of("zbh1"), Schedule::kZeroBubbleH1);
  EXPECT_EQ(of("pp_style=\"zbv\""), Schedule::kZeroBubbleV);
  EXPECT_EQ(of("zero-bubble-v-schedule"), Schedule::kZeroBubbleV);
  EXPECT_EQ(of("gpipe"), Schedule::kGpipe);
}

TEST(PipelineTextTest, SaysWhatItTakesForAnother) {
  EXPECT_EQ(ReadPipelineText("schedule zb-1p").taken_for_another, "");
  EXPECT_EQ(ReadPipelineText("schedule 1f1b-i").taken_for_another, "");
  EXPECT_EQ(ReadPipelineText("schedule zb-2p").taken_for_another, "zb2p");
  EXPECT_EQ(ReadPipelineText("schedule: v-half").taken_for_another, "vhalf");
  EXPECT_EQ(ReadPipelineText("schedule: v-half").schedule, Schedule::kZeroBubbleV);
  EXPECT_EQ(ReadPipelineText("schedule: dualpipe").taken_for_another, "dualpipe");
  EXPECT_EQ(ReadPipelineText("dualpipe").schedule, Schedule::kZeroBubbleH1);
  EXPECT_EQ(ReadPipelineText("schedule: another").taken_for_another, "another");
  EXPECT_EQ(ReadPipelineText("schedule: another").schedule, Schedule::kOneFOneB);
}

TEST(PipelineTextTest, LayersOfStages) {
  EXPECT_TRUE(ReadPipelineText("the first and the last stage have one layer less").ends_count);
  EXPECT_TRUE(ReadPipelineText("first and last stage reduced by one layer each").ends_count);
  EXPECT_FALSE(ReadPipelineText("account_for_embedding_in_pipeline_split").ends_count);
  EXPECT_TRUE(
      ReadPipelineText("account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split").ends_count);
  EXPECT_TRUE(ReadPipelineText("layers redistributed to balance the output layer").balanced);
  EXPECT_FALSE(ReadPipelineText("deepspeed").balanced);
  EXPECT_THAT(LayersWithEnds(22, 8), ElementsAre(2, 3, 3, 3, 3, 3, 3, 2));
  EXPECT_THAT(LayersWithEnds(2, 4), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(LayersWithEnds(24, 8), IsEmpty());
}

TEST(PipelineTextTest, LayoutsThatAreWrittenOut) {
  EXPECT_THAT(ReadPipelineText("layout et*9|t*8|t*8|t*7l, mcore").layers, ElementsAre(9, 8, 8, 7));
  EXPECT_THAT(ReadPipelineText("layout: et|(tt|)*3ml").layers, ElementsAre(1, 2, 2, 2, 0));
  EXPECT_EQ(ReadPipelineText("layout: et|(tt|)*3ml").further, 1);
  EXPECT_EQ(ReadPipelineText("layout et*9|t*8|t*8|t*7l").further, 0);
  EXPECT_THAT(ReadPipelineText("layout e|((t|)*2t|)*2l").layers, ElementsAre(0, 1, 1, 1, 1, 1, 1, 0));
  for (const char* other : {"layout even", "layout of its summary", "layout ttt", "layout (t|", "layout t*9999|*2t",
                            "layout (((t|)*999)*999)*999", "et|t"}) {
    EXPECT_THAT(ReadPipelineText(other).layers, IsEmpty()) << other;
  }
}

// The loss as 1.2 layers: others need five where the last stage has less than four; as few there as that allows. As
// 0.9: four and it are as fast. As 6: it alone.
TEST(PipelineTextTest, LayersBesideTheLoss) {
  EXPECT_THAT(LayersBesideHead(32, 8, 0), ElementsAre(4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(LayersBesideHead(32, 8, 0.9), ElementsAre(4, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_THAT(LayersBesideHead(32, 8, 1.2), ElementsAre(4, 4, 4, 4, 4, 4, 5, 3));
  EXPECT_THAT(LayersBesideHead(32, 8, 2.4), ElementsAre(4, 4, 4, 4, 4, 5, 5, 2));
  EXPECT_THAT(LayersBesideHead(32, 8, 6), ElementsAre(4, 4, 4, 5, 5, 5, 5, 0));
}

}  // namespace
}  // namespace meshwright
