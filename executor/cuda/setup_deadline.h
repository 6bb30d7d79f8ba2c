// How long a rank may take until its first step has ended, where the environment says so: MESHWRIGHT_SETUP_SECONDS. So
// that what hangs is named before whoever waits for the run loses patience (tools/bundle/gpu_check.sh).
//
// Thread safety: pure, as long as nobody changes the environment.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_SETUP_DEADLINE_H_
#define MESHWRIGHT_EXECUTOR_CUDA_SETUP_DEADLINE_H_

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"

namespace meshwright::cuda {

// `otherwise` where the variable is not set, or no number above 0.
inline absl::Duration SetupDeadline(absl::Duration otherwise) {
  const char* const text = std::getenv("MESHWRIGHT_SETUP_SECONDS");
  double seconds = 0;
  return text != nullptr && absl::SimpleAtod(text, &seconds) && seconds > 0 ? absl::Seconds(seconds) : otherwise;
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_SETUP_DEADLINE_H_
