#include "planner/search/balance.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/passes/pipeline_parts.h"

namespace meshwright {
namespace {

Nanos Longest(const PartCosts& costs, const std::vector<int64_t>& parts) {
  Nanos longest;
  size_t next = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    Nanos time = p == 0 ? costs.before : Nanos();
    if (p + 1 == parts.size()) time += costs.behind;
    for (int64_t layer = 0; layer < parts[p]; ++layer) time += costs.layers[next++];
    longest = std::max(longest, time);
  }
  return longest;
}

// From the last part to the first, each with as many layers as go into `most`, and as leave one for each part in front.
// Empty where that does not come out.
std::vector<int64_t> Within(const PartCosts& costs, size_t parts, Nanos most) {
  std::vector<int64_t> layers(parts, 0);
  size_t left = costs.layers.size();
  for (size_t part = parts; part-- > 0;) {
    Nanos time = part == 0 ? costs.before : Nanos();
    if (part + 1 == parts) time += costs.behind;
    for (; left > part && time + costs.layers[left - 1] <= most; --left) {
      time += costs.layers[left - 1];
      ++layers[part];
    }
    if (time > most || (layers[part] == 0 && part + 1 < parts)) return {};
  }
  return left == 0 ? layers : std::vector<int64_t>();
}

}  // namespace

std::vector<int64_t> BalancedLayers(const PartCosts& costs, int64_t parts) {
  const auto layers = static_cast<int64_t>(costs.layers.size());
  const auto count = static_cast<size_t>(parts);
  if (layers < parts) return {};
  const Nanos even = Longest(costs, EvenLayers(layers, parts));
  // The least that will do lies above `too_little` and not above `enough`.
  Nanos too_little, enough(std::llround(static_cast<double>(even.raw()) * (1 - kLeastGain)));
  std::vector<int64_t> best = Within(costs, count, enough);
  if (best.empty()) return {};
  while (enough - too_little > Nanos(1)) {
    const Nanos middle = too_little + (enough - too_little) / 2;
    std::vector<int64_t> dealt = Within(costs, count, middle);
    if (dealt.empty()) {
      too_little = middle;
    } else {
      enough = middle;
      best = std::move(dealt);
    }
  }
  return best;
}

}  // namespace meshwright
