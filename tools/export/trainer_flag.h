// --trainer of `plan` and `whatif`: who will run the plan, so that it is predicted and ranked with that trainer's
// habits.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_EXPORT_TRAINER_FLAG_H_
#define MESHWRIGHT_TOOLS_EXPORT_TRAINER_FLAG_H_

#include "absl/status/statusor.h"
#include "tools/export/writers.h"
#include "tools/flags.h"

namespace meshwright {

FlagSpec TrainerFlag();

// Null where the flag is not given. A usage error that lists the names: one that it does not have.
absl::StatusOr<const Trainer*> TrainerFrom(const Flags& flags);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_TRAINER_FLAG_H_
