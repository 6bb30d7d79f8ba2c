#include "tools/command.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace meshwright {
namespace {

std::string SaidDuring(std::chrono::milliseconds time, bool counts) {
  testing::internal::CaptureStderr();
  {
    Progress progress("searching");
    if (counts) progress.Update(3, 7);
    std::this_thread::sleep_for(time);
  }
  return testing::internal::GetCapturedStderr();
}

// Its first item may take longer than two seconds, which is when something is said.
TEST(ProgressTest, OneLineAfterTwoSeconds) {
  EXPECT_EQ(SaidDuring(std::chrono::milliseconds(0), true), "");
  EXPECT_EQ(SaidDuring(std::chrono::milliseconds(3500), false), "searching ...\n");
  EXPECT_EQ(SaidDuring(std::chrono::milliseconds(3500), true), "searching: 3 of 7 ...\n");
}

}  // namespace
}  // namespace meshwright
