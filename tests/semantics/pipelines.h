// Pipelines as users write them, for the rows F24 to F26: the network of S18.1 cut into stages, a stack of layers, and
// the prices of S12.8. For tests only.
#ifndef MESHWRIGHT_TESTS_SEMANTICS_PIPELINES_H_
#define MESHWRIGHT_TESTS_SEMANTICS_PIPELINES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/runner.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "planner/search/evaluate.h"
#include "simulator/price.h"

namespace meshwright {

struct PlannedRun {
  Strategy strategy;
  Program program;  // verified
  std::vector<std::string> notices;
  Prediction prediction;
  int64_t batches = 1;  // RunOptions::batches
};

// What `plan` and `run` make of a model file: the fastest strategy that the file allows, and its program. `change` is
// made to the model's graph, where a file has no words for it.
absl::StatusOr<PlannedRun> PlanModel(const std::string& yaml, const std::function<void(Graph&)>& change = nullptr);

// A program on threads; with the parameters after the last step.
absl::StatusOr<RunResult> RunSteps(const Program& program, int64_t steps);
absl::StatusOr<RunResult> RunModel(const std::string& yaml, int64_t steps);

// The same parameters, each element within `bound` of the other's.
void ExpectSameParameters(const RunResult& found, const RunResult& expected, double bound);
// And the same losses, within 1e-12 of their size; bit for bit where `bound` is 0.
void ExpectSameTraining(const RunResult& found, const RunResult& expected, double bound);
// What was planned is what was allocated.
void ExpectPlannedArenas(const RunResult& found, const Program& program);
// The plan of the model file trains as `expected` did, within 1e-9, in the memory that was planned.
void ExpectTrainsAs(const RunResult& expected, const std::string& yaml);

// Oracle B' (S18.1) on so many devices with the given keys of `parallel:`, and what each operator's line says besides:
//   OracleB("pipeline_stages: 2, micro_batches: 4", 2, {.matmul2 = "pipeline_stage: 1"})
struct OperatorKeys {
  absl::string_view matmul = {}, relu = {}, matmul2 = {}, loss = {};
};
std::string OracleB(absl::string_view parallel, int64_t devices, const OperatorKeys& keys);

// A stack of layers in + relu(in v) u on (rows, 8), float64, behind a product and before a mean squared error.
absl::StatusOr<Graph> Stack(int64_t layers, int64_t rows);

// Lowers it with a price for each redistribution that counts bytes, and verifies it after every pass.
absl::StatusOr<Program> LowerVerified(const Graph& graph, const Strategy& strategy, OpKind optimizer = OpKind::kSgd);

// A layer's forward pass takes `forward`, its backward pass `backward` and that of its parameters' gradients, where
// they have one, `weights`; all else nothing (S12.8).
Prices PricesOfPasses(const Program& program, Nanos forward, Nanos backward, Nanos weights = Nanos(0));

// "F0 F1 B0 ...": the passes of a class, by the slots of the stack's layers. Passes over chunk v > 0 are "F0.v".
std::string PassesOf(const RankClass& rank_class);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_SEMANTICS_PIPELINES_H_
