// What kernels and communication cost each other: kernels alone and beside a collective, the collective alone and
// beside kernels, and the two constants of the cost model that say how far communication slows kernels down
// (KernelConstants::overlap_blocks and overlap_touches).
//
// A round of an experiment: kernels; then a collective on its own stream, and the same kernels again meanwhile; then
// the collective without them. A kernel counts as beside it where it runs between the arrival of the last rank and the
// collective's end on the first. A device that does one thing at a time, as the host back end does, has none.
//
// Thread safety: pure functions but for MeasureOverlap, which plays programs.
#ifndef MESHWRIGHT_TOOLS_MEASURE_OVERLAP_H_
#define MESHWRIGHT_TOOLS_MEASURE_OVERLAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/cluster.h"
#include "ir/program.h"
#include "ir/trace.h"
#include "tools/measure/experiments.h"

namespace meshwright {

enum class OverlapBound : uint8_t { kMultiprocessors, kMemory };  // what the kernel needs most

struct OverlapExperiment {
  OverlapBound bound = OverlapBound::kMultiprocessors;
  std::string name;  // "MatMul 4096 x 4096 x 4096 beside all_reduce of 268435456 bytes over 8 ranks"
  Program program;
  Bytes size;  // of the all_reduce, as PriceCollective counts it
};

// Medians. The times beside each other are 0 where no kernel ran beside a collective.
struct OverlapSample {
  OverlapBound bound = OverlapBound::kMultiprocessors;
  std::string name;
  Bytes size;
  int64_t ranks = 1, runs = 0;  // kernels that ran beside
  Nanos kernel_alone, kernel_beside, collective_alone, collective_beside;

  // How many times as long the one takes for the other; 1 where they did not meet.
  double kernel_slowdown() const;
  double collective_slowdown() const;
};

// Shapes that take a GPU about as long as each other; none for one rank.
absl::StatusOr<std::vector<OverlapExperiment>> OverlapExperiments(const MeasurePlan& plan, int64_t ranks);

absl::StatusOr<OverlapSample> MeasureOverlap(const OverlapExperiment& experiment, const PlayProgram& play);
// The same from a trace of its last step.
OverlapSample ReadOverlap(const OverlapExperiment& experiment, const Trace& trace);

// Sets the constants to the medians of what the samples say, by the cost model's formulas; leaves one alone where no
// sample of its bound met a collective. `cluster` has the devices that the samples' ranks are.
void FitOverlap(absl::Span<const OverlapSample> samples, Cluster& cluster);

// A line for each sample, with what the model says of it; "" where there are none.
std::string ToText(absl::Span<const OverlapSample> samples, const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_MEASURE_OVERLAP_H_
