// recursive_programming (S15.9, S15.10): fast, and no more than a heuristic. In each of log2(ranks) rounds every
// product is halved once, from the last to the first in graph order, by its rows (I), its columns (J), what it
// contracts (K), or not at all:
//
//   cut    cost                                     allowed if
//   I      rp_matmul_mem_coef x j x k / 2           i is even, and in fewer pieces than the batch
//   J      i x k / 2                                j is even, K was not cut
//   K      i x j / 2                                k is even, J was not cut
//   none   (1.5 x the least of the three)^2 / 350   always
//
// where i, j, k are what is left on a rank, plus 16 x the elements of each tensor that joins it to a product which is
// decided in this round already, directly or through elementwise operators, and which halves another dim of it. The
// first of equal costs is taken. With the parallel optimizer the first cut is I where that is allowed.
//
// Choices beyond the table: leading dims of a batched product count to its rows and are cut first. A configured
// operator keeps its strategy (X33) and counts as decided in every round, its rows, contraction and columns cut in that
// order. A user of a parameter does not cut it otherwise than the users that are decided (S5.15). Operators that are no
// products are split as the value they read is left; where they read inputs only, as their user wants their result,
// else by S5.14. Memory is not looked at.
//
// Costs a few operations per product and round. Thread safety: pure function.
#ifndef MESHWRIGHT_PLANNER_SEARCH_RECURSIVE_PROGRAMMING_H_
#define MESHWRIGHT_PLANNER_SEARCH_RECURSIVE_PROGRAMMING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ir/cost_model_knobs.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct RecursiveProblem {
  const Graph* graph = nullptr;  // forward; not null, nor is the mesh; both must outlive the call
  const Mesh* mesh = nullptr;    // Mesh::Factored
  int64_t ranks_per_stage = 1;
  CostModelKnobs knobs;
  bool parallel_optimizer = false;
  std::map<std::string, OpStrategy> configured;  // by op name
};

// The cuts of one product, a letter a round: "IKI", '-' for none.
using Cuts = std::string;

struct RecursivePlan {
  std::map<std::string, OpStrategy> ops;  // of every op
  std::map<std::string, Cuts> cuts;       // of every product that was not configured
};

// kInvalidArgument (E-VALUE) unless the ranks are a power of two, at most 1024.
absl::StatusOr<RecursivePlan> PlanByRecursiveProgramming(const RecursiveProblem& problem);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_RECURSIVE_PROGRAMMING_H_
