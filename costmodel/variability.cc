#include "costmodel/variability.h"

#include <cmath>

namespace meshwright {
namespace {

// z of a standard normal variable that is below it with probability p, by bisection: 0.5 <= p < 1.
double Quantile(double p) {
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double z = (low + high) / 2;
    (std::erfc(-z / std::sqrt(2.0)) / 2 < p ? low : high) = z;
  }
  return low;
}

}  // namespace

double ExpectedLargest(int64_t draws) {
  if (draws <= 1) return 0;
  const double n = static_cast<double>(draws);
  return Quantile((n - 0.375) / (n + 0.25));
}

double SlowestClock(int64_t devices) { return 1 / (1 + kDeviceDeviation * ExpectedLargest(devices)); }

}  // namespace meshwright
