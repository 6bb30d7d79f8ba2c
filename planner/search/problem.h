// What a search is given: the model, the cluster, and what the user has already decided.
//
// Ownership: values; `graph` may be called from several threads at a time.
#ifndef MESHWRIGHT_PLANNER_SEARCH_PROBLEM_H_
#define MESHWRIGHT_PLANNER_SEARCH_PROBLEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/cluster.h"
#include "ir/cost_model_knobs.h"
#include "ir/graph.h"
#include "ir/sharding.h"
#include "ir/strategy.h"
#include "planner/passes/step_end.h"
#include "simulator/price.h"

namespace meshwright {

// Who decides how ops are split.
enum class SearchMode : uint8_t {
  kDecoder,               // every combination of degrees, by label rules; for models with repeated layers
  kDynamicProgramming,    // the least sum of prices over all combinations of op strategies (S15.2)
  kRecursiveProgramming,  // halves every product once a round (S15.9)
  kShardingPropagation,   // from the ops that the user configured (S15.5)
  kExhaustive,            // simulates every combination of op strategies; small operator graphs only
  kDefaults,              // no search: what is not configured gets its default strategy (S5.14; semi_auto_parallel)
  kDataParallel,          // dim 0 of every input over all ranks, parameters whole
  kByHand,                // no search: the graph's author splits it; its labels "rank" lie over all ranks
  kStandAlone,            // one rank
};

// What dynamic programming adds up: bytes of the compatible cost model (S14), or times of the cluster at hand.
enum class PriceKind : uint8_t { kBytes, kTime };

// How a step's rows reach the ranks (S9).
enum class Feeding : uint8_t { kDataParallel, kFullBatch, kTuples };

struct Problem {
  std::string name;
  // The forward graph of one micro-batch of `rows` rows, dim 0 of every input (decoders: sequences).
  std::function<absl::StatusOr<Graph>(int64_t rows)> graph;
  // Puts the place in the model file in front of an error about one of its operators, parameters or inputs; may be
  // empty. The search knows no places.
  std::function<absl::Status(const absl::Status&)> locate;
  int64_t batch = 1;           // rows of one step
  int64_t tokens_per_row = 1;  // 1 where rows are samples
  UpdateRule update;
  DType gradient_dtype = DType::kFloat32;
  Cluster cluster;
  HostPace host;                      // of the program that runs the plan
  std::optional<Bytes> memory_limit;  // of one device, where it is less than what the device has

  SearchMode mode = SearchMode::kDecoder;

  // Of the searches over operators' strategies.
  PriceKind search_prices = PriceKind::kBytes;
  CostModelKnobs cost_model;
  bool enable_alltoall = false;  // the compatible model redistributes by AlltoAll (S7.4)

  // What the user fixed; the rest is searched.
  std::optional<int64_t> tensor_parallel, data_parallel, expert_parallel, context_parallel, stages, microbatches;
  // What the search may make of a degree at most.
  std::optional<int64_t> max_tensor_parallel, max_data_parallel, max_expert_parallel, max_context_parallel, max_stages;
  std::optional<int64_t> microbatch;  // rows of one micro-batch on one data-parallel rank
  std::optional<bool> sequence_parallel, parallel_optimizer;
  std::optional<bool>
      shard_parameters;  // with the parallel optimizer; where not fixed, decoders are searched with both
  std::optional<Recompute> recompute;
  std::optional<ContextExchange> context_exchange;  // where there is context parallelism
  std::optional<Dispatcher> dispatcher;             // where experts are shared
  std::optional<bool> spread_experts;               // where there is tensor parallelism
  std::set<std::string> recompute_ops;
  std::optional<Bytes> bucket, scatter_bucket, gather_bucket;  // these and the next two as in Strategy
  std::vector<int64_t> bucket_ends;
  std::map<std::string, int64_t> fusion_ids;
  std::optional<Schedule> schedule = Schedule::kOneFOneB;  // where not fixed, decoders are searched with all but gpipe
  // Of a stage, where there are several stages (Strategy::chunks). Where not fixed, decoders in 1f1b are searched with
  // several numbers; everything else has one, or what its schedule wants.
  std::optional<int64_t> chunks;
  // Of a decoder, by part; then `stages` and `chunks` are fixed. Empty: dealt by the search.
  std::vector<int64_t> layers_per_stage;
  Bytes parallel_optimizer_threshold;
  bool gradient_accumulation_shard = false;  // with the parallel optimizer and several micro-batches
  bool all_to_all = true, fuse_epilogues = true, fuse_loss = true, fuse_updates = true;
  // Ranks that share a parameter under the parallel optimizer: so many neighbours of those that have it; -1: all. Where
  // not fixed it is all of them, and decoders may be searched with those of a node, too (DecoderSpace).
  std::optional<int64_t> optimizer_shard_size;
  std::set<std::string> optimizer_whole;  // as in Strategy
  std::set<std::string> own_parameters;   // these four as in Strategy
  bool gradients_mean = false, gradient_fp32_sync = true, parameter_broadcast = false;
  double gradient_scale = 1;
  bool loss_is_sum = false;  // over micro-batches (S12.4), else their mean

  // Fixes what the trainer that is to run the plan has no choice of, where the user has not fixed it. Null: nothing.
  std::function<void(Problem* problem)> narrow;
  std::string narrowed_by;  // the trainer's name, where there is a `narrow`

  // By op name. Of a decoder they rule out the degrees under which an op lies otherwise (fixed_strategies.h).
  std::map<std::string, OpSharding> shards;
  // Operator graphs.
  Feeding feeding = Feeding::kDataParallel;
  std::vector<std::vector<int64_t>> feeding_tuples;  // kTuples: one per input, in the graph's order
};

// What is searched: the problem with its trainer's limits.
inline Problem Narrowed(Problem problem) {
  if (problem.narrow != nullptr) problem.narrow(&problem);
  return problem;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_PROBLEM_H_
