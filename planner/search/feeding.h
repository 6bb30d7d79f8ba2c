// How the rows of a step reach the ranks (S9): the layouts of a graph's inputs.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_FEEDING_H_
#define MESHWRIGHT_PLANNER_SEARCH_FEEDING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/mesh.h"
#include "planner/search/problem.h"

namespace meshwright {

// By tensor name. kInvalidArgument as S9.3 says, naming the input: the wrong number of tuples, an input split in two
// dims, unequal piece counts, the input of highest rank not split, dims that do not divide.
absl::StatusOr<std::map<std::string, Layout>> FeedingLayouts(const Problem& problem, const Graph& graph,
                                                             const Mesh& mesh, int64_t ranks_per_stage);

// Of how many batches, one behind the other, a step's batch is made: one for each rank of a stage that feeds its own
// (S9.1), or for each piece of dim 0 (S9.3). Micro-batch i has the i-th part of each (S12.3). 1: the whole is cut, as
// where all ranks feed the same, and for decoders.
int64_t NumBatches(const Problem& problem, int64_t ranks_per_stage);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_FEEDING_H_
