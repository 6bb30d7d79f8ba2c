// Where the strips and corners of a tile's halo lie. Inner to this folder: NeighborExchangeV2 and its derivative.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_HALO_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_HALO_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "executor/manual/collectives.h"

namespace meshwright::manual {

constexpr int kDirections = 8;  // clockwise from the top
constexpr int Opposite(int direction) { return (direction + 4) % kDirections; }

// What NeighborExchangeV2 gives for a tile of shape (N, C, H, W). REQUIRES: the tile and `spec` are checked.
Shape HaloShape(const Shape& tile, const NeighborExchangeV2Spec& spec);

// A part of a tensor of four dims.
struct Region {
  Shape begin, shape;
};
// Of the tile, what goes to a direction; of the output, what came from there, and the tile itself.
Region SentRegion(const Shape& tile, const NeighborExchangeV2Spec& spec, int direction);
Region ReceivedRegion(const Shape& tile, const NeighborExchangeV2Spec& spec, int direction);
Region TileRegion(const Shape& tile, const NeighborExchangeV2Spec& spec);

// E-VALUE unless `tile` and `spec` fit together and the neighbours are in the group.
absl::Status CheckHalo(const Shape& tile, const NeighborExchangeV2Spec& spec, const GroupView& members);

// Sends `outgoing` of every direction that has a neighbour in `to` and receives from those in `from`, of the shapes
// that `incoming` has. Agrees first that all fits together. `checks` as in ShareTexts; only if it is OK are the rest
// read.
absl::Status ExchangeHalo(Context& context, const GroupView& members, absl::string_view op, const absl::Status& checks,
                          const std::array<int64_t, 8>& to, const std::array<Tensor, 8>& outgoing,
                          const std::array<int64_t, 8>& from, std::array<Tensor, 8>& incoming);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_HALO_H_
