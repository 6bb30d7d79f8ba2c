#include "tools/export/cpu_pace.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/quantities.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "planner/search/degrees.h"
#include "planner/search/evaluate.h"
#include "tools/export/testing.h"
#include "tools/export/trainer_prediction.h"
#include "tools/export/writers.h"

namespace meshwright {
namespace {

const Trainer& Megatron() { return kTrainers[0]; }

absl::StatusOr<Plan> With(const std::string& cluster) {
  Degrees degrees;
  degrees.data = 16;
  std::string text = Llama();
  text.resize(text.rfind("cluster:"));
  return PlanOf(absl::StrCat(text, "cluster: {device: h100-sxm, nodes: 2, devices_per_node: 8", cluster, "}\n"),
                degrees);
}

absl::StatusOr<Nanos> StepOf(const Plan& plan) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const TrainerPrediction under, PredictUnder(Megatron(), plan));
  return under.prediction.step;
}

// Six layers of width 64: next to nothing for the device, some hundreds of operators for the CPU.
TEST(CpuPaceTest, ASmallStepIsTheCpus) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, With(""));
  ASSERT_OK_AND_ASSIGN(const Nanos step, StepOf(plan));
  ASSERT_OK_AND_ASSIGN(const double share, ShareOfCpu(Megatron(), plan, step));
  EXPECT_GT(share, 0.5);
  EXPECT_LT(share, 0.9);  // a tenth of it stays
}

TEST(CpuPaceTest, IsFoundFromAStep) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, With(""));
  ASSERT_OK_AND_ASSIGN(const Nanos step, StepOf(plan));
  for (const double times : {0.5, 1.8, 2.4}) {
    ASSERT_OK_AND_ASSIGN(const Plan other, With(absl::StrCat(", cpu_slowdown: ", times)));
    ASSERT_OK_AND_ASSIGN(const Nanos measured, StepOf(other));
    EXPECT_EQ(measured > step, times > 1);
    const std::optional<double> found = CpuSlowdownFor(Megatron(), plan, step, measured);
    ASSERT_TRUE(found.has_value()) << times;
    EXPECT_NEAR(*found, times, 0.0101);  // cut in halves down to a hundredth, and rounded to one
    // What the plan says already counts.
    EXPECT_EQ(CpuSlowdownFor(Megatron(), other, measured, measured), std::nullopt);
    const std::optional<double> back = CpuSlowdownFor(Megatron(), other, measured, step);
    ASSERT_TRUE(back.has_value()) << times;
    EXPECT_NEAR(*back, 1, 0.0101);
  }
}

TEST(CpuPaceTest, NotWhereItExplainsNothing) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, With(""));
  ASSERT_OK_AND_ASSIGN(const Nanos step, StepOf(plan));
  EXPECT_EQ(CpuSlowdownFor(Megatron(), plan, step, step * 102 / 100), std::nullopt);  // near enough
  EXPECT_EQ(CpuSlowdownFor(Megatron(), plan, step, step * 4), std::nullopt);          // more than is likely
  EXPECT_EQ(CpuSlowdownFor(Megatron(), plan, step, step / 4), std::nullopt);
  // Sequences so long that kernels leave the CPU far behind: what makes the step longer is something else.
  std::string text = Llama();
  text.replace(text.find("sequence: 32"), 12, "sequence: 65536");
  Degrees degrees;
  degrees.data = 16;
  ASSERT_OK_AND_ASSIGN(const Plan large, PlanOf(text, degrees));
  ASSERT_OK_AND_ASSIGN(const Nanos seconds, StepOf(large));
  EXPECT_EQ(CpuSlowdownFor(Megatron(), large, seconds, seconds * 11 / 10), std::nullopt);
}

}  // namespace
}  // namespace meshwright
