// What a framework's update moves that the program's does not.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_UPDATE_BYTES_H_
#define MESHWRIGHT_TOOLS_VALIDATE_UPDATE_BYTES_H_

#include "tools/validate/framework.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// HostPace::optimizer_bytes of the run, bytes for each element that is updated, below 0 for less: clipping, taking out
// the scale of the loss, and the optimizer's own passes where they are known, less what the program's kernel moves.
double UpdateBytes(const Framework& framework, const TrainingRun& run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_UPDATE_BYTES_H_
