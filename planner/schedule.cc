#include "planner/schedule.h"

#include <algorithm>

namespace meshwright {
namespace {

// Both schedules are: `ahead` forwards, then backward and forward in turn, then what is left.
std::vector<Pass> ForwardsAhead(int64_t ahead, int64_t microbatches) {
  std::vector<Pass> passes;
  passes.reserve(2 * microbatches);
  int64_t forward = 0, backward = 0;
  while (forward < ahead) passes.push_back({Phase::kForward, forward++});
  while (backward < microbatches) {
    passes.push_back({Phase::kBackward, backward++});
    if (forward < microbatches) passes.push_back({Phase::kForward, forward++});
  }
  return passes;
}

}  // namespace

std::vector<Pass> PassesOf(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches) {
  switch (schedule) {
    case Schedule::kGpipe:
      return ForwardsAhead(microbatches, microbatches);
    case Schedule::kOneFOneB:
      return ForwardsAhead(std::min(microbatches, stages - stage), microbatches);
  }
  return {};
}

int64_t MaxInFlight(const std::vector<Pass>& passes) {
  int64_t now = 0, most = 0;
  for (const Pass& pass : passes) {
    now += pass.phase == Phase::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace meshwright
