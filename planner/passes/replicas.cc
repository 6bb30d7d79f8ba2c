#include "planner/passes/replicas.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"

namespace meshwright {

std::vector<ReplicaRun> ReplicaRuns(const Layout& layout, const Mesh& mesh, int64_t ranks_per_stage) {
  std::vector<ReplicaRun> used, free;
  for (const AxisList& axes : layout.dims) {
    for (AxisId id : axes) used.push_back({mesh.axis(id).size, mesh.axis(id).stride});
  }
  absl::c_sort(used, [](const ReplicaRun& a, const ReplicaRun& b) { return a.stride > b.stride; });
  int64_t end = ranks_per_stage;
  for (const ReplicaRun& run : used) {
    const int64_t begin = run.size * run.stride;
    if (end > begin) free.push_back({end / begin, begin});
    end = run.stride;
  }
  if (end > 1) free.push_back({end, 1});
  return free;
}

std::optional<AxisList> AxesOf(const std::vector<ReplicaRun>& runs, const Mesh& mesh) {
  AxisList axes;
  for (const ReplicaRun& run : runs) {
    const absl::StatusOr<AxisList> some = mesh.Compose(run.size, run.stride);
    if (!some.ok()) return std::nullopt;
    axes.insert(axes.end(), some->begin(), some->end());
  }
  return axes;
}

std::optional<std::vector<ReplicaRun>> Fastest(const std::vector<ReplicaRun>& runs, int64_t count) {
  std::vector<ReplicaRun> fastest;
  for (size_t i = runs.size(); i-- > 0 && count > 1;) {
    const ReplicaRun& run = runs[i];
    const int64_t size = std::min(run.size, count);
    if (count % size != 0 || run.size % size != 0) return std::nullopt;
    fastest.insert(fastest.begin(), {size, run.stride});
    count /= size;
  }
  if (count > 1) return std::nullopt;
  return fastest;
}

}  // namespace meshwright
