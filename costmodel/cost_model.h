// The cost model: what one instruction costs on a given cluster when it runs alone.
//
// A CostModel is a Cluster and the formulas of kernel_cost.h and collective_cost.h. It holds no state besides, so equal
// clusters give equal prices. What happens when instructions run beside each other is the simulator's business; the
// slow-down factors that it applies come from here.
//
// Thread safety: const methods may be called from any thread.
#ifndef MESHWRIGHT_COSTMODEL_COST_MODEL_H_
#define MESHWRIGHT_COSTMODEL_COST_MODEL_H_

#include <utility>

#include "costmodel/collective_cost.h"
#include "costmodel/kernel_cost.h"
#include "ir/cluster.h"
#include "ir/collective.h"
#include "ir/kernel_work.h"
#include "ir/quantities.h"

namespace meshwright {

class CostModel {
 public:
  explicit CostModel(Cluster cluster) : cluster_(std::move(cluster)) {}

  const Cluster& cluster() const { return cluster_; }

  // The price of one kernel, and why.
  Nanos Kernel(const KernelWork& work) const { return PriceKernel(work, cluster_.device); }
  KernelEstimate Estimate(const KernelWork& work) const { return EstimateKernel(work, cluster_.device); }

  // The price of one collective over `group`; see PriceCollective for `size`.
  CollectiveCost Collective(CollectiveKind kind, Bytes size, const GroupShape& group) const {
    return PriceCollective(kind, size, group, cluster_);
  }
  CollectiveCost SendRecv(Bytes size, bool crosses_node, int64_t nic_sharing = 1) const {
    return PriceSendRecv(size, crosses_node, cluster_, nic_sharing);
  }

  // Time the CPU needs to issue one kernel. It limits the pace of a stream of short kernels that is not captured in a
  // graph.
  Nanos HostLaunch() const { return cluster_.device.kernels.host_launch; }

  // By how much a kernel that is bound by its multiprocessors slows down while communication holds `comm_channels` of
  // them: SMs / (SMs - channels x KernelConstants::overlap_blocks). 1 without communication.
  double ComputeSlowdown(int comm_channels) const;

  // By how much a kernel that is bound by memory slows down while a collective moves `bus_rate` over the device's
  // links: each byte on the link is read and written KernelConstants::overlap_touches times (from the buffers of the
  // collective and the channel: about three).
  double MemorySlowdown(BytesPerSecond bus_rate) const;

 private:
  Cluster cluster_;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_COST_MODEL_H_
