// What one way of splitting a decoder costs, by which lower bounds (planner/search/bounds.h) and the layers that each
// part of a pipeline should have (planner/search/balance.h) are told.
//
// One layer of each kind, and what stands around the layers, is lowered and priced once for each way of splitting it,
// alone on its ranks: as one micro-batch on one stage of one replica. Layers that alternate are sorted for it
// (planner/passes/cut_runs.h), so that it tells what those of any stage take. Where gradients may be kept as rows, no
// gradient is cleared, or read to be added to.
//
// Thread safety: pure functions, but of what is kept, which several may share.
#ifndef MESHWRIGHT_PLANNER_SEARCH_PROBE_H_
#define MESHWRIGHT_PLANNER_SEARCH_PROBE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "planner/lower.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/search/latest.h"
#include "planner/search/problem.h"
#include "planner/search/space.h"

namespace meshwright {

struct Probe {
  // What decides whether the parallel optimizer splits a parameter: the replicas of its gradient in the probe, and the
  // rows that a rank holds.
  struct Shares {
    int64_t replicas = 1, rows = 1;
    friend auto operator<=>(const Shares&, const Shares&) = default;
  };
  struct SegmentCost {
    int run = -1;                             // of a kind of layer in `stacks`: in which of `runs` it is
    Nanos forward, backward, clear;           // of one layer, on the compute stream
    Nanos forward_kernels, backward_kernels;  // of these, without collectives
    std::map<Shares, Nanos> update;           // by how its parameters can be split
    Nanos in_turns;                           // of one layer's update, what one rank of the class does for all
    Bytes forward_inside, backward_inside;    // most that is alive of the blocks' own buffers
  };
  struct BufferUse {
    absl::InlinedVector<uint32_t, 2> segments;  // that use it
    Bytes bytes;                                // of one instance, all that are alike together
    int layered = -1;                           // one per layer of this one of `stacks`
    bool border = false;                        // one per layer of all, and one more
    bool in_flight = false;                     // one per micro-batch in flight
    std::optional<Shares> shares;               // optimizer state
    friend std::strong_ordering operator<=>(const BufferUse&, const BufferUse&) = default;
  };
  std::vector<SegmentCost> segments;
  std::vector<BufferUse> buffers;
  std::vector<Stack> stacks;  // of the chain, a kind of layer each; none where nothing is repeated
  std::vector<Stack> runs;    // the chain before it was sorted: of L layers in a run the next L of `stacks`
};

// The graph of a micro-batch.
struct SortedGraph {
  Graph graph;              // of sorted layers
  std::vector<Stack> runs;  // before
};

// What probes have in common: graphs by their rows, some ten kilobytes each, and redistributions.
struct KeptForProbes {
  static constexpr size_t kMostGraphs = 64;
  Latest<int64_t, SortedGraph> graphs{kMostGraphs};
  KeptRedistributions redistributions;
};

// One micro-batch on one stage.
struct LoweredProbe {
  std::shared_ptr<const SortedGraph> of;
  Program program;
};

// REQUIRES: the combination's degrees divide the cluster. The error of a model that cannot be split so.
absl::StatusOr<LoweredProbe> LowerProbe(const Problem& problem, const CostModel& costs, const DecoderFacts& facts,
                                        const Combination& combination, KeptForProbes& kept);

// Of a combination that differs from the one that was lowered in what is counted and not lowered: whether parameters
// are split. Of those it must be called for the whole ones first, as gradients of split ones are overwritten in
// `lowered`.
absl::StatusOr<Probe> ReadProbe(const Problem& problem, const CostModel& costs, const Combination& combination,
                                LoweredProbe& lowered);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_SEARCH_PROBE_H_
