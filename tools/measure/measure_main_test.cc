// measure where a kernel fails: the others are measured, and the files are written.
#include "tools/measure/measure_main.h"

#include <filesystem>
#include <string>
#include <vector>

#include "executor/host/run_on_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

// Fails every experiment from number `first` on, `last` excluded.
OpenPlayer Failing(int64_t first, int64_t last) {
  return [=]() -> absl::StatusOr<RankPlayer> {
    RankPlayer player;
    player.threads = [=, number = int64_t{0}](const Program& program, const RunOptions& options,
                                              const DataSource& data) mutable -> absl::StatusOr<RunResult> {
      const int64_t own = number++;
      if (own >= first && own < last) return absl::InternalError("cudaErrorIllegalAddress");
      return RunOnThreads(program, options, data);
    };
    return player;
  };
}

int MeasureQuickly(const OpenPlayer& open, const std::string& out) {
  std::vector<std::string> words = {"measure", "--quick", "--ranks=1", "--out=" + out};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return MeasureMain(static_cast<int>(argv.size()), argv.data(), open);
}

TEST(MeasureMainTest, WhatFailsLeavesTheOthers) {
  const std::string out = ::testing::TempDir() + "/machine.yaml";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(MeasureQuickly(Failing(1, 3), out), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("not measured: MatMul "));
  EXPECT_THAT(said, HasSubstr(": cudaErrorIllegalAddress\n"));
  EXPECT_TRUE(std::filesystem::exists(out));
  EXPECT_TRUE(std::filesystem::exists(::testing::TempDir() + "/machine.csv"));
}

TEST(MeasureMainTest, NothingMeasuredIsAnError) {
  const std::string out = ::testing::TempDir() + "/nothing.yaml";
  ::testing::internal::CaptureStderr();
  EXPECT_NE(MeasureQuickly(Failing(0, 1 << 20), out), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace meshwright
