// Which ranks hold the same part of a tensor. Pure functions.
#ifndef MESHWRIGHT_PLANNER_PASSES_REPLICAS_H_
#define MESHWRIGHT_PLANNER_PASSES_REPLICAS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/layout.h"
#include "ir/mesh.h"

namespace meshwright {

// Ranks `stride` apart, `size` of them.
struct ReplicaRun {
  int64_t size = 1, stride = 1;
};

// The runs that together join the replicas of a tensor, the slowest first.
std::vector<ReplicaRun> ReplicaRuns(const Layout& layout, const Mesh& mesh, int64_t ranks_per_stage);

// Nothing where the mesh has no axes for them.
std::optional<AxisList> AxesOf(const std::vector<ReplicaRun>& runs, const Mesh& mesh);

// The fastest `count` ranks of the runs; nothing where it does not divide into these.
std::optional<std::vector<ReplicaRun>> Fastest(const std::vector<ReplicaRun>& runs, int64_t count);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_REPLICAS_H_
