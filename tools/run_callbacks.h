// What a training run says and saves while it goes (S16.5, S16.8): the section `callbacks:` of the model file, with
// flags that count instead.
//
// Thread safety: functions may run at the same time; LossLines is called from all ranks' threads.
#ifndef MESHWRIGHT_TOOLS_RUN_CALLBACKS_H_
#define MESHWRIGHT_TOOLS_RUN_CALLBACKS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/checkpoint.h"
#include "ir/dtype.h"
#include "models/callbacks.h"
#include "tools/flags.h"

namespace meshwright {

const std::vector<FlagSpec>& CallbackFlags();

// "epoch: 1 step: 3, loss is 0.29", or in the other form "epoch: 0, step: 2, loss is 0.29".
class LossLines {
 public:
  // `summed`: the loss is the sum of so many micro-batches; 1 where it is their mean.
  LossLines(const LossMonitor& monitor, DType dtype, int64_t steps_per_epoch, int64_t summed)
      : monitor_(monitor), dtype_(dtype), steps_per_epoch_(steps_per_epoch), summed_(summed) {}

  // Whether the step, from 0, is one that is printed: every per_print_times-th of its epoch, the last of each so many
  // where steps count from 1, the first where they count from 0.
  bool Wanted(int64_t step) const;
  // With a newline.
  std::string Line(int64_t step, double loss) const;

 private:
  const LossMonitor monitor_;
  const DType dtype_;
  const int64_t steps_per_epoch_, summed_;
};

// Where and how often to save; nothing where nobody asked. E-STATE for several ranks in one directory.
absl::StatusOr<std::optional<CheckpointOptions>> CheckpointsOf(const Flags& flags, const Callbacks& callbacks,
                                                               int64_t steps_per_epoch, int64_t ranks);

// The checkpoint of --load; nothing without it.
absl::StatusOr<std::optional<SavedState>> LoadedState(const Flags& flags);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_RUN_CALLBACKS_H_
