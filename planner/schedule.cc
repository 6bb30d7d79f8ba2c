#include "planner/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace meshwright {
namespace {

// The passes of one phase: group after group, in each chunk after chunk.
std::vector<Pass> InGroups(Phase phase, int64_t stages, int64_t microbatches, int64_t chunks) {
  std::vector<Pass> passes;
  passes.reserve(microbatches * chunks);
  for (int64_t first = 0; first < microbatches;) {
    const int64_t left = microbatches - first;
    const int64_t group = left < 2 * stages ? left : stages;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t chunk = phase == Phase::kForward ? c : chunks - 1 - c;
      for (int64_t i = 0; i < group; ++i) passes.push_back({phase, first + i, chunk});
    }
    first += group;
  }
  return passes;
}

// How many forwards 1f1b runs first.
int64_t WarmUp(int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks) {
  if (chunks == 1) return std::min(microbatches, stages - stage);
  const int64_t largest_group = microbatches < 2 * stages ? microbatches : stages + microbatches % stages;
  return std::min(microbatches * chunks, 2 * (stages - stage - 1) + (chunks - 1) * largest_group + 1);
}

// All schedules are: `ahead` forwards, then backward and forward in turn, then what is left.
std::vector<Pass> ForwardsAhead(int64_t ahead, const std::vector<Pass>& forwards, const std::vector<Pass>& backwards) {
  std::vector<Pass> passes(forwards.begin(), forwards.begin() + ahead);
  passes.reserve(forwards.size() + backwards.size());
  for (const Pass& backward : backwards) {
    passes.push_back(backward);
    if (ahead < static_cast<int64_t>(forwards.size())) passes.push_back(forwards[ahead++]);
  }
  return passes;
}

}  // namespace

std::vector<Pass> PassesOf(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks) {
  const std::vector<Pass> forwards = InGroups(Phase::kForward, stages, microbatches, chunks);
  const std::vector<Pass> backwards = InGroups(Phase::kBackward, stages, microbatches, chunks);
  switch (schedule) {
    case Schedule::kGpipe:
      return ForwardsAhead(microbatches * chunks, forwards, backwards);
    case Schedule::kOneFOneB:
      return ForwardsAhead(WarmUp(stage, stages, microbatches, chunks), forwards, backwards);
  }
  return {};
}

std::vector<std::vector<int64_t>> EndsOf(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks) {
  std::map<std::tuple<Phase, int64_t, int64_t>, int64_t> end;  // by phase, part and micro-batch
  std::vector<std::vector<Pass>> passes;
  std::vector<std::vector<int64_t>> ends(stages);
  for (int64_t s = 0; s < stages; ++s) passes.push_back(PassesOf(schedule, s, stages, microbatches, chunks));
  const int64_t last = stages * chunks - 1;
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < stages; ++s) {
      for (; ends[s].size() < passes[s].size(); moved = true) {
        const Pass& pass = passes[s][ends[s].size()];
        const bool forward = pass.phase == Phase::kForward;
        const int64_t part = pass.chunk * stages + s;
        int64_t time = ends[s].empty() ? 0 : ends[s].back();
        if (part != (forward ? 0 : last)) {  // what the neighbour sends
          const auto before = end.find({pass.phase, forward ? part - 1 : part + 1, pass.microbatch});
          if (before == end.end()) break;
          time = std::max(time, before->second);
        }
        if (!forward && end.count({Phase::kForward, part, pass.microbatch}) == 0) break;
        time += forward ? 1 : 2;
        end[{pass.phase, part, pass.microbatch}] = time;
        ends[s].push_back(time);
      }
    }
  }
  for (int64_t s = 0; s < stages; ++s) {
    if (ends[s].size() < passes[s].size()) return {};
  }
  return ends;
}

int64_t MaxInFlight(const std::vector<Pass>& passes, int64_t chunk) {
  int64_t now = 0, most = 0;
  for (const Pass& pass : passes) {
    if (pass.chunk != chunk) continue;
    now += pass.phase == Phase::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace meshwright
