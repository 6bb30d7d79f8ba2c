// What a plan takes where a trainer that people use runs it, in place of the plan's own program: the trainer's kernels,
// the pace of its CPU, what it overlaps, what it holds in memory besides. Known from its code and held to published
// runs of it, as `validate` is (tools/validate, docs/accuracy.md).
//
//   plan -> Recipe -> the row of a table that such a run would have -> TrainingRun -> Prediction
//
// The pace is that of the slowest of the devices (costmodel/variability.h), as in all predictions of runs.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_EXPORT_TRAINER_PREDICTION_H_
#define MESHWRIGHT_TOOLS_EXPORT_TRAINER_PREDICTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/search/evaluate.h"
#include "planner/search/search.h"
#include "tools/export/writers.h"
#include "tools/plan_file.h"
#include "tools/session.h"

namespace meshwright {

// Null where no trainer of that title has runs that are known.
const Trainer* TrainerWithTitle(absl::string_view title);

struct TrainerPrediction {
  Prediction prediction;
  std::vector<std::string> approximations;  // what it is taken for, where it can only be come near to
};

// kUnimplemented: the trainer cannot run the plan (as its writer says), or no run of it is known.
absl::StatusOr<TrainerPrediction> PredictUnder(const Trainer& trainer, const Plan& plan);

// The candidates with predictions of the trainer's runs, the fastest first, at most `keep`; what the trainer cannot run
// and what does not fit under it is left out, and `pruned` says how many; of the fastest, what it is near to is among
// the warnings. REQUIRES: found.ranked is not empty.
//
// kUnimplemented: the trainer can run none of them; why not the first. kResourceExhausted: none fits under it; by how
// much the nearest does not.
absl::StatusOr<SearchResult> RankUnder(const Trainer& trainer, const Session& session, SearchResult found, int64_t keep,
                                       int threads);

// So many of a search's best are predicted again at first, since the trainer's fastest need not be the program's.
inline constexpr int64_t kPredictedUnder = 48;
// And at most, and so many passes of theirs: a prediction takes some milliseconds and up to ten microseconds for each
// pass of a micro-batch through a chunk of a stage.
inline constexpr int64_t kMostPredictedUnder = 768;
inline constexpr int64_t kMostPassesUnder = int64_t{1} << 20;

// Search, and RankUnder of what it found; where `trainer` is null, Search alone. More and more candidates are looked
// at, also such as our own program has no memory for, until there are no more, or the next one would be slower than the
// trainer's fastest even if it took it half of the least multiple of our own program's time that was seen, or, once
// more were looked at than at first, that multiple itself; or until they are too many. `not_tried` says where some
// could be faster. SearchOptions::faster_than is of the trainer's time. Errors end a command as those where nothing
// fits.
absl::StatusOr<SearchResult> SearchFor(const Trainer* trainer, const Session& session, const SearchOptions& options);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_TRAINER_PREDICTION_H_
