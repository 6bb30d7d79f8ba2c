// How long searches over operators' strategies take, and how that grows with the number of operators: 64 devices,
// residual blocks x + relu(x w) w2 of (4096, 4096), each with a width of its own so that no two blocks price alike.
//
//   tools/bazel run -c opt //tests/benchmarks:strategy_search
//
// Time includes candidates and prices. `combinations10` is the logarithm of the number of plans; the label says whether
// the result is the least, and how it was found.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/dynamic_programming.h"
#include "planner/search/recursive_programming.h"

namespace meshwright {
namespace {

constexpr int64_t kRanks = 64;
constexpr int kOpsPerBlock = 4;

Graph Blocks(int64_t ops) {
  GraphBuilder b("blocks");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const auto add = [&b](std::string name, OpKind kind, std::vector<TensorId> inputs) {
    const char* const rule = kind == OpKind::kMatMul ? "m k, k n -> m n" : "";
    return *b.AddOne({.name = std::move(name), .kind = kind, .inputs = std::move(inputs), .rule = rule});
  };
  TensorId x = b.Input("x", f, {4096, 4096}, {});
  for (int64_t block = 0; block < ops / kOpsPerBlock; ++block) {
    const int64_t width = 64 * (64 + block);
    const TensorId w = b.Parameter(absl::StrCat("w", block), f, {4096, width}, {});
    const TensorId w2 = b.Parameter(absl::StrCat("v", block), f, {width, 4096}, {});
    const TensorId h = add(absl::StrCat("up", block), OpKind::kMatMul, {x, w});
    const TensorId a = add(absl::StrCat("relu", block), OpKind::kRelu, {h});
    const TensorId y = add(absl::StrCat("down", block), OpKind::kMatMul, {a, w2});
    x = add(absl::StrCat("add", block), OpKind::kAdd, {x, y});
  }
  return std::move(b).Build();
}

absl::StatusOr<OperatorPlan> Plan(const Graph& graph, const Mesh& mesh, const CostModelKnobs& knobs, double capacity) {
  const auto costs = CompatibleCosts::Make(graph, mesh, kRanks, knobs, false);
  OperatorProblem problem;
  problem.graph = &graph;
  problem.mesh = &mesh;
  problem.prices = &*costs;
  problem.ranks_per_stage = kRanks;
  problem.knobs = knobs;
  problem.memory_capacity = capacity;
  return PlanByDynamicProgramming(problem);
}

void Run(benchmark::State& state, const CostModelKnobs& knobs, double share_of_memory) {
  const Graph graph = Blocks(state.range(0));
  const Mesh mesh = Mesh::Factored(1, kRanks);
  double capacity = 1e15;
  if (share_of_memory < 1) capacity = Plan(graph, mesh, knobs, capacity)->cost.memory * share_of_memory;
  absl::StatusOr<OperatorPlan> plan = absl::UnknownError("");
  for (auto _ : state) plan = Plan(graph, mesh, knobs, capacity);
  if (!plan.ok()) {
    state.SkipWithError(plan.status().ToString().c_str());
    return;
  }
  state.counters["combinations10"] = std::log10(plan->combinations);
  state.SetLabel(absl::StrCat(plan->exact ? "the least" : "not proven", "; ", plan->how));
  state.SetComplexityN(state.range(0));
}

void BM_DynamicProgramming(benchmark::State& state) { Run(state, {}, 1); }
BENCHMARK(BM_DynamicProgramming)
    ->ArgName("operators")
    ->Arg(50)
    ->Arg(100)
    ->Arg(200)
    ->Arg(400)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

// With that many hundredths of the memory that the best plan would take.
void BM_DynamicProgrammingMemoryBinds(benchmark::State& state) {
  Run(state, {}, static_cast<double>(state.range(1)) / 100);
}
BENCHMARK(BM_DynamicProgrammingMemoryBinds)
    ->ArgNames({"operators", "memory"})
    ->ArgsProduct({{50, 100, 200, 400}, {90, 50}})
    ->Unit(benchmark::kMillisecond);

void BM_RecursiveProgramming(benchmark::State& state) {
  const Graph graph = Blocks(state.range(0));
  const Mesh mesh = Mesh::Factored(1, kRanks);
  RecursiveProblem problem;
  problem.graph = &graph;
  problem.mesh = &mesh;
  problem.ranks_per_stage = kRanks;
  for (auto _ : state) benchmark::DoNotOptimize(PlanByRecursiveProgramming(problem));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(BM_RecursiveProgramming)
    ->ArgName("operators")
    ->Arg(50)
    ->Arg(100)
    ->Arg(200)
    ->Arg(400)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

}  // namespace
}  // namespace meshwright

BENCHMARK_MAIN();
