#include "costmodel/cost_model.h"

#include <algorithm>

namespace meshwright {
namespace {

// Communication cannot take a device over entirely.
constexpr double kLargestShare = 0.9;

}  // namespace

double CostModel::ComputeSlowdown(int comm_channels) const {
  const double sms = std::max(1, cluster_.device.sms);
  const double taken = std::clamp(cluster_.device.kernels.overlap_blocks * comm_channels / sms, 0.0, kLargestShare);
  return 1 / (1 - taken);
}

double CostModel::MemorySlowdown(BytesPerSecond bus_rate) const {
  const double memory = cluster_.device.memory_bandwidth.raw();
  if (memory <= 0) return 1;
  const double taken =
      std::clamp(cluster_.device.kernels.overlap_touches * bus_rate.raw() / memory, 0.0, kLargestShare);
  return 1 / (1 - taken);
}

}  // namespace meshwright
