// sharding_propagation (S15.5): from the operators that the user configured, breadth first in graph order, successors
// then predecessors. Each operator that has no strategy yet gets the candidate whose redistribution on the connecting
// edge
//   communicates least (nothing, where that is possible),
//   then moves least inside the ranks,
//   then whose own forward pass communicates least,
//   then that comes first (op_candidates.h).
// Users of one parameter are kept in agreement. What cannot be reached gets its first candidate.
//
// Minimises redistribution from the given operators only; it is not optimal, by design (S15.8). Costs are those of the
// compatible model. Thread safety: pure function.
#ifndef MESHWRIGHT_PLANNER_SEARCH_PROPAGATION_H_
#define MESHWRIGHT_PLANNER_SEARCH_PROPAGATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"
#include "planner/search/compatible_costs.h"

namespace meshwright {

struct Propagated {
  std::map<std::string, OpStrategy> ops;  // of every forward op
  std::vector<std::string> warnings;      // edges that communicate
};

// `configured` and `inputs` (how inputs arrive; those that count as configured) are by name. `costs`: of this graph,
// mesh and number of ranks. kFailedPrecondition (E-STATE) where both are empty. kInvalidArgument: a strategy does not
// fit its op, or two users of a parameter that are configured disagree (E-LAYOUT). kResourceExhausted: alignment leaves
// an op no candidate.
absl::StatusOr<Propagated> Propagate(const Graph& graph, const Mesh& mesh, int64_t ranks_per_stage,
                                     const CompatibleCosts& costs, const std::map<std::string, OpStrategy>& configured,
                                     const std::map<std::string, Layout>& inputs);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_PROPAGATION_H_
