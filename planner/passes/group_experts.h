// Tokens that are sent once to each group of experts: where Strategy::expert_groups is above 1, as many groups as the
// mesh axis "ep" has ranks, usually a node each, or a rank.
//
//   before   Dispatch: a copy of a token for each of its experts, to their slots
//            the experts
//            Combine
//   after    ToGroups: a copy for each group that has one of its experts, with its logits
//            Dispatch of what came to the group, to slots of the group's experts
//            the experts, as they were
//            Combine of what the group made, then FromGroups: the sum over groups
//
// What splits the label "n" of groups over "ep" makes an all-to-all over it of the first step and of the last, and the
// rest of what splits experts one inside the group: hierarchical all-to-alls, as DeepEP's and HybridEP's kernels do
// them in one. A token's copies cross the border of a group once, however many of its experts lie there.
//
// Where routing is even a token has one of its k experts, of E, in a group of G with the probability
// 1 - C(E - G, k) / C(E, k); where a router chooses of some groups only (OpAttrs::choice_groups) less. A group has room
// for as many times that as experts have for theirs, at most for all tokens. A token that finds none loses that group's
// experts, as one that finds no slot of an expert loses it. Where no group is full, nothing else changes: the same
// tokens get the same slots.
//
// Must run first: it is about the forward graph.
#ifndef MESHWRIGHT_PLANNER_PASSES_GROUP_EXPERTS_H_
#define MESHWRIGHT_PLANNER_PASSES_GROUP_EXPERTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// The label that splits groups.
inline constexpr absl::string_view kGroupLabel = "n";

// The graph does not change where strategy.expert_groups is 1. kInvalidArgument (E-LAYOUT): the groups do not divide
// the experts.
absl::StatusOr<Graph> GroupExperts(Graph graph, const Strategy& strategy);

// The share of tokens that has one of its `routing.top_k` experts in a given one of `groups`, where all are as likely,
// and so are the router's groups; those divide `groups` or are divided by them, else they are taken for one.
double ShareOfGroup(int64_t experts, const OpAttrs& routing, int64_t groups);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_GROUP_EXPERTS_H_
