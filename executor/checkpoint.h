// Checkpoints (S16.5 to S16.7): what a run has learnt, in files, and back, under any other plan.
//
//   device/0/CKP-1_4.ckpt           rank 0 after step 4 of epoch 1: a safetensors file (executor/safetensors.h)
//   device/0/CKP-graph.meta         the program that it ran, in the text form of ir/program_text.h
//
// A file holds what lives from step to step: parameters (masters where there are some) and optimizer state, whole
// (integrated) or as the rank's own pieces. Tensors have the parameter's name, with ".3" behind it for layer 3 where
// there are several layers; state ends in "@m", "@v". Nothing in a name depends on how the model was split.
//
// What is saved is loaded bit for bit, whatever the two plans are. So a step after loading computes what it would
// compute, under its plan, had the run had these weights; runs under two plans differ by the order of their sums.
//
// Errors: E-VALUE for files that are damaged or contradict each other, E-STATE for two ranks in one directory,
// kUnavailable for what the system refuses. Thread safety: plain values; a writer belongs to one thread.
#ifndef MESHWRIGHT_EXECUTOR_CHECKPOINT_H_
#define MESHWRIGHT_EXECUTOR_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "executor/kernel_call.h"
#include "executor/safetensors.h"
#include "ir/program.h"

namespace meshwright {

// A rank's piece of a named tensor.
struct StatePiece {
  std::string name;
  Shape global, begin;  // of the whole; where this piece begins in it
  std::string layout;   // as ir/layout.h writes it: for people
  StoredTensor tensor;  // the piece itself
};

struct Checkpoint {
  int64_t rank = 0, ranks = 1;  // who wrote it, of how many
  int64_t epoch = 1, step = 1;  // from 1, step within the epoch
  int64_t steps_done = 0;       // since the beginning of training
  std::string mesh;             // that the layouts are over
  std::vector<StatePiece> pieces;

  bool integrated() const;  // every piece is a whole tensor
};

std::string ToBytes(const Checkpoint& checkpoint);
// Any safetensors file will do; one that says nothing else holds whole tensors and 0 steps.
absl::StatusOr<Checkpoint> ParseCheckpoint(absl::string_view bytes, absl::string_view path);

// Whole tensors by name.
struct SavedState {
  int64_t steps_done = 0;
  std::map<std::string, StoredTensor> tensors;
};

// Puts the pieces of several ranks together (S16.7). `where` names each checkpoint, for messages. E-VALUE where
// replicas differ, where a part of a tensor is in none of them, and where they are not of one step.
absl::StatusOr<SavedState> Merge(absl::Span<const Checkpoint> checkpoints, absl::Span<const std::string> where);
// The whole tensors of checkpoints as ToBytes writes them, one of each rank, in order.
absl::StatusOr<std::vector<StatePiece>> MergedPieces(const std::vector<std::string>& of_ranks);

// Reads a file; or, of a path with "{rank_id}" in it, the files of all ranks that the first one tells of.
absl::StatusOr<SavedState> LoadState(const std::string& path);

// The part of `whole` that `to` is in its global shape, converted to the type of `to`.
absl::Status CopyPiece(absl::string_view name, const StoredTensor& whole, const TensorView& to);

// What a run of the program reads and writes: its tensors' names in checkpoints.
//   of a parameter, master or optimizer state buffer at `instance`; "" for what is not saved because another buffer,
//   or another stage, has the value that counts
std::string StateName(const Program& program, size_t rank_class, BufferId buffer, int64_t instance);
// The names that a buffer takes its first value from: as above, and for parameters that have a master its value.
std::string SourceName(const Program& program, const Buffer& buffer, int64_t instance);

// Whether a run of the program can start from `state`: kNotFound for a parameter that is missing, E-VALUE for another
// shape. Returns notices: optimizer state that is missing and starts anew, tensors that nothing reads.
absl::StatusOr<std::vector<std::string>> CheckFits(const Program& program, const SavedState& state);

// The ranks' directories are different ones, links and ".." resolved. E-STATE.
absl::Status CheckDirectories(absl::Span<const std::string> directories);
// `pattern` with every "{rank_id}" replaced.
std::string RankPath(absl::string_view pattern, int64_t rank);

struct CheckpointOptions {
  std::string directory = {};  // with "{rank_id}" in it where there are several ranks
  std::string prefix = "CKP";
  int64_t every = 1;            // steps
  int64_t keep = 5;             // files of one rank; the oldest is removed when another is written
  bool integrated = true;       // whole tensors in every rank's file, else its own pieces
  int64_t steps_per_epoch = 0;  // 0: all steps are one epoch
};

// One rank's directory.
class CheckpointWriter {
 public:
  // Makes the directory, writes the graph's meta file, and removes what a writer with this prefix left that was killed.
  // Checkpoints with this prefix that lie there already are older than all that this writes.
  static absl::StatusOr<CheckpointWriter> Open(const CheckpointOptions& options, const Program& program, int64_t rank);

  // Under its name, CKP-<epoch>_<step>.ckpt.
  absl::Status Write(const Checkpoint& checkpoint);
  // All but as many as are kept. To be called when every rank has written its own.
  absl::Status RemoveOldest();

 private:
  std::string directory_, prefix_;
  size_t keep_ = 5;
  std::vector<std::string> names_;  // the oldest first
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_CHECKPOINT_H_
