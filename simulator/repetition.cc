#include "simulator/repetition.h"

#include <algorithm>
#include <cstddef>

namespace meshwright {
namespace {

int64_t MicrobatchOf(const RankClass& rank_class, const Task& task) {
  return rank_class.slots[static_cast<size_t>(task.slot)].microbatch;
}

// A task between the first slot of a backward pass and the last one of a forward pass, where a class does both; -1 for
// none. Of the first micro-batch some slots are no passes.
int32_t Middle(const RankClass& rank_class, const std::vector<Block>& blocks, const TaskList& list) {
  size_t first = rank_class.slots.size(), last = 0;
  for (size_t s = 0; s < rank_class.slots.size(); ++s) {
    const Slot& slot = rank_class.slots[s];
    const Phase phase = blocks[slot.block.index()].phase;
    if (phase == Phase::kBackward && slot.microbatch > 0) first = std::min(first, s);
    if (phase == Phase::kForward && slot.microbatch > 0) last = s;
  }
  if (first >= last) return -1;
  const auto before = [](const Task& task, size_t slot) { return static_cast<size_t>(task.slot) < slot; };
  const auto found = std::lower_bound(list.tasks.begin(), list.tasks.end(), (first + last) / 2, before);
  return static_cast<int32_t>(found - list.tasks.begin());
}

// From a task to the next one that is the same but for its micro-batch; 0 for none.
int32_t TasksOfPeriod(const RankClass& rank_class, const TaskList& list, size_t middle, int64_t distance) {
  for (size_t next = middle + 1; next < list.tasks.size(); ++next) {
    const Task& a = list.tasks[middle];
    const Task& b = list.tasks[next];
    if (a.run != b.run || a.layer != b.layer || a.count != b.count) continue;
    if (MicrobatchOf(rank_class, a) + distance == MicrobatchOf(rank_class, b))
      return static_cast<int32_t>(next - middle);
  }
  return 0;
}

class PeriodFinder {
 public:
  PeriodFinder(const Program& program, const std::vector<TaskList>& lists, int64_t distance, const ClassCopies& copies)
      : program_(program), copies_(copies), lists_(lists), distance_(distance), periods_(lists.size()) {}

  std::optional<std::vector<Period>> Find() {
    for (size_t c = 0; c < lists_.size(); ++c) {
      if (!FindLength(c)) return std::nullopt;
    }
    for (size_t c = 0; c < lists_.size(); ++c) {
      Period& period = periods_[c];
      const int32_t size = static_cast<int32_t>(lists_[c].tasks.size());
      while (period.begin > 0 && Alike(c, period.begin - 1)) --period.begin;
      while (period.end + period.tasks < size && Alike(c, period.end)) ++period.end;
      period.end += period.tasks;
      if (period.end - period.begin < 2 * period.tasks) return std::nullopt;
      auto& irregular = period.irregular;
      std::sort(irregular.begin(), irregular.end());
      irregular.erase(irregular.begin(),
                      std::lower_bound(irregular.begin(), irregular.end(), period.end - period.tasks));
    }
    for (size_t c = 0; c < lists_.size(); ++c) {
      if (!MeetsPeriods(c)) return std::nullopt;
    }
    return std::move(periods_);
  }

 private:
  bool FindLength(size_t c) {
    const TaskList& list = lists_[c];
    Period& period = periods_[c];
    const int32_t middle = Middle(program_.classes[c], program_.classes[copies_.Of(c)].blocks, list);
    if (middle < 0) return false;
    period.begin = period.end = middle;
    period.tasks = TasksOfPeriod(program_.classes[c], list, static_cast<size_t>(middle), distance_);
    for (int32_t i = 0; i < period.tasks; ++i) ++period.on_stream[StreamOf(list, middle + i)];
    return period.tasks > 0;
  }

  static size_t StreamOf(const TaskList& list, int32_t task) {
    return static_cast<size_t>(list.tasks[static_cast<size_t>(task)].run->stream);
  }

  // Whether transfers find their partners where a peer takes more turns, too: up to the last period at the same place
  // of its list, which is then one of a turn if it is behind the peer's last period; from the end on as far from its
  // end.
  bool MeetsPeriods(size_t c) const {
    const Period& period = periods_[c];
    const TaskList& list = lists_[c];
    for (int32_t i = 0; i < static_cast<int32_t>(list.tasks.size()); ++i) {
      const Task& task = list.tasks[static_cast<size_t>(i)];
      if (!task.run->is_transfer) continue;
      const size_t peer = task.PeerOf(c);
      const Period& other = periods_[peer];
      if (i >= period.end) {
        if (task.partner < other.begin) return false;
        continue;
      }
      if (i >= period.end - period.tasks && task.partner < other.begin) return false;
      if (task.partner < other.end) continue;
      if (i < period.begin + period.tasks || task.partner - other.tasks >= other.end) return false;
      const auto run_of = [&](int32_t partner) { return lists_[peer].tasks[static_cast<size_t>(partner)].run; };
      if (run_of(task.partner) != run_of(task.partner - other.tasks)) return false;
    }
    return true;
  }

  // Notes what the second waits for where it is long ago.
  bool Alike(size_t c, int32_t first) {
    const TaskList& list = lists_[c];
    Period& period = periods_[c];
    const Task& a = list.tasks[static_cast<size_t>(first)];
    const Task& b = list.tasks[static_cast<size_t>(first + period.tasks)];
    if (a.run != b.run || a.layer != b.layer || a.count != b.count || a.num_waits > b.num_waits) return false;
    if (a.run->is_transfer && a.partner + periods_[a.PeerOf(c)].tasks != b.partner) return false;
    bool moves = a.num_waits == b.num_waits;
    for (int32_t i = 0; moves && i < a.num_waits; ++i) {
      moves = WaitOf(list, a, i).task + period.tasks == WaitOf(list, b, i).task;
    }
    if (moves) return true;
    for (int32_t i = 0; i < b.num_waits; ++i) {
      const Wait& wait = WaitOf(list, b, i);
      const size_t stream = static_cast<size_t>(wait.stream);
      if (i < a.num_waits) {
        const Wait& before = WaitOf(list, a, i);
        if (before.stream != wait.stream) return false;
        if (wait.place > before.place + period.on_stream[stream]) return false;
      }
      period.long_ago[stream] = std::max(period.long_ago[stream], wait.place + 1);
    }
    period.irregular.push_back(first + period.tasks);
    return true;
  }

  static const Wait& WaitOf(const TaskList& list, const Task& task, int32_t i) {
    return list.waits[static_cast<size_t>(task.first_wait + i)];
  }

  const Program& program_;
  const ClassCopies& copies_;
  const std::vector<TaskList>& lists_;
  const int64_t distance_;
  std::vector<Period> periods_;
};

}  // namespace

std::optional<std::vector<Period>> FindPeriods(const Program& program, const std::vector<TaskList>& lists,
                                               int64_t distance, const ClassCopies& copies) {
  return PeriodFinder(program, lists, distance, copies).Find();
}

}  // namespace meshwright
