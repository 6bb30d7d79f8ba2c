// The `parallel:` section of a model file: what the user wants of the way the work is split, as plain data.
//
// The key names and defaults are those of the parallel training interface that users know (clause numbers S... are of
// docs/semantics): parallel_mode, search_mode, dataset_strategy, comm_fusion, enable_parallel_optimizer,
// pipeline_stages, ... Keys of our own (micro_batches, recompute, tensor_parallel, ...) say what that interface cannot;
// where they are absent the planner decides.
//
//   parallel:
//     parallel_mode: auto_parallel
//     search_mode: sharding_propagation
//     dataset_strategy: data_parallel
//     pipeline_stages: 2
//     micro_batches: 8
//     comm_fusion: {allreduce: {mode: size, config: 32}}
//
// Errors, with their kinds at the end of the message (ir/error_kind.h): kInvalidArgument for a wrong key, type or
// value, kFailedPrecondition (E-STATE) for knobs that exclude each other. The knobs stand in a table, models/knobs.h.
// Thread safety: plain values.
#ifndef MESHWRIGHT_MODELS_PARALLEL_H_
#define MESHWRIGHT_MODELS_PARALLEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/cost_model_knobs.h"
#include "ir/document.h"
#include "ir/quantities.h"
#include "ir/sharding.h"
#include "ir/strategy.h"
#include "models/training.h"

namespace meshwright {

enum class ParallelMode : uint8_t { kStandAlone, kDataParallel, kHybridParallel, kSemiAuto, kAuto };
inline constexpr absl::string_view kParallelModeNames[] = {"stand_alone", "data_parallel", "hybrid_parallel",
                                                           "semi_auto_parallel", "auto_parallel"};

constexpr absl::string_view NameOf(ParallelMode mode) { return kParallelModeNames[static_cast<size_t>(mode)]; }

// The knob `search_mode`; planner/search has its own list of what it can do.
enum class SearchKnob : uint8_t { kDynamicProgramming, kRecursiveProgramming, kShardingPropagation };
inline constexpr absl::string_view kSearchModeNames[] = {"dynamic_programming", "recursive_programming",
                                                         "sharding_propagation"};

// The knob `search_prices`: what dynamic programming adds up. Bytes are S14's; with simulation every combination is
// simulated instead, which small models only can afford.
enum class SearchPricesKnob : uint8_t { kBytes, kTime, kSimulation };
inline constexpr absl::string_view kSearchPricesNames[] = {"bytes", "time", "simulation"};

// How a step's rows reach the ranks (S9). Shapes in a model file are global in every case.
enum class DatasetStrategy : uint8_t {
  kDataParallel,  // each rank feeds its own slice of dim 0
  kFullBatch,     // every rank feeds the whole batch
  kTuples,        // Parallel::dataset_tuples, one per input
};

enum class RecomputeChoice : uint8_t { kNone, kSelective, kFull, kAuto };  // kAuto: the planner chooses
inline constexpr absl::string_view kRecomputeChoiceNames[] = {"none", "selective", "full", "auto"};

enum class PipelineLoss : uint8_t { kSum, kMean };  // of the micro-batch losses, as it is reported (S12.4)
inline constexpr absl::string_view kPipelineLossNames[] = {"sum", "mean"};

// How collectives of one kind are packed into calls (S10.5).
struct FusionRule {
  enum class Mode : uint8_t { kAuto, kSize, kIndex };
  Mode mode = Mode::kAuto;
  Bytes size = MiB(64);       // kSize (and kAuto, which is a size of 64 MiB)
  std::vector<int64_t> last;  // kIndex: the last parameter of each bucket, ascending
  friend bool operator==(const FusionRule&, const FusionRule&) = default;
};
inline constexpr absl::string_view kFusionModeNames[] = {"auto", "size", "index"};

struct CommFusion {
  bool open = true;  // false: nothing is fused
  std::optional<FusionRule> allreduce, allgather, reducescatter;
};

struct Parallel {
  ParallelMode parallel_mode = ParallelMode::kStandAlone;  // decoders: kAuto
  std::optional<SearchKnob> search_mode;           // S1.2: dynamic_programming where the user wants compatibility
  std::optional<int64_t> device_num, global_rank;  // what is not set comes from the cluster, or the launcher

  DatasetStrategy dataset_strategy = DatasetStrategy::kDataParallel;
  std::vector<std::vector<int64_t>> dataset_tuples;  // kTuples: pieces of each dim, one tuple per input

  bool gradients_mean = false;
  bool gradient_fp32_sync = true;
  bool parameter_broadcast = false;
  bool enable_alltoall = false;
  bool fuse_epilogues = true;  // products and GELUs, sums and norms, of 16-bit types
  bool fuse_loss = true;       // logits read once, and written over by their gradient
  bool fuse_updates = true;    // updates that are alike in one kernel
  int64_t grad_accumulation_step = 1;

  std::vector<int64_t>
      all_reduce_fusion_config;  // S10.4; empty: not set. Never set together with comm_fusion.allreduce
  CommFusion comm_fusion;

  bool enable_parallel_optimizer = false;
  bool gradient_accumulation_shard = true;             // parallel_optimizer_config
  Bytes parallel_optimizer_threshold = KiB(64);        // the same; in files a number of KB (2^10 bytes)
  std::optional<int64_t> optimizer_weight_shard_size;  // -1: over all replicas; decoders: searched unless given

  int64_t pipeline_stages = 1;
  Schedule schedule = Schedule::kOneFOneB;  // pipeline_config.pipeline_scheduler
  bool pipeline_interleave = false;
  std::optional<int64_t> virtual_pipeline_stages;  // with the above: chunks of a stage, 2 unless given
  int64_t chunks() const {
    return ChunksOf(schedule).value_or(pipeline_interleave ? virtual_pipeline_stages.value_or(2) : 1);
  }
  std::vector<int64_t> layers_per_stage;  // of a decoder, by part (Strategy); empty: the search deals them
  PipelineLoss pipeline_loss = PipelineLoss::kSum;

  std::optional<int64_t> micro_batches;  // per step
  // Of a step, as either knob says it; nothing where neither does.
  std::optional<int64_t> NumMicroBatches() const {
    if (micro_batches.has_value() || grad_accumulation_step == 1) return micro_batches;
    return grad_accumulation_step;
  }
  std::optional<int64_t> micro_batch;  // rows of one micro-batch on one data-parallel rank
  std::optional<int64_t> tensor_parallel, data_parallel, expert_parallel, context_parallel;  // degrees
  // What the search may make of a degree at most.
  std::optional<int64_t> max_pipeline_stages, max_tensor_parallel, max_data_parallel, max_expert_parallel,
      max_context_parallel;
  std::optional<ContextExchange> context_exchange;  // context_parallel's; not none
  std::optional<Dispatcher> dispatcher;             // of tokens to experts
  std::optional<bool> spread_experts;               // over tensor-parallel ranks, too
  std::optional<bool> sequence_parallel;
  std::optional<bool> shard_parameters;  // over the replicas, with their optimizer state (ZeRO-3, FSDP); decoders
  RecomputeChoice recompute = RecomputeChoice::kAuto;

  // "": off
  std::string strategy_ckpt_load_file, strategy_ckpt_save_file, group_ckpt_save_file;

  CostModelKnobs cost_model;
  SearchPricesKnob search_prices = SearchPricesKnob::kBytes;

  std::vector<std::string> warnings;  // what was read, but not as the user may think
};

// What a flag says, and takes the place of what the file says.
struct ParallelFlags {
  std::optional<ParallelMode> parallel_mode;
  std::optional<SearchKnob> search_mode;
};

// Reads the section, each knob on its own and against the mode; a missing one has the defaults above, with
// `default_mode`.
absl::StatusOr<Parallel> ReadParallelAlone(const NodeRef& in, ParallelMode default_mode,
                                           const ParallelFlags& flags = {});

// What holds between knobs, and between them, the optimizer and the batch. `in` is the section that `parallel` was read
// from.
absl::Status CheckParallel(const NodeRef& in, const Parallel& parallel, const Training& training);

// Both.
absl::StatusOr<Parallel> ReadParallel(const NodeRef& in, const Training& training, ParallelMode default_mode);

// S11.2, of the parallel optimizer.
inline constexpr absl::string_view kOwnersOptimizers =
    "in data_parallel it works with the optimizers lamb and adamw only (Lamb, AdamWeightDecay)";

// Reads `shard` (and `out_strategy`) of the operator at `op`, whose `shard` is present. `layouts` is the file's section
// of named device matrices: `layouts: {cube: {device_matrix: [2, 2, 2], alias_name: [dp, sp, mp]}}`. A last axis of the
// name interleaved_parallel is no part of the matrix (S6.14).
//   shard: [[2, 4], [4, 1]]
//   shard: {layout: cube, in_strategy: [[mp, [sp, dp]], [[sp, dp], None]]}
absl::StatusOr<OpSharding> ReadSharding(const NodeRef& op, const NodeRef& layouts, size_t num_inputs);

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_PARALLEL_H_
