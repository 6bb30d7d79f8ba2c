#include "planner/search/elimination.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Cost Work(double computation, double memory = 0) { return {computation, 0, memory}; }

Cost Total(const ChoiceGraph& graph, const std::vector<size_t>& choices) {
  Cost cost;
  for (size_t v = 0; v < choices.size(); ++v) cost += graph.nodes[v][choices[v]];
  for (const ChoiceGraph::Edge& edge : graph.edges) {
    cost += edge.costs[choices[edge.from] * graph.nodes[edge.to].size() + choices[edge.to]];
  }
  return cost;
}

// By trying everything: the least weighted sum that fits, or infinity, and the least memory.
std::pair<double, double> TryAll(const ChoiceGraph& graph, const EliminationOptions& options) {
  std::vector<size_t> choices(graph.nodes.size(), 0);
  double least = kInfinite, memory = kInfinite;
  while (true) {
    const Cost cost = Total(graph, choices);
    const double weighted = options.alpha * cost.computation + options.beta * cost.communication;
    if (std::isfinite(weighted)) {
      memory = std::min(memory, cost.memory);
      if (cost.memory <= options.capacity) least = std::min(least, weighted);
    }
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == graph.nodes[v].size()) choices[v++] = 0;
    if (v == choices.size()) return {least, memory};
  }
}

// Small whole numbers, so that sums are exact and ties happen.
ChoiceGraph RandomGraph(std::mt19937& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  ChoiceGraph graph;
  const size_t nodes = 1 + below(7);
  for (size_t v = 0; v < nodes; ++v) {
    std::vector<Cost>& costs = graph.nodes.emplace_back(1 + below(4));
    for (Cost& cost : costs) {
      cost = {static_cast<double>(below(20)), static_cast<double>(below(5)), static_cast<double>(below(12))};
    }
  }
  for (size_t e = nodes < 2 ? 0 : below(2 * nodes); e > 0; --e) {
    const size_t a = below(nodes), b = below(nodes);
    if (a == b) continue;
    ChoiceGraph::Edge edge{std::min(a, b), std::max(a, b), {}};
    edge.costs.resize(graph.nodes[a].size() * graph.nodes[b].size());
    for (Cost& cost : edge.costs) {
      cost = {static_cast<double>(below(9)), static_cast<double>(below(4)), 0};
      if (below(12) == 0) cost.computation = kInfinite;
    }
    graph.edges.push_back(std::move(edge));
  }
  return graph;
}

TEST(EliminationTest, EqualsTryingAllOnGraphsOfAnyShape) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const ChoiceGraph graph = RandomGraph(random);
    EliminationOptions options{.alpha = 1, .beta = 3};
    const auto [free, smallest] = TryAll(graph, options);
    if (!std::isfinite(free)) {
      EXPECT_THAT(Eliminate(graph, options), StatusIs(absl::StatusCode::kInvalidArgument));
      continue;
    }
    for (const double spare : {kInfinite, 8.0, 2.0, 0.0, -1.0}) {
      options.capacity = smallest + spare;
      const double least = TryAll(graph, options).first;
      for (const bool simplify : {true, false}) {
        options.simplify = simplify;
        const auto result = Eliminate(graph, options);
        if (spare < 0) {
          EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                                       absl::StrCat("the smallest memory of any plan is ", smallest)));
          continue;
        }
        ASSERT_OK(result);
        EXPECT_TRUE(result->exact);
        EXPECT_EQ(result->weighted, least);
        EXPECT_LE(result->cost.memory, options.capacity);
        EXPECT_EQ(Total(graph, result->choices).memory, result->cost.memory);
        EXPECT_EQ(Total(graph, result->choices).computation, result->cost.computation);
      }
    }
  }
}

// Each rule by a graph that needs it. All nodes have two choices that cost 0 and 1; edges cost 2 where choices differ.
ChoiceGraph Shape(size_t nodes, const std::vector<std::pair<size_t, size_t>>& edges) {
  ChoiceGraph graph;
  graph.nodes.assign(nodes, {Work(0), Work(1)});
  graph.nodes[0] = {Work(1), Work(0)};
  for (const auto& [from, to] : edges) graph.edges.push_back({from, to, {Work(0), Work(2), Work(2), Work(0)}});
  return graph;
}

TEST(EliminationTest, RulesInTheirOrder) {
  struct Row {
    size_t nodes;
    std::vector<std::pair<size_t, size_t>> edges;
    std::string how;
  };
  const std::vector<Row> rows = {
      {1, {}, "single operators"},
      {2, {{0, 1}}, "1 merge"},
      {2, {{0, 1}, {0, 1}}, "1 edge, 1 merge"},
      {3, {{0, 1}, {1, 2}}, "1 operator, 1 merge"},
      {3, {{0, 2}, {1, 2}}, "2 merge"},
      {3, {{0, 1}, {0, 2}}, "1 merge, 1 contract"},
      // A diamond: both ways become edges, which become one.
      {4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}, "2 operator, 1 edge, 1 merge"},
      // 0 is absorbed by 1 -> 2, then 3 leaves a second such edge, then 2 stands between 1 and 4.
      {5, {{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}, {1, 4}, {2, 4}}, "1 operator, 3 edge, 1 merge, 1 triangle, 1 join"},
      // 0 leaves an edge 2 -> 3, then 2 stands between 1 and 3.
      {4, {{0, 2}, {0, 3}, {1, 2}, {1, 3}}, "1 operator, 1 edge, 1 merge, 1 star"},
      // Two sources feed three sinks each: what a sink leaves is smaller than what a source would.
      {5, {{0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}}, "1 operator, 2 edge, 1 merge, 2 join"},
  };
  for (const Row& row : rows) {
    ASSERT_OK_AND_ASSIGN(const Elimination result, Eliminate(Shape(row.nodes, row.edges), {}));
    EXPECT_EQ(result.how, row.how);
    EXPECT_EQ(result.weighted, row.nodes == 1 ? 0 : 1);
  }
}

TEST(EliminationTest, TiesGoToTheFirstChoice) {
  ChoiceGraph graph;
  graph.nodes = {{Work(3), Work(3), Work(3)}, {Work(1), Work(1)}};
  graph.edges = {{0, 1, std::vector<Cost>(6)}};
  ASSERT_OK_AND_ASSIGN(const Elimination result, Eliminate(graph, {}));
  EXPECT_THAT(result.choices, ElementsAre(0, 0));
}

TEST(EliminationTest, CountsParts) {
  EXPECT_EQ(NumParts(Shape(5, {{0, 1}, {1, 2}})), 3);
  EXPECT_EQ(NumParts(Shape(3, {{0, 1}, {1, 2}})), 1);
}

// Twelve operators that all read each other's results: no table fits in 1000 costs.
ChoiceGraph Dense() {
  std::vector<std::pair<size_t, size_t>> edges;
  for (size_t a = 0; a < 12; ++a) {
    for (size_t b = a + 1; b < 12; ++b) edges.push_back({a, b});
  }
  return Shape(12, edges);
}

TEST(EliminationTest, SaysWhenATableIsTooLarge) {
  ASSERT_OK_AND_ASSIGN(const Elimination all, Eliminate(Dense(), {}));
  EXPECT_TRUE(all.exact);
  ASSERT_OK_AND_ASSIGN(const Elimination result, Eliminate(Dense(), {.most_costs = 1000}));
  EXPECT_FALSE(result.exact);
  EXPECT_THAT(result.how, HasSubstr("needs a table of more than 1000 costs, so descent was used instead"));
  EXPECT_GE(result.weighted, all.weighted);
}

// Every node trades memory for computation at a price of its own, so lists double with each one.
ChoiceGraph Trades(size_t nodes) {
  ChoiceGraph graph;
  for (size_t v = 0; v < nodes; ++v) {
    const double memory = static_cast<double>(1 << v);
    graph.nodes.push_back({Work(0, memory), Work(memory + static_cast<double>(v) / 100, 0)});
    if (v > 0) graph.edges.push_back({v - 1, v, std::vector<Cost>(4)});
  }
  return graph;
}

TEST(EliminationTest, SaysWhenListsAreTooLong) {
  EliminationOptions options;
  options.capacity = 1234;
  ASSERT_OK_AND_ASSIGN(const Elimination all, Eliminate(Trades(14), options));
  EXPECT_TRUE(all.exact);
  EXPECT_THAT(all.how, HasSubstr("memory binds"));
  options.most_costs = 100;
  ASSERT_OK_AND_ASSIGN(const Elimination result, Eliminate(Trades(14), options));
  EXPECT_FALSE(result.exact);
  EXPECT_THAT(result.how, HasSubstr("memory binds, and lists of costs and memory become too long; at most"));
  EXPECT_LE(result.cost.memory, 1234);
  EXPECT_GE(result.weighted, all.weighted);
}

TEST(EliminationTest, ApproximationKeepsFewCostsAndSaysSo) {
  EliminationOptions options;
  options.capacity = 1234;
  ASSERT_OK_AND_ASSIGN(const Elimination all, Eliminate(Trades(14), options));
  for (const size_t costs : {1, 2, 10}) {
    options.costs_per_list = costs;
    ASSERT_OK_AND_ASSIGN(const Elimination result, Eliminate(Trades(14), options));
    EXPECT_FALSE(result.exact);
    EXPECT_THAT(result.how, HasSubstr(absl::StrCat("lists are cut to ", costs, " costs")));
    EXPECT_LE(result.cost.memory, 1234);
    EXPECT_GE(result.weighted, all.weighted);
  }
}

}  // namespace
}  // namespace meshwright
