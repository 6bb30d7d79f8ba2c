#include "planner/passes/pipeline_parts.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
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

int64_t RunsOf(const std::vector<Stack>& chain) {
  int64_t runs = 0;
  for (const Stack& stack : chain) runs += stack.repeat;
  return runs;
}
// `segment "layers" has`, `segments "dense_layers" and "layers" have`.
std::string Have(const Graph& graph, const std::vector<Stack>& chain) {
  std::vector<std::string> names;
  for (const Stack& stack : chain) names.push_back(absl::StrCat("\"", graph.segments[stack.segment].name, "\""));
  return absl::StrCat(names.size() == 1 ? "segment " : "segments ", absl::StrJoin(names, " and "),
                      names.size() == 1 ? " has " : " have ");
}

// What lies on each of so many parts; of a run that a part begins within, nothing is said right.
std::vector<Part> SpreadLayers(const std::vector<Stack>& chain, const std::vector<int64_t>& layers) {
  std::vector<Part> parts(layers.size());
  size_t stack = 0;
  int64_t run = 0;
  for (size_t part = 0; part < layers.size(); ++part) {
    for (int64_t left = layers[part]; left > 0 && stack < chain.size();) {
      const Stack& of = chain[stack];
      const int64_t runs = std::min(of.repeat - run, (left + of.layers - 1) / of.layers);
      parts[part].push_back({of.segment, run, runs});
      left -= runs * of.layers;
      run += runs;
      if (run == of.repeat) ++stack, run = 0;
    }
  }
  return parts;
}

// What lies on each part from `first` on.
absl::StatusOr<std::vector<Part>> Spread(const Graph& graph, const std::vector<Stack>& chain, const Strategy& strategy,
                                         int64_t first) {
  const int64_t count = strategy.stages * strategy.chunks;
  const bool given = !strategy.layers_per_stage.empty();
  const std::vector<int64_t> layers = given ? strategy.layers_per_stage : EvenLayers(LayersOf(chain), count);
  const std::vector<Part> parts = SpreadLayers(chain, layers);
  int64_t sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool end = given && (i == 0 || i + 1 == layers.size());
    if (layers[i] < (end ? 0 : 1) || first + static_cast<int64_t>(i) >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat(Have(graph, chain), LayersOf(chain), " layers for ", Describe(strategy),
                       strategy.chunks == 1 ? "; every stage" : "; every chunk", " needs one"));
    }
    sum += layers[i];
  }
  if (sum != LayersOf(chain)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers_per_stage adds up to ", sum, ", ", Have(graph, chain), LayersOf(chain)));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    int64_t whole = 0;
    for (const LayerRange& range : parts[i]) whole += range.count * graph.segments[range.segment].layers();
    if (whole == layers[i]) continue;
    return absl::InternalError(absl::StrCat(Describe(first + static_cast<int64_t>(i), strategy),
                                            " begins or ends within a run of layers, which was to be cut there"));
  }
  return parts;
}

}  // namespace

std::vector<Stack> ChainFrom(const Graph& graph, size_t segment) {
  const std::vector<size_t> chains = ChainsOf(graph);
  std::vector<Stack> chain;
  for (size_t s = segment; s < chains.size() && chains[s] == segment; ++s) {
    chain.push_back({s, graph.segments[s].repeat, graph.segments[s].layers()});
  }
  return chain;
}

int64_t LayersOf(const std::vector<Stack>& chain) {
  int64_t layers = 0;
  for (const Stack& stack : chain) layers += stack.repeat * stack.layers;
  return layers;
}

std::vector<int64_t> EvenLayers(int64_t layers, int64_t parts) {
  std::vector<int64_t> even(static_cast<size_t>(parts), layers / parts);
  for (int64_t part = 0; part < layers % parts; ++part) ++even[static_cast<size_t>(part)];
  return even;
}

absl::StatusOr<std::vector<Part>> PartsOf(const Graph& graph, const Strategy& strategy) {
  if (strategy.chunks > 1 && strategy.stages == 1) {
    return absl::InvalidArgumentError(absl::StrCat("found ", strategy.chunks, " chunks on one pipeline stage, wanted ",
                                                   "several stages to interleave"));
  }
  const int64_t count = strategy.stages * strategy.chunks;
  std::vector<Part> parts(count);
  int64_t part = 0;
  for (size_t s = 0; s < graph.segments.size(); ++s) {
    const Segment& segment = graph.segments[s];
    const std::vector<Stack> chain = ChainFrom(graph, s);
    if (RunsOf(chain) == 1 || count == 1) {
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
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<Part> spread, Spread(graph, chain, strategy, part));
    for (size_t i = 0; i < spread.size(); ++i) {
      Part& here = parts[static_cast<size_t>(part) + i];
      here.insert(here.end(), spread[i].begin(), spread[i].end());
    }
    part += static_cast<int64_t>(spread.size()) - 1;
    s += chain.size() - 1;
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
