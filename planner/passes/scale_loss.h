// Loss scaling (Micikevicius et al., Mixed Precision Training, arXiv:1710.03740): what makes float16 gradients usable.
//
//   before   .. backward, reduce;  update p, state from dp
//   after    .. backward, reduce;  found = is any dp, on any rank of any stage, not finite?
//            adjust the scale by it;  update p, state from dp / scale, or leave them as they are
//
// Differentiate has made the loss's gradient a multiple of the parameter kLossScale (ir/program.h). This pass gives
// every stage the scale, as optimizer state beside the good steps in a row and the steps skipped, and the decision:
// each rank checks what its own updates read (its rows, under the parallel optimizer), the ranks of a stage join by one
// all-reduce, the stages by exchanges with the stage 1, 2, 4, .. further on (a maximum may count a stage twice). All of
// it is instructions like others: no interpreter decides, and a device need not ask its host.
//
// Where gradients are divided by the replica count before the update (S8.2), that comes before the check. The count of
// steps that AdamW and LAMB correct by leaves skipped steps out.
//
// Runs after the passes that split updates, so that each rank checks only what it updates, and before bucket_gradients
// and overlap, which then find the check where the gradients are first read.
#ifndef MESHWRIGHT_PLANNER_PASSES_SCALE_LOSS_H_
#define MESHWRIGHT_PLANNER_PASSES_SCALE_LOSS_H_

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace meshwright {

// `attrs`: AdjustScale's (ir/graph.h), and `scale`: what the scale starts as.
absl::StatusOr<Program> ScaleLoss(Program program, const OpAttrs& attrs);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SCALE_LOSS_H_
