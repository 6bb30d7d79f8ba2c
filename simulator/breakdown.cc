#include "simulator/breakdown.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace meshwright {
namespace {

class Explainer {
 public:
  Explainer(const TaskList& list, const std::vector<TaskTimes>& times) : list_(list), times_(times) {}

  Breakdown Run(Nanos makespan) {
    for (size_t i = 0; i < list_.tasks.size(); ++i) CountBusy(static_cast<int32_t>(i));
    Nanos clock;
    for (const int32_t task : list_.streams[static_cast<size_t>(Stream::kCompute)]) {
      if (TimesOf(task).begin > clock) ExplainGap(clock, task);
      CountCompute(task);
      clock = TimesOf(task).end;
    }
    // What the class still does after its last kernel, then what others do.
    int32_t last = -1;
    for (const auto& stream : list_.streams) {
      if (!stream.empty()) last = Later(last, stream.back());
    }
    result_.end = last < 0 ? Nanos() : TimesOf(last).end;
    if (result_.end > clock) Follow(clock, result_.end, last);
    result_.exclusive[TimeUse::kWait] += makespan - result_.end;
    return result_;
  }

 private:
  const TaskTimes& TimesOf(int32_t task) const { return times_[static_cast<size_t>(task)]; }
  const Task& TaskOf(int32_t task) const { return list_.tasks[static_cast<size_t>(task)]; }
  int32_t Later(int32_t a, int32_t b) const {
    if (a < 0 || b < 0) return std::max(a, b);
    return TimesOf(b).end > TimesOf(a).end ? b : a;
  }

  // Of all that had to end before the task could begin, what ended last; -1 for none.
  int32_t LastBefore(const Task& task) const {
    int32_t last = task.previous;
    for (int32_t i = 0; i < task.num_waits; ++i) {
      last = Later(last, list_.waits[static_cast<size_t>(task.first_wait + i)].task);
    }
    return last;
  }

  void CountBusy(int32_t id) {
    const Task& task = TaskOf(id);
    const Nanos time = TimesOf(id).end - TimesOf(id).begin;
    result_.stream_busy[static_cast<size_t>(task.run->stream)] += time;
    AddRun(task, time, &result_.busy);
  }

  void CountCompute(int32_t id) { AddRun(TaskOf(id), TimesOf(id).end - TimesOf(id).begin, &result_.exclusive); }

  // A run's pieces at the price they have alone; what it took longer is contention. One piece on another stream, or a
  // transfer, whose halves may be priced differently, counts whole.
  static void AddRun(const Task& task, Nanos time, TimeUses* uses) {
    if (task.run->is_transfer || task.run->stream != Stream::kCompute) {
      (*uses)[task.piece(0).use] += time;
      return;
    }
    for (const auto& [use, alone] : task.run->uses) (*uses)[use] += alone * task.count;
    (*uses)[TimeUse::kContention] += time - task.time();
  }

  void ExplainGap(Nanos begin, int32_t next) {
    const Task& task = TaskOf(next);
    const int32_t before = LastBefore(task);
    const Nanos ready = before < 0 ? Nanos() : TimesOf(before).end;
    // Only a transfer begins later than it could: its partner was not there.
    const Nanos met = std::max(begin, ready);
    result_.exclusive[TimeUse::kWait] += TimesOf(next).begin - met;
    if (met > begin) Follow(begin, met, before);
  }

  // Explains [begin, end): `id` ended last before or at `end`, and what followed waited for it.
  void Follow(Nanos begin, Nanos end, int32_t id) {
    while (end > begin) {
      const Task& task = TaskOf(id);
      const Nanos from = std::max(begin, TimesOf(id).begin);
      result_.exclusive[task.piece(0).use] += end - from;
      const int32_t before = LastBefore(task);
      const Nanos ready = std::max(begin, before < 0 ? Nanos() : TimesOf(before).end);
      if (from > ready) result_.exclusive[TimeUse::kWait] += from - ready;
      end = std::min(from, ready);
      id = before;
    }
  }

  const TaskList& list_;
  const std::vector<TaskTimes>& times_;
  Breakdown result_;
};

}  // namespace

Breakdown Explain(const TaskList& list, const std::vector<TaskTimes>& times, Nanos makespan) {
  return Explainer(list, times).Run(makespan);
}

}  // namespace meshwright
