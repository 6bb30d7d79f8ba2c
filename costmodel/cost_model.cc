#include "costmodel/cost_model.h"

#include <algorithm>

namespace meshwright {
namespace {

// Times that a byte on a link is read or written in device memory by a ring: read from the user's buffer, written to
// the channel's, read and written once more on the way through (arithmetic from NCCL's ring; not measured).
constexpr double kMemoryTouchesPerLinkByte = 3;
// Communication cannot take a device over entirely.
constexpr double kLargestShare = 0.9;

}  // namespace

double CostModel::ComputeSlowdown(int comm_channels) const {
  const double sms = std::max(1, cluster_.device.sms);
  const double taken = std::clamp(comm_channels / sms, 0.0, kLargestShare);
  return 1 / (1 - taken);
}

double CostModel::MemorySlowdown(BytesPerSecond bus_rate) const {
  const double memory = cluster_.device.memory_bandwidth.raw();
  if (memory <= 0) return 1;
  const double taken = std::clamp(kMemoryTouchesPerLinkByte * bus_rate.raw() / memory, 0.0, kLargestShare);
  return 1 / (1 - taken);
}

}  // namespace meshwright
