// Which dims count the rows of the batch.
#ifndef MESHWRIGHT_MODELS_ROWS_H_
#define MESHWRIGHT_MODELS_ROWS_H_

#include "ir/graph.h"

namespace meshwright {

// Follows the rows, dim 0 of every input, through the forward ops of a graph and names them in the rules of random ops
// (ir/rows_label.h). What adds them up ends them. Where a Concat, Split or StridedSlice cuts them, or a Reshape puts
// other dims in front of them, the dim that holds them is named: its places are then of no whole batch, but
// micro-batches still draw masks of their own.
void NameRows(Graph& graph);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_ROWS_H_
