// Cuts runs of layers that alternate where a part of a pipeline begins within one.
//
// A graph has such a run once, however often it is repeated (Segment::layer_ends). A part that begins in the middle of
// one makes segments of it: whole runs, and pieces, each of the layers that lie on one part.
//
//   layers x4 of 3 layers, parts of 4 and 8    before   layers x4 of 3
//                                              after    layers x1 of 3, layers@cut1 x1 of 1, layers@cut2 x1 of 2,
//                                                       layers@cut3 x2 of 3
//
// Pieces keep the names of operators, the run's number (Segment::first), and, but for "@cut" and their own number, the
// names of tensors, so that what a plan computes, how parameters start and what checkpoints call them are the same.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_PASSES_CUT_RUNS_H_
#define MESHWRIGHT_PLANNER_PASSES_CUT_RUNS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// In front of a segment's layer, counted over all runs of it from 0.
struct Cut {
  size_t segment = 0;
  int64_t layer = 0;
  friend auto operator<=>(const Cut&, const Cut&) = default;
};

// In the order of the layers; only those within runs, so that most models have none.
std::vector<Cut> CutsOf(const Graph& forward, const Strategy& strategy);

// REQUIRES: a forward graph that VerifyGraph accepts; cuts in order.
Graph CutRuns(const Graph& forward, const std::vector<Cut>& cuts);
// With the strategy's.
Graph CutRuns(const Graph& forward, const Strategy& strategy);

// What the name of a tensor of a piece ends with, "@cut3": for a pass that makes another tensor of the same layers.
absl::string_view PieceMark(absl::string_view name);

// Pieces with the same layers of a run, one or several of them, are alike: they differ in names and numbers alone.
struct PieceKinds {
  struct Piece {
    size_t kind = 0;          // segment of `graph`
    std::string mark;         // what names of tensors and the segment end with there
    std::string mark_in_cut;  // and in the graph that CutRuns makes
  };
  Graph graph;            // as CutRuns makes it, but of pieces that are alike the last one alone
  std::vector<Piece> of;  // by segment of the graph that CutRuns makes
};
// Nothing where no two pieces are alike.
std::optional<PieceKinds> KindsOf(const Graph& forward, const std::vector<Cut>& cuts);

// The first layers of all runs of a segment behind each other, then the second ones, and so on: as much work and memory
// in another order, each kind of layer a segment of its own.
Graph SortLayers(const Graph& forward);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_CUT_RUNS_H_
