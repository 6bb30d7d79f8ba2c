// F28: dynamic programming. Both tables of S15.4 on S14.9's chain, against all of its combinations; E-PLAN (R27); the
// knobs that change what is looked at; parameters with several users (S5.15); strategies of the user.
// tests/property:dynamic_programming_test holds it to exhaustive search on random graphs.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/status.h"
#include "ir/testing.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/dynamic_programming.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRanks = 4;

// A problem on 4 devices whose prices live as long as it.
struct Setting {
  explicit Setting(absl::StatusOr<Graph> built, const CostModelKnobs& knobs = {})
      : graph(*std::move(built)),
        mesh(Mesh::Factored(1, kRanks)),
        costs(*CompatibleCosts::Make(graph, mesh, kRanks, knobs, false)) {
    problem.graph = &graph;
    problem.mesh = &mesh;
    problem.prices = &costs;
    problem.ranks_per_stage = kRanks;
    problem.knobs = knobs;
    problem.memory_capacity = static_cast<double>(knobs.device_memory_capacity.raw());
  }
  Setting(const Setting&) = delete;

  // "(4,1,1)": pieces of each label.
  std::string Pieces(const std::string& name, const OpStrategy& strategy) const {
    const Assignment assignment = *AssignmentOf(graph.op(graph.FindOp(name)), graph, strategy, mesh);
    std::vector<int64_t> pieces;
    for (const AxisList& axes : assignment) pieces.push_back(mesh.SizeOf(axes));
    return absl::StrCat("(", absl::StrJoin(pieces, ","), ")");
  }
  std::string Chosen(const OperatorPlan& plan) const {
    std::vector<std::string> parts;
    for (const Op& op : graph.ops) parts.push_back(Pieces(op.name, plan.ops.at(op.name)));
    return absl::StrJoin(parts, " ");
  }
  OpStrategy Tuples(const std::string& name, const std::vector<std::vector<int64_t>>& tuples) const {
    return *FromTuples(graph.op(graph.FindOp(name)), graph, tuples, mesh, kRanks);
  }

  Graph graph;
  Mesh mesh;
  CompatibleCosts costs;
  OperatorProblem problem;
};

// Every combination's weighted cost and choices, the least first.
std::vector<std::pair<double, std::string>> AllOf(const Setting& setting) {
  const auto found = ChoicesOf(setting.problem);
  EXPECT_OK(found);
  const OperatorChoices& choices = *found;
  std::vector<std::pair<double, std::string>> all;
  std::vector<size_t> at(choices.graph.nodes.size(), 0);
  while (true) {
    Cost cost;
    for (size_t v = 0; v < at.size(); ++v) cost += choices.graph.nodes[v][at[v]];
    for (const ChoiceGraph::Edge& edge : choices.graph.edges) {
      cost += edge.costs[at[edge.from] * choices.graph.nodes[edge.to].size() + at[edge.to]];
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < setting.graph.ops.size(); ++i) {
      names.push_back(setting.Pieces(setting.graph.ops[i].name, choices.candidates[i][at[choices.node[i]]].strategy));
    }
    const CostModelKnobs& knobs = setting.problem.knobs;
    if (cost.memory <= setting.problem.memory_capacity) {
      all.push_back({knobs.alpha * cost.computation + knobs.beta * cost.communication, absl::StrJoin(names, " ")});
    }
    size_t v = 0;
    while (v < at.size() && ++at[v] == choices.graph.nodes[v].size()) at[v++] = 0;
    if (v == at.size()) break;
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return all;
}

TEST(DynamicProgrammingTest, SettingsOfTheChain) {
  struct Row {
    const char* setting;
    double alpha, beta, gamma;
    const char* chosen;
    double computation, partial;
    const char* objective;
  };
  const std::vector<Row> rows = {
      {"defaults", 1, 50, 0.001, "(4,1,1) (4,1) (4,1,1)", 65533, 49.152, "67990.6"},
      {"beta 400", 1, 400, 0.001, "(4,1,1) (4,1) (4,1,1)", 65533, 49.152, "85193.8"},
      {"gamma 0", 1, 50, 0, "(4,1,1) (4,1) (4,1,1)", 65533, 0, "65533.0"},
      {"gamma 0.1", 1, 50, 0.1, "(1,1,1) (1,1) (1,1,4)", 102400, 3276.8, "266240.0"},
      {"gamma 1", 1, 50, 1, "(1,1,4) (1,4) (1,1,4)", 102400, 12288, "716800.0"},
  };
  for (const Row& row : rows) {
    CostModelKnobs knobs;
    knobs.alpha = row.alpha;
    knobs.beta = row.beta;
    knobs.gamma = row.gamma;
    const Setting setting(BuildChain(), knobs);
    ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
    EXPECT_EQ(setting.Chosen(plan), row.chosen) << row.setting;
    EXPECT_EQ(plan.cost.computation, row.computation) << row.setting;
    EXPECT_NEAR(plan.cost.communication, row.partial, 1e-9) << row.setting;
    EXPECT_EQ(absl::StrFormat("%.1f", plan.weighted), row.objective) << row.setting;
    EXPECT_EQ(plan.combinations, 7 * 4 * 7) << row.setting;
    EXPECT_TRUE(plan.exact);
    EXPECT_EQ(plan.how, "1 operator, 1 merge");
    const auto all = AllOf(setting);
    EXPECT_EQ(all.size(), 7 * 4 * 7);
    EXPECT_NEAR(all[0].first, plan.weighted, 1e-9 * plan.weighted);
    EXPECT_EQ(all[0].second, row.chosen) << row.setting;
  }
  const auto all = AllOf(Setting(BuildChain()));
  EXPECT_EQ(absl::StrFormat("%.1f", all[1].first), "104038.4");  // the runner-up
  EXPECT_EQ(all[1].second, "(1,1,1) (1,1) (1,1,4)");
}

TEST(DynamicProgrammingTest, CapacitiesOfTheChain) {
  struct Row {
    int64_t capacity;
    const char* chosen;
    double memory;
    const char* objective;
  };
  const std::vector<Row> rows = {
      {61440, "(4,1,1) (4,1) (4,1,1)", 61440, "67990.6"},   {60000, "(2,1,2) (2,2) (2,1,2)", 45056, "484556.8"},
      {45055, "(2,1,2) (2,2) (1,1,4)", 40960, "799539.2"},  {36864, "(1,4,1) (1,1) (1,1,4)", 36864, "940032.0"},
      {30000, "(1,4,1) (4,1) (2,1,2)", 28672, "1378712.6"}, {24576, "(1,4,1) (4,1) (1,1,4)", 24576, "1562623.0"},
  };
  for (const Row& row : rows) {
    CostModelKnobs knobs;
    knobs.device_memory_capacity = Bytes(row.capacity);
    const Setting setting(BuildChain(), knobs);
    ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
    EXPECT_EQ(setting.Chosen(plan), row.chosen) << row.capacity;
    EXPECT_EQ(plan.cost.memory, row.memory) << row.capacity;
    EXPECT_EQ(absl::StrFormat("%.1f", plan.weighted), row.objective) << row.capacity;
    EXPECT_TRUE(plan.exact);
    EXPECT_NEAR(AllOf(setting)[0].first, plan.weighted, 1e-9 * plan.weighted) << row.capacity;
  }
  // R27.
  CostModelKnobs knobs;
  knobs.device_memory_capacity = Bytes(24575);
  const absl::Status status = PlanByDynamicProgramming(Setting(BuildChain(), knobs).problem).status();
  EXPECT_EQ(KindOf(status), "E-PLAN");
  EXPECT_THAT(std::string(status.message()), HasSubstr("the capacity is 24575 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the smallest memory of any plan is 24576 bytes"));
}

// What changes nothing of the result but how it is found.
TEST(DynamicProgrammingTest, DominatedCostsMayBeKept) {
  CostModelKnobs knobs;
  knobs.device_memory_capacity = Bytes(30000);
  knobs.simplify_cal = false;
  ASSERT_OK_AND_ASSIGN(const OperatorPlan all, PlanByDynamicProgramming(Setting(BuildChain(), knobs).problem));
  EXPECT_EQ(absl::StrFormat("%.1f", all.weighted), "1378712.6");
  EXPECT_TRUE(all.exact);
}

TEST(DynamicProgrammingTest, ElementwiseOperatorsFollow) {
  CostModelKnobs knobs;
  knobs.elementwise_op_strategy_follow = true;
  const Setting setting(BuildChain(), knobs);
  ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
  EXPECT_EQ(plan.combinations, 7 * 7);
  // matmul1 is fixed to leave its result as columns; relu follows, though rows would cost less behind (2, 1, 2).
  Setting fixed(BuildChain(), knobs);
  fixed.problem.configured["matmul1"] = fixed.Tuples("matmul1", {{1, 2}, {2, 2}});
  ASSERT_OK_AND_ASSIGN(const OperatorPlan follows, PlanByDynamicProgramming(fixed.problem));
  EXPECT_EQ(fixed.Pieces("relu", follows.ops.at("relu")), "(1,2)");  // a repeat of 2, as matmul1 leaves it
}

TEST(DynamicProgrammingTest, StrategiesOfTheUserStay) {
  Setting setting(BuildChain());
  setting.problem.configured["relu"] = setting.Tuples("relu", {{1, 4}});
  ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
  EXPECT_EQ(setting.Pieces("relu", plan.ops.at("relu")), "(1,4)");
  EXPECT_EQ(plan.combinations, 7 * 7);
  EXPECT_NEAR(AllOf(setting)[0].first, plan.weighted, 1e-9 * plan.weighted);
}

// x1 w and x2 w, both into an Add: the parameter has one layout.
TEST(DynamicProgrammingTest, UsersOfAParameterAgree) {
  GraphBuilder b("shared");
  b.BeginSegment("model");
  const DType f = DType::kFloat32;
  const TensorId x = b.Input("x", f, {64, 32}, {}), w = b.Parameter("w", f, {32, 32}, {});
  ASSERT_OK_AND_ASSIGN(
      const TensorId y,
      b.AddOne({.name = "first", .kind = OpKind::kMatMul, .inputs = {x, w}, .rule = "m k, k n -> m n"}));
  ASSERT_OK(
      b.AddOne({.name = "second", .kind = OpKind::kMatMul, .inputs = {y, w}, .rule = "m k, k n -> m n"}).status());
  for (const double gamma : {0.0, 0.001, 0.1, 1.0}) {
    CostModelKnobs knobs;
    knobs.gamma = gamma;
    const Setting setting(b.graph(), knobs);
    ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
    EXPECT_TRUE(SamePlacement({32, 32}, plan.ops.at("first").inputs[1], plan.ops.at("second").inputs[1], setting.mesh));
    EXPECT_NEAR(AllOf(setting)[0].first, plan.weighted, 1e-9 * plan.weighted);
  }
}

// Two chains side by side.
TEST(DynamicProgrammingTest, SeveralParts) {
  GraphBuilder b("two");
  b.BeginSegment("model");
  for (const char* name : {"left", "right"}) {
    const TensorId x = b.Input(absl::StrCat(name, "_x"), DType::kFloat32, {64, 32}, {});
    ASSERT_OK(b.AddOne({.name = name, .kind = OpKind::kRelu, .inputs = {x}}).status());
  }
  CostModelKnobs knobs;
  const absl::Status status = PlanByDynamicProgramming(Setting(b.graph(), knobs).problem).status();
  EXPECT_EQ(KindOf(status), "E-STATE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("multi_subgraphs"));
  knobs.multi_subgraphs = true;
  const Setting setting(b.graph(), knobs);
  ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(setting.problem));
  EXPECT_EQ(setting.Chosen(plan), "(4,1) (4,1)");
}

// Layers of a product and a relu, (64, 32) (32, 32).
absl::StatusOr<Graph> Layers(int layers) {
  GraphBuilder b("layers");
  b.BeginSegment("model");
  TensorId x = b.Input("x", DType::kFloat32, {64, 32}, {});
  for (int layer = 0; layer < layers; ++layer) {
    const TensorId w = b.Parameter(absl::StrCat("w", layer), DType::kFloat32, {32, 32}, {});
    MESHWRIGHT_ASSIGN_OR_RETURN(x, b.AddOne({.name = absl::StrCat("matmul", layer),
                                             .kind = OpKind::kMatMul,
                                             .inputs = {x, w},
                                             .rule = "m k, k n -> m n"}));
    MESHWRIGHT_ASSIGN_OR_RETURN(x,
                                b.AddOne({.name = absl::StrCat("relu", layer), .kind = OpKind::kRelu, .inputs = {x}}));
  }
  return std::move(b).Build();
}

TEST(DynamicProgrammingTest, RepeatedLayersAreSplitAlike) {
  CostModelKnobs knobs;
  knobs.gamma = 0.1;
  ASSERT_OK_AND_ASSIGN(const OperatorPlan free, PlanByDynamicProgramming(Setting(Layers(3), knobs).problem));
  EXPECT_EQ(free.combinations, 7. * 4 * 7 * 4 * 7 * 4);
  knobs.dp_algo_single_loop = true;
  const Setting setting(Layers(3), knobs);
  ASSERT_OK_AND_ASSIGN(const OperatorPlan alike, PlanByDynamicProgramming(setting.problem));
  // The first product reads an input, which needs no gradient: it is not like the others. relu0 matmul1 is like relu1
  // matmul2.
  EXPECT_EQ(alike.combinations, 7. * 4 * 7 * 4);
  EXPECT_EQ(setting.Pieces("matmul1", alike.ops.at("matmul1")), setting.Pieces("matmul2", alike.ops.at("matmul2")));
  EXPECT_GE(alike.weighted, free.weighted);
  EXPECT_NEAR(AllOf(setting)[0].first, alike.weighted, 1e-9 * alike.weighted);
}

TEST(DynamicProgrammingTest, FewCostsAListAreAnApproximation) {
  CostModelKnobs knobs;
  ASSERT_OK_AND_ASSIGN(const OperatorPlan free, PlanByDynamicProgramming(Setting(Layers(6), knobs).problem));
  knobs.device_memory_capacity = Bytes(static_cast<int64_t>(free.cost.memory) * 3 / 4);
  ASSERT_OK_AND_ASSIGN(const OperatorPlan best, PlanByDynamicProgramming(Setting(Layers(6), knobs).problem));
  EXPECT_TRUE(best.exact);
  knobs.dp_algo_enable_approxi = true;
  for (const double epsilon : {1.0, 0.5, 0.1}) {
    knobs.dp_algo_approxi_epsilon = epsilon;
    ASSERT_OK_AND_ASSIGN(const OperatorPlan rough, PlanByDynamicProgramming(Setting(Layers(6), knobs).problem));
    EXPECT_GE(rough.weighted, best.weighted);
    EXPECT_LE(rough.cost.memory, static_cast<double>(knobs.device_memory_capacity.raw()));
    if (epsilon < 0.5) continue;  // ten costs are enough here
    EXPECT_FALSE(rough.exact);
    EXPECT_THAT(rough.how, HasSubstr("(dp_algo_enable_approxi)"));
  }
}

}  // namespace
}  // namespace meshwright
