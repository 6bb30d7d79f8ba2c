#include "planner/schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

constexpr const char* kNames[] = {"F", "B", "W"};

std::string Text(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks = 1) {
  std::string text;
  bool linked = false;
  for (const Pass& pass : PassesOfStage(schedule, stage, stages, microbatches, chunks)) {
    absl::StrAppend(&text,
                    linked         ? "+"
                    : text.empty() ? ""
                                   : " ",
                    kNames[static_cast<size_t>(pass.kind)], pass.microbatch);
    if (chunks > 1) absl::StrAppend(&text, ".", pass.chunk);
    linked = pass.with_next;
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
  // 2 * 7 + 4 * 8 + 1 passes of chunks first, and of each chunk as many as its groups of 8.
  const std::vector<Pass> interleaved = PassesOfStage(Schedule::kOneFOneB, 0, 8, 64, 5);
  EXPECT_EQ(MaxInFlightTogether(interleaved), 47);
  int64_t sum = 0;
  for (int64_t chunk = 0; chunk < 5; ++chunk) sum += MaxInFlight(interleaved, chunk);
  EXPECT_EQ(sum, 16 + 16 + 15 + 8 + 8);
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

// What a stage does in a step, and what of that is saved by passes that take turns.
int64_t BusyTime(const std::vector<Pass>& passes, const PassTimes& times) {
  int64_t busy = 0;
  for (const Pass& pass : passes) {
    const bool in_turns = pass.kind == PassKind::kForward && pass.with_next;
    busy += pass.kind == PassKind::kForward    ? times.forward - (in_turns ? times.saved : 0)
            : pass.kind == PassKind::kBackward ? times.backward
                                               : times.weights;
  }
  return busy;
}

// Every chunk runs every micro-batch of its direction forward, then backward, then its W.
void ExpectWhole(const std::vector<Pass>& passes, int64_t microbatches, int64_t directions) {
  std::map<std::pair<int64_t, int64_t>, std::string> runs;  // by chunk and micro-batch
  for (const Pass& pass : passes) runs[{pass.chunk, pass.microbatch}] += kNames[static_cast<size_t>(pass.kind)];
  EXPECT_EQ(runs.size(), static_cast<size_t>(2 * microbatches / directions));
  for (const auto& [key, run] : runs) {
    EXPECT_EQ(run, "FBW");
    EXPECT_EQ(directions == 2 ? key.second / (microbatches / 2) : 0, directions == 2 ? key.first : 0);
  }
}

// DeepSeek-V3's technical report, table 2, with as many stages of the model, PP, as chunks there are, PP = 2 S:
// (PP/2-1)(F&B + B' - 3 W) of a step is idle, where B' is a whole backward pass, and PP+1 chunks' activations are held.
// On the last stage exactly so where F = B; stages before it save more, and idle less, where turns save anything.
// The list: dualpipev.py of the authors' implementation, two stages and four micro-batches.
TEST(ScheduleTest, DualPipeVIsAsPublished) {
  EXPECT_EQ(Text(Schedule::kDualPipeV, 0, 2, 4, 2),
            "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 F3.0+B1.1+W1.1 F2.1+B0.0+W0.0 B2.1+W2.1 F3.1+B1.0+W1.0 B3.1+W3.1 B2.0 "
            "W2.0 B3.0 W3.0");
  EXPECT_EQ(Text(Schedule::kDualPipeV, 1, 2, 4, 2),
            "F0.0 F0.1 F1.0 F1.1 F2.0 B0.1+W0.1 F2.1+B0.0+W0.0 F3.0+B1.1+W1.1 F3.1+B1.0+W1.0 B2.1+W2.1 B2.0+W2.0 B3.1 "
            "B3.0 W3.1 W3.0");
  for (int64_t stages = 2; stages <= 8; ++stages) {
    for (int64_t microbatches = 2 * stages; microbatches <= 4 * stages; ++microbatches) {
      const std::vector<std::vector<Pass>> passes = PassesOf(Schedule::kDualPipeV, stages, microbatches, 2);
      for (const PassTimes& times : {PassTimes{1, 1, 1, 0}, PassTimes{3, 3, 2, 0}, PassTimes{5, 5, 4, 3}}) {
        SCOPED_TRACE(absl::StrCat("S ", stages, ", M ", microbatches, ", W ", times.weights, ", saved ", times.saved));
        const std::vector<std::vector<int64_t>> ends = EndsOf(Schedule::kDualPipeV, passes, times);
        ASSERT_EQ(ends.size(), static_cast<size_t>(stages));
        int64_t time = 0;
        for (const std::vector<int64_t>& of_stage : ends) time = std::max(time, of_stage.back());
        const int64_t pair = times.forward + times.backward + times.weights - times.saved;
        EXPECT_EQ(time - BusyTime(passes.back(), times), (stages - 1) * (pair + times.backward - 2 * times.weights));
      }
      for (const std::vector<Pass>& of_stage : passes) {
        ExpectWhole(of_stage, microbatches, 1);
        int64_t held = 0, most = 0;
        for (const Pass& pass : of_stage) {
          held += pass.kind == PassKind::kForward ? 1 : pass.kind == PassKind::kWeights ? -1 : 0;
          most = std::max(most, held);
        }
        EXPECT_EQ(most, 2 * stages + 1);
      }
    }
  }
}

// Each stage of DualPipe does what DualPipeV's of half the stages does with half of the micro-batches, those of the
// second half with the two directions the other way round.
TEST(ScheduleTest, DualPipeIsDualPipeVBothWays) {
  EXPECT_EQ(Text(Schedule::kDualPipe, 3, 4, 8, 2),
            "F4.1 F5.1 F6.1 F0.0 B0.0 W0.0 F1.0 F7.1+B1.0+W1.0 F2.0+B4.1+W4.1 B2.0+W2.0 F3.0+B5.1+W5.1 B3.0+W3.0 B6.1 "
            "W6.1 B7.1 W7.1");
  for (int64_t stages = 2; stages <= 8; stages += 2) {
    for (int64_t microbatches = 2 * stages; microbatches <= 4 * stages; microbatches += 2) {
      SCOPED_TRACE(absl::StrCat("S ", stages, ", M ", microbatches));
      const std::vector<std::vector<Pass>> passes = PassesOf(Schedule::kDualPipe, stages, microbatches, 2);
      for (const PassTimes& times : {PassTimes{1, 1, 1, 0}, PassTimes{5, 5, 4, 3}}) {
        const std::vector<std::vector<int64_t>> ends = EndsOf(Schedule::kDualPipe, passes, times);
        const std::vector<std::vector<int64_t>> half =
            EndsOf(Schedule::kDualPipeV, PassesOf(Schedule::kDualPipeV, stages / 2, microbatches / 2, 2), times);
        ASSERT_EQ(ends.size(), static_cast<size_t>(stages));
        for (int64_t stage = 0; stage < stages; ++stage) {
          EXPECT_EQ(ends[stage], half[std::min(stage, stages - 1 - stage)]) << "stage " << stage;
        }
      }
      for (const std::vector<Pass>& of_stage : passes) ExpectWhole(of_stage, microbatches, 2);
    }
  }
}

TEST(ScheduleTest, WhatDualPipesCannotDo) {
  EXPECT_TRUE(CheckSchedule(Schedule::kDualPipeV, 3, 6).ok());
  EXPECT_TRUE(CheckSchedule(Schedule::kDualPipe, 4, 8).ok());
  EXPECT_TRUE(CheckSchedule(Schedule::kDualPipe, 1, 1).ok());
  EXPECT_EQ(
      CheckSchedule(Schedule::kDualPipeV, 3, 5).message(),
      "found 5 micro-batches, wanted at least 6, twice the stages, with dualpipe_v; take more and smaller ones, or "
      "zero_bubble_v");
  EXPECT_EQ(CheckSchedule(Schedule::kDualPipe, 3, 6).message(),
            "found 3 pipeline stages, wanted an even number with dualpipe; or take dualpipe_v");
  EXPECT_EQ(
      CheckSchedule(Schedule::kDualPipe, 4, 9).message(),
      "found 9 micro-batches, wanted an even number of at least 8, twice the stages, with dualpipe; take more and "
      "smaller ones, or zero_bubble_v");
}

TEST(ScheduleTest, PartsOfAVLieForthAndBack) {
  for (const Schedule schedule : {Schedule::kOneFOneB, Schedule::kZeroBubbleV, Schedule::kDualPipeV}) {
    for (int64_t part = 0; part < 8; ++part) {
      EXPECT_EQ(PartAt(schedule, StageOfPart(schedule, part, 4), part / 4, 4), part);
    }
  }
  EXPECT_EQ(StageOfPart(Schedule::kZeroBubbleV, 4, 4), 3);
  EXPECT_EQ(StageOfPart(Schedule::kZeroBubbleV, 7, 4), 0);
}

}  // namespace
}  // namespace meshwright
