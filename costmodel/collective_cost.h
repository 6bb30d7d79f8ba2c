// How long a collective or a transfer takes on a group of ranks that has its links to itself, and what it occupies
// meanwhile.
//
// Devices: the choice among NCCL's algorithms and protocols is made as NCCL makes it (nccl_tuner.h), and its own
// predicted time is then corrected by what was measured (collective_cost.cc, one table). The host back end is priced by
// latency and memory bandwidth.
//
// Other traffic on the same links, and late arrival of a rank, are the simulator's business: that is what the bytes and
// channels in CollectiveCost are for.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_COLLECTIVE_COST_H_
#define MESHWRIGHT_COSTMODEL_COLLECTIVE_COST_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/cluster.h"
#include "ir/collective.h"
#include "ir/quantities.h"

namespace meshwright {

// How a group lies on the nodes. ranks = nodes x ranks_per_node where it lies evenly. Else ranks_per_node is that of
// the fullest node, and the emptiest, which has the fewest network cards, sets the pace between nodes.
struct GroupShape {
  int64_t ranks = 1;
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  int64_t nic_sharing = 1;      // groups of the same shape that use the same network cards at the same time
  int64_t fewest_per_node = 0;  // on the emptiest node; 0: on all as many

  int64_t Fewest() const { return fewest_per_node > 0 ? fewest_per_node : ranks_per_node; }

  friend bool operator==(const GroupShape&, const GroupShape&) = default;
};

// The shape of a group of global ranks, in any order. `nic_sharing` assumes that the ranks' neighbours form groups of
// the same shape that communicate at the same time, as all ranks of a mesh axis do: eight groups with one rank on each
// node share four network cards by twos.
GroupShape ShapeOfGroup(absl::Span<const int64_t> ranks, const Cluster& cluster);

enum class Algorithm : uint8_t { kNone, kRing, kTree, kNvls, kNvlsTree, kPat, kPairs, kHostMemory };
inline constexpr absl::string_view kAlgorithmNames[] = {"none",      "ring", "tree",  "nvls",
                                                        "nvls_tree", "pat",  "pairs", "host_memory"};
enum class Protocol : uint8_t { kNone, kLl, kLl128, kSimple };
inline constexpr absl::string_view kProtocolNames[] = {"none", "ll", "ll128", "simple"};
constexpr absl::string_view NameOf(Algorithm algorithm) { return kAlgorithmNames[static_cast<size_t>(algorithm)]; }
constexpr absl::string_view NameOf(Protocol protocol) { return kProtocolNames[static_cast<size_t>(protocol)]; }

// What a user ties NCCL to (NCCL_ALGO, NCCL_PROTO). kNone: NCCL chooses.
struct NcclPins {
  Algorithm algorithm = Algorithm::kNone;
  Protocol protocol = Protocol::kNone;
};

struct CollectiveCost {
  Nanos time;  // from the arrival of the last rank to the end on the last rank
  Algorithm algorithm = Algorithm::kNone;
  Protocol protocol = Protocol::kNone;
  int channels = 0;        // thread blocks that each rank's device gives to it: multiprocessors taken
  Bytes intra_bytes;       // that each rank sends over its link inside the node
  Bytes nic_bytes;         // that each rank's share of the node's network cards sends
  bool estimated = false;  // rests on link numbers or corrections that nobody measured for this kind of machine
};

// Prices one run of `kind` over a group. `size` is S of ir/collective.h, the nccl-tests convention: for all_gather the
// gathered result, for reduce_scatter and all_to_all a rank's input.
//
// A group of one rank, or a size of 0, costs nothing. A group that spans nodes of a cluster without network cards, or
// whose links have no bandwidth, costs kForever.
CollectiveCost PriceCollective(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster);

// Prices one transfer from a rank to another that waits for it. With `crosses_node` it goes through one network card,
// which `nic_sharing` such transfers use at the same time.
CollectiveCost PriceSendRecv(Bytes size, bool crosses_node, const Cluster& cluster, int64_t nic_sharing = 1);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_COLLECTIVE_COST_H_
