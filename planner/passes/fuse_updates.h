// Joins the updates of a block that are alike into one kernel.
//
//   before   AdamW reads a da a@m a@v writes a a@m a@v
//            AdamW reads b db b@m b@v writes b b@m b@v
//   after    AdamW tensors=2 reads a da a@m a@v b db b@m b@v writes a a@m a@v b b@m b@v
//
// What it saves is kernels to start: one for a layer instead of one for each of its parameters, many of which are small
// (norms, biases). The bytes are the same, and so are the values, to the bit. Alike are updates by one rule with one
// set of numbers, whose operands have the same types, on ranks of the same owner. A layer's parameters stay together
// and layers apart: an update starts when its layer's gradients have arrived, and the block is stored once.
//
// The joined update stands where its last one stood or further down: updates move past kernels that neither wait, nor
// are waited for, nor touch their operands. LAMB has two kernels then, and where parameters are split one sum over the
// ranks between them, of all norms:
//
//   before   LAMBStep a, all_reduce a's norms, LAMB a, LAMBStep b, all_reduce b's norms, LAMB b
//   after    LAMBStep tensors=2 a b, all_reduce both's norms, LAMB tensors=2 a b
//
// All of a layer's steps are in memory at the same time, at the step's end, where activations are not. Idempotent. Must
// run behind the passes that split updates or give them operands (shard_optimizer, scale_loss) and before overlap,
// which puts waits between instructions.
#ifndef MESHWRIGHT_PLANNER_PASSES_FUSE_UPDATES_H_
#define MESHWRIGHT_PLANNER_PASSES_FUSE_UPDATES_H_

#include "ir/program.h"

namespace meshwright {

Program FuseUpdates(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_FUSE_UPDATES_H_
