// How single operators may be split: the candidates that a search chooses from (S15.1), and the default of an operator
// that nobody configured (S5.14).
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_OP_CANDIDATES_H_
#define MESHWRIGHT_PLANNER_SEARCH_OP_CANDIDATES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/cost_model_knobs.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

// Into how many pieces each label of an op's rule is split.
using Pieces = std::vector<int64_t>;

// The integer tuples of S5.1: pieces of each dim of each input.
std::vector<std::vector<int64_t>> TuplesOf(const Op& op, const Pieces& pieces);

struct OpCandidate {
  OpStrategy strategy;
  Assignment assignment;
};
absl::StatusOr<OpCandidate> MakeCandidate(const Op& op, const Graph& graph, const OpStrategy& strategy,
                                          const Mesh& mesh);
absl::StatusOr<OpCandidate> MakeCandidate(const Op& op, const Graph& graph, const Pieces& pieces, const Mesh& mesh,
                                          int64_t ranks_per_stage);

// How the op leaves an output: as its strategy wants it, else whole (S5.5), since its own reduction is its own cost.
Layout OutputOf(const Op& op, const OpCandidate& candidate, size_t output);

struct CandidateOptions {
  bool fully_use_devices = true;  // else any number of pieces that divides the ranks
  int64_t align = 1;              // rows and columns of what a product reads are multiples of this on a rank (S14.10)
};

CandidateOptions OptionsFrom(const CostModelKnobs& knobs);

// E-PLAN: the knobs leave the op no candidate.
absl::Status NoCandidate(const Op& op, const CostModelKnobs& knobs);

// Every way of splitting the labels of the inputs, each by a divisor of its extent, into `ranks_per_stage` pieces
// together; then the one that splits nothing. In ascending order of pieces, label by label in order of appearance.
// Empty only where alignment forbids them all. REQUIRES: `mesh` is Mesh::Factored.
absl::StatusOr<std::vector<OpCandidate>> CandidatesOf(const Op& op, const Graph& graph, const Mesh& mesh,
                                                      int64_t ranks_per_stage, const CandidateOptions& options = {});

// Dim 0 of the first input that is no parameter (of a product: its rows) in gcd(extent, ranks_per_stage) pieces, the
// rest is repeated calculation. An input that is only broadcast along the batch does not count. An op of parameters
// only is not split.
Pieces DefaultPieces(const Op& op, const Graph& graph, int64_t ranks_per_stage);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_OP_CANDIDATES_H_
