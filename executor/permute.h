// Who sends what to whom in a Permute instruction.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_PERMUTE_H_
#define MESHWRIGHT_EXECUTOR_PERMUTE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace meshwright {

// For each rank of the class (by its number within the class), the rank of the class whose piece of `from` it gets as
// its piece of `to`: the lowest that holds it among those that agree with it on all axes that neither layout uses, else
// the lowest that holds it. kInvalidArgument when nobody holds a piece.
absl::StatusOr<std::vector<int64_t>> PermuteSources(const Program& program, size_t rank_class, const Buffer& from,
                                                    const Buffer& to);

// The same for a Permute that names its sources; -1 for a rank that gets zeros.
std::vector<int64_t> NamedSources(const Program& program, size_t rank_class, const Permute& permute);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_PERMUTE_H_
