// Gives every op of a differentiated graph its label assignment: which mesh axes split which of its index labels.
//
//   forward ops   from their own strategy, else from the label rules, else nothing is split; where there are no rules,
//                 an op that computes nothing (a reshape) takes over how its input lies
//   backward ops  from their forward op, by label name (design decision 2)
//   sums of gradients   as the value whose gradient they are
//
// Takes no decision: all of them are in the Strategy.
#ifndef MESHWRIGHT_PLANNER_PASSES_COMPLETE_LAYOUTS_H_
#define MESHWRIGHT_PLANNER_PASSES_COMPLETE_LAYOUTS_H_

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct ShardedGraph {
  Graph graph;
  Mesh mesh;
  std::vector<Assignment> assignments;  // one per op of the graph
  std::vector<Layout> natural;  // one per tensor: how its producer leaves it; parameters: as their users read them
  // Partial axes of its inputs that an op leaves to its readers: the sum of gradients, or who reads a sum of sums.
  std::map<OpId, AxisList> passed;
  std::map<TensorId, Layout> outputs;  // what an op's strategy asks its output to become at once (S5.7)
};

// kInvalidArgument, naming the op or input: a label that a rule splits does not divide; a strategy that does not fit
// its op; an input or an output that would be partial; a name that the graph does not have; the axis "pp"; two users of
// a parameter that want it in different layouts (S5.15, naming the parameter, both ops and both layouts).
absl::StatusOr<ShardedGraph> CompleteLayouts(Graph graph, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_COMPLETE_LAYOUTS_H_
