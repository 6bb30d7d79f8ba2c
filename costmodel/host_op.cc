#include "costmodel/host_op.h"

#include "costmodel/kernel_cost.h"

namespace meshwright {
namespace {

// A slot of 16 lanes each way: 8, 16 and 32 GT/s a lane in the code of 128 in 130 bits (PCI Express 3.0, 4.0, 5.0).
constexpr BytesPerSecond kPcie3 = GBps(15.75), kPcie4 = GBps(31.5), kPcie5 = GBps(63);
// What large copies reach of it: 55.4 of 63 GB/s (stas00/ml-engineering), as between devices (collective_cost.cc).
constexpr double kPcieShare = 0.88;

BytesPerSecond SlotOf(Generation generation) {
  switch (generation) {
    case Generation::kHost:
      return BytesPerSecond(0);
    case Generation::kVolta:
      return kPcie3;
    case Generation::kAmpere:
    case Generation::kAda:
      return kPcie4;
    case Generation::kHopper:
    case Generation::kBlackwell:
      return kPcie5;
  }
  return kPcie3;
}

}  // namespace

BytesPerSecond HostLinkBandwidth(const Cluster& cluster) {
  // NVLink-C2C goes to the CPU; its share has not been measured.
  if (cluster.intra_kind == LinkKind::kC2c) return cluster.intra_bandwidth;
  return BytesPerSecond(SlotOf(cluster.device.generation).raw() * kPcieShare);
}

Nanos PriceOnHost(const KernelWork& work, absl::Span<const Bytes> copies, const Cluster& cluster, const Device& host) {
  const BytesPerSecond link = HostLinkBandwidth(cluster);
  if (link.raw() <= 0) return PriceKernel(work, cluster.device);
  Nanos time = PriceKernel(work, host);
  for (const Bytes bytes : copies) time += cluster.device.kernels.host_launch + bytes / link;
  return time;
}

}  // namespace meshwright
