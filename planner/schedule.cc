#include "planner/schedule.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

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

// DualPipeV's steps 1 to 8, as dualpipev.py of github.com/deepseek-ai/DualPipe numbers them.
std::vector<Pass> DualPipeV(int64_t stage, int64_t stages, int64_t microbatches) {
  std::vector<Pass> passes, put_off;
  int64_t forwards[2] = {}, backwards[2] = {};
  size_t weights = 0;  // of those put off
  const auto forward = [&](int64_t chunk, bool in_turns = false) {
    passes.push_back({PassKind::kForward, forwards[chunk]++, chunk, in_turns});
  };
  const auto backward = [&](int64_t chunk, bool puts_off = false) {
    const int64_t microbatch = backwards[chunk]++;
    passes.push_back({PassKind::kBackward, microbatch, chunk, !puts_off});
    (puts_off ? put_off : passes).push_back({PassKind::kWeights, microbatch, chunk});
  };
  const int64_t after = stages - 1 - stage;  // stages
  for (int64_t i = 0; i < 2 * after; ++i) forward(0);
  for (int64_t i = 0; i <= stage; ++i) {
    forward(0);
    forward(1);
  }
  for (int64_t i = 0; i < after; ++i) {
    backward(1, true);
    passes.push_back(put_off[weights++]);
    forward(1);
  }
  for (int64_t i = 0; i < microbatches - 2 * stages + stage + 1; ++i) {
    forward(0, i > 0 || after > 0);  // the last stage's first pair apart: less is idle
    backward(1);
    forward(1, true);
    backward(0);
  }
  for (int64_t i = 0; i < after; ++i) {
    backward(1);
    forward(1, true);
    backward(0);
  }
  for (int64_t i = 0; i < 2 * (stage + 1); ++i) backward(1 - i % 2, i > stage);
  for (int64_t i = 0; i < after; ++i) {
    passes.push_back(put_off[weights++]);
    backward(0, true);
  }
  while (weights < put_off.size()) passes.push_back(put_off[weights++]);
  return passes;
}

// The stages of the second half have the directions the other way round.
std::vector<Pass> DualPipe(int64_t stage, int64_t stages, int64_t microbatches) {
  const bool second_half = stage >= stages / 2;
  std::vector<Pass> passes = DualPipeV(second_half ? stages - 1 - stage : stage, stages / 2, microbatches / 2);
  for (Pass& pass : passes) {
    if (second_half) pass.chunk = 1 - pass.chunk;
    pass.microbatch += pass.chunk * (microbatches / 2);
  }
  return passes;
}

// All forward passes, then all backward ones.
std::vector<Pass> Gpipe(int64_t, int64_t stages, int64_t microbatches, int64_t chunks) {
  return ForwardsAhead(microbatches * chunks, InGroups(PassKind::kForward, stages, microbatches, chunks),
                       InGroups(PassKind::kBackward, stages, microbatches, chunks));
}

std::vector<Pass> OneFOneB(int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks) {
  return ForwardsAhead(WarmUp(stage, stages, microbatches, chunks),
                       InGroups(PassKind::kForward, stages, microbatches, chunks),
                       InGroups(PassKind::kBackward, stages, microbatches, chunks));
}

// One row per schedule, in the enum's order.
struct ScheduleInfo {
  Schedule schedule;
  bool splits_backward, v, takes_turns;  // planner/schedule.h
  int64_t directions;
  std::vector<Pass> (*passes)(int64_t stage, int64_t stages, int64_t microbatches, int64_t chunks);
};
constexpr ScheduleInfo kSchedules[] = {
    {Schedule::kGpipe, false, false, false, 1, Gpipe},
    {Schedule::kOneFOneB, false, false, false, 1, OneFOneB},
    {Schedule::kZeroBubbleH1, true, false, false, 1,
     [](int64_t stage, int64_t stages, int64_t microbatches, int64_t) {
       return ZeroBubbleH1(stage, stages, microbatches);
     }},
    {Schedule::kZeroBubbleV, true, true, false, 1,
     [](int64_t stage, int64_t stages, int64_t microbatches, int64_t) {
       return ZeroBubbleV(stages, microbatches).Run()[static_cast<size_t>(stage)];
     }},
    {Schedule::kDualPipeV, true, true, true, 1,
     [](int64_t stage, int64_t stages, int64_t microbatches, int64_t) {
       return DualPipeV(stage, stages, microbatches);
     }},
    {Schedule::kDualPipe, true, true, true, 2,
     [](int64_t stage, int64_t stages, int64_t microbatches, int64_t) {
       return DualPipe(stage, stages, microbatches);
     }},
};
constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kSchedules); ++i) {
    if (kSchedules[i].schedule != static_cast<Schedule>(i)) return false;
  }
  return std::size(kSchedules) == std::size(kScheduleNames);
}
static_assert(InOrder(), "a row per Schedule");
const ScheduleInfo& InfoOf(Schedule schedule) { return kSchedules[static_cast<size_t>(schedule)]; }

}  // namespace

bool SplitsBackward(Schedule schedule) { return InfoOf(schedule).splits_backward; }

bool TakesTurns(Schedule schedule) { return InfoOf(schedule).takes_turns; }

bool IsV(Schedule schedule) { return InfoOf(schedule).v; }

int64_t DirectionsOf(Schedule schedule) { return InfoOf(schedule).directions; }

absl::Status CheckSchedule(Schedule schedule, int64_t stages, int64_t microbatches) {
  if (stages == 1 || !TakesTurns(schedule)) return absl::OkStatus();
  const bool both_ways = DirectionsOf(schedule) == 2;
  if (both_ways && stages % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("found ", stages, " pipeline stages, wanted an even number with ",
                                                   NameOf(schedule), "; or take dualpipe_v"));
  }
  if (microbatches < 2 * stages || (both_ways && microbatches % 2 != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", microbatches, " micro-batches, wanted ", both_ways ? "an even number of at least " : "at least ",
        2 * stages, ", twice the stages, with ", NameOf(schedule), "; take more and smaller ones, or zero_bubble_v"));
  }
  return absl::OkStatus();
}

int64_t StageOfPart(Schedule schedule, int64_t part, int64_t stages) {
  return IsV(schedule) && part >= stages ? 2 * stages - 1 - part : part % stages;
}

int64_t PartAt(Schedule schedule, int64_t stage, int64_t chunk, int64_t stages) {
  return IsV(schedule) && chunk == 1 ? 2 * stages - 1 - stage : chunk * stages + stage;
}

std::vector<Pass> PassesOfStage(Schedule schedule, int64_t stage, int64_t stages, int64_t microbatches,
                                int64_t chunks) {
  return InfoOf(schedule).passes(stage, stages, microbatches, chunks);
}

std::vector<std::vector<Pass>> PassesOf(Schedule schedule, int64_t stages, int64_t microbatches, int64_t chunks) {
  if (schedule == Schedule::kZeroBubbleV) return ZeroBubbleV(stages, microbatches).Run();
  std::vector<std::vector<Pass>> passes;
  for (int64_t stage = 0; stage < stages; ++stage) {
    passes.push_back(PassesOfStage(schedule, stage, stages, microbatches, chunks));
  }
  return passes;
}

size_t EndOfLinked(const std::vector<Pass>& passes, size_t first) {
  while (passes[first].with_next) ++first;
  return first + 1;
}

namespace {

// Plays the passes of all stages against each other.
class EndFinder {
 public:
  EndFinder(Schedule schedule, const std::vector<std::vector<Pass>>& passes, const PassTimes& times)
      : schedule_(schedule), passes_(passes), times_(times), ends_(passes.size()) {
    for (size_t s = 0; s < passes.size(); ++s) ends_[s].reserve(passes[s].size());
    for (const Pass& pass : passes[0]) {
      last_ = std::max(last_, (pass.chunk + 1) * stages() - 1);
      microbatches_ = std::max(microbatches_, pass.microbatch + 1);
    }
    known_.assign(static_cast<size_t>(3 * (last_ + 1) * microbatches_), 0);
    length_ = (last_ + 1) / DirectionsOf(schedule_);
  }

  std::vector<std::vector<int64_t>> Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t s = 0; s < stages(); ++s) {
        while (Play(s)) moved = true;
      }
    }
    for (int64_t s = 0; s < stages(); ++s) {
      if (ends_[s].size() < passes_[s].size()) return {};
    }
    return std::move(ends_);
  }

 private:
  int64_t stages() const { return static_cast<int64_t>(passes_.size()); }
  int64_t& End(PassKind kind, int64_t part, int64_t microbatch) {  // 0: not yet
    return known_[static_cast<size_t>((static_cast<int64_t>(kind) * (last_ + 1) + part) * microbatches_ + microbatch)];
  }

  // Whether no other pass makes what a pass of this part reads.
  bool IsAtEnd(int64_t part, bool forward) const { return part % length_ == (forward ? 0 : length_ - 1); }

  // The next passes of a stage that are linked, if what they read is there.
  bool Play(int64_t s) {
    const size_t first = ends_[s].size();
    if (first == passes_[s].size()) return false;
    const size_t end = EndOfLinked(passes_[s], first);
    int64_t time = first == 0 ? 0 : ends_[s].back();
    for (size_t i = first; i < end; ++i) {
      const Pass& pass = passes_[s][i];
      if (i > first && pass.kind == PassKind::kWeights) continue;  // of the backward pass before it
      const bool forward = pass.kind == PassKind::kForward;
      const int64_t part = PartAt(schedule_, s, pass.chunk, stages());
      if (pass.kind != PassKind::kWeights && !IsAtEnd(part, forward)) {  // what the neighbour sends
        const int64_t before = End(pass.kind, forward ? part - 1 : part + 1, pass.microbatch);
        if (before == 0) return false;
        time = std::max(time, before);
      }
      if (!forward && End(PassKind::kForward, part, pass.microbatch) == 0) return false;
    }
    for (size_t i = first; i < end; ++i) time += TimeOf(passes_[s][i]);
    for (size_t i = first; i < end; ++i) {
      const Pass& pass = passes_[s][i];
      End(pass.kind, PartAt(schedule_, s, pass.chunk, stages()), pass.microbatch) = time;
      ends_[s].push_back(time);
    }
    return true;
  }

  int64_t TimeOf(const Pass& pass) const {
    switch (pass.kind) {
      case PassKind::kForward:
        return times_.forward - (pass.with_next ? times_.saved : 0);
      case PassKind::kBackward:
        return times_.backward + (SplitsBackward(schedule_) ? 0 : times_.weights);
      case PassKind::kWeights:
        return times_.weights;
    }
    return 0;
  }

  const Schedule schedule_;
  const std::vector<std::vector<Pass>>& passes_;
  const PassTimes times_;
  std::vector<std::vector<int64_t>> ends_;
  int64_t last_ = 0, microbatches_ = 0;
  int64_t length_ = 0;          // parts of the model
  std::vector<int64_t> known_;  // by kind, part and micro-batch
};

}  // namespace

std::vector<std::vector<int64_t>> EndsOf(Schedule schedule, const std::vector<std::vector<Pass>>& passes,
                                         const PassTimes& times) {
  return EndFinder(schedule, passes, times).Run();
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

int64_t MaxInFlightTogether(const std::vector<Pass>& passes) {
  int64_t now = 0, most = 0;
  for (const Pass& pass : passes) {
    if (pass.kind == PassKind::kForward) ++now;
    most = std::max(most, now);
    if (pass.kind == PassKind::kBackward) --now;
  }
  return most;
}

}  // namespace meshwright
