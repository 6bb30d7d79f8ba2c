#include "planner/search/search.h"

#include "planner/search/decoder.h"
#include "planner/search/operators.h"

namespace meshwright {
namespace {

absl::StatusOr<SearchResult> SearchAsAsked(const Problem& problem, const SearchOptions& options) {
  switch (problem.mode) {
    case SearchMode::kDecoder:
      return SearchDecoder(problem, options);
    case SearchMode::kDynamicProgramming:
    case SearchMode::kRecursiveProgramming:
    case SearchMode::kShardingPropagation:
    case SearchMode::kExhaustive:
    case SearchMode::kDefaults:
    case SearchMode::kDataParallel:
    case SearchMode::kByHand:
    case SearchMode::kStandAlone:
      return SearchOperators(problem, options);
  }
  return absl::InternalError("an unknown search mode");
}

}  // namespace

absl::StatusOr<SearchResult> Search(const Problem& problem, const SearchOptions& options) {
  absl::StatusOr<SearchResult> result = SearchAsAsked(problem, options);
  if (!result.ok() && problem.locate != nullptr) return problem.locate(result.status());
  return result;
}

}  // namespace meshwright
