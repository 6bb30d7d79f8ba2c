// How step times vary when devices do: random jitter from step to step, and ranks that are slower than the others.
//
// In each step a rank's kernels take (1 + jitter z) times as long, z standard normal and drawn for each rank and step
// alone, times the rank's slowdown if it is a straggler. Communication takes its own time. The ranks of a class wait
// for each other in their collectives, so a class goes at the pace of its slowest rank: the largest of n draws, taken
// at once as the quantile u^(1/n) of one uniform u. That is exact where the ranks of a class meet in every layer
// (tensor parallelism) and a little pessimistic where they meet once a step.
//
//   MESHWRIGHT_ASSIGN_OR_RETURN(const StepTimes times, SimulateVaried(program, prices, {.jitter = 0.03}));
//   times.Quantile(0.95);
//
// Cost: one simulation a sample.
// Thread safety: pure functions. Same seed, same result.
#ifndef MESHWRIGHT_SIMULATOR_VARIATION_H_
#define MESHWRIGHT_SIMULATOR_VARIATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/price.h"

namespace meshwright {

struct Straggler {
  int64_t rank = 0;
  double slowdown = 1;  // its kernels take that many times as long; above 0
};

struct Variation {
  double jitter = 0;  // relative standard deviation of a rank's kernel times from step to step; from 0 to 0.5
  std::vector<Straggler> stragglers;
  int64_t samples = 200;  // steps; one is enough without jitter
  uint64_t seed = 1;
};

struct StepTimes {
  std::vector<Nanos> ascending;  // of all samples

  // The time that a share `q` of the steps, from 0 to 1, does not exceed.
  Nanos Quantile(double q) const;
  Nanos Mean() const;
};

// kInvalidArgument: a number above is out of range. Else as Simulate.
absl::StatusOr<StepTimes> SimulateVaried(const Program& program, const Prices& prices, const Variation& variation);

// z of a standard normal variable that is below it with probability p, 0 < p < 1.
double NormalQuantile(double p);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_VARIATION_H_
