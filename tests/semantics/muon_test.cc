// Muon (`training: {optimizer: muon}`; Jordan et al. 2024, Liu et al., arXiv:2502.16982): matrices of products move
// along their orthogonalized momentum, all else as AdamW has it. However the model is split, it trains as on one rank.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

constexpr absl::string_view kDense = "bias: true", kGated = "activation: swiglu, norm: rms_norm, positions: rotary",
                            kTied = "tied_embeddings: true",
                            kShared = "experts: 4, experts_per_token: 2, capacity_factor: 2, shared_expert_ffn: 32";

std::string Model(absl::string_view sizes, absl::string_view optimizer, absl::string_view parallel, int64_t devices) {
  return absl::StrReplaceAll(
      R"(name: tiny
architecture:
  decoder: {layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn: 64, vocab: 128, SIZES}
training: {batch: 16, sequence: 16, dtype: float64, gradient_dtype: float64, optimizer: OPTIMIZER}
parallel: {recompute: none, PARALLEL}
cluster: {device: host, nodes: 1, devices_per_node: DEVICES}
)",
      {{"SIZES", sizes}, {"OPTIMIZER", optimizer}, {"PARALLEL", parallel}, {"DEVICES", absl::StrCat(devices)}});
}

constexpr absl::string_view kMuon = "{muon: {learning_rate: 0.02, momentum: 0.9, weight_decay: 0.1}}";

TEST(MuonTest, SplitEqualsWhole) {
  struct Case {
    absl::string_view sizes;
    int64_t devices;
    absl::string_view degrees;
  };
  const Case cases[] = {
      {kDense, 4, "data_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kDense, 8, "data_parallel: 4, tensor_parallel: 2, pipeline_stages: 1, optimizer_weight_shard_size: 2"},
      {kTied, 4, "data_parallel: 1, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: false"},
      {kGated, 8, "data_parallel: 2, tensor_parallel: 4, pipeline_stages: 1, sequence_parallel: true"},
      {kGated, 4, "data_parallel: 2, context_parallel: 2, tensor_parallel: 1, pipeline_stages: 1"},
      {kTied, 4, "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2"},
      {kDense, 4,
       "data_parallel: 1, tensor_parallel: 2, pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline_config: "
       "{pipeline_interleave: true}"},
      {kGated, 4,
       "data_parallel: 2, tensor_parallel: 1, pipeline_stages: 2, pipeline_config: {pipeline_scheduler: "
       "zero_bubble_v}"},
      {kShared, 4, "data_parallel: 4, expert_parallel: 4, tensor_parallel: 1, pipeline_stages: 1"},
      {kShared, 8, "data_parallel: 4, expert_parallel: 2, tensor_parallel: 2, pipeline_stages: 1"},
  };
  for (const Case& c : cases) {
    ASSERT_OK_AND_ASSIGN(const RunResult expected, RunModel(Model(c.sizes, kMuon, "micro_batches: 4", 1), 3));
    EXPECT_LT(expected.losses[2], expected.losses[0]);
    for (const absl::string_view sharded :
         {"enable_parallel_optimizer: false", "enable_parallel_optimizer: true, shard_parameters: false",
          "enable_parallel_optimizer: true, shard_parameters: true"}) {
      SCOPED_TRACE(absl::StrCat(c.sizes, ", ", c.degrees, ", ", sharded));
      const std::string parallel = absl::StrCat(
          c.degrees, ", micro_batches: 4, parallel_optimizer_config: {parallel_optimizer_threshold: 0}, ", sharded);
      ExpectTrainsAs(expected, Model(c.sizes, kMuon, parallel, c.devices));
    }
  }
}

// x (16, 12) times w (12, 8), by the formula: one step of it with momentum 0 takes
//   w - rate * (0.2 sqrt(12) O + decay w)
// where O is five times X <- 3.4445 X - 4.775 (X X^T) X + 2.0315 (X X^T)^2 X on the gradient over its norm. The
// gradient is what a step of SGD at rate 1 takes away.
std::string Product(absl::string_view optimizer) {
  return absl::StrReplaceAll(R"(name: product
inputs:
  x: {shape: [16, 12], init: {formula: {a: 7, b: 3, mod: 11, sub: 5, div: 11}}}
  label: {shape: [16, 8], init: {formula: {a: 5, b: 2, mod: 13, sub: 4, div: 13}}}
parameters:
  w: {shape: [12, 8], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 20}}}
operators:
  - {name: matmul, op: MatMul, inputs: [x, w]}
  - {name: loss, op: MSELoss, inputs: [matmul, label]}
training: {dtype: float64, optimizer: OPTIMIZER}
cluster: {device: host, nodes: 1, devices_per_node: 1}
)",
                             {{"OPTIMIZER", optimizer}});
}

using Matrix = std::vector<std::vector<double>>;

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}
Matrix Transposed(const Matrix& a) {
  Matrix b(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) b[j][i] = a[i][j];
  }
  return b;
}

Matrix Direction(Matrix x) {
  double squares = 0;
  for (const auto& row : x) {
    for (const double value : row) squares += value * value;
  }
  for (auto& row : x) {
    for (double& value : row) value /= std::sqrt(squares);
  }
  for (int time = 0; time < 5; ++time) {
    const Matrix once = Times(Times(x, Transposed(x)), x), twice = Times(Times(x, Transposed(x)), once);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) {
        x[i][j] = 3.4445 * x[i][j] - 4.775 * once[i][j] + 2.0315 * twice[i][j];
      }
    }
  }
  return x;
}

std::vector<double> ParameterAfter(absl::string_view optimizer, int64_t steps) {
  const absl::StatusOr<RunResult> run = RunModel(Product(optimizer), steps);
  EXPECT_OK(run);
  return run->parameters.at({"w", 0}).values;
}

TEST(MuonTest, IsItsFormula) {
  const std::vector<double> still = ParameterAfter("{sgd: {learning_rate: 0}}", 1);
  const std::vector<double> by_sgd = ParameterAfter("{sgd: {learning_rate: 1}}", 1);
  const std::vector<double> by_muon =
      ParameterAfter("{muon: {learning_rate: 0.25, momentum: 0, weight_decay: 0.5}}", 1);
  Matrix gradient(12, std::vector<double>(8));
  for (size_t i = 0; i < 96; ++i) gradient[i / 8][i % 8] = still[i] - by_sgd[i];
  const Matrix direction = Direction(gradient);
  for (size_t i = 0; i < 96; ++i) {
    const double step = 0.2 * std::sqrt(12.0) * direction[i / 8][i % 8] + 0.5 * still[i];
    EXPECT_NEAR(by_muon[i], still[i] - 0.25 * step, 1e-9) << i;
  }
  // Columns of about one, at right angles: whatever singular values the gradient had, five iterations leave 0.68
  // to 1.13.
  const Matrix gram = Times(Transposed(direction), direction);
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) EXPECT_NEAR(gram[i][j], i == j ? 1 : 0, 0.55) << i << ", " << j;
  }
}

// Gradients of 1e-300: their squares are nothing beside the 1e-14 that is added to these, and so is the direction.
TEST(MuonTest, NoGradientMovesNothing) {
  const std::vector<double> still = ParameterAfter("{sgd: {learning_rate: 0}}", 1);
  EXPECT_EQ(ParameterAfter("{muon: {learning_rate: 0}}", 2), still);
  const absl::StatusOr<RunResult> run =
      RunModel(absl::StrReplaceAll(Product("{muon: {learning_rate: 1, weight_decay: 0}}"),
                                   {{"sub: 5, div: 11", "sub: 5, div: 1.0e+300"}}),
               1);
  ASSERT_OK(run);
  const std::vector<double>& values = run->parameters.at({"w", 0}).values;
  for (size_t i = 0; i < still.size(); ++i) EXPECT_NEAR(values[i], still[i], 1e-290);
}

}  // namespace
}  // namespace meshwright
