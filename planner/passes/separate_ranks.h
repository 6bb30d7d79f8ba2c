// Gives a dim of its own to what each rank holds for itself: parameters that are not shared (layerwise_parallel, S8.9)
// and reductions over the rank's own part of the batch (cross_batch, S5.13).
//
//   before   mean (h) of x (b, h), cross_batch, b split over n ranks
//   after    x as (n, b / n, h), mean (n, h), split over the ranks; what reads it computes n of each
//
// The values of the n ranks are then an ordinary tensor, split over the ranks, and all later passes treat them as such:
// no rank reads another's, and the gradient of a parameter that is whole adds up those of all of them. Where a tensor
// of rows meets one of ranks, each rank's rows meet its own. A loss that the ranks hold for themselves is their mean
// (S8.3).
//
// Which ops: those of the strategy's `own_parameters`, and those with Op::own_batch whose batch is split (of a mean:
// over all ranks). The strategy is changed with the graph. Must run first: it is about the forward graph.
#ifndef MESHWRIGHT_PLANNER_PASSES_SEPARATE_RANKS_H_
#define MESHWRIGHT_PLANNER_PASSES_SEPARATE_RANKS_H_

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct GraphAndStrategy {
  Graph graph;
  Strategy strategy;
};

// kUnimplemented, naming the op: rows that are split over other ranks than another op's, or an op that asks for its
// output's layout; models with repeated layers.
absl::StatusOr<GraphAndStrategy> SeparateRanks(Graph graph, Strategy strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SEPARATE_RANKS_H_
