#include "tools/profile/device_use.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace meshwright {
namespace {

using Range = std::pair<Nanos, Nanos>;

// The length of their union.
Nanos Covered(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  Nanos covered;
  std::optional<Nanos> end;
  for (const auto& [from, to] : ranges) {
    const Nanos begin = end.has_value() ? std::max(from, *end) : from;
    if (to <= begin) continue;
    covered += to - begin;
    end = to;
  }
  return covered;
}

}  // namespace

DeviceUse UseBetween(const std::vector<DeviceSpan>& spans, Nanos begin, Nanos end, int64_t steps) {
  DeviceUse use;
  std::vector<Range> all, kernels;
  for (const DeviceSpan& span : spans) {
    const Nanos from = std::max(span.begin, begin), to = std::min(span.end, end);
    const bool begins = span.begin >= begin && span.begin < end;
    if (span.kind == WorkKind::kCommunication && (begins || from < to)) {
      CallUse& call = use.calls[span.call];
      call.calls += begins ? 1 : 0;
      call.bytes += begins ? static_cast<double>(span.bytes.raw()) : 0;
      call.time += std::max(Nanos(), to - from);
      use.unsized += begins && !span.sized ? 1 : 0;
    }
    if (to <= from) continue;
    use.time[static_cast<size_t>(span.kind)] += to - from;
    all.emplace_back(from, to);
    if (span.kind != WorkKind::kCommunication) kernels.emplace_back(from, to);
  }
  const Nanos busy = Covered(std::move(all));
  use.step = (end - begin) / steps;
  use.exposed = (busy - Covered(std::move(kernels))) / steps;
  use.idle = (end - begin - busy) / steps;
  for (Nanos& time : use.time) time = time / steps;
  use.unsized /= static_cast<double>(steps);
  for (auto& [sort, call] : use.calls) {
    call.calls /= static_cast<double>(steps);
    call.bytes /= static_cast<double>(steps);
    call.time = call.time / steps;
  }
  return use;
}

}  // namespace meshwright
