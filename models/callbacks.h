// The `callbacks:` section of a model file: what a training run says and saves while it goes. The names and defaults
// are those of the callbacks that users know (S16.5, S16.8).
//
//   callbacks:
//     loss_monitor: {per_print_times: 1, form: monitor, all_ranks: true}
//     model_checkpoint: {directory: "device/{rank_id}", prefix: CKP, save_checkpoint_steps: 1, keep_checkpoint_max: 5,
//                        integrated_save: true}
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_MODELS_CALLBACKS_H_
#define MESHWRIGHT_MODELS_CALLBACKS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"

namespace meshwright {

enum class LossForm : uint8_t {
  kMonitor,  // "epoch: 1 step: 1, loss is 0.38", counted from 1
  kLoop,     // "epoch: 0, step: 0, loss is 2.3", counted from 0
};
inline constexpr absl::string_view kLossFormNames[] = {"monitor", "loop"};

struct LossMonitor {
  int64_t per_print_times = 1;  // steps
  LossForm form = LossForm::kMonitor;
  bool all_ranks = false;  // every rank that has the loss prints it, else one
};

struct ModelCheckpoint {
  std::string directory;  // with "{rank_id}" in it where there are several ranks
  std::string prefix = "CKP";
  int64_t save_checkpoint_steps = 1;
  int64_t keep_checkpoint_max = 5;
  bool integrated_save = true;
};

struct Callbacks {
  LossMonitor loss_monitor;
  std::optional<ModelCheckpoint> model_checkpoint;
};

// Reads the section; a missing one has the defaults above.
absl::StatusOr<Callbacks> ReadCallbacks(const NodeRef& in);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_CALLBACKS_H_
