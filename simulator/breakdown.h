// Why a step takes as long as it does: every nanosecond of a class's step goes to exactly one use.
//
// The compute stream is what a device is for, so its time line is the measure: kernels and collectives that run on it
// count as what they are, at the price they have alone; what sharing the device added is contention. While it is idle,
// the instruction that it runs next is asked what it waited for, and that one what it waited for, back to the beginning
// of the gap: time in which a collective or transfer of this class ran is exposed communication, time in which a
// transfer waited for its partner is pipeline bubble, and so is the time after the class's last instruction.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_SIMULATOR_BREAKDOWN_H_
#define MESHWRIGHT_SIMULATOR_BREAKDOWN_H_

#include <array>
#include <vector>

#include "ir/quantities.h"
#include "simulator/player.h"
#include "simulator/tasks.h"
#include "simulator/time_use.h"

namespace meshwright {

struct Breakdown {
  Nanos end;           // of the class's last instruction
  TimeUses exclusive;  // sums to the makespan
  // What ran, whether exposed or not: kernels and communication at the time they took, on any stream. Communication
  // that is hidden behind kernels is busy - exclusive.
  TimeUses busy;
  std::array<Nanos, kNumStreams> stream_busy = {};
};

Breakdown Explain(const TaskList& list, const std::vector<TaskTimes>& times, Nanos makespan);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_BREAKDOWN_H_
