// The pieces of tensors that collectives move: how one dim of a piece lies in memory, and which shapes fit together.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_COLLECTIVE_PIECES_H_
#define MESHWRIGHT_EXECUTOR_COLLECTIVE_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "executor/kernel_call.h"
#include "ir/program.h"

namespace meshwright {

// A view as (outer, extent of one dim, inner bytes): what cutting it along that dim needs.
struct AlongDim {
  int64_t outer = 1, extent = 1, inner;
  AlongDim(const TensorView& view, size_t dim);
};

// Whether `write` has the extents and type that the collective gives to `read` in a group of `n` ranks.
absl::Status CheckPieces(const Collective& collective, int64_t n, const TensorView& read, const TensorView& write);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_COLLECTIVE_PIECES_H_
