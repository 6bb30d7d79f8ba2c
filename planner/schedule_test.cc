#include "planner/schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

constexpr const char* kNames[] = {"F", "B", "W"};

std::string Text(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks = 1) {
  std::string text;
  for (const Pass& pass : PassesOfStage(schedule, stage, stages, microbatches, chunks)) {
    absl::StrAppend(&text, text.empty() ? "" : " ", kNames[static_cast<size_t>(pass.kind)], pass.microbatch);
    if (chunks > 1) absl::StrAppend(&text, ".", pass.chunk);
  }
  return text;
}

// The table of S12.8.
TEST(ScheduleTest, OneForwardOneBackwardIsTheTableOfTheSemantics) {
  EXPECT_EQ(Text(Schedule::kOneFOneB, 0, 2, 4), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 1, 2, 4), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 0, 4, 4), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 1, 4, 4), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 0, 4, 8), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 3, 4, 8), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST(ScheduleTest, GpipeRunsAllForwardsFirst) { EXPECT_EQ(Text(Schedule::kGpipe, 1, 2, 3), "F0 F1 F2 B0 B1 B2"); }

TEST(ScheduleTest, ActivationsKeptAtPeak) {
  // S12.8, last column: 1F1B keeps min(M, S - s), GPipe M.
  EXPECT_EQ(MaxInFlight(PassesOfStage(Schedule::kOneFOneB, 0, 2, 4)), 2);
  EXPECT_EQ(MaxInFlight(PassesOfStage(Schedule::kOneFOneB, 3, 4, 8)), 1);
  EXPECT_EQ(MaxInFlight(PassesOfStage(Schedule::kOneFOneB, 0, 4, 2)), 2);
  EXPECT_EQ(MaxInFlight(PassesOfStage(Schedule::kGpipe, 3, 4, 8)), 8);
}

// 2 (S-s-1) + (V-1) S + 1 forwards first: 5 and 3.
TEST(ScheduleTest, InterleavedTakesGroupsOfMicroBatchesThroughTheChunks) {
  EXPECT_EQ(Text(Schedule::kOneFOneB, 0, 2, 4, 2),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(Text(Schedule::kOneFOneB, 1, 2, 4, 2),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(Text(Schedule::kGpipe, 1, 2, 2, 2), "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0");
  // S does not divide M: the last group has what is left too; 2 (S-s-1) + (V-1) 3 + 1 = 4 forwards first.
  EXPECT_EQ(Text(Schedule::kOneFOneB, 1, 2, 3, 2), "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 B0.0 B1.0 B2.0");
}

// The time that the stages need with F = 1, B = 2 (or B = W = 1) and transfers that take no time; 0 if they wait for
// each other.
int64_t Play(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks) {
  int64_t time = 0;
  for (const std::vector<int64_t>& ends : EndsOf(schedule, PassesOf(schedule, stages, microbatches, chunks))) {
    time = std::max(time, ends.back());
  }
  return time;
}

// S12.10's idle share (S-1)/(M V + S-1) for every M >= S; for fewer nothing gets stuck.
TEST(ScheduleTest, InterleavedIsAsFastAsPublished) {
  for (int64_t stages = 2; stages <= 6; ++stages) {
    for (int64_t chunks = 1; chunks <= 4; ++chunks) {
      for (int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
        SCOPED_TRACE(absl::StrCat("S ", stages, ", V ", chunks, ", M ", microbatches));
        const int64_t time = Play(Schedule::kOneFOneB, stages, microbatches, chunks);
        if (microbatches >= stages) {
          EXPECT_EQ(time, 3 * (microbatches * chunks + stages - 1));
        } else {
          EXPECT_GT(time, 0);
        }
        EXPECT_GT(Play(Schedule::kGpipe, stages, microbatches, chunks), 0);
      }
    }
  }
}

// Section 2.3 of the paper: (S-1)(F + B - W) is idle, a third of 1f1b's 3 (S-1) with F = B = W = 1, and no stage holds
// more than S micro-batches from F to W. Last stage: the three W that it puts off stand where 1f1b's would be idle.
TEST(ScheduleTest, ZeroBubbleH1FillsWithGradientsOfParameters) {
  EXPECT_EQ(Text(Schedule::kZeroBubbleH1, 0, 4, 5), "F0 F1 F2 F3 B0 W0 F4 B1 W1 B2 W2 B3 W3 B4 W4");
  EXPECT_EQ(Text(Schedule::kZeroBubbleH1, 3, 4, 5), "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 W3 W4");
  for (int64_t stages = 2; stages <= 8; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 24; ++microbatches) {
      SCOPED_TRACE(absl::StrCat("S ", stages, ", M ", microbatches));
      const int64_t time = Play(Schedule::kZeroBubbleH1, stages, microbatches, 1);
      if (microbatches >= stages) {
        EXPECT_EQ(time, 3 * microbatches + stages - 1);
      } else {
        EXPECT_GT(time, 0);
      }
      for (int64_t stage = 0; stage < stages; ++stage) {
        const std::vector<Pass> passes = PassesOfStage(Schedule::kZeroBubbleH1, stage, stages, microbatches);
        EXPECT_LE(MaxBetween(passes, PassKind::kForward, PassKind::kWeights, 0, 0), stages);
      }
    }
  }
}

// Two chunks of half a stage: filling the pipeline takes S-1 forwards of a chunk, and every stage has 6 M passes of a
// chunk. At most 2 S forwards of a chunk, S of a stage, in flight.
TEST(ScheduleTest, ZeroBubbleVLeavesIdleWhatFillingTakes) {
  EXPECT_EQ(Text(Schedule::kZeroBubbleV, 0, 2, 2, 2), "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 W0.1 B1.0 W1.1 W0.0 W1.0");
  for (int64_t stages = 2; stages <= 8; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 24; ++microbatches) {
      SCOPED_TRACE(absl::StrCat("S ", stages, ", M ", microbatches));
      const std::vector<std::vector<Pass>> passes = PassesOf(Schedule::kZeroBubbleV, stages, microbatches, 2);
      const int64_t time = Play(Schedule::kZeroBubbleV, stages, microbatches, 2);
      ASSERT_GT(time, 0);
      if (microbatches >= 2 * stages) {
        EXPECT_EQ(time, 6 * microbatches + stages - 1);
      } else if (microbatches > stages) {
        EXPECT_LE(time, 6 * microbatches + 2 * stages - 2);
      }
      for (int64_t stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(passes[stage], PassesOfStage(Schedule::kZeroBubbleV, stage, stages, microbatches, 2));
        int64_t held = 0;
        for (const Pass& pass : passes[stage]) {
          held += pass.kind == PassKind::kForward ? 1 : pass.kind == PassKind::kWeights ? -1 : 0;
          EXPECT_LE(held, 2 * stages);
        }
        EXPECT_EQ(held, 0);
      }
    }
  }
}

TEST(ScheduleTest, PartsOfAVLieForthAndBack) {
  for (const Schedule schedule : {Schedule::kOneFOneB, Schedule::kZeroBubbleV}) {
    for (int64_t part = 0; part < 8; ++part) {
      EXPECT_EQ(PartAt(schedule, StageOfPart(schedule, part, 4), part / 4, 4), part);
    }
  }
  EXPECT_EQ(StageOfPart(Schedule::kZeroBubbleV, 4, 4), 3);
  EXPECT_EQ(StageOfPart(Schedule::kZeroBubbleV, 7, 4), 0);
}

}  // namespace
}  // namespace meshwright
