// Runs operators with interleaved layouts (S6.14) piece by piece, so that the collective of one piece can run beside
// the kernel of the next.
//
//   before   y = x w, rows of x over dp and then in 2 pieces on each rank, columns over mp
//   after    x/0, x/1 = the pieces of x;  y/0 = x/0 w,  y/1 = x/1 w;  y = the pieces joined
//
// A dim of the rows (a, k, b) with k the pieces, a the axes before them and b the rest is viewed as (a, k b), cut into
// K tensors (a, b) and viewed as rows again: a rank's part of each piece is a block of its part of the whole. An
// operator that reads the pieces that another leaves takes them as they are; the whole is made where something else
// reads it. The gradient of a parameter is the sum of those of the pieces, which all add to one accumulator, or of a
// parameter that is in pieces itself the pieces joined.
//
// Everything made here are ordinary operators with strategies of their own; the later passes know nothing of pieces.
// Must run first: it is about the forward graph, and takes operators' strategies as the user gave them.
#ifndef MESHWRIGHT_PLANNER_PASSES_INTERLEAVE_H_
#define MESHWRIGHT_PLANNER_PASSES_INTERLEAVE_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct InterleavedGraph {
  Graph graph;
  Strategy strategy;             // without OpStrategy::interleaved
  std::set<std::string> pieces;  // the ops that make a piece, by name: their collectives run beside the kernels
};

// E-LAYOUT, naming the op, as CheckInterleaving says.
absl::StatusOr<InterleavedGraph> Interleave(Graph graph, Strategy strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_INTERLEAVE_H_
