// NCCL's own performance model: which algorithm and protocol it will choose for a collective, and the time it predicts.
//
// NCCL prices every (algorithm, protocol) pair by latency and bandwidth and takes the cheapest. This file repeats that
// arithmetic (NVIDIA/nccl v2.28.9-1, src/graph/tuning.cc, topo.h, search.cc, connect.cc), because the kinks of measured
// curves lie where NCCL changes its mind. Its times are optimistic in places: collective_cost.h corrects them.
//
// What is left out: CollNet (in-network reduction), symmetric kernels, mixed device generations, user environment.
//
// Units inside NCCL's model, kept here: microseconds, and GB/s (1e9 bytes per second).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_NCCL_TUNER_H_
#define MESHWRIGHT_COSTMODEL_NCCL_TUNER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "costmodel/collective_cost.h"
#include "ir/cluster.h"
#include "ir/collective.h"
#include "ir/quantities.h"

namespace meshwright {

// Whose choices these are, whatever release a machine has.
inline constexpr absl::string_view kNcclVersion = "2.28.9";

// src/graph/topo.h: what NCCL counts a PCIe link for, of the data sheet's rate: 24 of 31.5 GB/s of generation 4.
inline constexpr double kNcclPcieShare = 24 / 31.5;

// Of a PCIe link's rate, both ways at once, between devices without peer access, whose bytes all cross the host's
// memory: the median of 0.25 to 0.45 on seven machines in CUDA's p2pBandwidthLatencyTest, "Bidirectional P2P=Disabled"
// (public on GitHub: 3090, A40, eight A100, four cards of 1.5 TB/s, eight of 0.55; with PCIe 5 a pair and eight H200).
inline constexpr double kThroughHostShare = 0.36;

// Network cards of one node that a group can use, of the node with the fewest: those near its devices, at least one.
int64_t NicsOfGroup(const GroupShape& group, const Cluster& cluster);

// Up to four devices are wired each to each other (HGX A100 and H100 of 4, quads of GH200): of a device's links, those
// that lead to the group. 1 on other machines.
double MeshShare(const GroupShape& group, const Cluster& cluster);

// What NCCL's search of the topology finds: `channels` rings of `speed` GB/s each.
struct NcclGraph {
  int channels = 0;
  double speed = 0;
  double inter_speed = 0;  // NVLS graphs: the limit of one channel outside the switch
  int blocks = 0;          // channels that are really used: thread blocks
};

// The graph of rings and trees, and that of the switch's reductions (channels 0 where there is none).
NcclGraph RingGraph(const GroupShape& group, const Cluster& cluster);
NcclGraph NvlsGraph(const GroupShape& group, const Cluster& cluster);

// One pair that NCCL could choose. time = latency + S / bandwidth (before the corrections of PredictionOf).
struct NcclCandidate {
  Algorithm algorithm = Algorithm::kNone;
  Protocol protocol = Protocol::kNone;
  double latency_us = 0;
  double bandwidth = 0;  // algorithm bandwidth, GB/s
  int blocks = 0;
  double network_share = 0;  // of latency_us, spent in steps between nodes
  double cards_share = 0;    // of latency_us, what the cards add to these steps: Cluster::nic_latency
  // Of sums in switches, the bus in GB/s that their blocks carry; else 0. NCCL's limits of a channel were set on nodes
  // of 8 devices, which have 8 channels; a wider switch (NVL72) has up to 32, for as many blocks, so no more in all:
  // trees of switches keep the bus of 8 channels, and in one node each rank sends a byte to the switch once, however
  // many or few they are, at the algorithm bandwidth of 8 ranks.
  double blocks_bus = 0;
};

// All pairs that are enabled for the collective, in the order of enumeration.
struct NcclCandidates {
  std::array<NcclCandidate, 8> rows;
  size_t count = 0;
  const NcclCandidate* begin() const { return rows.data(); }
  const NcclCandidate* end() const { return rows.data() + count; }
};

// REQUIRES: group.ranks > 1, kind is not kAllToAll (NCCL makes it of sends and receives and does not predict it).
NcclCandidates CandidatesOf(CollectiveKind kind, const GroupShape& group, const Cluster& cluster);

// NCCL's time for S = `size` with this candidate.
struct NcclPrediction {
  double latency_us = 0, transfer_us = 0;
};
NcclPrediction PredictionOf(const NcclCandidate& candidate, CollectiveKind kind, Bytes size, const GroupShape& group,
                            const Cluster& cluster);

// The candidate with the smallest predicted time; ties go to the first.
struct NcclChoice {
  NcclCandidate candidate;
  double predicted_us = 0;
  // What does not grow with the size: of predicted_us, but over nodes with all levels of a tree, which NCCL rounds down
  // for its choice. The candidate's shares are of this one.
  double latency_us = 0;
  // The rest, at the rate that is reached where NCCL counts another for its choice: without the steps of its shares of
  // trees at powers of two; in one node of links that are faster than those of the device's generation; over nodes of
  // trees and of rings with LL128; between devices without peer access (kThroughHostShare).
  double smooth_transfer_us = 0;
  // With LL in one node: the bytes that all blocks carry while each of their 512 threads sends one line of 8 a step.
  // NCCL adds a block for as many (src/enqueue.cc; to a ring for its ranks' as many, src/graph/tuning.cc). A
  // broadcast's chain is not cut by its ranks: 0.
  double line_bytes = 0;
  bool forced = false;  // by pins: NCCL itself would have taken another
};
// Of the candidates that `pins` leaves; of all, where it leaves none.
NcclChoice ChooseAsNccl(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster,
                        const NcclPins& pins = {});

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_NCCL_TUNER_H_
