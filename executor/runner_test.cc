#include "executor/runner.h"

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "executor/host/run_on_threads.h"
#include "executor/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<RunResult> RunSteps(const Program& program, int64_t steps) {
  return RunOnThreads(program, {.steps = steps, .keep_parameters = true}, SyntheticData(1));
}

// Parallel-semantics S18.1.
TEST(RunnerTest, OneRankGivesTheOraclesNumbers) {
  ASSERT_OK_AND_ASSIGN(const RunResult result, RunSteps(ProgramFromText(kOracleOneRank), 6));
  EXPECT_NEAR(result.losses[0], 0.2947824088388052, 1e-15);
  EXPECT_THAT(result.losses, ElementsAre(DoubleNear(0.294782409, 6e-10), DoubleNear(0.292738942, 6e-10),
                                         DoubleNear(0.290354212, 6e-10), DoubleNear(0.287596576, 6e-10),
                                         DoubleNear(0.284185660, 6e-10), DoubleNear(0.279603848, 6e-10)));
  EXPECT_NEAR(result.parameters.at({"w", 0}).values[0], -0.1505709677, 6e-11);
  EXPECT_NEAR(result.parameters.at({"w2", 0}).values[0], -0.0899499746, 6e-11);
}

// S18.1: losses differ by less than 2e-8; storing one as a float32 near 0.29 adds at most half of 2^-25.
TEST(RunnerTest, SinglePrecisionStaysWithinTheOraclesBound) {
  ASSERT_OK_AND_ASSIGN(const RunResult exact, RunSteps(ProgramFromText(kOracleOneRank), 6));
  ASSERT_OK_AND_ASSIGN(const RunResult single, RunSteps(ProgramFromText(kOracleOneRank, DType::kFloat32), 6));
  for (size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(single.losses[i], exact.losses[i], 2e-8 + 0x1p-26);
}

}  // namespace
}  // namespace meshwright
