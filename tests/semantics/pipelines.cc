#include "tests/semantics/pipelines.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "ir/verify.h"
#include "planner/lower.h"
#include "planner/passes/testing.h"
#include "planner/search/feeding.h"
#include "planner/search/search.h"
#include "simulator/testing.h"
#include "tests/semantics/play.h"
#include "tools/flags.h"
#include "tools/plan_file.h"
#include "tools/session.h"

namespace meshwright {
absl::StatusOr<PlannedRun> PlanModel(const std::string& yaml, const std::function<void(Graph&)>& change) {
  Plan plan;
  MESHWRIGHT_ASSIGN_OR_RETURN(const Flags flags, Flags::Parse(StrategyFlags(), {}));
  MESHWRIGHT_ASSIGN_OR_RETURN(plan.session, OpenModel({"model.yaml", yaml}, flags));
  if (change != nullptr) {
    plan.session.problem.graph = [graph = plan.session.problem.graph, change](int64_t rows) -> absl::StatusOr<Graph> {
      MESHWRIGHT_ASSIGN_OR_RETURN(Graph changed, graph(rows));
      change(changed);
      return changed;
    };
  }
  SearchOptions options;
  options.keep = 1;
  MESHWRIGHT_ASSIGN_OR_RETURN(SearchResult found, Search(plan.session.problem, options));
  plan.strategy = std::move(found.ranked.front().strategy);
  plan.promise = PromiseOf(found.ranked.front().prediction);
  PlannedRun planned;
  planned.notices = plan.session.notices;
  planned.notices.insert(planned.notices.end(), found.warnings.begin(), found.warnings.end());
  planned.prediction = found.ranked.front().prediction;
  MESHWRIGHT_ASSIGN_OR_RETURN(planned.program, ProgramOf(plan));
  MESHWRIGHT_RETURN_IF_ERROR(VerifyProgram(planned.program));
  planned.strategy = std::move(plan.strategy);
  planned.batches = NumBatches(plan.session.problem, planned.program.ranks_per_class());
  return planned;
}

absl::StatusOr<RunResult> RunModel(const std::string& yaml, int64_t steps) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const PlannedRun planned, PlanModel(yaml));
  return RunSteps(planned.program, steps);
}

absl::StatusOr<RunResult> RunSteps(const Program& program, int64_t steps) {
  RunOptions options;
  options.steps = steps;
  options.trace = false;
  options.keep_parameters = true;
  return Play(program, options, SyntheticData(1));
}

void ExpectSameParameters(const RunResult& found, const RunResult& expected, double bound) {
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (const auto& [key, tensor] : expected.parameters) {
    EXPECT_THAT(found.parameters.at(key).values, testing::Pointwise(testing::DoubleNear(bound), tensor.values))
        << key.first << ", layer " << key.second;
  }
}

void ExpectSameTraining(const RunResult& found, const RunResult& expected, double bound) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) {
    const double loss = expected.losses[i];
    EXPECT_NEAR(found.losses[i], loss, bound == 0 ? 0 : 1e-12 * std::abs(loss)) << "step " << i + 1;
  }
  ExpectSameParameters(found, expected, bound);
}

void ExpectPlannedArenas(const RunResult& found, const Program& program) {
  for (size_t rank = 0; rank < found.arenas.size(); ++rank) {
    EXPECT_EQ(found.arenas[rank], program.classes[rank / static_cast<size_t>(program.ranks_per_class())].arena);
  }
}

void ExpectTrainsAs(const RunResult& expected, const std::string& yaml) {
  ASSERT_OK_AND_ASSIGN(const PlannedRun run, PlanModel(yaml));
  ASSERT_OK_AND_ASSIGN(const RunResult found, RunSteps(run.program, static_cast<int64_t>(expected.losses.size())));
  ExpectSameTraining(found, expected, 1e-9);
  ExpectPlannedArenas(found, run.program);
}

std::string OracleB(absl::string_view parallel, int64_t devices, const OperatorKeys& keys) {
  const auto line = [](absl::string_view text, absl::string_view more) {
    return absl::StrCat("  - {", text, more.empty() ? "" : ", ", more, "}\n");
  };
  return absl::StrCat(
      R"(name: oracle_b
inputs:
  x: {shape: [16, 32], init: {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}}
  label: {shape: [16, 16], init: {formula: {a: 5, b: 2, mod: 13, sub: 0, div: 13}}}
parameters:
  w: {shape: [32, 16], init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 20}}}
  w2: {shape: [16, 16], init: {formula: {a: 2, b: 3, mod: 5, sub: 2, div: 20}}}
operators:
)",
      line("name: matmul, op: MatMul, inputs: [x, w]", keys.matmul),
      line("name: relu, op: ReLU, inputs: [matmul]", keys.relu),
      line("name: matmul2, op: MatMul, inputs: [relu, w2]", keys.matmul2),
      line("name: loss, op: MSELoss, inputs: [matmul2, label]", keys.loss),
      "training: {dtype: float64, optimizer: {momentum: {learning_rate: 0.4, momentum: 0.1}}}\n", "parallel: {",
      absl::StrContains(parallel, "parallel_mode") ? "" : "parallel_mode: semi_auto_parallel, ", parallel,
      "}\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
}

absl::StatusOr<Graph> Stack(int64_t layers, int64_t rows) {
  constexpr int64_t kWidth = 8;
  const DType f = DType::kFloat64;
  GraphBuilder b("stack");
  const auto normal = [](double deviation) {
    Initializer init;
    init.kind = Initializer::Kind::kNormal;
    init.value = deviation;
    return init;
  };
  b.BeginSegment("embed");
  const TensorId x = b.Input("x", f, {rows, kWidth}, normal(1)), y = b.Input("y", f, {rows, kWidth}, normal(1));
  const TensorId w = b.Parameter("w", f, {kWidth, kWidth}, normal(0.5));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      TensorId h, b.AddOne({.name = "in", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k h -> m h"}));
  b.BeginSegment("layers", layers);
  const TensorId in = b.BeginCarry(h);
  const TensorId v = b.Parameter("v", f, {kWidth, 2 * kWidth}, normal(0.5));
  const TensorId u = b.Parameter("u", f, {2 * kWidth, kWidth}, normal(0.5));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      h, b.AddOne({.name = "up", .kind = OpKind::kMatMul, .inputs = {in, v}, .rule = "m h, h f -> m f"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      h,
      b.AddOne({.name = "act", .kind = OpKind::kRelu, .inputs = {h}, .rule = "m f -> m f", .recompute_group = "act"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      h, b.AddOne({.name = "down", .kind = OpKind::kMatMul, .inputs = {h, u}, .rule = "m f, f h -> m h"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(
      h, b.AddOne({.name = "sum", .kind = OpKind::kAdd, .inputs = {in, h}, .rule = "m h, m h -> m h"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(h, b.EndCarry(h));
  b.BeginSegment("head");
  OpAttrs attrs;
  attrs.scale = 1.0 / static_cast<double>(rows * kWidth);
  MESHWRIGHT_ASSIGN_OR_RETURN(
      h,
      b.AddOne({.name = "loss", .kind = OpKind::kMseLoss, .inputs = {h, y}, .rule = "m h, m h -> ", .attrs = attrs}));
  b.SetLoss(h);
  return std::move(b).Build();
}

absl::StatusOr<Program> LowerVerified(const Graph& graph, const Strategy& strategy, OpKind optimizer) {
  UpdateRule update{optimizer, {}};
  update.attrs.learning_rate = 0.05;
  update.attrs.beta1 = 0.1;
  update.attrs.beta2 = 0.99;
  return Lower(graph, strategy, update, PriceByBytes, VerifiedAfter);
}

Prices PricesOfPasses(const Program& program, Nanos forward, Nanos backward, Nanos weights) {
  Prices prices = UnitPrices(program, Nanos(0));
  for (size_t c = 0; c < program.classes.size(); ++c) {
    for (size_t b = 0; b < program.classes[c].blocks.size(); ++b) {
      const Block& block = program.classes[c].blocks[b];
      if (!absl::StartsWith(block.name, "layers")) continue;
      if (absl::EndsWith(block.name, " forward")) prices.classes[c][b][0].time = forward;
      if (absl::EndsWith(block.name, " backward")) prices.classes[c][b][0].time = backward;
      if (absl::EndsWith(block.name, " weights")) prices.classes[c][b][0].time = weights;
    }
  }
  return prices;
}

std::string PassesOf(const RankClass& rank_class) {
  std::vector<std::string> passes;
  for (const Slot& slot : rank_class.slots) {
    const std::string& name = rank_class.blocks[slot.block.index()].name;
    if (!absl::StartsWith(name, "layers")) continue;
    const char* const kind = absl::EndsWith(name, " forward")    ? "F"
                             : absl::EndsWith(name, " backward") ? "B"
                             : absl::EndsWith(name, " weights")  ? "W"
                                                                 : nullptr;
    if (kind == nullptr) continue;
    const size_t chunk = name.find("chunk ");
    std::string pass = absl::StrCat(kind, slot.microbatch,
                                    chunk == std::string::npos ? "" : absl::StrCat(".", name.substr(chunk + 6, 1)));
    if (passes.empty() || passes.back() != pass) passes.push_back(std::move(pass));
  }
  return absl::StrJoin(passes, " ");
}

}  // namespace meshwright
