#include "planner/search/balance.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace meshwright {
namespace {

// The runs of a chain, from the first to the last.
struct Run {
  Nanos cost;
  int64_t layers;
};
std::vector<Run> RunsOf(const std::vector<Stack>& chain, const PartCosts& costs) {
  std::vector<Run> runs;
  for (size_t k = 0; k < chain.size(); ++k) {
    runs.insert(runs.end(), static_cast<size_t>(chain[k].repeat), {costs.run[k], chain[k].layers});
  }
  return runs;
}

Nanos Longest(const std::vector<Stack>& chain, const PartCosts& costs, const std::vector<int64_t>& layers) {
  const std::vector<Part> parts = SpreadLayers(chain, layers);
  Nanos longest;
  for (size_t p = 0; p < parts.size(); ++p) {
    Nanos time = p == 0 ? costs.before : Nanos();
    if (p + 1 == parts.size()) time += costs.behind;
    for (const LayerRange& range : parts[p]) {
      for (size_t k = 0; k < chain.size(); ++k) {
        if (chain[k].segment == range.segment) time += costs.run[k] * range.count;
      }
    }
    longest = std::max(longest, time);
  }
  return longest;
}

// From the last part to the first, each with as many runs as go into `most`, and as leave one for each part in front.
// Empty where that does not come out.
std::vector<int64_t> Within(const std::vector<Run>& runs, const PartCosts& costs, size_t parts, Nanos most) {
  std::vector<int64_t> layers(parts, 0);
  size_t left = runs.size();
  for (size_t part = parts; part-- > 0;) {
    Nanos time = part == 0 ? costs.before : Nanos();
    if (part + 1 == parts) time += costs.behind;
    for (; left > part && time + runs[left - 1].cost <= most; --left) {
      time += runs[left - 1].cost;
      layers[part] += runs[left - 1].layers;
    }
    if (time > most || (layers[part] == 0 && part + 1 < parts)) return {};
  }
  return left == 0 ? layers : std::vector<int64_t>();
}

}  // namespace

std::vector<int64_t> BalancedLayers(const std::vector<Stack>& chain, const PartCosts& costs, int64_t parts) {
  const std::vector<Run> runs = RunsOf(chain, costs);
  const auto count = static_cast<size_t>(parts);
  if (runs.size() < count) return {};
  const Nanos even = Longest(chain, costs, EvenLayers(chain, parts));
  // The least that will do lies above `too_little` and not above `enough`.
  Nanos too_little, enough(std::llround(static_cast<double>(even.raw()) * (1 - kLeastGain)));
  std::vector<int64_t> best = Within(runs, costs, count, enough);
  if (best.empty()) return {};
  while (enough - too_little > Nanos(1)) {
    const Nanos middle = too_little + (enough - too_little) / 2;
    std::vector<int64_t> layers = Within(runs, costs, count, middle);
    if (layers.empty()) {
      too_little = middle;
    } else {
      enough = middle;
      best = std::move(layers);
    }
  }
  return best;
}

}  // namespace meshwright
