// Plays task lists in simulated time.
//
// All ranks of a class do the same at the same time, so one rank per class is played: its streams, what they wait for,
// and the meetings of sends with receives. A task begins when the one before it on its stream and all it waits for are
// done, and, for a transfer, when its partner could begin too; both halves of a transfer end together, after the longer
// of their prices. Between two moments at which something begins or ends on a rank, everything that runs there makes
// progress at a fixed rate (simulator/price.h says which); moments are whole nanoseconds, rounded up.
//
// A run of kernels is stepped through piece by piece only while its communication and what is beside it slow each other
// down; otherwise its end is found at once, from what its pieces take beside the same communication
// (simulator/run_paces.h). The result is the same to the nanosecond.
//
// Thread safety: pure function.
#ifndef MESHWRIGHT_SIMULATOR_PLAYER_H_
#define MESHWRIGHT_SIMULATOR_PLAYER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "simulator/repetition.h"
#include "simulator/tasks.h"

namespace meshwright {

struct TaskTimes {
  Nanos begin, end;
};

// times[c][t] are those of lists[c].tasks[t].
struct PlayedTimes {
  std::vector<std::vector<TaskTimes>> times;
  Nanos makespan;
};

// `program` is asked for names only. kFailedPrecondition when tasks wait for each other for ever: the message is
// the circle, one line for each instruction in it and what it waits for.
absl::StatusOr<PlayedTimes> Play(const Program& program, const std::vector<TaskList>& lists);

// When the step ends, no more; nothing where tasks wait for each other for ever.
std::optional<Nanos> PlayForTheEnd(const Program& program, const std::vector<TaskList>& lists);

// What became of a step with more turns than its lists have.
struct LongerStep {
  Nanos makespan;
  // Of the turns that each class takes: not played since the state of play came back, or since the same happened in the
  // same order (simulator/turn_trace.h).
  int64_t counted = 0, traced = 0;
  int64_t cut_short = 0;  // traces that the turns left before their end
};

// The step whose lists have `more` periods more (simulator/repetition.h; `periods` are those of the lists), to the
// nanosecond. Nothing where the lists do not tell what a task of a turn waits for, or where tasks wait for each other
// for ever. Memory: that of the lists, however many the turns.
std::optional<LongerStep> PlayLonger(const Program& program, const std::vector<TaskList>& lists,
                                     const std::vector<Period>& periods, int64_t more);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_PLAYER_H_
