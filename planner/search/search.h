// The search: candidates in, a ranking out. Candidates are ranked by simulating the program that would run (design
// decision 7); closed formulas only prune, as lower bounds.
//
// Deterministic: same problem, same result, whatever the number of threads.
#ifndef MESHWRIGHT_PLANNER_SEARCH_SEARCH_H_
#define MESHWRIGHT_PLANNER_SEARCH_SEARCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/search/evaluate.h"
#include "planner/search/problem.h"

namespace meshwright {

struct Candidate {
  Strategy strategy;
  Degrees degrees;
  Prediction prediction;
};

struct SearchResult {
  std::vector<Candidate> ranked;          // the fastest first, at most SearchOptions::keep
  bool none_faster = false;               // than SearchOptions::faster_than; then none is ranked
  int64_t considered = 0;                 // combinations looked at
  int64_t simulated = 0;                  // of these, lowered and simulated
  std::map<std::string, int64_t> pruned;  // reason -> how many, e.g. "does not fit in memory"
  std::vector<std::string> warnings;      // what the user may want to know about the choice
  std::string not_tried;                  // what the search leaves out unless it is asked for; "" where nothing
  std::string guarantee;                  // what is known of the choice among all others; decoders: ""
  double seconds = 0;                     // wall time; not part of any deterministic output
};

struct SearchOptions {
  int64_t keep = 5;
  // Whether candidates are for somebody who predicts them again: of decoders each number of chunks has a place of its
  // own, and predictions say no more than what the ranking is by.
  bool predicted_again = false;
  // Of decoders, where the user has a plan already: only what takes less is worth looking for. Where nothing is known
  // to fit and to take less, the result is `none_faster`; else it is as without this.
  std::optional<Nanos> faster_than = std::nullopt;
  int threads = 0;                                                      // 0: as many as cores
  std::function<void(int64_t done, int64_t total)> progress = nullptr;  // called from one thread at a time
};

// kResourceExhausted when nothing fits: says which constraint binds (memory by component against capacity) on the
// candidate that came closest, and the nearest relaxation that would fit. kInvalidArgument: the problem contradicts
// itself.
absl::StatusOr<SearchResult> Search(const Problem& problem, const SearchOptions& options = {});

// For who asks for more and more candidates of one problem: of a decoder what was simulated before is not simulated
// again. Each result is that of Search. For one thread.
class Searches {
 public:
  explicit Searches(const Problem& problem);
  ~Searches();
  absl::StatusOr<SearchResult> Search(const SearchOptions& options = {});

 private:
  const Problem problem_;
  const std::unique_ptr<class DecoderSearches> decoder_;  // null where the mode is another
};

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_SEARCH_H_
