// The order in which ranks that share a sequence hold it (context parallelism).
//
// Under a causal mask a token looks back only: the owner of the last tokens would do almost twice the mean work. Of 2n
// equal pieces of the sequence, rank i of n holds the pieces i and 2n - 1 - i: as many pairs of tokens that see
// each other on every rank. The sequence is stored in that order, piece 0, 2n - 1, 1, 2n - 2, ..., so that each rank's
// part is contiguous; what depends on a token's position asks PositionOf.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_IR_CONTEXT_ORDER_H_
#define MESHWRIGHT_IR_CONTEXT_ORDER_H_

#include <cstdint>

namespace meshwright {

// The position in the sequence of what is stored at `place`; one rank stores everything at its position.
// REQUIRES: 2 * ranks divides `sequence`, where there are several.
constexpr int64_t PositionOf(int64_t place, int64_t sequence, int64_t ranks) {
  if (ranks <= 1) return place;
  const int64_t length = sequence / (2 * ranks), stored = place / length, inside = place % length;
  const int64_t piece = stored % 2 == 0 ? stored / 2 : 2 * ranks - 1 - stored / 2;
  return piece * length + inside;
}

// Where what has that position is stored.
constexpr int64_t PlaceOf(int64_t position, int64_t sequence, int64_t ranks) {
  if (ranks <= 1) return position;
  const int64_t length = sequence / (2 * ranks), piece = position / length, inside = position % length;
  const int64_t stored = piece < ranks ? 2 * piece : 2 * (2 * ranks - 1 - piece) + 1;
  return stored * length + inside;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_CONTEXT_ORDER_H_
