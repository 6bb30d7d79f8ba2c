// What the parts of a pipeline have to do with each other: which of them use a buffer, what crosses from one to
// another, and which parameters several stages have. Used by split_stages.
//
// Blocks are numbered by segment and kind of pass: kKinds of them for each segment.
//
// Thread safety: plain values, a pure function.
#ifndef MESHWRIGHT_PLANNER_PASSES_PART_USES_H_
#define MESHWRIGHT_PLANNER_PASSES_PART_USES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "ir/strategy.h"
#include "planner/passes/pipeline_parts.h"
#include "planner/passes/step_end.h"
#include "planner/schedule.h"

namespace meshwright {

inline constexpr size_t kKinds = kNumPassKinds;
inline size_t SegmentOf(size_t block) { return block / kKinds; }
inline PassKind KindOf(size_t block) { return static_cast<PassKind>(block % kKinds); }
inline bool IsForward(size_t block) { return KindOf(block) == PassKind::kForward; }
inline bool IsWeights(size_t block) { return KindOf(block) == PassKind::kWeights; }

bool IsStack(const LayerRange& range, const Graph& graph);  // has layers
int64_t LayersOn(const Part& part, const Graph& graph);     // runs of its chain; 0 where it has none of it
// Of the segments of its chain that stand before `segment` on the part.
int64_t LayersBefore(size_t segment, const Part& part, const Graph& graph);

// What flows from one stage to another: a buffer, from which part to which, in which phase.
struct Crossing {
  BufferId buffer;  // of the program before
  int64_t from = 0, to = 0;
  PassKind kind = PassKind::kForward;    // of the pass that makes it
  int64_t from_layer = 0, to_layer = 0;  // local layer at which it leaves and arrives
  int64_t last = 0;                      // the last part of the receiving stage that reads it in such a pass
};

struct BlocksOfBuffer {
  using Blocks = absl::InlinedVector<size_t, 4>;  // in order, each once
  Blocks readers, writers;
};

struct PartUses {
  std::vector<BlocksOfBuffer> of_buffer;
  std::vector<bool> is_stream;                 // by buffer: whether it holds what layers hand on
  std::vector<std::vector<int64_t>> parts_of;  // by segment, ascending
  std::vector<Crossing> crossings;
  std::vector<std::vector<size_t>> crossings_of;  // by buffer
  std::vector<std::vector<size_t>> crossings_at;  // by stage: those to or from it
  SharedParameters shared;
};

// `all`: the class that is to be split; `blocks`: its blocks, numbered as above.
PartUses FindUses(const RankClass& all, const std::vector<const Block*>& blocks, const Graph& graph,
                  const std::vector<Part>& parts, const Strategy& strategy, Schedule schedule);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_PART_USES_H_
