#include "models/callbacks.h"

#include <utility>

#include "ir/status.h"

namespace meshwright {

absl::StatusOr<Callbacks> ReadCallbacks(const NodeRef& in) {
  Callbacks callbacks;
  if (!in.present()) return callbacks;
  MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"loss_monitor", "model_checkpoint"}));
  const NodeRef monitor = in["loss_monitor"], checkpoint = in["model_checkpoint"];
  LossMonitor& m = callbacks.loss_monitor;
  MESHWRIGHT_RETURN_IF_ERROR(monitor.CheckKeysIfPresent({"per_print_times", "form", "all_ranks"}));
  MESHWRIGHT_ASSIGN_OR_RETURN(m.per_print_times, monitor["per_print_times"].AsIntOr(m.per_print_times, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(m.form, monitor["form"].AsEnumOr(m.form, kLossFormNames));
  MESHWRIGHT_ASSIGN_OR_RETURN(m.all_ranks, monitor["all_ranks"].AsBoolOr(m.all_ranks));
  if (!checkpoint.present()) return callbacks;
  MESHWRIGHT_RETURN_IF_ERROR(
      checkpoint.CheckKeys({"directory", "prefix", "save_checkpoint_steps", "keep_checkpoint_max", "integrated_save"}));
  ModelCheckpoint c;
  MESHWRIGHT_ASSIGN_OR_RETURN(c.directory, checkpoint["directory"].AsString());
  if (checkpoint["prefix"].present()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(c.prefix, checkpoint["prefix"].AsName());
    if (c.prefix.find('/') != std::string::npos) return checkpoint["prefix"].Error("a slash", "the name of a file");
  }
  MESHWRIGHT_ASSIGN_OR_RETURN(c.save_checkpoint_steps,
                              checkpoint["save_checkpoint_steps"].AsIntOr(c.save_checkpoint_steps, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.keep_checkpoint_max,
                              checkpoint["keep_checkpoint_max"].AsIntOr(c.keep_checkpoint_max, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(c.integrated_save, checkpoint["integrated_save"].AsBoolOr(c.integrated_save));
  callbacks.model_checkpoint = std::move(c);
  return callbacks;
}

}  // namespace meshwright
