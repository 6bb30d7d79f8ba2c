#include "planner/search/time_costs.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "costmodel/testing.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "planner/search/compatible_costs.h"
#include "planner/search/degrees.h"
#include "planner/search/dynamic_programming.h"
#include "planner/search/evaluate.h"
#include "planner/search/testing.h"

namespace meshwright {
namespace {

constexpr int64_t kRanks = 8;

// A graph on eight devices with its prices.
struct Setting {
  explicit Setting(absl::StatusOr<Graph> built)
      : graph(*std::move(built)),
        mesh(Mesh::Factored(1, kRanks)),
        costs(H100Cluster(1)),
        memory(*CompatibleCosts::Make(graph, mesh, kRanks, {}, false)),
        times(*TimeCosts::Make(graph, mesh, costs, memory, UpdateRule{OpKind::kAdamW, {}})) {}
  Setting(const Setting&) = delete;

  size_t Find(const std::string& name) const { return graph.FindOp(name).index(); }
  // The op's labels of these names in eight pieces, the others whole.
  OpCandidate Split(size_t op, const std::vector<std::string>& labels) const {
    Pieces pieces(graph.ops[op].rule->labels.size(), 1);
    for (const std::string& name : labels) {
      const int label = graph.ops[op].rule->FindLabel(name);
      if (label >= 0) pieces[static_cast<size_t>(label)] = kRanks;
    }
    return *MakeCandidate(graph.ops[op], graph, pieces, mesh, kRanks);
  }
  Cost Own(const std::string& op, const std::string& label) const {
    return *times.OfOperator(Find(op), Split(Find(op), {label}));
  }

  Graph graph;
  Mesh mesh;
  CostModel costs;
  CompatibleCosts memory;
  TimeCosts times;
};

ToyDecoder FourLayers() {
  return {.layers = 4, .hidden = 2048, .heads = 16, .ffn = 8192, .vocab = 32768, .sequence = 1024, .unrolled = true};
}

// What a split product saves and what it costs: columns need nothing forward, rows a reduction.
TEST(TimeCostsTest, OfSplitProducts) {
  const Setting setting(BuildToyDecoder(FourLayers(), 4));
  const Cost whole = setting.Own("layer1.mlp1", ""), columns = setting.Own("layer1.mlp1", "f"),
             contracted = setting.Own("layer1.mlp2", "f");
  EXPECT_LT(columns.computation, whole.computation / 4);
  EXPECT_EQ(columns.communication, 0);
  EXPECT_GT(contracted.communication, 0);
  // The gradient of what a product of split columns reads is partial: its use costs the reduction. A whole one's is
  // not.
  const size_t mlp1 = setting.Find("layer1.mlp1");
  const TensorSide side = {Layout::Replicated(3), {8, 1}};
  ASSERT_OK_AND_ASSIGN(const Cost use, setting.times.OfUse(side, mlp1, 0, setting.Split(mlp1, {"f"})));
  EXPECT_GT(use.communication, 0);
  ASSERT_OK_AND_ASSIGN(const Cost none, setting.times.OfUse(side, mlp1, 0, setting.Split(mlp1, {})));
  EXPECT_EQ(none.communication, 0);
}

std::string Show(const Prediction& p) { return absl::StrFormat("%.3f ms", static_cast<double>(p.step.raw()) / 1e6); }

// Four decoder layers, operator by operator, every weight to be split: dynamic programming that may not split the batch
// against the usual tensor parallelism written by hand (Shoeybi et al., "Megatron-LM", 2019): heads, feed-forward
// columns and then rows, the vocabulary. The simulator judges.
TEST(TimeCostsTest, DynamicProgrammingIsNoWorseThanColumnsThenRows) {
  const Setting setting(BuildToyDecoder(FourLayers(), 4));
  Problem problem = ToyDecoderProblem(FourLayers(), 4, setting.costs.cluster());
  Strategy base;
  base.mesh = setting.mesh;
  SetGivenChoices(problem, base);

  Strategy by_hand = base;
  for (size_t i = 0; i < setting.graph.ops.size(); ++i) {
    by_hand.ops[setting.graph.ops[i].name] = setting.Split(i, {"g", "f", "v"}).strategy;
  }
  ASSERT_OK_AND_ASSIGN(const Evaluation hand, EvaluateGraph(problem, setting.graph, setting.costs, by_hand));

  OperatorProblem operators;
  operators.graph = &setting.graph;
  operators.mesh = &setting.mesh;
  operators.prices = &setting.times;
  operators.ranks_per_stage = kRanks;
  operators.knobs.beta = 1;
  operators.memory_capacity = static_cast<double>(setting.costs.cluster().device.memory.raw());
  operators.allowed = [](const Op& op, const OpCandidate& candidate) {
    const int batch = op.rule->FindLabel("b");
    return batch < 0 || candidate.assignment[static_cast<size_t>(batch)].empty();
  };
  ASSERT_OK_AND_ASSIGN(const OperatorPlan plan, PlanByDynamicProgramming(operators));
  EXPECT_TRUE(plan.exact);
  Strategy searched = base;
  searched.ops = plan.ops;
  ASSERT_OK_AND_ASSIGN(const Evaluation dynamic, EvaluateGraph(problem, setting.graph, setting.costs, searched));

  std::cout << setting.graph.ops.size() << " operators, " << absl::StrFormat("%.1e", plan.combinations)
            << " combinations, " << plan.how << "\n"
            << "by hand             " << Show(hand.prediction) << "\n"
            << "dynamic programming " << Show(dynamic.prediction) << ", sum of its prices "
            << absl::StrFormat("%.3f", plan.weighted / 1e6) << " ms\n";
  for (const char* name : {"embed", "layer1.norm1", "layer1.qkv", "layer1.attention", "layer1.proj", "layer1.add1",
                           "layer1.norm2", "layer1.mlp1", "layer1.gelu", "layer1.mlp2", "layer1.add2", "logits"}) {
    std::cout << "  " << name;
    for (const Layout& layout : plan.ops.at(name).inputs) std::cout << " " << ToText(layout, setting.mesh);
    std::cout << "\n";
  }
  EXPECT_LE(dynamic.prediction.step, hand.prediction.step);
}

}  // namespace
}  // namespace meshwright
