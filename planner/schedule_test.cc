#include "planner/schedule.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

std::string Text(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches) {
  std::string text;
  for (const Pass& pass : PassesOf(schedule, stage, stages, microbatches)) {
    absl::StrAppend(&text, text.empty() ? "" : " ", pass.phase == Phase::kForward ? "F" : "B", pass.microbatch);
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
  EXPECT_EQ(MaxInFlight(PassesOf(Schedule::kOneFOneB, 0, 2, 4)), 2);
  EXPECT_EQ(MaxInFlight(PassesOf(Schedule::kOneFOneB, 3, 4, 8)), 1);
  EXPECT_EQ(MaxInFlight(PassesOf(Schedule::kOneFOneB, 0, 4, 2)), 2);
  EXPECT_EQ(MaxInFlight(PassesOf(Schedule::kGpipe, 3, 4, 8)), 8);
}

}  // namespace
}  // namespace meshwright
