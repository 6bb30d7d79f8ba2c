// The clock of waits and of how long something took: it goes forward by a second in a second, whoever sets the
// machine's clock meanwhile. absl::Now() is set forward, or back, when a machine finds out what time it is: every wait
// would be over at once, and each rank lost, or none.
#ifndef MESHWRIGHT_EXECUTOR_STEADY_CLOCK_H_
#define MESHWRIGHT_EXECUTOR_STEADY_CLOCK_H_

#include <chrono>

#include "absl/time/time.h"

namespace meshwright {

// Since a moment that means nothing: for comparing on this machine.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_STEADY_CLOCK_H_
