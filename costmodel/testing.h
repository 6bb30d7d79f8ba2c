// Clusters with round, fixed numbers for tests: data files may be refined without moving these.
#ifndef MESHWRIGHT_COSTMODEL_TESTING_H_
#define MESHWRIGHT_COSTMODEL_TESTING_H_

#include <cstddef>
#include <cstdint>

#include "costmodel/collective_cost.h"
#include "ir/cluster.h"
#include "ir/dtype.h"
#include "ir/quantities.h"

namespace meshwright {

// `nodes` machines of 8 A100, one 200 Gb/s network card each.
inline Cluster A100Cluster(int64_t nodes) {
  Cluster cluster;
  cluster.device.name = "a100";
  cluster.device.generation = Generation::kAmpere;
  cluster.device.peak[static_cast<size_t>(DType::kFloat32)] = Teraflops(19.5);
  cluster.device.peak[static_cast<size_t>(DType::kTFloat32)] = Teraflops(156);
  cluster.device.peak[static_cast<size_t>(DType::kFloat16)] = Teraflops(312);
  cluster.device.peak[static_cast<size_t>(DType::kBFloat16)] = Teraflops(312);
  cluster.device.memory = GiB(80);
  cluster.device.memory_bandwidth = GBps(2039);
  cluster.device.l2 = MiB(40);
  cluster.device.sms = 108;
  cluster.device.boost_mhz = 1410;
  KernelConstants& kernels = cluster.device.kernels;
  kernels.startup = Micros(3);
  kernels.host_launch = Micros(5);
  kernels.matmul_share = 0.9;
  kernels.matmul_per_wave = Micros(1);
  kernels.split_k = Micros(2.5);
  kernels.l2_bandwidth = GBps(6000);
  kernels.memory_share = 0.8;
  kernels.memory_ramp = MiB(4);
  kernels.normalize_backward_share = 0.4;
  cluster.device.attention = {{"flash2", 0.75, 0.7, 22, 170, false}};
  cluster.nodes = nodes;
  cluster.devices_per_node = 8;
  cluster.intra_kind = LinkKind::kNvSwitch;
  cluster.intra_bandwidth = GBps(300);
  cluster.nics_per_node = 8;
  cluster.nic_bandwidth = GBps(25);
  cluster.cpu = CpuVendor::kIntel;
  return cluster;
}

// `nodes` machines of 8 H100, one 400 Gb/s network card each.
inline Cluster H100Cluster(int64_t nodes) {
  Cluster cluster = A100Cluster(nodes);
  cluster.device.name = "h100";
  cluster.device.generation = Generation::kHopper;
  cluster.device.peak[static_cast<size_t>(DType::kFloat32)] = Teraflops(67);
  cluster.device.peak[static_cast<size_t>(DType::kTFloat32)] = Teraflops(494.5);
  cluster.device.peak[static_cast<size_t>(DType::kFloat16)] = Teraflops(989);
  cluster.device.peak[static_cast<size_t>(DType::kBFloat16)] = Teraflops(989);
  cluster.device.peak[static_cast<size_t>(DType::kFloat8)] = Teraflops(1979);
  cluster.device.memory_bandwidth = GBps(3350);
  cluster.device.l2 = MiB(50);
  cluster.device.sms = 132;
  cluster.device.boost_mhz = 1830;
  cluster.device.kernels.matmul_share_fp8 = 0.8;
  cluster.device.kernels.l2_bandwidth = GBps(12000);
  cluster.intra_bandwidth = GBps(450);
  cluster.nic_bandwidth = GBps(50);
  return cluster;
}

// A group of `ranks` that fills `nodes` evenly.
inline GroupShape Evenly(int64_t ranks, int64_t nodes) { return {ranks, nodes, ranks / nodes, 1}; }

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_TESTING_H_
