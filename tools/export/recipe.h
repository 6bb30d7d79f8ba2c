// A decoder's plan in the words that trainers share: degrees, micro-batches, what is split and what is run again.
//
//   plan.yaml -> Plan (mesh, rules, choices) -> Recipe -> a writer of writers.h
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_TOOLS_EXPORT_RECIPE_H_
#define MESHWRIGHT_TOOLS_EXPORT_RECIPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/cluster.h"
#include "models/decoder.h"
#include "models/training.h"
#include "tools/plan_file.h"

namespace meshwright {

struct Recipe {
  std::string name;  // letters, digits, '.', '_' and '-' only
  DecoderConfig model;
  Training training;
  Cluster cluster;
  PlanPromise promise;

  int64_t data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1;  // expert divides data
  ContextExchange exchange = ContextExchange::kNone;                    // where context > 1
  int64_t copies = 1;                                                   // these three as in Degrees
  int64_t expert_groups = 1;
  bool spread_experts = false;
  int64_t chunks = 1;  // of a stage
  bool sequence_parallel = false;
  int64_t batch = 1;         // sequences of a step
  int64_t microbatch = 1;    // sequences of one micro-batch on one data-parallel rank
  int64_t microbatches = 1;  // of a step
  Schedule schedule = Schedule::kOneFOneB;
  Recompute recompute = Recompute::kNone;
  bool leaves_recompute = false;  // `import` alone: nobody says it, and the search chooses
  std::vector<int64_t> layers;    // of each part of the pipeline, in the order in which a micro-batch meets them
  bool shard_optimizer = false, shard_parameters = false;
  bool shard_gradients = false;  // `import` alone: ZeRO-2
  bool sums_gradients = false;   // of the ranks' own losses, where trainers take their mean
  int64_t bucket_elements = 0;   // of a gradient bucket; 0: no fusion

  int64_t devices() const { return data * tensor * pipeline * context; }
  bool even_layers() const;
  int product_bits() const { return cluster.device.kernels.product_bits; }
  // 0: nothing is split over the data-parallel ranks; 1: the optimizer; 3: parameters and gradients, too.
  int zero_stage() const { return shard_parameters ? 3 : shard_optimizer ? 1 : 0; }
};

// "float8", "float4"; "" where products are not quantised.
std::string NameOfProducts(const Recipe& recipe);

// kUnimplemented: a model of operators, whose plan has no degrees; a strategy that degrees do not say.
absl::StatusOr<Recipe> RecipeOf(const Plan& plan);

// `name` with '_' for all but letters, digits, '.', '_' and '-': a shell takes it as it is.
std::string PlainName(absl::string_view name);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_EXPORT_RECIPE_H_
