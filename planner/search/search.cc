#include "planner/search/search.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ir/graph.h"
#include "planner/search/decoder.h"
#include "planner/search/operators.h"

namespace meshwright {
namespace {

// `decoder`: of that problem, where its mode is one of decoders.
absl::StatusOr<SearchResult> SearchAsAsked(const Problem& problem, DecoderSearches* decoder,
                                           const SearchOptions& options) {
  switch (problem.mode) {
    case SearchMode::kDecoder:
      return decoder->Search(options);
    case SearchMode::kDynamicProgramming:
    case SearchMode::kRecursiveProgramming:
    case SearchMode::kShardingPropagation:
    case SearchMode::kExhaustive:
    case SearchMode::kDefaults:
    case SearchMode::kDataParallel:
    case SearchMode::kByHand:
    case SearchMode::kStandAlone:
      return SearchOperators(Narrowed(problem), options);
  }
  return absl::InternalError("an unknown search mode");
}

// Where the mode leaves nothing to search in a model with repeated layers and that does not fit: whether a search finds
// something that does.
absl::Status WithPlanning(const Problem& problem, const SearchOptions& options, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  if (problem.mode != SearchMode::kStandAlone && problem.mode != SearchMode::kDataParallel) return status;
  const absl::StatusOr<Graph> graph = problem.graph(1);
  const bool repeats = graph.ok() && std::any_of(graph->segments.begin(), graph->segments.end(),
                                                 [](const Segment& segment) { return !segment.carries.empty(); });
  Problem planned = problem;
  planned.mode = SearchMode::kDecoder;
  if (!repeats || !SearchDecoder(planned, options).ok()) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), " A search splits it so that it fits: --mode=auto_parallel."));
}

}  // namespace

Searches::Searches(const Problem& problem)
    : problem_(problem),
      decoder_(problem.mode == SearchMode::kDecoder ? std::make_unique<DecoderSearches>(problem) : nullptr) {}
Searches::~Searches() = default;

absl::StatusOr<SearchResult> Searches::Search(const SearchOptions& options) {
  absl::StatusOr<SearchResult> result = SearchAsAsked(problem_, decoder_.get(), options);
  if (!result.ok()) {
    const absl::Status status = WithPlanning(problem_, options, result.status());
    return problem_.locate != nullptr ? problem_.locate(status) : status;
  }
  return result;
}

absl::StatusOr<SearchResult> Search(const Problem& problem, const SearchOptions& options) {
  return Searches(problem).Search(options);
}

}  // namespace meshwright
