// One training run of a table: which model, on what, split how, by a framework that does what.
//
// Thread safety: a plain value.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_TRAINING_RUN_H_
#define MESHWRIGHT_TOOLS_VALIDATE_TRAINING_RUN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "costmodel/memory_overheads.h"
#include "ir/cluster.h"
#include "ir/strategy.h"
#include "models/decoder.h"
#include "models/training.h"
#include "planner/search/degrees.h"
#include "planner/search/problem.h"
#include "simulator/price.h"

namespace meshwright {

struct TrainingRun {
  DecoderConfig model;
  Training training;  // with the batch of one step
  Cluster cluster;
  Degrees degrees;
  int64_t chunks = 1;        // of a stage: interleaved schedule
  bool most_chunks = false;  // as many as there are layers, instead
  // Else the fastest that fits.
  bool tensor_given = true, pipeline_given = true, microbatch_given = true, experts_given = true;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // where tensor parallelism is used: what degrees say once tp is chosen
  double recompute_share = 1;      // of the layers that are recomputed
  std::set<std::string> recompute_ops, recompute_more;  // in all of the layers; in that share of them
  std::set<std::string> fused_ops;                      // in one kernel, whatever the others are
  Schedule schedule = Schedule::kOneFOneB;
  bool balanced_stages = false;  // layers are dealt out by cost, the head's included
  std::vector<int64_t> parts;    // layers of each part of the pipeline, where its layout is written out
  bool ends_count = false;       // embedding and loss as a layer each (tools/validate/pipeline_text.h)
  bool nanotron = false;
  FrameworkCopies copies;
  bool expert_loop = false;    // experts are computed one after the other
  bool early_nccl = false;     // before 2.22
  bool early_context = false;  // before PyTorch 1.13
  bool narrow = false;         // products in float8
  bool frozen = false;         // weights, as with adapters
  bool quantized = false;      // those: of 4 bits
  bool updates = true;         // the update is part of what is timed
  double adapters = 0;         // parameters beside them that are trained
  double expert_adapters = 0;  // those of all experts but one, besides
  bool packed = false;         // the row's tokens are of several examples: `training` has these as rows
  bool parallel_optimizer = false, shard_parameters = false;
  bool reduces_afterwards = false;  // gradients, behind the last micro-batch, beside nothing
  bool groups = false;              // of replicas, each of which owns all of the optimizer's state
  bool call_each_tensor = false;    // of gradients and parameters, where replicas own parts of them
  int64_t bucket = 0;               // elements in a call of gradients or parameters; 0: as plans have it
  DType gradient_dtype = DType::kFloat32;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  HostPace host;  // eager unless the row says that the step is compiled or captured

  std::vector<std::string> defaults;        // "vocab 51200"
  std::vector<std::string> approximations;  // "no interleaving"
  bool memory_comparable = true;            // false: an approximation moves the memory

  friend bool operator==(const TrainingRun&, const TrainingRun&) = default;
};

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_TRAINING_RUN_H_
