// Makes the blocks of all pieces of a model's runs from those of one piece of each kind (planner/passes/cut_runs.h), so
// that a model whose layers alternate is lowered in the time that its kinds of pieces take, however many parts cut
// them.
//
// Given is a program of PieceKinds::graph, say of embed, layers@cut0 (whole runs), layers@cut1 (the second half of one)
// and head; what comes back is that of the graph that is cut: embed, layers (the second half), layers@cut1 (four whole
// runs), layers@cut2 (the second half) and so on.
//
// A piece has buffers of its own for what lies within it: its parameters and gradients, and what its blocks make. It
// shares with the others what its chain hands on, and what belongs to no layer.
//
// Thread safety: a pure function.
#ifndef MESHWRIGHT_PLANNER_PASSES_REPEAT_PIECES_H_
#define MESHWRIGHT_PLANNER_PASSES_REPEAT_PIECES_H_

#include "ir/graph.h"
#include "ir/program.h"
#include "planner/passes/cut_runs.h"

namespace meshwright {

// `program`: as Partition and FuseEpilogues make it of kinds.graph, no buffer an alias of another. `cut`: the graph
// that the kinds were found of, cut.
Program RepeatPieces(const Program& program, const PieceKinds& kinds, const Graph& cut);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_REPEAT_PIECES_H_
