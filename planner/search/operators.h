// The search modes for graphs of single operators: dynamic programming, recursive programming, sharding propagation,
// exhaustive search, defaults, data parallelism, programs that are split by hand, one rank. All but the exhaustive one
// simulate one strategy.
//
// Exhaustive search simulates every combination of the candidates of S15.1 (operators that the user configured have
// theirs only), so nothing in that space is faster than what it finds. It refuses more than kMostCombinations.
// Dynamic programming finds the least sum of prices over the same space; a plan that the simulator finds faster may be
// there where the prices are bytes, or where communication hides behind kernels.
//
// Strategies live on Mesh::Factored(stages, ranks per stage). Thread safety: pure function; runs on several threads
// itself.
#ifndef MESHWRIGHT_PLANNER_SEARCH_OPERATORS_H_
#define MESHWRIGHT_PLANNER_SEARCH_OPERATORS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"

namespace meshwright {

inline constexpr int64_t kMostCombinations = 20'000;

// REQUIRES: problem.mode is not kDecoder. See Search for errors.
absl::StatusOr<SearchResult> SearchOperators(const Problem& problem, const SearchOptions& options);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_OPERATORS_H_
