// A RankResult as bytes, for processes of one job on machines of one kind: numbers are as they lie in memory.
#ifndef MESHWRIGHT_EXECUTOR_HOST_RANK_RESULT_BYTES_H_
#define MESHWRIGHT_EXECUTOR_HOST_RANK_RESULT_BYTES_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "executor/runner.h"

namespace meshwright {

std::vector<std::byte> ToBytes(const RankResult& result);

// REQUIRES: `bytes` came from ToBytes of the same build.
RankResult RankResultFromBytes(absl::Span<const std::byte> bytes);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_RANK_RESULT_BYTES_H_
