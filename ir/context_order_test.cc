#include "ir/context_order.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Positions(int64_t sequence, int64_t ranks) {
  std::vector<int64_t> positions;
  for (int64_t place = 0; place < sequence; ++place) positions.push_back(PositionOf(place, sequence, ranks));
  return positions;
}

TEST(ContextOrderTest, OneRankStoresEverythingAtItsPosition) {
  EXPECT_THAT(Positions(5, 1), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ContextOrderTest, ARankHoldsAPieceFromTheFrontAndOneFromTheBack) {
  // Pieces of 2: 0, 3, 1, 2.
  EXPECT_THAT(Positions(8, 2), ElementsAre(0, 1, 6, 7, 2, 3, 4, 5));
  EXPECT_THAT(Positions(6, 3), ElementsAre(0, 5, 1, 4, 2, 3));
}

// A token at position p sees p + 1: the pieces i and 2n - 1 - i of length l make 2 l (n l) + l of that, whatever i is.
TEST(ContextOrderTest, EveryRankHasTheSameShareOfACausalMask) {
  for (const int64_t ranks : {2, 3, 8}) {
    const int64_t length = 5, sequence = 2 * ranks * length;
    const std::vector<int64_t> positions = Positions(sequence, ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto begin = positions.begin() + rank * 2 * length;
      const int64_t seen = std::accumulate(begin, begin + 2 * length, 2 * length);
      EXPECT_EQ(seen, 2 * length * ranks * length + length) << "rank " << rank << " of " << ranks;
    }
  }
}

}  // namespace
}  // namespace meshwright
