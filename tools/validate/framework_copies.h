// What the framework of a run holds besides what its program has, by the run's model, types and sharding.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_COPIES_H_
#define MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_COPIES_H_

#include "costmodel/memory_overheads.h"
#include "tools/validate/framework.h"
#include "tools/validate/training_run.h"

namespace meshwright {

// `run`: as its row says, but for `copies`. `modern`: IsModernFamily of the model's name.
FrameworkCopies CopiesOf(const TrainingRun& run, const Framework& framework, bool modern);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_FRAMEWORK_COPIES_H_
