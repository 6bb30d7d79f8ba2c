// Equal devices are not equally fast: what a step loses to the slowest of many.
//
// Sinha et al., "Not All GPUs Are Created Equal" (SC 2022), measured more than nine tenths of the GPUs of five
// clusters: products that run into the power limit differ by 8 % between devices of one model (the range without
// outliers, on average over the clusters); kernels bound by memory hardly differ. Ranks of one step wait for each
// other, so the step goes at the pace of the slowest.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_VARIABILITY_H_
#define MESHWRIGHT_COSTMODEL_VARIABILITY_H_

#include <cstdint>

namespace meshwright {

// Range of the speed of a cluster's devices without outliers: between the whiskers of a box plot, which for a normal
// distribution lie 2.7 standard deviations on either side.
inline constexpr double kDeviceRange = 0.08;
inline constexpr double kDeviceDeviation = kDeviceRange / (2 * 2.698);

// The expected largest of so many standard normal draws (Blom: the quantile (n - 0.375) / (n + 0.25)). 0 of one.
double ExpectedLargest(int64_t draws);

// The clock of the slowest of `devices`, as a share of the mean: 1 / (1 + deviation x ExpectedLargest). 1 for one
// device.
double SlowestClock(int64_t devices);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_VARIABILITY_H_
