// The host's kernels: one per operator, in the plainest form that is right and not needlessly slow. They define what an
// operator computes; other back ends are compared with them.
//
// Kernels work on a rank's own pieces and never communicate. What they give where a label is split follows the
// operator's rule: a label that the output has gives that piece of the output, one that it lacks gives a partial
// result.
//
// Elements are float or double, the same for all floating operands of a call; integers are int32. Products use a BLAS
// library on one thread. Scratch space of kernels is not part of the arena.
//
// What the table of operators leaves open (ir/op_list.h):
//   activations  GeLU in its tanh form; gradients take dy, then the forward op's inputs
//   Rotary       rotates element i of a head with element i + d/2, all heads but the last of a group (the value)
//   Attention    inputs and outputs have the dims order of their rule: s b g r d; causal: row i sees columns 0..i
//   ExpSumAndPick's second output is the label's logit itself, 0 where another rank holds it
//   RowPartials: a part whose logits are all -infinity has the sum 0
//   Dispatch     every sequence (a row of b) has capacity / b slots per expert; slots go to tokens by rank of choice,
//                then by position; a token that finds none is dropped. Ties go to the lower expert. Of slots by parts
//                of a sequence, (e, p, c, h), the same holds of each part.
//   ToGroups     every sequence has q slots in each group of experts; they go to its tokens by position
//   Combine      weighs a token's experts by the softmax over its top_k logits
//   AdamW        corrects both averages by the step number and decays weights apart from the gradient
//
// Thread safety: calls on distinct memory may run at the same time.
#ifndef MESHWRIGHT_EXECUTOR_HOST_KERNELS_H_
#define MESHWRIGHT_EXECUTOR_HOST_KERNELS_H_

#include "absl/status/status.h"
#include "executor/kernel_call.h"

namespace meshwright {

// Runs one kernel. kInvalidArgument, naming the op, when the number, shapes or types of the operands do not fit its
// rule; kUnimplemented for element types that the host does not store.
absl::Status RunHostKernel(const KernelCall& call);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_KERNELS_H_
