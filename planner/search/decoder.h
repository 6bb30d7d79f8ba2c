// The search for models made of repeated layers: every valid combination of degrees and choices (space.h), pruned by
// lower bounds (bounds.h), ranked by simulation.
//
// Combinations are simulated in the order of their lower bound of the step time, until no bound is below the last
// place of the ranking: what was not simulated could not have had a place. So the ranking is that of simulating all.
// Of combinations that differ in bucket size or chunks of a stage only, the fastest has a place.
//
// Guarantees: exact within the space. Cost: one lowering per way of splitting a layer, one evaluation (milliseconds)
// per combination that gets that far. Thread safety: pure function, which runs on several threads itself;
// DecoderSearches is for one thread.
#ifndef MESHWRIGHT_PLANNER_SEARCH_DECODER_H_
#define MESHWRIGHT_PLANNER_SEARCH_DECODER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "planner/search/problem.h"
#include "planner/search/search.h"

namespace meshwright {

// Searches of one problem, with what those before found out: bounds, and what they simulated. The result is that of a
// search alone; after an error it is of no use. Size: some kilobytes for each combination that was simulated.
class DecoderSearches {
 public:
  explicit DecoderSearches(const Problem& problem);
  ~DecoderSearches();
  // See meshwright::Search for errors.
  absl::StatusOr<SearchResult> Search(const SearchOptions& options);

 private:
  class Kept;
  const std::unique_ptr<Kept> kept_;
};

absl::StatusOr<SearchResult> SearchDecoder(const Problem& problem, const SearchOptions& options);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_DECODER_H_
