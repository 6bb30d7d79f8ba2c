// The whole way from a graph and a strategy to a program. The passes stand in planner/lower.cc, in order, each with the
// reason for its place.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_LOWER_H_
#define MESHWRIGHT_PLANNER_LOWER_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "costmodel/cost_model.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "planner/passes/bucket_gradients.h"
#include "planner/passes/cut_runs.h"
#include "planner/passes/follow_stages.h"
#include "planner/passes/orthogonalize.h"
#include "planner/passes/step_end.h"
#include "planner/redistribute.h"
#include "simulator/class_copies.h"

namespace meshwright {

// Sees the program after each pass: for dumps, and for VerifyProgram() in tests. What it sees has every stage, so that
// with an observer each is lowered for itself (planner/passes/follow_stages.h): the program is the same.
using PassObserver = std::function<absl::Status(absl::string_view pass, const Program& program)>;

// `forward` is the graph of one micro-batch. `price` chooses among redistributions.
absl::StatusOr<Program> Lower(const Graph& forward, const Strategy& strategy, const UpdateRule& optimizer,
                              const StepPrice& price, const PassObserver& observe = nullptr);

// The two halves of Lower. The first makes the blocks of one layer on one rank, and the strategies of a search share
// it: it sees nothing of a strategy but BlockChoices, the others having their defaults, and of how layers are dealt to
// stages where runs are cut (planner/passes/cut_runs.h); pieces of them that are alike are lowered once, but where
// somebody observes. The second is the passes from split_stages on. `kept`, which may be null, has redistributions that
// were found at the same prices.
struct LoweredBlocks {
  Graph graph;             // cut, perhaps differentiated
  Program program;         // as Partition makes it, kernels fused
  Matrices matrices = {};  // what Muon updates
};
Strategy BlockChoices(const Strategy& strategy);
absl::StatusOr<LoweredBlocks> LowerBlocks(const Graph& forward, const std::vector<Cut>& cuts, const Strategy& strategy,
                                          const UpdateRule& optimizer, const StepPrice& price,
                                          const PassObserver& observe = nullptr, KeptRedistributions* kept = nullptr);
// `blocks`: with these choices. `same_buckets`, which may be null, is narrowed to the values of `bucket` that make the
// same program: no pass but bucket_gradients sees it.
absl::StatusOr<Program> LowerStages(const LoweredBlocks& blocks, const Strategy& strategy, const UpdateRule& optimizer,
                                    const PassObserver& observe = nullptr, BucketRange* same_buckets = nullptr);

// The two halves of LowerStages: strategies that differ in their bucket alone share the first, which sees nothing of a
// strategy but StageChoices.
struct UnfusedStages {
  Program program;                     // with each collective by itself
  std::optional<Followers> followers;  // whose classes are empty yet
};
Strategy StageChoices(const Strategy& strategy);
absl::StatusOr<UnfusedStages> LowerUnfused(const LoweredBlocks& blocks, const Strategy& strategy,
                                           const UpdateRule& optimizer, const PassObserver& observe = nullptr);
// `stages` of `blocks` with these choices. `copies`: null, or set to the classes that are then not written out, for who
// asks for the program's time and memory alone.
absl::StatusOr<Program> FuseCalls(UnfusedStages stages, const LoweredBlocks& blocks, const Strategy& strategy,
                                  const UpdateRule& optimizer, const PassObserver& observe = nullptr,
                                  BucketRange* same_buckets = nullptr, ClassCopies* copies = nullptr);

// Prices a step of a redistribution as the simulator prices the instruction it becomes. One thread at a time, copies of
// it among them. REQUIRES: `costs` outlives it.
StepPrice PriceSteps(const CostModel& costs, const Mesh& mesh);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_LOWER_H_
