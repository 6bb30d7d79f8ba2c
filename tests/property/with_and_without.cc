#include "tests/property/with_and_without.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "executor/cuda/testing/run_on_stand_ins.h"
#include "executor/data.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "ir/verify.h"

namespace meshwright {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 3;

// A few roundings to 8 bits of bfloat16, 2^-8 each, in values that the loss is a mean over.
void ExpectNear(const std::vector<double>& losses, const std::vector<double>& want) {
  ASSERT_EQ(losses.size(), want.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], want[i], 0.01 * want[i]);
}

void ExpectTheSame(const ModelRun& with, const ModelRun& without) {
  EXPECT_EQ(with.result.losses, without.result.losses);
  ASSERT_EQ(with.result.parameters.size(), without.result.parameters.size());
  for (const auto& [key, tensor] : without.result.parameters) {
    ASSERT_EQ(with.result.parameters.at(key).values, tensor.values) << key.first << ", layer " << key.second;
  }
}

void ExpectTheSameOnStandIns(const ModelRun& host, int64_t ranks, uint64_t seed) {
  const RunOptions options = {.steps = kSteps, .trace = false};
  cuda::testing::StandInMachine checked(ranks, seed), emulated(ranks, seed);
  cuda::testing::StandInRun run =
      RunOnStandIns(host.program, options, SyntheticData(1), cuda::testing::Patient(), checked);
  ASSERT_THAT(run.statuses, Each(IsOk()));
  ASSERT_THAT(checked.faults(), IsEmpty());
  EXPECT_EQ(run.result.losses, host.result.losses);
  run = RunOnStandIns(host.program, options, SyntheticData(1), cuda::testing::Patient(), emulated,
                      cuda::testing::StandInKernelKind::kEmulated);
  ASSERT_THAT(run.statuses, Each(IsOk()));
  ExpectNear(run.result.losses, host.result.losses);
}

}  // namespace

WithAndWithout ExpectTheSameWithout(const std::string& option, const std::string& model, int64_t ranks, uint64_t seed,
                                    bool to_the_bit) {
  absl::StatusOr<ModelRun> with = RunModel(model, ranks, kSteps);
  absl::StatusOr<ModelRun> without = RunModel(absl::StrCat(model, "  ", option, ": false\n"), ranks, kSteps);
  EXPECT_OK(with);
  EXPECT_OK(without);
  if (!with.ok() || !without.ok()) return {};
  EXPECT_OK(VerifyProgram(with->program));
  if (to_the_bit) {
    ExpectTheSame(*with, *without);
  } else {
    ExpectNear(with->result.losses, without->result.losses);
  }
  ExpectTheSameOnStandIns(*with, ranks, seed);
  return {*std::move(with), *std::move(without)};
}

}  // namespace meshwright
