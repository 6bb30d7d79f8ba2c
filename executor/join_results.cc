// What the ranks of a run brought home, put together.
#include <algorithm>
#include <utility>

#include "executor/runner.h"

namespace meshwright {
namespace {

// Writes a piece into its place in the whole.
void PutInPlace(const ParameterPiece& piece, WholeTensor& whole) {
  Shape at(piece.shape.size(), 0);
  for (const double value : piece.values) {
    int64_t element = 0;
    for (size_t d = 0; d < at.size(); ++d) element = element * piece.global[d] + piece.begin[d] + at[d];
    whole.values[element] = value;
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < piece.shape[d]) break;
      at[d] = 0;
    }
  }
}

}  // namespace

RunResult JoinResults(std::vector<RankResult> ranks) {
  RunResult result;
  result.trace.source = "measured";
  for (RankResult& rank : ranks) {
    if (!rank.losses.empty()) result.losses = rank.losses;
    result.rank_losses.push_back(std::move(rank.losses));
    result.loss_scales.push_back(std::move(rank.loss_scales));
    result.arenas.push_back(rank.arena);
    for (const Span& span : rank.spans) {
      result.trace.makespan = std::max(result.trace.makespan, span.end);
      result.trace.spans.push_back(span);
    }
    for (const ParameterPiece& piece : rank.parameters) {
      WholeTensor& whole = result.parameters[piece.key];
      if (whole.values.empty()) {
        whole.shape = piece.global;
        whole.values.resize(NumElements(piece.global));
      }
      PutInPlace(piece, whole);
    }
  }
  return result;
}

absl::Status FirstError(absl::Span<const absl::Status> ranks) {
  absl::Status first;
  for (const absl::Status& status : ranks) {
    if (status.ok()) continue;
    if (!absl::IsCancelled(status)) return status;
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace meshwright
