// Strategies in the words of people: the degrees of parallelism, for models whose index labels are named as the
// decoder's are (models/decoder.h).
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_DEGREES_H_
#define MESHWRIGHT_PLANNER_SEARCH_DEGREES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"
#include "planner/search/problem.h"

namespace meshwright {

struct Degrees {
  int64_t data = 1, tensor = 1, pipeline = 1, expert = 1, context = 1;
  // Of data x context ranks, the groups of which each has a whole copy of what the parallel optimizer splits (HSDP).
  int64_t copies = 1;
  int64_t expert_groups = 1;  // of the ranks that share the experts; Strategy::expert_groups
  // Experts lie whole on tensor-parallel ranks, too, each on one, instead of being split over them.
  bool spread_experts = false;
  bool sequence_parallel = false;
  ContextExchange exchange = ContextExchange::kNone;  // where context > 1
  int64_t microbatch = 1;                             // rows of one micro-batch on one data-parallel rank

  // Ranks that share experts are those of context parallelism first, then as many of data parallelism as make `expert`
  // of them, as Megatron-Core lays ranks out (core/parallel_state.py); of data parallelism alone where neither of
  // `expert` and `context` divides the other.
  int64_t expert_context() const { return expert % context == 0 ? context : context % expert == 0 ? expert : 1; }
  int64_t expert_data() const { return expert / expert_context(); }
  friend auto operator<=>(const Degrees&, const Degrees&) = default;
};

// For each label that may be split, the greatest number that divides every dim it names. Without labels that follow the
// rows of a micro-batch ("b" and "c").
using LabelSizes = std::map<std::string, int64_t>;
LabelSizes SplittableSizes(const Graph& graph);

// Whether updates are split, and with them parameters, and gradients where the problem says so.
// REQUIRES: strategy.microbatches and strategy.optimizer_group are set; shard_parameters takes parallel_optimizer.
void SetParallelOptimizer(const Problem& problem, bool parallel_optimizer, bool shard_parameters, Strategy& strategy);

// Everything of a strategy that the problem fixes for all candidates, or leaves to Strategy's defaults: schedule,
// recompute, optimizer, fusion, gradients and the loss. REQUIRES: as above.
void SetGivenChoices(const Problem& problem, Strategy& strategy);

// The groups of experts that the dispatcher makes of `degrees`: as many as the ranks that share the experts lie on
// nodes (none where these are one node, or do not fill whole ones), or have experts; 1 where that is one for each
// expert.
int64_t ExpertGroups(Dispatcher dispatcher, const Degrees& degrees, const Cluster& cluster, const LabelSizes& sizes);

// Batch "b" over copy, dp and ep, experts "e" over ep (and cp or ce, Degrees::expert_context) and their slots "c" over
// copy and dp (with several groups of experts ep is one rank a group, eg the ranks of a group, and both have what ep
// has else; spread experts "e" over tp and ep), heads "g", ffn "f" and vocabulary "v" over tp, sequence "s", and its
// parts "z" in slots of experts, over cp, and the sequence between the split products over tp, too. A vocabulary that
// does not divide stays whole; heads that do not divide are split over the largest part of tp that divides them, and
// repeated over the rest (axis "again"). Mesh: pp, copy, dp, ep, eg, cp, ce, tp, again (those above 1) with tp fastest,
// so that tensor parallelism stays inside a node, and then what shares a copy; copy x dp x ep x eg = degrees.data, cp x
// ce = degrees.context (ce: the ranks of a row that share experts, where these are some of them), tp x again =
// degrees.tensor. What the problem leaves open besides the degrees gets the defaults of Strategy.
//
// kInvalidArgument: a degree below 1; the batch does not divide; spread experts in groups; copies that do not each have
// all experts; context parallelism without a way of exchange. Whether other labels divide is seen when it is lowered.
absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees, const LabelSizes& sizes);
// Builds the graph to learn the sizes.
absl::StatusOr<Strategy> FromDegrees(const Problem& problem, const Degrees& degrees);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_DEGREES_H_
