// Goodput: the share of a long run's time that goes into steps that count, where devices fail, work since the last
// checkpoint is lost, and the run starts again.
//
// Failures come at a constant rate per device, one of them stops all. A run that makes a checkpoint (which stops it for
// `checkpoint`) after every `interval` of steps, and takes `restart` from a failure to the next step, needs on average
//     M exp(restart / M) (exp((interval + checkpoint) / M) - 1),   M = 1 / (devices x failures per device and second)
// for an interval's steps (J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
// Future Generation Computer Systems 22, 2006; exact for exponential failures, also during restarts).
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_COSTMODEL_GOODPUT_H_
#define MESHWRIGHT_COSTMODEL_GOODPUT_H_

#include <cstdint>

#include "ir/quantities.h"

namespace meshwright {

struct Reliability {
  double failures_per_device_hour = 0;  // that end the run; 0: never
  Nanos checkpoint;                     // that steps stop for one
  Nanos restart;                        // from a failure to the next step
};

// 419 unexpected interruptions in 54 days of 16,384 H100 (Grattafiori et al., The Llama 3 Herd of Models, 2024, section
// 3.3.4): 419 / (54 x 24 x 16,384).
inline constexpr double kPublishedFailuresPerDeviceHour = 419.0 / (54 * 24 * 16384.0);
// Assumptions, to be replaced by what the cluster at hand does: nobody published these for clusters in general.
inline constexpr Nanos kAssumedCheckpoint = Millis(60e3);
inline constexpr Nanos kAssumedRestart = Millis(600e3);

// From 0 to 1. Steps between two checkpoints take `interval`, above 0.
double Goodput(int64_t devices, Nanos interval, const Reliability& reliability);

// The interval with the best goodput (Daly's higher order estimate), and kForever where
// nothing fails.
Nanos BestCheckpointInterval(int64_t devices, const Reliability& reliability);

}  // namespace meshwright

#endif  // MESHWRIGHT_COSTMODEL_GOODPUT_H_
