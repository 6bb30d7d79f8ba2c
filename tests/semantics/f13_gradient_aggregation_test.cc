// F13: gradients across ranks in semi-automatic parallelism (S8.1 to S8.5, S8.11).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSemi[] = "parallel_mode: semi_auto_parallel";

// S18.1: losses 1 to 6 with lr 0.4, and w[0,0], w2[0,0] after them.
constexpr double kLosses[] = {0.294782409, 0.292738942, 0.290354212, 0.287596576, 0.284185660, 0.279603848};

RunResult OneDevice() {
  const absl::StatusOr<RunResult> result = RunModel(OracleB("parallel_mode: stand_alone", 1, {}), 6);
  EXPECT_OK(result);
  return *result;
}

// S8.4: whatever the strategies, losses and parameters are those of one device (S0.4: 1e-12 in float64).
void ExpectOneDevice(const RunResult& result) {
  const RunResult one = OneDevice();
  ASSERT_EQ(result.losses.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(result.losses[i], kLosses[i], 5e-10) << "step " << i + 1;  // the table has nine decimals
  }
  ExpectSameTraining(result, one, 1e-12);
  EXPECT_NEAR(result.parameters.at({"w", 0}).values[0], -0.1505709677, 5e-11);
  EXPECT_NEAR(result.parameters.at({"w2", 0}).values[0], -0.0899499746, 5e-11);
}

TEST(F13GradientAggregation, EveryStrategyTrainsAsOneDevice) {
  // S5.6, S4.7 (computed twice), and three of S5.8.
  for (const char* shard :
       {"[[2, 4], [4, 1]]", "[[2, 2], [2, 1]]", "[[4, 1], [1, 2]]", "[[1, 8], [8, 1]]", "[[1, 1], [1, 8]]"}) {
    SCOPED_TRACE(shard);
    const std::string keys = absl::StrCat("shard: ", shard);
    ASSERT_OK_AND_ASSIGN(const RunResult result, RunModel(OracleB(kSemi, 8, {.matmul = keys}), 6));
    ExpectOneDevice(result);
    // S0.4: all ranks see the same loss, bit for bit.
    for (const std::vector<double>& losses : result.rank_losses) EXPECT_EQ(losses, result.losses);
  }
}

// S5.6: the gradient of w is summed over {0,4} {1,5} {2,6} {3,7}; w2 is whole on all 8.
TEST(F13GradientAggregation, OneSumPerParameterOverItsReplicas) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(OracleB(kSemi, 8, {.matmul = "shard: [[2, 4], [4, 1]]"})));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient),
              ElementsAre("all_reduce {0,4} {1,5} {2,6} {3,7}: dw", "all_reduce {0,1,2,3,4,5,6,7}: dw2"));
}

// S4.7: w's replicas are {0,1,4,5} and {2,3,6,7}. Ranks 0 and 1 repeat one calculation and so hold the same gradient;
// what is left to add is over {0,4} and {1,5}. After the step all four hold the same w, bit for bit.
TEST(F13GradientAggregation, RepeatedCalculation) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(OracleB(kSemi, 8, {.matmul = "shard: [[2, 2], [2, 1]]"})));
  const Program& program = planned.program;
  EXPECT_THAT(CallsOf(program, Purpose::kGradient), Contains("all_reduce {0,4} {1,5} {2,6} {3,7}: dw"));
  for (int64_t rank : {0, 1, 4, 5}) EXPECT_EQ(RowsOf(program, "w", rank), "0:16");
  for (int64_t rank : {2, 3, 6, 7}) EXPECT_EQ(RowsOf(program, "w", rank), "16:32");
}

// S8.2: a group of one reduces nothing; a parameter that is not trained has no gradient; one with two users has one
// sum.
TEST(F13GradientAggregation, WhatIsNotReduced) {
  ASSERT_OK_AND_ASSIGN(PlannedRun planned, PlanModel(OracleB(kSemi, 8, {.matmul = "shard: [[1, 1], [1, 8]]"})));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient), ElementsAre("all_reduce {0,1,2,3,4,5,6,7}: dw2"));
  const auto model = [](const std::string& trainable) {
    return absl::StrCat(R"(name: twice
inputs: {x: {shape: [8, 4]}, y: {shape: [8, 4]}}
parameters: {w: {shape: [4, 4]}, frozen: {shape: [4, 4])",
                        trainable, R"(}}
operators:
  - {name: one, op: MatMul, inputs: [x, w]}
  - {name: two, op: MatMul, inputs: [one, w]}
  - {name: three, op: MatMul, inputs: [two, frozen]}
  - {name: loss, op: MSELoss, inputs: [three, y]}
training: {dtype: float64}
parallel: {parallel_mode: semi_auto_parallel}
cluster: {device: host, nodes: 1, devices_per_node: 8}
)");
  };
  ASSERT_OK_AND_ASSIGN(planned, PlanModel(model(", trainable: false")));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient), ElementsAre("all_reduce {0,1,2,3,4,5,6,7}: dw"));
}

// S8.4: with gradients_mean every gradient is divided by the parameter's own replicas: w (S4.7) by 4, w2 by 8. One step
// of momentum from rest takes lr x gradient off, so the differences to the start say it.
TEST(F13GradientAggregation, GradientsMeanDividesByTheReplicas) {
  const std::string shard = "shard: [[2, 2], [2, 1]]";
  ASSERT_OK_AND_ASSIGN(const RunResult start, RunModel(OracleB(kSemi, 8, {.matmul = shard}), 0));
  ASSERT_OK_AND_ASSIGN(const RunResult sum, RunModel(OracleB(kSemi, 8, {.matmul = shard}), 1));
  const std::string mean_knobs = absl::StrCat(kSemi, ", gradients_mean: true");
  ASSERT_OK_AND_ASSIGN(const RunResult mean, RunModel(OracleB(mean_knobs, 8, {.matmul = shard}), 1));
  const auto moved = [&](const RunResult& after, const char* name) {
    return start.parameters.at({name, 0}).values[0] - after.parameters.at({name, 0}).values[0];
  };
  // S18.1: dL/dw[0,0] = 0.0008218043498, dL/dw2[0,0] = -0.0042221937331; times lr 0.4.
  EXPECT_NEAR(moved(sum, "w"), 0.4 * 0.0008218043498, 1e-13);
  EXPECT_NEAR(moved(sum, "w2"), 0.4 * -0.0042221937331, 1e-13);
  EXPECT_NEAR(moved(mean, "w"), 0.4 * 0.0008218043498 / 4, 1e-13);
  EXPECT_NEAR(moved(mean, "w2"), 0.4 * -0.0042221937331 / 8, 1e-13);
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(OracleB(mean_knobs, 8, {.matmul = shard})));
  EXPECT_THAT(planned.notices, Contains(HasSubstr("gradients_mean divides each gradient by the replicas of its own "
                                                  "parameter: w by 4, w2 by 8")));
  // Where all have as many replicas, nothing is said.
  ASSERT_OK_AND_ASSIGN(const PlannedRun alike,
                       PlanModel(OracleB(mean_knobs, 8, {.matmul = "shard: [[8, 1], [1, 1]]"})));
  EXPECT_THAT(alike.notices, IsEmpty());
}

// S8.11: each rank starts from its slice of one random tensor.
TEST(F13GradientAggregation, InitialValuesAreSlicesOfOneTensor) {
  const auto model = [](int64_t devices, const char* parallel) {
    return absl::StrCat(R"(name: start
inputs: {x: {shape: [8, 16]}, y: {shape: [8, 8]}}
parameters: {w: {shape: [16, 8], init: normal}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w], shard: [[2, 2], [2, 2]]}
  - {name: loss, op: MSELoss, inputs: [matmul, y]}
training: {dtype: float64}
parallel: {parallel_mode: )",
                        parallel, "}\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
  };
  ASSERT_OK_AND_ASSIGN(const RunResult one, RunModel(model(1, "stand_alone"), 0));
  ASSERT_OK_AND_ASSIGN(const RunResult eight, RunModel(model(8, "semi_auto_parallel"), 0));
  EXPECT_EQ(one.parameters.at({"w", 0}).values, eight.parameters.at({"w", 0}).values);
}

}  // namespace
}  // namespace meshwright
