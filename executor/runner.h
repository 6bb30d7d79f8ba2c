// Plays a Program for real: prepares one rank's arena, then issues its slots step by step on a back end.
//
//   host    executor/host/run_on_threads.h (ranks are threads), executor/host/run_on_endpoint.h (ranks are processes)
//
// Numbers. The arena is exactly the class's: what was planned is what is allocated. Parameters start from their
// initializers, masters equal to their parameters, optimizer state as zero (the scale of the loss from its
// initializer), or all of them from a checkpoint (executor/checkpoint.h); everything else as NaN, so that a buffer read
// before it is written shows. Buffers of one tensor are named alike up to an '@'. Micro-batch i gets rows [i*B/M,
// (i+1)*B/M) of the step's batch, dim 0 of every input, or the i-th part of each of the batches that it is made of
// (RunOptions::batches, S12.3).
//
// Slots of RankClass::start are played once, before the first step. Kernels that use a buffer with an owner are run by
// that rank only.
//
// The loss of a step is the sum over instances of the class's last loss buffer that has no partial axes, divided by
// the program's loss_divisor. Every rank of a class with such a buffer reports it (S12.5).
//
// Errors name the rank, the slot and the instruction: "rank 3 (stage 0), slot 5 (layers forward, layer 2,
// micro-batch 1), instruction 7 (matmul): ...". A loss that is not finite stops the run with kInvalidArgument (S16.8).
// When one rank fails, all stop and its Status is the run's.
//
// Thread safety: functions may run at the same time; a callback is called from the thread of one rank.
#ifndef MESHWRIGHT_EXECUTOR_RUNNER_H_
#define MESHWRIGHT_EXECUTOR_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "executor/backend.h"
#include "executor/checkpoint.h"
#include "executor/data.h"
#include "ir/program.h"
#include "ir/trace.h"

namespace meshwright {

struct RunOptions {
  int64_t steps = 1;
  int64_t first_step = 0;  // steps done before: data and step counts go on from there
  // A step's batch is so many one behind the other, as where each rank feeds its own; divides a micro-batch's rows.
  int64_t batches = 1;
  uint64_t seed = 1;  // of initial parameters and random masks
  // Rank r draws them from seed + r: they differ, as where every process draws its own (S8.10, S17.2).
  bool seed_per_rank = false;
  const SavedState* initial = nullptr;  // instead of initial values; CheckFits the program; must outlive the run
  std::optional<CheckpointOptions> checkpoint = std::nullopt;
  bool trace = true;                           // measure every instruction of the last step
  bool keep_parameters = false;                // give the parameters back, gathered to whole tensors
  absl::Duration deadline = absl::Minutes(2);  // longest wait of one rank for another
  // Zero where nobody predicted it. A device is given up after many of them.
  absl::Duration predicted_step = absl::ZeroDuration();
  bool library_estimates =
      false;                    // after a traced step: what the collectives' library expects of each (Span::estimate)
  bool register_arena = false;  // devices: NCCL is told of the arena, and moves what it can without copies
  bool graphs = true;           // a device that can record a step, and launch it whole from then on, does
  // Called after each step with its number, from 0 for the first of the training, and its loss, by every rank that has
  // one; `first`: the first of them. All calls of one step come before those of the next.
  std::function<void(int64_t step, double loss, bool first)> on_loss = nullptr;
};

// A tensor by name (without '@...') and layer of the whole model.
using ParameterKey = std::pair<std::string, int64_t>;

// A whole tensor, row-major; the numbers of a float32 tensor are exact as doubles.
struct WholeTensor {
  Shape shape;
  std::vector<double> values;
};

// Of a program that scales its loss, after a step.
struct LossScale {
  double scale = 1;
  int64_t skipped = 0;  // steps, since the beginning of training
};

struct RunResult {
  std::vector<double> losses;                       // per step
  std::vector<std::vector<double>> rank_losses;     // [rank][step]; empty for ranks that have none
  std::vector<std::vector<LossScale>> loss_scales;  // [rank][step]; empty where the loss is not scaled
  std::vector<Bytes> arenas;                        // [rank]: bytes allocated
  Trace trace;                                      // of the last step; source "measured"
  std::map<ParameterKey, WholeTensor> parameters;   // after the last step: of masters where there are some, and of
                                                    // a parameter that several stages use its owner's
};

// What one rank brings home.
struct ParameterPiece {
  ParameterKey key;
  Shape global, shape, begin;
  std::vector<double> values;
};
struct RankResult {
  std::vector<double> losses;
  std::vector<LossScale> loss_scales;
  Bytes arena;
  std::vector<Span> spans;
  std::vector<ParameterPiece> parameters;
};

// Runs one rank of a program that passes VerifyProgram; all ranks of the program's mesh must run at the same time. On
// an error the others are told to stop.
absl::StatusOr<RankResult> RunRank(const Program& program, const RunOptions& options, const DataSource& data,
                                   int64_t rank, Backend& backend);

// Puts together what the ranks brought home, in order of rank.
RunResult JoinResults(std::vector<RankResult> ranks);

// The error of a run in which ranks ended so: the first that is not just kCancelled, or the first.
absl::Status FirstError(absl::Span<const absl::Status> ranks);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_RUNNER_H_
