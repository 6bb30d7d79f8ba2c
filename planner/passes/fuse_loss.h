// Cross entropy that reads the logits once for the loss and once for their gradient, which is written over them.
//
//   before   RowMax reads x writes m                        after   Feed writes l
//            all_reduce max reads m writes n                        RowPartials reads x l writes ms ss ps
//            Feed writes l                                          RowMax reads ms writes m
//            ExpSumAndPick reads x n l writes s p                   all_reduce max reads m writes n
//            ...                                                    JoinPartials reads ms ss ps n writes s p
//            PartialsGrad reads d x .. writes dx                    ...
//            x dies                                                 PartialsGrad reads d x .. writes dx, which lies in
//            x
//
// ms, ss and ps have a column for each rank of the vocabulary's split: the largest of its logits, the sum of
// exponentials less that, and the label's logit. Where the vocabulary is whole, RowPartials makes m, s and p itself,
// and that is all. What is communicated stays as it is. Saved: one pass of four over the logits, and the memory of
// their gradient.
//
// The first part only of 16-bit logits, as fuse_epilogues.h: a sum over a split vocabulary is brought to the largest of
// all by one more product, which rounds. The second for logits of every type, of CrossEntropyGrad as well: their
// gradient has their type and layout and is used beside nothing, and nobody reads them behind it. Not where the
// gradients of parameters run apart and need it longer. Idempotent. Must run before overlap, whose waits would stand
// between.
#ifndef MESHWRIGHT_PLANNER_PASSES_FUSE_LOSS_H_
#define MESHWRIGHT_PLANNER_PASSES_FUSE_LOSS_H_

#include "ir/program.h"

namespace meshwright {

Program FuseLoss(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_FUSE_LOSS_H_
