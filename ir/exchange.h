// What an Exchange op (ir/op_list.h) does to ranks: reading its attribute `sources`.
//
// The first dims of the op's input count ranks, row-major; sources[p] is the one whose value the one at p gets, -1 for
// zeros.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_EXCHANGE_H_
#define MESHWRIGHT_IR_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/layout.h"

namespace meshwright {

// How many of the first dims of `shape` count the ranks. REQUIRES: their product is the number of sources.
size_t RankDims(const Shape& sources, const Shape& shape);

// Where all ranks that differ only in the dims [begin, end) get the value of the same one among them.
struct ExchangedBroadcast {
  size_t begin = 0, end = 0;
  int64_t root = 0;  // its place, row-major in these dims
};
std::optional<ExchangedBroadcast> BroadcastOf(const Shape& sources, const Shape& shape);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_EXCHANGE_H_
