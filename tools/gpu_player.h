// Ranks on the GPUs of this machine, one each. See tools/run_main.h.
#ifndef MESHWRIGHT_TOOLS_GPU_PLAYER_H_
#define MESHWRIGHT_TOOLS_GPU_PLAYER_H_

#include "absl/status/statusor.h"
#include "tools/run_main.h"

namespace meshwright {

// kFailedPrecondition, marked kNothingFits, where CUDA finds no GPU. A process of a job takes the device that its
// launcher's variables name (tools/local_device.h).
absl::StatusOr<RankPlayer> OpenGpus();

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_GPU_PLAYER_H_
