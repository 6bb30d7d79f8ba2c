#include "costmodel/collective_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "costmodel/data_sheet.h"
#include "costmodel/nccl_correction.h"
#include "costmodel/nccl_tuner.h"

namespace meshwright {
namespace {

// All-to-all and transfers are grouped sends and receives, outside NCCL's model. For a rank that sends `bytes` to
// others of its node and keeps S / ranks:
//   x = bytes / (share x link) + touches S / ranks / memory bandwidth
//   time = l + x + hump sqrt(l x),  l = ll + ll_per_peer (ranks - 1) while a message is at most 4 KiB, else `simple`,
//                                   but never less than with LL: many peers take their time with either
// Fitted on half of the sizes of ai-dynamo/aiconfigurator's all-to-all loops (2, 4 and 8 GPUs of one node).
struct PairConstants {
  double share, touches, ll_us, ll_per_peer_us, simple_us, hump;
  double one_pair_share;  // 274 of 300 GB/s (A100), 376 of 450 (H100) for a single pair, the same source
};
constexpr PairConstants kPairsAmpere = {0.787, 1.80, 10.58, 0.32, 11.99, 1.40, 0.91};
constexpr PairConstants kPairsHopper = {0.746, 1.06, 6.17, 0.26, 9.43, 0.72, 0.84};
constexpr double kLargestLlMessage = 4 << 10;
constexpr double kPcieShare = 0.88;  // 55.4 of 63 GB/s (stas00/ml-engineering)
// Through the network: 97 % for one InfiniBand write. NCCL's network step for Simple and its time to post a message:
// src/graph/tuning.cc.
constexpr double kPairNicShare = 0.97;
constexpr double kNetStepMicros = 14;
constexpr double kPostMicros = 1;
// The host back end, whose ranks are threads or processes: until another has seen what one says, in seconds. What it
// takes to hand over work, as a CPU hands a kernel to its device.
double HostLatency(const Cluster& cluster) { return ToSeconds(cluster.device.kernels.host_launch); }

constexpr int64_t kBytesPerBlock = 16 << 10;  // NCCL gives a channel at least 16 KiB

constexpr double kNeverMicros = 1e18;  // becomes kForever

double Seconds(Bytes bytes, BytesPerSecond rate) {
  return rate.raw() > 0 ? static_cast<double>(bytes.raw()) / rate.raw() : kNeverMicros * 1e-6;
}
Nanos FromMicros(double us) { return FromSeconds(us * 1e-6); }

int Blocks(int most, Bytes size) {
  return static_cast<int>(std::clamp<int64_t>(size.raw() / kBytesPerBlock, 1, std::max(1, most)));
}

Bytes Share(Bytes size, double share) { return Bytes(std::llround(static_cast<double>(size.raw()) * share)); }

const PairConstants& PairsOf(const Cluster& cluster) {
  return cluster.device.generation >= Generation::kHopper ? kPairsHopper : kPairsAmpere;
}

// Latency and transfer, and what neither counts: a pipeline that is being filled.
double Pipelined(double latency_us, double transfer_us, double hump) {
  return latency_us + transfer_us + hump * std::sqrt(latency_us * transfer_us);
}

// Of a device's links, those that messages to the group's others in its node go through. In the hybrid cube mesh of
// eight V100 (DGX-1) a device has a link or two to each of the other three of its quad, and to one of the other quad:
// of six, a pair has one at least, a quad as many as it has pairs; over all eight, three of seven messages take two
// hops.
double PairLinks(const GroupShape& group, const Cluster& cluster) {
  const bool cube = cluster.intra_kind == LinkKind::kNvLinkMesh && cluster.device.generation == Generation::kVolta &&
                    cluster.devices_per_node == 8;
  if (!cube) return MeshShare(group, cluster);
  if (group.ranks_per_node > 4) return 7.0 / (4 + 3 * 2);
  return static_cast<double>(group.ranks_per_node - 1) / 6;
}

// Time in us to send `bytes` to `peers` ranks of the node, and to move what the rank keeps.
double PairsInNode(double bytes, double peers, double kept, double share, const Cluster& cluster,
                   double latency_scale = 1) {
  const PairConstants& c = PairsOf(cluster);
  if (cluster.intra_kind == LinkKind::kPcie) share = std::min(share, kPcieShare);
  if (cluster.intra_kind == LinkKind::kPcieHost) share = kThroughHostShare;
  const double link = share * cluster.intra_bandwidth.raw();
  if (link <= 0) return kNeverMicros;
  const double transfer = 1e6 * (bytes / link + c.touches * kept / cluster.device.memory_bandwidth.raw());
  const double ll = c.ll_us + c.ll_per_peer_us * peers;
  const double latency = latency_scale * (bytes <= kLargestLlMessage * peers ? ll : std::max(ll, c.simple_us));
  return Pipelined(latency, transfer, c.hump);
}

// Time in us to send `bytes` to `peers` ranks of other nodes at `rate`.
double PairsAcross(Bytes bytes, double peers, BytesPerSecond rate, const Cluster& cluster) {
  const PairConstants& c = PairsOf(cluster);
  const double latency = c.simple_us + kNetStepMicros + cluster.nic_latency.raw() / 1e3 + peers * kPostMicros;
  return Pipelined(latency, 1e6 * Seconds(bytes, rate), c.hump);
}

// Rate at which one of `ranks` ranks of a node sends through network cards that `sharing` groups use.
BytesPerSecond NicRate(int64_t ranks, int64_t sharing, const Cluster& cluster) {
  const double per_rank =
      std::max(static_cast<double>(cluster.nics_per_node) / cluster.devices_per_node, 1.0 / static_cast<double>(ranks));
  return cluster.nic_bandwidth * per_rank / static_cast<double>(std::max<int64_t>(1, sharing));
}

// Of a card's rate in an all-to-all. Two nodes: 45.2 of 50 GB/s (two domains of 64 GB200) and 96.5 of 100 (B300, both
// OCI's quick starts), their mean. More: the mean of nine, 0.838 of three nodes (domains of GB200, OCI), 0.744 of four
// of A100 and 0.743 of four of H100 (NVIDIA, GTC 2025), and the largest sizes over EFA (AWS, awsome-distributed-ai),
// 0.835 and 0.908 of four and eight of H100, 0.905, 0.917, 0.794 and 0.724 of 4, 8, 16 and 32 of B300. A line that
// falls with each doubling is no nearer to them.
double AllToAllNicShare(int64_t nodes) {
  constexpr double kTwoNodes = 0.935, kMoreNodes = 0.823;
  return nodes > 2 ? kMoreNodes : kTwoNodes;
}

CollectiveCost AllToAll(Bytes size, const GroupShape& group, const Cluster& cluster, double latency_scale) {
  const double n = static_cast<double>(group.ranks);
  const double near = static_cast<double>(group.ranks_per_node - 1);
  CollectiveCost cost;
  cost.algorithm = Algorithm::kPairs;
  cost.protocol = Protocol::kSimple;
  cost.intra_bytes = Share(size, near / n);
  double us = 0;
  if (near > 0) {
    us = PairsInNode(static_cast<double>(cost.intra_bytes.raw()), near, static_cast<double>(size.raw()) / n,
                     PairsOf(cluster).share * PairLinks(group, cluster), cluster, latency_scale);
  }
  // Ranks of the fullest node share its cards; one of the emptiest has more of the others on other nodes.
  for (const int64_t on_node : {group.ranks_per_node, group.Fewest()}) {
    const double far = n - static_cast<double>(on_node);
    if (far <= 0) break;
    cost.nic_bytes = Share(size, far / n);
    // Of known leaf switches the simulator has the uplinks, and who crosses them (simulator/network_links.h).
    const double above = cluster.nodes_per_leaf > 0 ? 1 : cluster.oversubscription;
    const BytesPerSecond rate = NicRate(on_node, group.nic_sharing, cluster) * (AllToAllNicShare(group.nodes) / above);
    us = std::max(us, PairsAcross(cost.nic_bytes, far, rate, cluster));
  }
  cost.time = FromMicros(us);
  cost.channels = Blocks(32, size);
  cost.estimated = cluster.links_estimated || !CorrectionIsMeasured(group, cluster);
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
  double seconds = HostLatency(cluster) * levels + traffic / cluster.intra_bandwidth.raw();
  if (group.nodes > 1) {
    const BytesPerSecond rate = NicRate(group.ranks_per_node, group.nic_sharing, cluster);
    seconds += cluster.nic_latency.raw() * 1e-9 + Seconds(cost.nic_bytes, rate);
  }
  cost.time = FromSeconds(seconds);
  cost.estimated = true;
  return cost;
}

// Fills in what each rank sends where: in a ring or tree each node's traffic is shared by its cards, and what the ranks
// of the emptiest node send is the most.
void CountBytes(CollectiveKind kind, Bytes size, const GroupShape& group, CollectiveCost* cost) {
  const double per_node = static_cast<double>(group.ranks_per_node);
  const double fewest = static_cast<double>(group.Fewest());
  const double nodes = static_cast<double>(group.nodes);
  const double bus = BusFactor(kind, group.ranks);
  switch (cost->algorithm) {
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:  // the switch adds and copies: each rank sends every byte once
      cost->intra_bytes = Share(size, kind == CollectiveKind::kAllReduce ? 1.0 : bus);
      cost->nic_bytes = Share(size, group.nodes == 1 ? 0 : 2 * (nodes - 1) / nodes / fewest);
      return;
    case Algorithm::kTree:
      cost->intra_bytes = Share(size, 2 * (per_node - 1) / per_node);
      cost->nic_bytes = Share(size, 2 * (nodes - 1) / nodes / fewest);
      return;
    case Algorithm::kNone:
    case Algorithm::kRing:
    case Algorithm::kPat:
    case Algorithm::kPairs:
    case Algorithm::kHostMemory:
      cost->intra_bytes = Share(size, group.nodes == 1 ? bus : bus * (per_node - 1) / per_node);
      cost->nic_bytes = Share(size, group.nodes == 1 ? 0 : bus / fewest);
      return;
  }
}

}  // namespace

GroupShape ShapeOfGroup(absl::Span<const int64_t> ranks, const Cluster& cluster) {
  std::vector<int64_t> nodes;
  nodes.reserve(ranks.size());
  for (int64_t rank : ranks) nodes.push_back(cluster.NodeOf(rank));
  if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());
  GroupShape shape = {static_cast<int64_t>(ranks.size()), 0, 0, 1};
  int64_t fewest = shape.ranks;
  for (size_t first = 0; first < nodes.size();) {
    size_t end = first;
    while (end < nodes.size() && nodes[end] == nodes[first]) ++end;
    ++shape.nodes;
    shape.ranks_per_node = std::max(shape.ranks_per_node, static_cast<int64_t>(end - first));
    fewest = std::min(fewest, static_cast<int64_t>(end - first));
    first = end;
  }
  if (fewest < shape.ranks_per_node) shape.fewest_per_node = fewest;
  if (shape.nodes <= 1 || cluster.nics_per_node == 0) return shape;
  const int64_t groups = cluster.devices_per_node / shape.ranks_per_node;
  const int64_t cards =  // of one group
      std::max<int64_t>(1, shape.ranks_per_node * cluster.nics_per_node / cluster.devices_per_node);
  shape.nic_sharing = std::max<int64_t>(1, (groups * cards + cluster.nics_per_node - 1) / cluster.nics_per_node);
  return shape;
}

namespace {

// `constants`: the cluster, with the generation whose constants are taken; its latencies count `latency_scale` times.
CollectiveCost Price(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster,
                     const Cluster& constants, double latency_scale, const NcclPins& pins) {
  CollectiveCost cost;
  if (group.ranks <= 1 || size.raw() <= 0) return cost;
  if (group.nodes > 1 && cluster.nics_per_node == 0) {
    cost.time = kForever;
    return cost;
  }
  if (cluster.device.generation == Generation::kHost) return OnHost(kind, size, group, cluster);
  if (kind == CollectiveKind::kAllToAll) return AllToAll(size, group, constants, latency_scale);

  const NcclChoice choice = ChooseAsNccl(kind, size, group, cluster, pins);
  if (choice.candidate.algorithm == Algorithm::kNone) {
    cost.time = kForever;
    return cost;
  }
  cost.algorithm = choice.candidate.algorithm;
  cost.protocol = choice.candidate.protocol;
  cost.channels = Blocks(choice.candidate.blocks, size);
  CountBytes(kind, size, group, &cost);
  double us = CorrectedMicros(choice, size, group, constants, latency_scale);
  // Groups that share the network cards wait for each other's bytes.
  if (group.nodes > 1 && group.nic_sharing > 1) {
    us += 1e6 * Seconds(cost.nic_bytes * (group.nic_sharing - 1), NicRate(group.Fewest(), 1, cluster));
  }
  cost.time = FromMicros(us);
  cost.estimated = cluster.links_estimated || !CorrectionIsMeasured(group, cluster);
  return cost;
}

}  // namespace

CollectiveCost PriceCollective(CollectiveKind kind, Bytes size, const GroupShape& group, const Cluster& cluster) {
  return Price(kind, size, group, cluster, cluster, 1, {});
}

namespace {

// The clock in MHz at which a device runs code without matrix products, as collectives are: that of its float32 peak,
// an addition and a multiplication a cycle and lane, with 64 or 128 lanes a multiprocessor (chips of one generation
// differ), whichever is nearer to the boost clock. That is the matrix units', on Hopper a lower one (H100: 1830 and
// 1980 MHz, NVIDIA's H100 whitepaper).
double VectorClock(const Device& device) {
  const double wide = device.Peak(DType::kFloat32).raw() / (2 * 128.0 * std::max(1, device.sms)) / 1e6;
  return std::abs(2 * wide - device.boost_mhz) < std::abs(wide - device.boost_mhz) ? 2 * wide : wide;
}

}  // namespace

CollectiveCost PriceCollectiveFittedOn(const Device& fitted, CollectiveKind kind, Bytes size, const GroupShape& group,
                                       const Cluster& cluster, const NcclPins& pins) {
  Cluster constants = cluster;
  constants.device.generation = fitted.generation;
  const bool own = fitted.generation == cluster.device.generation;
  const double clock = VectorClock(cluster.device);
  const double slower = own || clock <= 0 ? 1 : VectorClock(fitted) / clock;
  CollectiveCost cost = Price(kind, size, group, cluster, constants, slower, pins);
  cost.estimated |= !own;
  return cost;
}

Device FromDataSheet(const Device& device, const Device& fitted) {
  Device priced = device;
  priced.kernels = fitted.kernels;
  priced.kernels.sustained_clock = device.kernels.sustained_clock;
  priced.kernels.matmul_share_fp8 = fitted.kernels.matmul_share;
  const double fitted_peak = fitted.Peak(DType::kFloat16).raw();
  if (fitted_peak > 0) {
    priced.kernels.l2_bandwidth = fitted.kernels.l2_bandwidth * (device.Peak(DType::kFloat16).raw() / fitted_peak);
  }
  priced.kernels_estimated = true;
  return priced;
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
  const double bytes = static_cast<double>(size.raw());
  if (crosses_node) {
    cost.nic_bytes = size;
    // A peer has a channel on each card that is near (NCCL, paths.cc, ncclTopoGetNchannels).
    const auto cards = static_cast<double>(std::max<int64_t>(1, cluster.nics_per_node / cluster.devices_per_node));
    const BytesPerSecond rate =
        cluster.nic_bandwidth * (cards * kPairNicShare / static_cast<double>(std::max<int64_t>(1, nic_sharing)));
    cost.time = FromMicros(PairsAcross(size, 1, rate, cluster));
    cost.channels = Blocks(2, size);
    cost.estimated = true;
    return cost;
  }
  cost.intra_bytes = size;
  if (cluster.device.generation == Generation::kHost) {
    cost.algorithm = Algorithm::kHostMemory;
    cost.time = FromSeconds(HostLatency(cluster) + Seconds(size * 2, cluster.intra_bandwidth));
    cost.estimated = true;
    return cost;
  }
  const double share = PairsOf(cluster).one_pair_share * PairLinks({2, 1, 2, 1}, cluster);
  cost.time = FromMicros(PairsInNode(bytes, 1, 0, share, cluster));
  cost.channels = Blocks(32, size);
  cost.estimated = cluster.links_estimated || !CorrectionIsMeasured({2, 1, 2, 1}, cluster);
  return cost;
}

}  // namespace meshwright
