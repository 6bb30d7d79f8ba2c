// Strategies of single operators that a decoder's plan must have, as a strategy file gives them: a decoder is split by
// labels, so they say which degrees of parallelism are meant.
//
// Thread safety: one thread at a time.
#ifndef MESHWRIGHT_PLANNER_SEARCH_FIXED_STRATEGIES_H_
#define MESHWRIGHT_PLANNER_SEARCH_FIXED_STRATEGIES_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "planner/search/degrees.h"
#include "planner/search/problem.h"

namespace meshwright {

class FixedStrategies {
 public:
  // Those of problem.shards, which must outlive this.
  static absl::StatusOr<FixedStrategies> Make(const Problem& problem, const LabelSizes& sizes);

  // How many of them, in the order of their names, lie as given under these degrees before the first that does not.
  size_t NumKept(const Degrees& degrees);
  bool AllKept(const Degrees& degrees) { return NumKept(degrees) == problem_->shards.size(); }

 private:
  FixedStrategies(const Problem& problem, const LabelSizes& sizes, Graph graph)
      : problem_(&problem), sizes_(&sizes), graph_(std::move(graph)) {}

  const Problem* problem_;
  const LabelSizes* sizes_;
  Graph graph_;                      // of a whole step: dims that follow its rows divide
  std::map<Degrees, size_t> known_;  // by degrees without micro-batches, which lay nothing out
};

// The first operator (by name) whose strategy no plan has beside those before it; "" where a plan has all, or where the
// model has no plan at all.
absl::StatusOr<std::string> FirstThatNoPlanHas(const Problem& problem);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_FIXED_STRATEGIES_H_
