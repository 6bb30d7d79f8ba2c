// dynamic_programming (S15.2): the strategies of a graph's operators whose costs add up to the least
//
//   alpha x computation + beta x communication      (S14.6)
//
// within the memory, over all combinations of the candidates of S15.1. Exact by elimination (elimination.h); operators
// that the user configured have that one strategy; users of one parameter read it alike (S5.15). Costs come from the
// caller: the compatible model's bytes, or times (search_prices.h).
//
// Knobs that change what is looked at (S14.2):
//   fully_use_devices, tensor_slice_align_*   which candidates there are
//   elementwise_op_strategy_follow            an elementwise operator is split as the first activation it reads is left
//   dp_algo_single_loop                       operators of equal layers that stand one after the other are split alike
//   multi_subgraphs                           else a graph of several parts that no tensor joins is E-STATE
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_PLANNER_SEARCH_DYNAMIC_PROGRAMMING_H_
#define MESHWRIGHT_PLANNER_SEARCH_DYNAMIC_PROGRAMMING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/cost_model_knobs.h"
#include "ir/graph.h"
#include "ir/strategy.h"
#include "planner/search/elimination.h"
#include "planner/search/op_candidates.h"
#include "planner/search/search_prices.h"

namespace meshwright {

struct OperatorProblem {
  const Graph* graph = nullptr;  // forward; not null, nor are the next two; must outlive the call
  const Mesh* mesh = nullptr;    // Mesh::Factored
  const SearchPrices* prices = nullptr;
  int64_t ranks_per_stage = 1;
  CostModelKnobs knobs;
  double memory_capacity = 0;                    // of one rank, bytes
  std::map<std::string, OpStrategy> configured;  // by op name
  std::map<std::string, Layout> inputs;          // how inputs arrive, where that counts; by name
  std::function<bool(const Op& op, const OpCandidate& candidate)> allowed;  // null: all candidates are
};

// The operators' candidates and what they cost. Operators that are split alike share a node.
struct OperatorChoices {
  std::vector<size_t> node;                          // by op
  std::vector<std::vector<OpCandidate>> candidates;  // by op: one per choice of its node
  ChoiceGraph graph;
  double combinations = 1;
};
// kInvalidArgument: a strategy does not fit its op. kResourceExhausted: an op has no candidate.
absl::StatusOr<OperatorChoices> ChoicesOf(const OperatorProblem& problem);

struct OperatorPlan {
  std::map<std::string, OpStrategy> ops;  // of every op
  Cost cost;
  double weighted = 0;
  double combinations = 1;
  bool exact = true;
  std::string how;  // as in Elimination
};
// Errors besides those: kResourceExhausted (E-PLAN) with the capacity and the smallest memory; kFailedPrecondition
// (E-STATE) for several parts.
absl::StatusOr<OperatorPlan> PlanByDynamicProgramming(const OperatorProblem& problem);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_DYNAMIC_PROGRAMMING_H_
