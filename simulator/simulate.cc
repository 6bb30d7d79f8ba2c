#include "simulator/simulate.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "ir/status.h"
#include "simulator/player.h"
#include "simulator/repetition.h"
#include "simulator/tasks.h"

namespace meshwright {
namespace {

// Spans of one class. Tasks of one slot follow each other on their stream, so slots do not overlap there. Most slots of
// a pipeline hand something over and take no time to compute: no span of theirs is on that stream.
void AddSpans(const TaskList& list, const std::vector<TaskTimes>& times, int64_t rank, TraceDetail detail,
              std::vector<Span>* spans) {
  for (size_t s = 0; s < kNumStreams; ++s) {
    int32_t open_slot = -1;
    const size_t first = spans->size();
    for (const int32_t id : list.streams[s]) {
      const Task& task = list.tasks[static_cast<size_t>(id)];
      const TaskTimes& time = times[static_cast<size_t>(id)];
      if (detail == TraceDetail::kSlots && task.slot == open_slot) {
        spans->back().end = time.end;
        continue;
      }
      open_slot = task.slot;
      Span& span = spans->emplace_back();
      span.rank = rank;
      span.slot = static_cast<uint32_t>(task.slot);
      if (detail == TraceDetail::kInstructions) {
        span.layer = task.layer;
        span.instruction = task.piece(0).instruction;
      }
      span.stream = static_cast<Stream>(s);
      span.begin = time.begin;
      span.end = time.end;
    }
    if (detail != TraceDetail::kSlots || static_cast<Stream>(s) != Stream::kCompute) continue;
    const auto idle = [](const Span& span) { return span.begin == span.end; };
    spans->erase(std::remove_if(spans->begin() + static_cast<std::ptrdiff_t>(first), spans->end(), idle), spans->end());
  }
}

// A timeline of slots has the peak, and a point where memory has moved by a 512th of it since the last one: half a
// pixel of a counter that is drawn over 256. All points of GPT-3 on 1,024 devices are two fifths of its Chrome JSON.
void AddMemory(const MemoryUse& memory, TraceDetail detail, std::vector<MemoryPoint>* points) {
  const Bytes least = detail == TraceDetail::kSlots ? Bytes(memory.peak.raw() / 512) : Bytes();
  Bytes shown;
  for (const MemoryPoint& point : memory.points) {
    const Bytes moved = std::max(point.bytes, shown) - std::min(point.bytes, shown);
    if (moved < least && point.time != memory.peak_time && point.time != Nanos()) continue;
    points->push_back(point);
    shown = point.bytes;
  }
}

std::vector<SlotTimes> TimesOfSlots(const TaskList& list, const std::vector<TaskTimes>& times, size_t num_slots) {
  std::vector<SlotTimes> slots(num_slots, {kForever, Nanos()});
  for (size_t i = 0; i < list.tasks.size(); ++i) {
    SlotTimes& slot = slots[static_cast<size_t>(list.tasks[i].slot)];
    slot.begin = std::min(slot.begin, times[i].begin);
    slot.end = std::max(slot.end, times[i].end);
  }
  for (SlotTimes& slot : slots) slot.begin = std::min(slot.begin, slot.end);  // without instructions
  return slots;
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Program& program, const Prices& prices,
                                          const SimulateOptions& options) {
  const bool fold = options.fold && options.trace != TraceDetail::kInstructions;
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TaskList> lists,
                              Unroll(program, prices, fold ? Folding::kRuns : Folding::kNone));
  MESHWRIGHT_ASSIGN_OR_RETURN(const PlayedTimes played, Play(program, lists));

  SimulationResult result;
  result.makespan = played.makespan;
  for (size_t c = 0; c < lists.size(); ++c) {
    const RankClass& rank_class = program.classes[c];
    ClassResult& of_class = result.classes.emplace_back();
    result.num_tasks += static_cast<int64_t>(lists[c].tasks.size());
    of_class.time = Explain(lists[c], played.times[c], played.makespan);
    of_class.arena = rank_class.arena;
    of_class.reserved = ReservedBytes(rank_class);
    if (options.memory) {
      of_class.memory = MemoryOverTime(program, c, TimesOfSlots(lists[c], played.times[c], rank_class.slots.size()));
    }
    const auto rank_of = [&](size_t i) {
      const Breakdown& time = result.classes[i].time;
      return std::make_pair(time.end, time.stream_busy[static_cast<size_t>(Stream::kCompute)]);
    };
    if (rank_of(c) > rank_of(result.critical_class)) result.critical_class = c;
  }
  if (options.trace == TraceDetail::kNone) return result;

  result.trace.source = "simulated";
  result.trace.makespan = played.makespan;
  for (size_t c = 0; c < lists.size(); ++c) {
    AddSpans(lists[c], played.times[c], program.RankOf(c, 0), options.trace, &result.trace.spans);
    AddMemory(result.classes[c].memory, options.trace, &result.trace.memory);
  }
  return result;
}

absl::StatusOr<std::optional<Nanos>> SimulateLonger(const Program& program, const Prices& prices,
                                                    const MorePeriods& periods, const ClassCopies& copies) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const std::vector<TaskList> lists,
                              Unroll(program, prices, Folding::kRunsWithoutSyncs, copies));
  if (periods.more == 0) return PlayForTheEnd(program, lists);
  const std::optional<std::vector<Period>> found = FindPeriods(program, lists, periods.distance, copies);
  if (!found.has_value()) return std::nullopt;
  const std::optional<LongerStep> step = PlayLonger(program, lists, *found, periods.more);
  return step.has_value() ? std::optional<Nanos>(step->makespan) : std::nullopt;
}

std::string ToText(const SimulationResult& result, const Program& program) {
  const double makespan = ToSeconds(result.makespan);
  std::string text =
      absl::StrFormat("step %.3f ms, %s ends last:", makespan * 1e3, program.classes[result.critical_class].name);
  const Breakdown& time = result.classes[result.critical_class].time;
  for (const TimeUseInfo& row : kTimeUses) {
    const double exclusive = ToSeconds(time.exclusive[row.use]);
    if (exclusive == 0) continue;
    absl::StrAppendFormat(&text, "\n  %-22s %10.3f ms %5.1f %%", std::string(row.name), exclusive * 1e3,
                          100 * exclusive / makespan);
    const double hidden = ToSeconds(time.busy[row.use] - time.exclusive[row.use]);
    if (hidden > 0) absl::StrAppendFormat(&text, " (and %.3f ms hidden)", hidden * 1e3);
  }
  return text;
}

}  // namespace meshwright
