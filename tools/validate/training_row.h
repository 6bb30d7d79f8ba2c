// One row of a table of training runs, understood: which model, on what, split how, and what was measured.
//
// A cell that is empty gets a default, and `defaults` says which (training_row.cc has them all in one place). What the
// row says and we can only come near to is named in `approximations`. What we cannot express is an error.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "costmodel/memory_overheads.h"
#include "ir/cluster.h"
#include "ir/quantities.h"
#include "ir/strategy.h"
#include "models/decoder.h"
#include "models/training.h"
#include "planner/search/degrees.h"
#include "planner/search/problem.h"
#include "simulator/price.h"
#include "tools/validate/csv.h"
#include "tools/validate/overrides.h"

namespace meshwright {

struct TrainingRun {
  DecoderConfig model;
  Training training;  // with the batch of one step
  Cluster cluster;
  Degrees degrees;
  int64_t chunks = 1;                                                        // of a stage: interleaved schedule
  bool most_chunks = false;                                                  // as many as there are layers, instead
  bool tensor_given = true, pipeline_given = true, microbatch_given = true;  // else the fastest that fits
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // where tensor parallelism is used: what degrees say once tp is chosen
  double recompute_share = 1;      // of the layers that are recomputed
  std::set<std::string> recompute_ops, recompute_more;  // in all of the layers; in that share of them
  std::set<std::string> fused_ops;                      // in one kernel, whatever the others are
  Schedule schedule = Schedule::kOneFOneB;
  bool balanced_stages = false;  // layers are dealt out by cost, the head's included
  bool ends_count = false;       // embedding and loss as a layer each (tools/validate/pipeline_text.h)
  bool nanotron = false;
  FrameworkCopies copies;
  bool early_nccl = false;  // before 2.22
  bool narrow = false;      // products in float8
  bool frozen = false;      // weights, as with adapters
  bool packed = false;      // the row's tokens are of several examples: `training` has these as rows
  bool parallel_optimizer = false, shard_parameters = false;
  bool reduces_afterwards = false;  // gradients, behind the last micro-batch, beside nothing
  bool groups = false;              // of replicas, each of which owns all of the optimizer's state
  bool call_each_tensor = false;    // of gradients and parameters, where replicas own parts of them
  DType gradient_dtype = DType::kFloat32;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  HostPace host;  // eager unless the row says that the step is compiled or captured

  std::vector<std::string> defaults;        // "vocab 51200"
  std::vector<std::string> approximations;  // "no interleaving"
  bool memory_comparable = true;            // false: an approximation moves the memory
};

struct TrainingMeasurement {
  std::optional<double> step_seconds;
  std::string from;            // the column
  std::optional<Bytes> peak;   // most memory used on a device
  bool reserved = false;       // `peak` is what a caching allocator took
  bool whole_process = false;  // `peak` counts context and communication buffers too
  bool out_of_memory = false;  // status oom: there is no time
};

// kInvalidArgument: a damaged cell, with file and line. kUnimplemented, "reason: detail": what cannot be expressed.
absl::StatusOr<TrainingRun> ReadTrainingRun(const CsvCells& cells, const RowOverrides& overrides);

// `run`: what the row says, for rates. kUnimplemented, "reason: detail": nothing in the row can be compared with a
// prediction.
absl::StatusOr<TrainingMeasurement> ReadTrainingMeasurement(const CsvCells& cells, const TrainingRun& run);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TRAINING_ROW_H_
