// From samples to the constants of the cost model's kernel formulas (costmodel/kernel_cost.h). Each constant is fitted
// on every other sample of its kind, with the formula itself, and judged on the samples between.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_MEASURE_FIT_H_
#define MESHWRIGHT_TOOLS_MEASURE_FIT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ir/cluster.h"
#include "tools/measure/experiments.h"

namespace meshwright {

// Relative errors of the prices of samples that were not fitted.
struct FitError {
  SampleKind kind = SampleKind::kProduct;
  int64_t samples = 0;
  double mean = 0, median = 0, worst = 0;
};

struct Fit {
  Cluster cluster;  // with the constants
  std::vector<FitError> before, after;
};

// Fits, in this order: startup and, of a device, host_launch; memory bandwidth (of a host; a device's is its data
// sheet's) with its share and ramp, and the host's pace of plain loops (sustained_clock); the peaks (of a host) and the
// products' share, L2 bandwidth and wave; backward norms; attention; and, of a host, the bandwidth between ranks and
// the time until one hears of another (host_launch). `issued` is the time between two short kernels that are issued one
// by one.
Fit FitConstants(absl::Span<const Sample> samples, Nanos issued, const Cluster& from);

// The host's bandwidth and latency between ranks alone; `from` has the rest, and as many devices a node as there are
// ranks: between processes on several machines these stand for the network, of which all ranks have an equal part.
Fit FitCollectives(absl::Span<const Sample> samples, const Cluster& from);

// The price of a sample.
Nanos PriceOf(const Sample& sample, const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_FIT_H_
