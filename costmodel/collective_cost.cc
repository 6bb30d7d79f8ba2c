#include "costmodel/collective_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "costmodel/nccl_tuner.h"

namespace meshwright {
namespace {

// Measured time / NCCL's own prediction. First version: none.
double Correction(CollectiveKind, const GroupShape&, const Cluster&, Bytes) { return 1.0; }

// All-to-all and transfers are outside NCCL's model. Shares of the data sheet's rate that were measured: all-to-all
// over 8 devices of one node 321 of 450 GB/s (H100, bus bandwidth), 203 of 300 (A100); over 32 devices of 4 nodes 37 of
// 50 GB/s per network card (NVIDIA, GTC 2025), a pair 376 of 450 (H100), 274 of 300 (A100), 55.4 of 63 over PCIe
// (ai-dynamo/aiconfigurator, stas00/ml-engineering); an InfiniBand write 97 %.
constexpr double kAllToAllShare = 0.71;
constexpr double kAllToAllNicShare = 0.74;
constexpr double kPairShare = 0.85;
constexpr double kPcieShare = 0.88;
constexpr double kPairNicShare = 0.97;
// Smallest grouped send/receive inside a node: 6.2 us (H100), 10.5 us (A100), nccl-tests with 2 ranks.
constexpr double kPairLatencyHopper = 6.2;
constexpr double kPairLatency = 10.5;
constexpr double kPairNetLatency = 14;  // NCCL's network step for Simple, src/graph/tuning.cc
constexpr double kPostMicros = 1;       // to post one message to the network, the same source
// The host back end: threads that meet at a barrier. Estimated.
constexpr double kHostLatency = 5;

constexpr int64_t kBytesPerBlock = 16 << 10;  // NCCL gives a channel at least 16 KiB

double Seconds(Bytes bytes, BytesPerSecond rate) {
  return rate.raw() > 0 ? static_cast<double>(bytes.raw()) / rate.raw() : 1e12;
}
Nanos FromMicros(double us) { return FromSeconds(us * 1e-6); }

int Blocks(int most, Bytes size) {
  return static_cast<int>(std::clamp<int64_t>(size.raw() / kBytesPerBlock, 1, std::max(1, most)));
}

Bytes Share(Bytes size, double share) { return Bytes(std::llround(static_cast<double>(size.raw()) * share)); }

double PairLatency(const Cluster& cluster) {
  return cluster.device.generation >= Generation::kHopper ? kPairLatencyHopper : kPairLatency;
}
double LinkShare(const Cluster& cluster, double nvlink_share) {
  return cluster.intra_kind == LinkKind::kPcie ? std::min(nvlink_share, kPcieShare) : nvlink_share;
}

// Rate at which one rank of the group sends through network cards.
BytesPerSecond NicRate(const GroupShape& group, const Cluster& cluster) {
  const double per_rank = std::max(static_cast<double>(cluster.nics_per_node) / cluster.devices_per_node,
                                   1.0 / static_cast<double>(group.ranks_per_node));
  return cluster.nic_bandwidth * std::min(per_rank, 1.0) / static_cast<double>(group.nic_sharing);
}

CollectiveCost AllToAll(Bytes size, const GroupShape& group, const Cluster& cluster) {
  const double n = static_cast<double>(group.ranks);
  const double near = static_cast<double>(group.ranks_per_node - 1);
  const double far = n - static_cast<double>(group.ranks_per_node);
  CollectiveCost cost;
  cost.algorithm = Algorithm::kPairs;
  cost.protocol = Protocol::kSimple;
  cost.intra_bytes = Share(size, near / n);
  cost.nic_bytes = Share(size, far / n);
  double inside = 0, outside = 0;
  if (near > 0) {
    inside = PairLatency(cluster) * 1e-6 +
             Seconds(cost.intra_bytes, cluster.intra_bandwidth * LinkShare(cluster, kAllToAllShare));
  }
  if (far > 0) {
    outside = (PairLatency(cluster) + kPairNetLatency + cluster.nic_latency.raw() / 1e3 + far * kPostMicros) * 1e-6 +
              Seconds(cost.nic_bytes, NicRate(group, cluster) * kAllToAllNicShare);
  }
  cost.time = FromSeconds(std::max(inside, outside));
  cost.channels = Blocks(32, size);
  cost.estimated = far > 0;
  return cost;
}

CollectiveCost OnHost(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster) {
  CollectiveCost cost;
  cost.algorithm = Algorithm::kHostMemory;
  cost.intra_bytes = Share(size, BusFactor(kind, group.ranks));
  if (group.nodes > 1) cost.nic_bytes = cost.intra_bytes;
  // Every rank writes and reads its share through the memory that all ranks of the node share.
  const double traffic = 2.0 * static_cast<double>(cost.intra_bytes.raw()) * static_cast<double>(group.ranks_per_node);
  const double levels = std::ceil(std::log2(static_cast<double>(group.ranks)));
  double seconds = kHostLatency * 1e-6 * levels + traffic / cluster.device.memory_bandwidth.raw();
  if (group.nodes > 1) seconds += cluster.nic_latency.raw() * 1e-9 + Seconds(cost.nic_bytes, NicRate(group, cluster));
  cost.time = FromSeconds(seconds);
  cost.estimated = true;
  return cost;
}

// Fills in what each rank sends where: in a ring or tree each node's traffic is shared by its cards.
void CountBytes(CollectiveKind kind, Bytes size, const GroupShape& group, CollectiveCost* cost) {
  const double per_node = static_cast<double>(group.ranks_per_node);
  const double nodes = static_cast<double>(group.nodes);
  const double bus = BusFactor(kind, group.ranks);
  switch (cost->algorithm) {
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:  // the switch adds and copies: each rank sends every byte once
      cost->intra_bytes = Share(size, kind == CollectiveKind::kAllReduce ? 1.0 : bus);
      cost->nic_bytes = Share(size, group.nodes == 1 ? 0 : 2 * (nodes - 1) / nodes / per_node);
      return;
    case Algorithm::kTree:
      cost->intra_bytes = Share(size, 2 * (per_node - 1) / per_node);
      cost->nic_bytes = Share(size, 2 * (nodes - 1) / nodes / per_node);
      return;
    case Algorithm::kNone:
    case Algorithm::kRing:
    case Algorithm::kPat:
    case Algorithm::kPairs:
    case Algorithm::kHostMemory:
      cost->intra_bytes = Share(size, group.nodes == 1 ? bus : bus * (per_node - 1) / per_node);
      cost->nic_bytes = Share(size, group.nodes == 1 ? 0 : bus / per_node);
      return;
  }
}

}  // namespace

CollectiveCost PriceCollective(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster) {
  CollectiveCost cost;
  if (group.ranks <= 1 || size.raw() <= 0) return cost;
  if (group.nodes > 1 && cluster.nics_per_node == 0) {
    cost.time = kForever;
    return cost;
  }
  if (cluster.device.generation == Generation::kHost) return OnHost(kind, size, group, cluster);
  if (kind == CollectiveKind::kAllToAll) return AllToAll(size, group, cluster);

  const NcclChoice choice = ChooseAsNccl(kind, size, group, cluster);
  cost.algorithm = choice.candidate.algorithm;
  cost.protocol = choice.candidate.protocol;
  cost.channels = Blocks(choice.candidate.blocks, size);
  CountBytes(kind, size, group, &cost);
  double us = choice.predicted_us * Correction(kind, group, cluster, size);
  // Groups that share the network cards wait for each other's bytes.
  if (group.nodes > 1 && group.nic_sharing > 1) {
    us += 1e6 * Seconds(cost.nic_bytes * (group.nic_sharing - 1),
                        NicRate({group.ranks, group.nodes, group.ranks_per_node, 1}, cluster));
  }
  cost.time = FromMicros(us);
  cost.estimated = group.nodes > 1 || cluster.links_estimated;
  return cost;
}

CollectiveCost PriceSendRecv(Bytes size, bool crosses_node, const Cluster& cluster, int64_t nic_sharing) {
  CollectiveCost cost;
  if (size.raw() <= 0) return cost;
  cost.algorithm = Algorithm::kPairs;
  cost.protocol = Protocol::kSimple;
  if (crosses_node && cluster.nics_per_node == 0) {
    cost.time = kForever;
    return cost;
  }
  double seconds = 0;
  if (cluster.device.generation == Generation::kHost && !crosses_node) {
    cost.algorithm = Algorithm::kHostMemory;
    cost.intra_bytes = size;
    cost.estimated = true;
    cost.time = FromSeconds(kHostLatency * 1e-6 + Seconds(size * 2, cluster.device.memory_bandwidth));
    return cost;
  }
  if (crosses_node) {
    cost.nic_bytes = size;
    seconds =
        (kPairNetLatency + PairLatency(cluster)) * 1e-6 + cluster.nic_latency.raw() * 1e-9 +
        Seconds(size, cluster.nic_bandwidth * kPairNicShare / static_cast<double>(std::max<int64_t>(1, nic_sharing)));
    cost.channels = Blocks(2, size);
    cost.estimated = true;
  } else {
    cost.intra_bytes = size;
    seconds = PairLatency(cluster) * 1e-6 + Seconds(size, cluster.intra_bandwidth * LinkShare(cluster, kPairShare));
    cost.channels = Blocks(32, size);
    cost.estimated = cluster.links_estimated;
  }
  cost.time = FromSeconds(seconds);
  return cost;
}

}  // namespace meshwright
