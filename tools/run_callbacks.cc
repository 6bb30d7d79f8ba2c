#include "tools/run_callbacks.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "ir/files.h"
#include "ir/status.h"
#include "tools/exit_code.h"
#include "tools/numbers.h"

namespace meshwright {
namespace {

// A loss as its type holds it: in the fewest digits that read back the same.
std::string ShowLoss(double loss, DType dtype) {
  const bool narrow = dtype == DType::kFloat32 && static_cast<double>(static_cast<float>(loss)) == loss;
  return narrow ? ShortestNumber(static_cast<float>(loss)) : ShortestNumber(loss);
}

}  // namespace

const std::vector<FlagSpec>& CallbackFlags() {
  static const auto* const kFlags = new std::vector<FlagSpec>{
      {"checkpoint_dir", "DIR", "where each rank saves what it has learnt; {rank_id} in it is the rank"},
      {"checkpoint_steps", "N", "steps between two checkpoints; 1 unless given"},
      {"integrated_save", "", "whole tensors in every rank's file; --nointegrated_save: the rank's own pieces"},
      {"load", "FILE", "a checkpoint to go on from; with {rank_id} in it, those of all ranks together"},
  };
  return *kFlags;
}

bool LossLines::Wanted(int64_t step) const {
  const int64_t in_epoch = steps_per_epoch_ == 0 ? step : step % steps_per_epoch_;
  const int64_t counted = monitor_.form == LossForm::kMonitor ? in_epoch + 1 : in_epoch;
  return counted % monitor_.per_print_times == 0;
}

std::string LossLines::Line(int64_t step, double loss) const {
  const int64_t epoch = steps_per_epoch_ == 0 ? 0 : step / steps_per_epoch_;
  const int64_t in_epoch = step - epoch * steps_per_epoch_;
  const bool monitor = monitor_.form == LossForm::kMonitor;
  std::string line = monitor ? absl::StrCat("epoch: ", epoch + 1, " step: ", in_epoch + 1)
                             : absl::StrCat("epoch: ", epoch, ", step: ", in_epoch);
  absl::StrAppend(&line, ", loss is ", ShowLoss(loss, dtype_));
  if (summed_ > 1) {
    absl::StrAppend(&line, ", the sum of ", summed_, " micro-batches with mean ",
                    ShowLoss(loss / static_cast<double>(summed_), dtype_));
  }
  return line + "\n";
}

absl::StatusOr<std::optional<CheckpointOptions>> CheckpointsOf(const Flags& flags, const Callbacks& callbacks,
                                                               int64_t steps_per_epoch, int64_t ranks) {
  ModelCheckpoint wanted = callbacks.model_checkpoint.value_or(ModelCheckpoint());
  if (flags.Has("checkpoint_dir")) wanted.directory = flags.Text("checkpoint_dir");
  MESHWRIGHT_ASSIGN_OR_RETURN(wanted.save_checkpoint_steps,
                              flags.IntOr("checkpoint_steps", wanted.save_checkpoint_steps, 1, int64_t{1} << 40));
  if (wanted.directory.empty()) return std::optional<CheckpointOptions>();
  CheckpointOptions options;
  options.directory = wanted.directory;
  options.prefix = wanted.prefix;
  options.every = wanted.save_checkpoint_steps;
  options.keep = wanted.keep_checkpoint_max;
  options.integrated = flags.Bool("integrated_save").value_or(wanted.integrated_save);
  options.steps_per_epoch = steps_per_epoch;
  std::vector<std::string> directories;
  for (int64_t rank = 0; rank < ranks; ++rank) directories.push_back(RankPath(options.directory, rank));
  MESHWRIGHT_RETURN_IF_ERROR(CheckDirectories(directories));
  return std::optional<CheckpointOptions>(std::move(options));
}

absl::StatusOr<std::optional<SavedState>> LoadedState(const Flags& flags) {
  if (!flags.Has("load")) return std::optional<SavedState>();
  const std::string path = flags.Text("load");
  if (std::error_code error; std::filesystem::is_directory(path, error)) {
    return Flags::Wrong("load", FileError(absl::StrCat("found the folder ", path, ", wanted a checkpoint in it, e.g. ",
                                                       path, "/CKP-1_4.ckpt")));
  }
  absl::StatusOr<SavedState> state = LoadState(path);
  if (IsFileError(state.status())) return Flags::Wrong("load", state.status());
  MESHWRIGHT_RETURN_IF_ERROR(state.status());
  return std::optional<SavedState>(*std::move(state));
}

}  // namespace meshwright
