#include "planner/passes/pipeline_parts.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "planner/schedule.h"

namespace meshwright {
namespace {

// "4 stages", "4 stages of 2 chunks".
std::string Describe(const Strategy& strategy) {
  return absl::StrCat(strategy.stages, " stages",
                      strategy.chunks == 1 ? "" : absl::StrCat(" of ", strategy.chunks, " chunks"));
}
std::string Describe(int64_t part, const Strategy& strategy) {
  if (strategy.chunks == 1) return absl::StrCat("stage ", part);
  return absl::StrCat("stage ", StageOfPart(strategy.schedule, part, strategy.stages), ", chunk ",
                      part / strategy.stages);
}

}  // namespace

absl::StatusOr<std::vector<Part>> PartsOf(const Graph& graph, const Strategy& strategy) {
  if (strategy.chunks > 1 && strategy.stages == 1) {
    return absl::InvalidArgumentError(absl::StrCat("found ", strategy.chunks, " chunks on one pipeline stage, wanted ",
                                                   "several stages to interleave"));
  }
  const int64_t count = strategy.stages * strategy.chunks;
  const char* const each = strategy.chunks == 1 ? "every stage needs one" : "every chunk needs one";
  std::vector<Part> parts(count);
  int64_t part = 0;
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    const Segment& segment = graph.segments[s];
    if (segment.repeat == 1 || count == 1) {
      if (segment.stage >= 0) {
        if (segment.stage < part || segment.stage >= count) {
          return absl::InvalidArgumentError(absl::StrCat(
              "segment \"", segment.name, "\" is on pipeline ", Describe(segment.stage, strategy), " after one on ",
              Describe(part, strategy), " of ", Describe(strategy), "; stages must not decrease along the graph"));
        }
        part = segment.stage;
      }
      parts[part].push_back({s, 0, segment.repeat});
      continue;
    }
    std::vector<int64_t> layers = strategy.layers_per_stage;
    if (layers.empty()) {
      for (int64_t i = 0; i < count; ++i) {
        layers.push_back(segment.repeat / count + (i < segment.repeat % count ? 1 : 0));
      }
    }
    int64_t first = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t of_part = layers[i];
      const bool end = !strategy.layers_per_stage.empty() && (i == 0 || i + 1 == layers.size());
      if (of_part < (end ? 0 : 1) || part + 1 > count) {
        return absl::InvalidArgumentError(absl::StrCat("segment \"", segment.name, "\" has ", segment.repeat,
                                                       " layers for ", Describe(strategy), "; ", each));
      }
      if (of_part > 0) parts[part].push_back({s, first, of_part});
      first += of_part;
      if (i + 1 < layers.size()) ++part;
    }
    if (first != segment.repeat) {
      return absl::InvalidArgumentError(
          absl::StrCat("layers_per_stage adds up to ", first, ", segment \"", segment.name, "\" has ", segment.repeat));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    if (parts[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pipeline ", Describe(i, strategy), " of ", strategy.stages,
                       " has no operators; give each stage some (pipeline_stage) or use fewer stages"));
    }
  }
  return parts;
}

}  // namespace meshwright
