#include "executor/manual/halo.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/manual/agreement.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

constexpr absl::string_view kDirectionNames[] = {"top",    "top right",   "right", "bottom right",
                                                 "bottom", "bottom left", "left",  "top left"};
constexpr absl::string_view kSideNames[] = {"top", "bottom", "left", "right"};
constexpr int kSideDirections[] = {0, 4, 6, 2};       // the direction of each side, in the order of lengths
constexpr int kDown[] = {-1, -1, 0, 1, 1, 1, 0, -1};  // of each direction
constexpr int kRight[] = {0, 1, 1, 1, 0, -1, -1, -1};

// The span of a border along one dim of `extent` elements: -1 the first `low`, 1 the last `high`, 0 all.
std::pair<int64_t, int64_t> Border(int side, int64_t extent, int64_t low, int64_t high) {
  if (side < 0) return {0, low};
  if (side > 0) return {extent - high, high};
  return {0, extent};
}

// The span outside, in an output that begins `low` before the tile.
std::pair<int64_t, int64_t> Outside(int side, int64_t extent, int64_t low, int64_t high) {
  if (side < 0) return {0, low};
  if (side > 0) return {low + extent, high};
  return {low, extent};
}

Region MakeRegion(const Shape& tile, std::pair<int64_t, int64_t> rows, std::pair<int64_t, int64_t> columns) {
  return {{0, 0, rows.first, columns.first}, {tile[0], tile[1], rows.second, columns.second}};
}

absl::Status CheckLengths(const std::array<int64_t, 8>& ranks, const std::array<int64_t, 4>& lengths,
                          absl::string_view what, const GroupView& members) {
  for (int d = 0; d < kDirections; ++d) {
    if (ranks[d] == -1 || std::find(members.ranks.begin(), members.ranks.end(), ranks[d]) != members.ranks.end()) {
      continue;
    }
    return ValueError(what, "_ranks has rank ", ranks[d], " at the ", kDirectionNames[d],
                      ", which is not in the group; -1 is none");
  }
  for (int side = 0; side < 4; ++side) {
    if (lengths[side] < 0) {
      return ValueError(what, "_lens is ", lengths[side], " at the ", kSideNames[side], "; wants 0 or more");
    }
    if (lengths[side] > 0 && ranks[kSideDirections[side]] == -1) {
      return ValueError(what, "_lens is ", lengths[side], " at the ", kSideNames[side],
                        ", where there is no neighbour; wants 0");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Shape HaloShape(const Shape& tile, const NeighborExchangeV2Spec& spec) {
  return {tile[0], tile[1], tile[2] + spec.recv_lens[0] + spec.recv_lens[1],
          tile[3] + spec.recv_lens[2] + spec.recv_lens[3]};
}

Region SentRegion(const Shape& tile, const NeighborExchangeV2Spec& spec, int direction) {
  return MakeRegion(tile, Border(kDown[direction], tile[2], spec.send_lens[0], spec.send_lens[1]),
                    Border(kRight[direction], tile[3], spec.send_lens[2], spec.send_lens[3]));
}

Region ReceivedRegion(const Shape& tile, const NeighborExchangeV2Spec& spec, int direction) {
  return MakeRegion(tile, Outside(kDown[direction], tile[2], spec.recv_lens[0], spec.recv_lens[1]),
                    Outside(kRight[direction], tile[3], spec.recv_lens[2], spec.recv_lens[3]));
}

Region TileRegion(const Shape& tile, const NeighborExchangeV2Spec& spec) {
  return MakeRegion(tile, {spec.recv_lens[0], tile[2]}, {spec.recv_lens[2], tile[3]});
}

absl::Status CheckHalo(const Shape& tile, const NeighborExchangeV2Spec& spec, const GroupView& members) {
  if (spec.data_format != "NCHW") return ValueError("data_format is \"", spec.data_format, "\"; there is only NCHW");
  if (tile.size() != 4) return ValueError("the tensor has ", tile.size(), " dims, wants 4: N, C, H, W");
  MESHWRIGHT_RETURN_IF_ERROR(CheckLengths(spec.send_ranks, spec.send_lens, "send", members));
  MESHWRIGHT_RETURN_IF_ERROR(CheckLengths(spec.recv_ranks, spec.recv_lens, "recv", members));
  for (int side = 0; side < 4; ++side) {
    const int64_t extent = tile[side < 2 ? 2 : 3];
    if (spec.send_lens[side] <= extent) continue;
    return ValueError("send_lens is ", spec.send_lens[side], " at the ", kSideNames[side], ", the tile has ", extent);
  }
  return absl::OkStatus();
}

absl::Status ExchangeHalo(Context& context, const GroupView& members, absl::string_view op, const absl::Status& checks,
                          const std::array<int64_t, 8>& to, const std::array<Tensor, 8>& outgoing,
                          const std::array<int64_t, 8>& from, std::array<Tensor, 8>& incoming) {
  // Both ends go through the directions as the receiver sees them: two tiles may meet at several sides.
  std::vector<Transfer> sends, receives;
  for (int d = 0; d < kDirections && checks.ok(); ++d) {
    const int sender = Opposite(d);
    if (to[sender] >= 0) {
      sends.push_back({to[sender], absl::StrCat(ToText(outgoing[sender]), " for its ", kDirectionNames[d])});
    }
    if (from[d] >= 0) receives.push_back({from[d], absl::StrCat(ToText(incoming[d]), " for its ", kDirectionNames[d])});
  }
  Endpoint& self = context.endpoint();
  MESHWRIGHT_RETURN_IF_ERROR(AgreeOnExchange(self, members, op, checks, sends, receives));
  for (int d = 0; d < kDirections; ++d) {
    const int sender = Opposite(d);
    if (to[sender] < 0) continue;
    MESHWRIGHT_RETURN_IF_ERROR(self.Send(to[sender], Channel::kCollective, outgoing[sender].data));
  }
  for (int d = 0; d < kDirections; ++d) {
    if (from[d] < 0) continue;
    MESHWRIGHT_RETURN_IF_ERROR(self.Receive(from[d], Channel::kCollective, absl::MakeSpan(incoming[d].data)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> NeighborExchangeV2(Context& context, const Tensor& x, const NeighborExchangeV2Spec& spec,
                                          absl::string_view group) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const GroupView members, context.Members(group));
  absl::Status checks = CheckTensor(x);
  if (checks.ok()) checks = CheckHalo(x.shape, spec, members);
  std::array<Tensor, 8> outgoing, incoming;
  for (int d = 0; d < kDirections && checks.ok(); ++d) {
    const Region sent = SentRegion(x.shape, spec, d);
    if (spec.send_ranks[d] >= 0) outgoing[d] = Block(x, sent.begin, sent.shape);
    if (spec.recv_ranks[d] >= 0) incoming[d] = Tensor::Zeros(ReceivedRegion(x.shape, spec, d).shape, x.dtype);
  }
  MESHWRIGHT_RETURN_IF_ERROR(ExchangeHalo(context, members, "NeighborExchangeV2", checks, spec.send_ranks, outgoing,
                                          spec.recv_ranks, incoming));
  Tensor y = Tensor::Zeros(HaloShape(x.shape, spec), x.dtype);
  SetBlock(x, TileRegion(x.shape, spec).begin, y);
  for (int d = 0; d < kDirections; ++d) {
    if (spec.recv_ranks[d] >= 0) SetBlock(incoming[d], ReceivedRegion(x.shape, spec, d).begin, y);
  }
  return y;
}

std::array<int64_t, 8> GridNeighbors(int64_t rows, int64_t columns, int64_t rank) {
  std::array<int64_t, 8> neighbors;
  for (int d = 0; d < kDirections; ++d) {
    const int64_t row = rank / columns + kDown[d], column = rank % columns + kRight[d];
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    neighbors[d] = inside ? row * columns + column : -1;
  }
  return neighbors;
}

}  // namespace meshwright::manual
