// Context parallelism: ranks along ContextAxes (ir/strategy.h) share every sequence, through attention too.
//
//   before   attention of qkv, the sequence whole
//   after    qkv cut into queries and keys with values, and attention of the rank's own queries over
//     all_gather   the keys and values of the whole sequence, which CompleteLayouts and Partition then
//                  gather, and whose gradients they scatter
//     ring         its own, then those of the rank before it, and so on, each an op of its own; what
//                  comes out is merged by the sums of exponentials (Milakov, Gimelshein, arXiv:1805.02867)
//
// The sequence is stored in the order of ir/context_order.h: inputs, and the ops that ask for positions, are told so.
// Blocks of keys that have arrived are not kept for the backward pass; they come round again.
//
// Tokens go to experts by parts of a sequence: each rank's own have slots of their own, in a dim of slots that the
// label "z" splits as "s" the tokens. Capacity is that of a part then (that of the sequence over the ranks, rounded
// up), as Megatron-Core has it; where no expert is full, the same tokens get a slot. The same of places in groups of
// experts.
//
// The graph does not change where strategy.context is none. Must run before Differentiate: it is about the forward
// graph; and behind GroupExperts, which knows sequences only.
#ifndef MESHWRIGHT_PLANNER_PASSES_SPLIT_CONTEXT_H_
#define MESHWRIGHT_PLANNER_PASSES_SPLIT_CONTEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// The label that context parallelism splits, as in models/decoder.h, and that of the parts in slots of experts.
inline constexpr absl::string_view kSequenceLabel = "s";
inline constexpr absl::string_view kPartLabel = "z";

// E-LAYOUT: no axis "cp", or twice its ranks do not divide the sequence; kUnimplemented, naming the op: attention that
// keeps its probabilities, an op that wants the whole sequence, random masks, or slots of
// experts that meet something else.
absl::StatusOr<Graph> SplitContext(Graph graph, const Strategy& strategy);

// The ops of the result that are run again in the backward pass whatever the strategy says: those that bring keys.
std::vector<std::string> BroughtKeys(const Graph& graph);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SPLIT_CONTEXT_H_
