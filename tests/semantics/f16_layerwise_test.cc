// F16: layerwise_parallel (S8.9) and parameter_broadcast (S8.10).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"
#include "tests/semantics/play.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// y = a w + b e on 2 ranks, one row each; at w = e = 0 and t = -1/2 the derivative of a rank's squared error with
// respect to y is 1, so the gradients are a and b of the rank's row: w: 1, 3 and e: 10, 20 (S8.9). SGD takes them off.
std::string Toy(const std::string& parallel, const std::string& flag = ", layerwise_parallel: true") {
  return absl::StrCat(R"(name: toy
inputs:
  a: {shape: [2, 1], init: {formula: {a: 2, b: 0, mod: 100, sub: -1, div: 1}}}
  b: {shape: [2, 1], init: {formula: {a: 10, b: 0, mod: 100, sub: -10, div: 1}}}
  t: {shape: [2, 1], init: {constant: -0.5}}
parameters: {w: {shape: [1, 1], init: zeros}, e: {shape: [1, 1], init: zeros)",
                      flag, R"(}}
operators:
  - {name: aw, op: MatMul, inputs: [a, w]}
  - {name: be, op: Mul, inputs: [b, e]}
  - {name: y, op: Add, inputs: [aw, be]}
  - {name: loss, op: MSELoss, inputs: [y, t]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 1}}}
cluster: {device: host, nodes: 1, devices_per_node: 2}
parallel: {)",
                      parallel, "}\n");
}

// What one step took off w and off each rank's e.
struct Gradients {
  std::vector<double> w, e;
};
Gradients After(const std::string& model) {
  Gradients gradients;
  const absl::StatusOr<RunResult> result = RunModel(model, 1);
  EXPECT_OK(result) << model;
  if (!result.ok()) return gradients;
  for (double value : result->parameters.at({"w", 0}).values) gradients.w.push_back(-value);
  for (double value : result->parameters.at({"e", 0}).values) gradients.e.push_back(-value);
  return gradients;
}

TEST(F16Layerwise, EveryRankTrainsItsOwn) {
  for (const char* mode : {"parallel_mode: hybrid_parallel", "parallel_mode: data_parallel"}) {
    SCOPED_TRACE(mode);
    const Gradients sum = After(Toy(mode));
    EXPECT_THAT(sum.w, ElementsAre(4));
    EXPECT_THAT(sum.e, ElementsAre(10, 20));  // of rank 0 and of rank 1
    const Gradients mean = After(Toy(absl::StrCat(mode, ", gradients_mean: true")));
    EXPECT_THAT(mean.w, ElementsAre(2));
    EXPECT_THAT(mean.e, ElementsAre(10, 20));
    // Only w's gradient is communicated.
    ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(Toy(mode)));
    EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient), ElementsAre("all_reduce {0,1}: dw"));
    // Without the flag both are.
    const Gradients shared = After(Toy(mode, ""));
    EXPECT_THAT(shared.w, ElementsAre(4));
    EXPECT_THAT(shared.e, ElementsAre(30));
  }
}

// In semi-automatic and automatic parallelism the flag is ignored: the gradient of the mean over both rows.
TEST(F16Layerwise, IgnoredWhereThePlannerSplits) {
  for (const char* mode : {"parallel_mode: semi_auto_parallel", "parallel_mode: auto_parallel"}) {
    const Gradients gradients = After(Toy(mode));
    EXPECT_THAT(gradients.w, ElementsAre(2)) << mode;
    EXPECT_THAT(gradients.e, ElementsAre(15)) << mode;
  }
}

// Ranks that draw different values (seed_per_rank): y = x w, and a layerwise v.
std::string Drawn(const std::string& parallel) {
  return absl::StrCat(R"(name: drawn
inputs: {x: {shape: [4, 2]}, t: {shape: [4, 2]}}
parameters: {w: {shape: [2, 2], init: {normal: 1}}, v: {shape: [2, 2], init: {normal: 1}, layerwise_parallel: true}}
operators:
  - {name: h, op: MatMul, inputs: [x, w]}
  - {name: y, op: MatMul, inputs: [h, v]}
  - {name: loss, op: MSELoss, inputs: [y, t]}
training: {dtype: float64, seed_per_rank: true}
cluster: {device: host, nodes: 1, devices_per_node: 4}
parallel: {)",
                      parallel, "}\n");
}

absl::StatusOr<RunResult> RunDrawn(const std::string& parallel, uint64_t seed, bool per_rank) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const PlannedRun planned, PlanModel(Drawn(parallel)));
  RunOptions options;
  options.steps = 0;
  options.trace = false;
  options.keep_parameters = true;
  options.seed = seed;
  options.seed_per_rank = per_rank;
  return Play(planned.program, options, SyntheticData(1));
}

// What all ranks hold at the end is read from the last of them: rank 3's own w, or rank 0's.
TEST(F16Layerwise, ParameterBroadcastSendsRankZerosValues) {
  const std::string data = "parallel_mode: data_parallel";
  ASSERT_OK_AND_ASSIGN(const RunResult rank_0, RunDrawn(data, 1, false));
  ASSERT_OK_AND_ASSIGN(const RunResult rank_3, RunDrawn(data, 4, false));
  ASSERT_OK_AND_ASSIGN(const RunResult each, RunDrawn(data, 1, true));
  ASSERT_OK_AND_ASSIGN(const RunResult sent, RunDrawn(data + ", parameter_broadcast: true", 1, true));
  EXPECT_NE(rank_0.parameters.at({"w", 0}).values, rank_3.parameters.at({"w", 0}).values);
  EXPECT_EQ(each.parameters.at({"w", 0}).values, rank_3.parameters.at({"w", 0}).values);
  EXPECT_EQ(sent.parameters.at({"w", 0}).values, rank_0.parameters.at({"w", 0}).values);
  // A flagged parameter is left out: every rank keeps what it drew.
  EXPECT_EQ(sent.parameters.at({"v", 0}).values, each.parameters.at({"v", 0}).values);
  EXPECT_NE(sent.parameters.at({"v", 0}).values, rank_0.parameters.at({"v", 0}).values);
}

// One broadcast before the first step, none in a step.
TEST(F16Layerwise, TheBroadcastIsInTheProgram) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned,
                       PlanModel(Drawn("parallel_mode: data_parallel, parameter_broadcast: true")));
  const RankClass& c = planned.program.classes[0];
  ASSERT_EQ(c.start.size(), 1u);
  const Block& block = c.blocks[c.start[0].block.index()];
  ASSERT_EQ(block.instructions.size(), 1u);
  const auto& call = std::get<Collective>(block.instructions[0].work);
  EXPECT_EQ(call.kind, CollectiveKind::kBroadcast);
  EXPECT_EQ(call.root, 0);
  EXPECT_EQ(GroupsOf(planned.program, call.axes), "{0,1,2,3}");
  EXPECT_EQ(block.instructions[0].reads.size(), 1u);  // w
  EXPECT_THAT(CallsOf(planned.program, Purpose::kParameter), IsEmpty());
}

TEST(F16Layerwise, ParameterBroadcastIsForModesByHand) {
  for (const char* mode : {"stand_alone", "semi_auto_parallel", "auto_parallel"}) {
    const absl::Status status =
        PlanModel(Drawn(absl::StrCat("parallel_mode: ", mode, ", parameter_broadcast: true"))).status();
    EXPECT_EQ(KindOf(status), "E-STATE") << status;
  }
  const absl::Status status = PlanModel(Drawn("parallel_mode: data_parallel, parameter_broadcast: 1")).status();
  EXPECT_EQ(KindOf(status), "E-TYPE") << status;
}

}  // namespace
}  // namespace meshwright
