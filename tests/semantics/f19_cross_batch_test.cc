// F19: cross_batch (S5.13): a reduction over the batch that each rank does for its own rows.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// x = [1, 2, 3, 4] times w = 1, reduced over its 4 rows and compared with 0: the loss is the square of what the
// reduction gives, and where the ranks hold results of their own it is the mean of their squares (S8.3).
std::string Reduced(const std::string& op, const std::string& keys, int64_t devices, const std::string& shard,
                    const std::string& mul_keys = "") {
  return absl::StrCat(R"(name: reduced
inputs: {x: {shape: [4, 1], init: {formula: {a: 1, b: 0, mod: 100, sub: -1, div: 1}}}}
parameters: {w: {shape: [1, 1], init: ones}, zero: {shape: [1], init: zeros, trainable: false}}
operators:
  - {name: product, op: Mul, inputs: [x, w])",
                      mul_keys, "}\n  - {name: reduced, op: ", op, ", inputs: [product], axis: 0", keys, shard, R"(}
  - {name: loss, op: MSELoss, inputs: [reduced, zero]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 1}}}
parallel: {parallel_mode: semi_auto_parallel}
cluster: {device: host, nodes: 1, devices_per_node: )",
                      devices, "}\n");
}
constexpr char kByRows[] = ", shard: [[2, 1]]";
constexpr char kOwn[] = ", cross_batch: true";

struct Outcome {
  double loss = 0, gradient = 0;  // of w
};
Outcome Train(const std::string& model) {
  Outcome outcome;
  const absl::StatusOr<RunResult> result = RunModel(model, 1);
  EXPECT_OK(result) << model;
  if (!result.ok()) return outcome;
  outcome.loss = result->losses[0];
  outcome.gradient = 1 - result->parameters.at({"w", 0}).values[0];
  return outcome;
}

// The result is w times that of [1, 2, 3, 4], so the derivative of its square at w = 1 is twice the square.
TEST(F19CrossBatch, MeansAndSumsOfTwoRanks) {
  Outcome outcome = Train(Reduced("ReduceMean", "", 2, kByRows));
  EXPECT_EQ(outcome.loss, 2.5 * 2.5);
  EXPECT_EQ(outcome.gradient, 2 * 2.5 * 2.5);
  outcome = Train(Reduced("ReduceMean", kOwn, 2, kByRows));
  EXPECT_EQ(outcome.loss, (1.5 * 1.5 + 3.5 * 3.5) / 2);
  EXPECT_EQ(outcome.gradient, 1.5 * 1.5 + 3.5 * 3.5);
  outcome = Train(Reduced("ReduceSum", "", 2, kByRows));
  EXPECT_EQ(outcome.loss, 10 * 10);
  EXPECT_EQ(outcome.gradient, 2 * 10 * 10);
  outcome = Train(Reduced("ReduceSum", kOwn, 2, kByRows));
  EXPECT_EQ(outcome.loss, (3 * 3 + 7 * 7) / 2.0);
  EXPECT_EQ(outcome.gradient, 3 * 3 + 7 * 7);
}

// What the ranks hold: two values, one each, and no all-reduce in the forward pass.
TEST(F19CrossBatch, EachRankHoldsItsOwn) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun plain, PlanModel(Reduced("ReduceMean", "", 2, kByRows)));
  EXPECT_THAT(CallsOf(plain.program, Purpose::kActivation), ElementsAre("all_reduce {0,1}: reduced"));
  EXPECT_EQ(BufferNamed(plain.program, "reduced").shape, Shape({1}));
  ASSERT_OK_AND_ASSIGN(const PlannedRun own, PlanModel(Reduced("ReduceMean", kOwn, 2, kByRows)));
  EXPECT_THAT(CallsOf(own.program, Purpose::kActivation), IsEmpty());
  const Buffer& reduced = BufferNamed(own.program, "reduced");
  EXPECT_EQ(reduced.shape, Shape({2, 1}));
  EXPECT_EQ(LocalShape(reduced.shape, reduced.layout, own.program.mesh), Shape({1, 1}));
  EXPECT_EQ(RowsOf(own.program, "reduced", 1), "1:2");
}

// On 4 ranks with the rows in 2 pieces, computed twice: the sum is each piece's, but a mean acts only where the batch
// is split over all ranks.
TEST(F19CrossBatch, AMeanNeedsTheBatchOverAllRanks) {
  EXPECT_EQ(Train(Reduced("ReduceMean", kOwn, 4, kByRows)).loss, 2.5 * 2.5);
  EXPECT_EQ(Train(Reduced("ReduceSum", kOwn, 4, kByRows)).loss, (3 * 3 + 7 * 7) / 2.0);
  EXPECT_EQ(Train(Reduced("ReduceMean", kOwn, 4, ", shard: [[4, 1]]")).loss, (1 + 4 + 9 + 16) / 4.0);
}

// No effect where the batch is whole, or on another operator (seed E sets it on Mul).
TEST(F19CrossBatch, NoEffectElsewhere) {
  EXPECT_EQ(Train(Reduced("ReduceMean", kOwn, 2, ", shard: [[1, 1]]")).loss, 2.5 * 2.5);
  const Outcome outcome = Train(Reduced("ReduceSum", "", 2, kByRows, kOwn));
  EXPECT_EQ(outcome.loss, 10 * 10);
  EXPECT_EQ(outcome.gradient, 2 * 10 * 10);
  const absl::Status status = PlanModel(Reduced("ReduceMean", ", cross_batch: 1", 2, kByRows)).status();
  EXPECT_EQ(KindOf(status), "E-TYPE") << status;
}

// Batch statistics: rows less their mean, with a product before and behind. With cross_batch each of 2 ranks normalises
// over its own 2 rows, as two devices with 2 rows each do: the loss is the mean of theirs, and so are the gradients.
std::string Normalized(const std::string& keys, int64_t devices, int64_t rows, const std::string& x,
                       const std::string& mode) {
  return absl::StrCat("name: normalized\ninputs:\n  x: {shape: [", rows, ", 2], init: ", x, "}\n  t: {shape: [", rows,
                      ", 2], init: zeros}\n", R"(parameters:
  w: {shape: [2, 2], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 4}}}
  v: {shape: [2, 2], init: {formula: {a: 2, b: 3, mod: 5, sub: 1, div: 4}}}
  g: {shape: [2], init: {constant: 0.5}}
operators:
  - {name: h, op: MatMul, inputs: [x, w]}
  - {name: mean, op: ReduceMean, inputs: [h], axis: 0)",
                      keys, R"(}
  - {name: scaled, op: Mul, inputs: [mean, g]}
  - {name: centred, op: Sub, inputs: [h, scaled]}
  - {name: y, op: MatMul, inputs: [centred, v]}
  - {name: loss, op: MSELoss, inputs: [y, t]}
training: {dtype: float64, optimizer: {sgd: {learning_rate: 0.5}}}
parallel: {parallel_mode: )",
                      mode, "}\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
}

TEST(F19CrossBatch, BatchStatisticsOfEachRank) {
  const auto x = [](int64_t first) {
    return absl::StrCat("{formula: {a: 4, b: 3, mod: 1000, sub: ", -4 * first, ", div: 8}}");
  };
  const std::string alone = "stand_alone";
  ASSERT_OK_AND_ASSIGN(const RunResult start, RunModel(Normalized("", 1, 2, x(0), alone), 0));
  ASSERT_OK_AND_ASSIGN(const RunResult first, RunModel(Normalized("", 1, 2, x(0), alone), 1));
  ASSERT_OK_AND_ASSIGN(const RunResult second, RunModel(Normalized("", 1, 2, x(2), alone), 1));
  ASSERT_OK_AND_ASSIGN(const RunResult own, RunModel(Normalized(kOwn, 2, 4, x(0), "semi_auto_parallel"), 1));
  ASSERT_OK_AND_ASSIGN(const RunResult whole, RunModel(Normalized("", 2, 4, x(0), "semi_auto_parallel"), 1));
  EXPECT_NEAR(own.losses[0], (first.losses[0] + second.losses[0]) / 2, 1e-12);
  EXPECT_GT(std::abs(own.losses[0] - whole.losses[0]), 1e-3);
  for (const char* name : {"w", "v", "g"}) {
    const std::vector<double>& from = start.parameters.at({name, 0}).values;
    for (size_t i = 0; i < from.size(); ++i) {
      const double gradients =
          2 * from[i] - first.parameters.at({name, 0}).values[i] - second.parameters.at({name, 0}).values[i];
      EXPECT_NEAR(from[i] - own.parameters.at({name, 0}).values[i], gradients / 2, 1e-12) << name << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace meshwright
