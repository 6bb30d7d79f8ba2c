// The space of a decoder's strategies: every valid combination of degrees and choices, in a fixed order.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_PLANNER_SEARCH_SPACE_H_
#define MESHWRIGHT_PLANNER_SEARCH_SPACE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/strategy.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/search/degrees.h"
#include "planner/search/problem.h"

namespace meshwright {

// How several stages work; of one stage it means nothing.
struct Pipelining {
  Schedule schedule = Schedule::kOneFOneB;
  int64_t chunks = 1;  // of a stage
  friend auto operator<=>(const Pipelining&, const Pipelining&) = default;
};

struct Combination {
  Degrees degrees;
  Pipelining pipelining;
  Recompute recompute = Recompute::kNone;
  bool parallel_optimizer = false;
  bool shard_parameters = false;  // with the parallel optimizer
  Bytes bucket;
  std::vector<int64_t> layers = {};  // of each part of the pipeline; empty: as nearly equal numbers as may be
  friend bool operator==(const Combination&, const Combination&) = default;
};

// What is left out at first because it hardly ever pays, and looked at where nothing else fits.
struct SpaceOptions {
  bool tensor_across_nodes = false;
  bool fewer_microbatches_than_stages = false;
  bool parameters_split_over_more_devices = false;  // than kMostDevicesOfSplitParameters
};

// Steps with split parameters (ZeRO-3) were held to measurements on up to so many devices, mostly within 10 %
// (llm-foundry, FSDP on 8 to 128 A100). On 384 to 2,240 (Narayanan et al. 2021, table 2) plans are 32 to 75 % too fast,
// and 13 to 38 % with the waits and copies of that time's framework (docs/accuracy.md): a search that believed that
// would choose them.
inline constexpr int64_t kMostDevicesOfSplitParameters = 128;

// From what is usual to everything.
inline constexpr SpaceOptions kWidening[] = {{}, {false, true, true}, {true, true, true}};

struct Space {
  std::vector<Combination> combinations;
  int64_t considered = 0;                 // combinations and what was pruned
  std::map<std::string, int64_t> pruned;  // reason -> combinations. A degree that does not divide counts as one for
                                          // each choice that would not have changed that
};

// Facts about the model that decide which degrees divide.
struct DecoderFacts {
  LabelSizes sizes;
  int64_t layers = 1;    // which stages share; 1 where the model cannot be cut into stages
  absl::Status context;  // why the sequence cannot be shared through attention (planner/passes/split_context.h)
};
DecoderFacts FactsOf(const Graph& graph);

// The chain of segments whose layers are spread over stages; none where there is none, or several.
std::vector<Stack> LayersOf(const Graph& graph);

// Uses all devices of the cluster. Rules: stages <= layers; the tensor degree divides KV heads "g", "f", and with
// sequence parallelism "s"; twice the context degree divides "s"; the expert degree divides "e" and the data degree;
// the batch divides; micro-batches times chunks are no more than kMostPasses. Chunks that the user leaves open divide
// the layers of the largest stage. Where the user does not say, parameters are split over replicas on one stage only:
// with several they would be gathered anew for each micro-batch. What is split is so over all replicas or, of
// parameters and of many replicas, those of a node (HSDP).
Space DecoderSpace(const Problem& problem, const DecoderFacts& facts, const SpaceOptions& options);

absl::StatusOr<Strategy> StrategyOf(const Problem& problem, const Combination& combination, const LabelSizes& sizes);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_SPACE_H_
