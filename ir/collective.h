// The collectives that a program may hold: one row per kind, read by the text form, the verifier, the cost model and
// the executors.
//
// The size S of a collective follows nccl-tests: the whole tensor for all_reduce and broadcast, the gathered result for
// all_gather, the input of one rank for reduce_scatter and all_to_all. Each rank's buffers are fractions of S, so S and
// the number of ranks say everything.
//
// Point to point transfers (send, receive, permute) are not collectives and are not listed.
//
// Thread safety: constants and pure functions.
#ifndef MESHWRIGHT_IR_COLLECTIVE_H_
#define MESHWRIGHT_IR_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/string_view.h"

namespace meshwright {

enum class CollectiveKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

// How much of S a rank holds.
enum class Holding : uint8_t {
  kWhole,     // S bytes
  kOneShare,  // S / ranks bytes
};

struct CollectiveInfo {
  CollectiveKind kind;
  absl::string_view name;  // as texts spell it
  Holding before;          // in the buffer that a rank gives (broadcast: only the root's counts)
  bool reduces;            // adds the ranks' values
  // Bytes that cross each rank's link in a bandwidth-optimal algorithm, as a share of S: bus_rounds x (n-1)/n, or 1
  // where bus_rounds is 0. It is the "bus bandwidth" factor of NVIDIA/nccl-tests doc/PERFORMANCE.md.
  int bus_rounds;
};

// One row per kind, in the enum's order.
inline constexpr CollectiveInfo kCollectives[] = {
    {CollectiveKind::kAllReduce, "all_reduce", Holding::kWhole, true, 2},
    {CollectiveKind::kAllGather, "all_gather", Holding::kOneShare, false, 1},
    {CollectiveKind::kReduceScatter, "reduce_scatter", Holding::kWhole, true, 1},
    {CollectiveKind::kBroadcast, "broadcast", Holding::kWhole, false, 0},
    {CollectiveKind::kAllToAll, "all_to_all", Holding::kWhole, false, 1},
};
inline constexpr size_t kNumCollectiveKinds = static_cast<size_t>(CollectiveKind::kAllToAll) + 1;

constexpr bool CollectiveRowsAreInOrder() {
  for (size_t i = 0; i < std::size(kCollectives); ++i) {
    if (kCollectives[i].kind != static_cast<CollectiveKind>(i)) return false;
  }
  return std::size(kCollectives) == kNumCollectiveKinds;
}
static_assert(CollectiveRowsAreInOrder(), "kCollectives needs one row per CollectiveKind, in the enum's order");

constexpr const CollectiveInfo& InfoOf(CollectiveKind kind) { return kCollectives[static_cast<size_t>(kind)]; }
constexpr absl::string_view NameOf(CollectiveKind kind) { return InfoOf(kind).name; }
constexpr std::optional<CollectiveKind> CollectiveKindFromName(absl::string_view name) {
  for (const CollectiveInfo& row : kCollectives) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

// Share of S that crosses each rank's link, at least, in a group of `ranks` >= 1. A switch that reduces (NVLS) does
// with less.
constexpr double BusFactor(CollectiveKind kind, int64_t ranks) {
  if (ranks <= 1) return 0;
  const int rounds = InfoOf(kind).bus_rounds;
  return rounds == 0 ? 1.0 : rounds * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_COLLECTIVE_H_
