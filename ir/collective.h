// The collectives that a program may hold: one row per kind. Everything that asks "what does an all_gather need" reads
// it here: buffer sizes, the verifier, the cost model, the executors, the text form.
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
#include "ir/quantities.h"

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
  Holding after;           // in the buffer that a rank gets
  bool reduces;            // adds the ranks' values
  // Bytes that cross each rank's link in a bandwidth-optimal algorithm, as a share of S: bus_rounds x (n-1)/n, or 1
  // where bus_rounds is 0. It is the "bus bandwidth" factor of NVIDIA/nccl-tests doc/PERFORMANCE.md.
  int bus_rounds;
};

// One row per kind, in the enum's order.
inline constexpr CollectiveInfo kCollectives[] = {
    {CollectiveKind::kAllReduce, "all_reduce", Holding::kWhole, Holding::kWhole, true, 2},
    {CollectiveKind::kAllGather, "all_gather", Holding::kOneShare, Holding::kWhole, false, 1},
    {CollectiveKind::kReduceScatter, "reduce_scatter", Holding::kWhole, Holding::kOneShare, true, 1},
    {CollectiveKind::kBroadcast, "broadcast", Holding::kWhole, Holding::kWhole, false, 0},
    {CollectiveKind::kAllToAll, "all_to_all", Holding::kWhole, Holding::kWhole, false, 1},
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

// Bytes of the buffer that a rank gives and of the one it gets; `size` is S, which `ranks` must divide where a share is
// held.
constexpr Bytes HeldBytes(Holding holding, Bytes size, int64_t ranks) {
  return holding == Holding::kWhole ? size : Bytes(size.raw() / ranks);
}
constexpr Bytes BytesBefore(CollectiveKind kind, Bytes size, int64_t ranks) {
  return HeldBytes(InfoOf(kind).before, size, ranks);
}
constexpr Bytes BytesAfter(CollectiveKind kind, Bytes size, int64_t ranks) {
  return HeldBytes(InfoOf(kind).after, size, ranks);
}

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_COLLECTIVE_H_
