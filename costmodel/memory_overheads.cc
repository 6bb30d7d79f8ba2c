#include "costmodel/memory_overheads.h"

#include <algorithm>
#include <cstdint>

namespace meshwright {

Bytes CommunicatorBytes(const CommunicatorUse& use, const Cluster& cluster) {
  if (use.ranks <= 1 || cluster.device.generation == Generation::kHost) return Bytes(0);
  if (use.ranks_per_node <= 1) return kNodeCommunicatorBytes;
  Bytes bytes = use.ranks == 2 ? kPairCommunicatorBytes : kCommunicatorBytes;
  if (use.early) bytes = use.ranks == 2 ? kEarlyPairCommunicatorBytes : kEarlyCommunicatorBytes;
  const bool nvls = cluster.intra_kind == LinkKind::kNvSwitch && cluster.device.generation >= Generation::kHopper;
  if (nvls && use.reduces && use.ranks_per_node > 2) {
    bytes += use.early ? kEarlyNvlsBytes * use.ranks_per_node : kNvlsBytes;
  }
  if (use.all_to_all) {
    constexpr int64_t kMostPeers = 7;
    bytes += kPairChannelBytes * std::min(use.ranks_per_node - 1, kMostPeers);
  }
  return bytes;
}

bool KeepsTransposes(const Device& device) {
  return device.generation != Generation::kHost && device.generation < Generation::kBlackwell;
}

Bytes WorkspaceBytes(const Cluster& cluster) {
  if (cluster.device.generation == Generation::kHost) return Bytes();
  return cluster.device.generation >= Generation::kHopper ? kBlasWorkspaceHopperBytes : kBlasWorkspaceBytes;
}

Bytes ProcessBytes(const Cluster& cluster, int blas_streams) {
  if (cluster.device.generation == Generation::kHost) return kHostBytes;
  return kContextBytes + WorkspaceBytes(cluster) * blas_streams;
}

}  // namespace meshwright
