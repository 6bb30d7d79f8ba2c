#include "planner/schedule.h"

#include <algorithm>
#include <utility>

namespace meshwright {
namespace {

// The passes of one phase: group after group, in each chunk after chunk.
std::vector<Pass> InGroups(PassKind kind, int64_t stages, int64_t microbatches, int64_t chunks) {
  std::vector<Pass> passes;
  passes.reserve(microbatches * chunks);
  for (int64_t first = 0; first < microbatches;) {
    const int64_t left = microbatches - first;
    const int64_t group = left < 2 * stages ? left : stages;
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t chunk = kind == PassKind::kForward ? c : chunks - 1 - c;
      for (int64_t i = 0; i < group; ++i) passes.push_back({kind, first + i, chunk});
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

// gpipe and 1f1b are: `ahead` forwards, then backward and forward in turn, then what is left.
std::vector<Pass> ForwardsAhead(int64_t ahead, const std::vector<Pass>& forwards, const std::vector<Pass>& backwards) {
  std::vector<Pass> passes(forwards.begin(), forwards.begin() + ahead);
  passes.reserve(forwards.size() + backwards.size());
  for (const Pass& backward : backwards) {
    passes.push_back(backward);
    if (ahead < static_cast<int64_t>(forwards.size())) passes.push_back(forwards[ahead++]);
  }
  return passes;
}

// 1f1b with every W put off by `stage` micro-batches.
std::vector<Pass> ZeroBubbleH1(int64_t stage, int64_t stages, int64_t microbatches) {
  std::vector<Pass> passes;
  int64_t forwards = 0, weights = 0;
  while (forwards < std::min(microbatches, stages - stage)) passes.push_back({PassKind::kForward, forwards++, 0});
  for (int64_t i = 0; i < microbatches; ++i) {
    passes.push_back({PassKind::kBackward, i, 0});
    if (i - weights >= stage) passes.push_back({PassKind::kWeights, weights++, 0});
    if (forwards < microbatches) passes.push_back({PassKind::kForward, forwards++, 0});
  }
  while (weights < microbatches) passes.push_back({PassKind::kWeights, weights++, 0});
  return passes;
}

// Plays the stages in steps of one pass each and lets each run the best of what it can run.
class ZeroBubbleV {
 public:
  ZeroBubbleV(int64_t stages, int64_t microbatches)
      : stages_(stages),
        microbatches_(microbatches),
        passes_(stages),
        done_(stages),
        forward_ends_(2 * stages),
        backward_ends_(2 * stages) {}

  std::vector<std::vector<Pass>> Run() {
    const int64_t all = 3 * 2 * stages_ * microbatches_;
    for (int64_t left = all; left > 0; ++now_) {
      for (int64_t stage = 0; stage < stages_; ++stage) left -= Step(stage);
    }
    return std::move(passes_);
  }

 private:
  // What a stage runs first of what it can run. Of the orders that were tried, the one that leaves least idle.
  static constexpr std::pair<PassKind, int64_t> kOrder[] = {{PassKind::kBackward, 0}, {PassKind::kForward, 1},
                                                            {PassKind::kBackward, 1}, {PassKind::kForward, 0},
                                                            {PassKind::kWeights, 1},  {PassKind::kWeights, 0}};

  struct Done {
    int64_t of[3][2] = {};  // passes by kind and chunk
  };

  bool Step(int64_t stage) {
    for (const auto& [kind, chunk] : kOrder) {
      int64_t& done = done_[stage].of[static_cast<size_t>(kind)][chunk];
      if (done == microbatches_ || !CanRun(stage, kind, chunk, done)) continue;
      const int64_t part = PartAt(Schedule::kZeroBubbleV, stage, chunk, stages_);
      if (kind == PassKind::kForward) forward_ends_[part].push_back(now_ + 1);
      if (kind == PassKind::kBackward) backward_ends_[part].push_back(now_ + 1);
      passes_[stage].push_back({kind, done++, chunk});
      return true;
    }
    return false;
  }

  // What it reads is there by now.
  bool CanRun(int64_t stage, PassKind kind, int64_t chunk, int64_t microbatch) const {
    const auto& done = done_[stage].of;
    const int64_t part = PartAt(Schedule::kZeroBubbleV, stage, chunk, stages_);
    const auto ended = [&](const std::vector<int64_t>& ends) {
      return microbatch < static_cast<int64_t>(ends.size()) && ends[microbatch] <= now_;
    };
    constexpr size_t kF = static_cast<size_t>(PassKind::kForward), kW = static_cast<size_t>(PassKind::kWeights);
    switch (kind) {
      case PassKind::kForward:
        return done[kF][0] + done[kF][1] - done[kW][0] - done[kW][1] < 2 * stages_ &&
               (part == 0 || ended(forward_ends_[part - 1]));
      case PassKind::kBackward:
        return microbatch < done[kF][chunk] && (part == 2 * stages_ - 1 || ended(backward_ends_[part + 1]));
      case PassKind::kWeights:
        return microbatch < done[static_cast<size_t>(PassKind::kBackward)][chunk];
    }
    return false;
  }

  const int64_t stages_, microbatches_;
  int64_t now_ = 0;
  std::vector<std::vector<Pass>> passes_;  // by stage
  std::vector<Done> done_;
  std::vector<std::vector<int64_t>> forward_ends_, backward_ends_;  // by part and micro-batch
};

}  // namespace

bool SplitsBackward(Schedule schedule) {
  return schedule == Schedule::kZeroBubbleH1 || schedule == Schedule::kZeroBubbleV;
}

int64_t StageOfPart(Schedule schedule, int64_t part, int64_t stages) {
  return schedule == Schedule::kZeroBubbleV && part >= stages ? 2 * stages - 1 - part : part % stages;
}

int64_t PartAt(Schedule schedule, int64_t stage, int64_t chunk, int64_t stages) {
  return schedule == Schedule::kZeroBubbleV && chunk == 1 ? 2 * stages - 1 - stage : chunk * stages + stage;
}

std::vector<Pass> PassesOfStage(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches,
                                int64_t chunks) {
  if (schedule == Schedule::kZeroBubbleV) return ZeroBubbleV(stages, microbatches).Run()[stage];
  if (schedule == Schedule::kZeroBubbleH1) return ZeroBubbleH1(stage, stages, microbatches);
  const std::vector<Pass> forwards = InGroups(PassKind::kForward, stages, microbatches, chunks);
  const std::vector<Pass> backwards = InGroups(PassKind::kBackward, stages, microbatches, chunks);
  const bool gpipe = schedule == Schedule::kGpipe;
  return ForwardsAhead(gpipe ? microbatches * chunks : WarmUp(stage, stages, microbatches, chunks), forwards,
                       backwards);
}

std::vector<std::vector<Pass>> PassesOf(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks) {
  if (schedule == Schedule::kZeroBubbleV) return ZeroBubbleV(stages, microbatches).Run();
  std::vector<std::vector<Pass>> passes;
  for (int64_t stage = 0; stage < stages; ++stage) {
    passes.push_back(PassesOfStage(schedule, stage, stages, microbatches, chunks));
  }
  return passes;
}

std::vector<std::vector<int64_t>> EndsOf(Schedule schedule, const std::vector<std::vector<Pass>>& passes) {
  const int64_t stages = static_cast<int64_t>(passes.size());
  std::vector<std::vector<int64_t>> ends(stages);
  int64_t last = 0, microbatches = 0;
  for (const Pass& pass : passes[0]) {
    last = std::max(last, (pass.chunk + 1) * stages - 1);
    microbatches = std::max(microbatches, pass.microbatch + 1);
  }
  std::vector<int64_t> known(3 * (last + 1) * microbatches, 0);  // by kind, part and micro-batch; 0: not yet
  const auto end = [&](PassKind kind, int64_t part, int64_t microbatch) -> int64_t& {
    return known[(static_cast<int64_t>(kind) * (last + 1) + part) * microbatches + microbatch];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < stages; ++s) {
      for (; ends[s].size() < passes[s].size(); moved = true) {
        const Pass& pass = passes[s][ends[s].size()];
        const bool forward = pass.kind == PassKind::kForward;
        const int64_t part = PartAt(schedule, s, pass.chunk, stages);
        int64_t time = ends[s].empty() ? 0 : ends[s].back();
        if (pass.kind != PassKind::kWeights && part != (forward ? 0 : last)) {  // what the neighbour sends
          const int64_t before = end(pass.kind, forward ? part - 1 : part + 1, pass.microbatch);
          if (before == 0) break;
          time = std::max(time, before);
        }
        if (!forward && end(PassKind::kForward, part, pass.microbatch) == 0) break;
        time += pass.kind == PassKind::kBackward && !SplitsBackward(schedule) ? 2 : 1;
        end(pass.kind, part, pass.microbatch) = time;
        ends[s].push_back(time);
      }
    }
  }
  for (int64_t s = 0; s < stages; ++s) {
    if (ends[s].size() < passes[s].size()) return {};
  }
  return ends;
}

int64_t MaxBetween(const std::vector<Pass>& passes, PassKind from, PassKind to, int64_t chunk, int64_t to_chunk) {
  int64_t now = 0, most = 0;
  for (const Pass& pass : passes) {
    if (pass.kind == from && pass.chunk == chunk) ++now;
    most = std::max(most, now);
    if (pass.kind == to && pass.chunk == to_chunk) --now;
  }
  return most;
}

}  // namespace meshwright
