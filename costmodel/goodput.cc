#include "costmodel/goodput.h"

#include <algorithm>
#include <cmath>

namespace meshwright {
namespace {

// Mean time between failures of the whole run, in seconds.
double MeanTime(int64_t devices, const Reliability& reliability) {
  return 3600 / (static_cast<double>(devices) * reliability.failures_per_device_hour);
}

}  // namespace

double Goodput(int64_t devices, Nanos interval, const Reliability& reliability) {
  const double work = ToSeconds(interval), checkpoint = ToSeconds(reliability.checkpoint);
  if (reliability.failures_per_device_hour <= 0) return work / (work + checkpoint);
  const double mean = MeanTime(devices, reliability);
  return work / (mean * std::exp(ToSeconds(reliability.restart) / mean) * std::expm1((work + checkpoint) / mean));
}

Nanos BestCheckpointInterval(int64_t devices, const Reliability& reliability) {
  if (reliability.failures_per_device_hour <= 0) return kForever;
  const double mean = MeanTime(devices, reliability), checkpoint = ToSeconds(reliability.checkpoint);
  if (checkpoint >= 2 * mean) return FromSeconds(mean);
  const double ratio = checkpoint / (2 * mean);
  const double interval = std::sqrt(2 * checkpoint * mean) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - checkpoint;
  // Checkpoints that cost nothing are made all the time: after each nanosecond.
  return std::max(Nanos(1), FromSeconds(interval));
}

}  // namespace meshwright
