// What of a step repeats itself, so that a step of many micro-batches can be played from the tasks of few.
//
// In the middle of a pipeline's step every class does the same for each micro-batch (or group of them) as for the one
// before: its list of tasks is a beginning, a period many times over, and an end. A step of more micro-batches is the
// same list with more turns of its last period, which a player takes by going back to the beginning of that period:
//
//   list       b b P P P e e           P: a period
//   two more   b b P P P P P e e       the third P is run three times
//
// Where the whole state of play (what runs on every stream of every class and how far it is) comes back one or more
// periods later, all that follows comes back as well: each further turn of that many periods takes what this one took,
// to the nanosecond, and need not be played at all. Where it comes back at other times only, see
// simulator/turn_trace.h.
//
// Thread safety: plain values, pure functions.
#ifndef MESHWRIGHT_SIMULATOR_REPETITION_H_
#define MESHWRIGHT_SIMULATOR_REPETITION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/program.h"
#include "simulator/class_copies.h"
#include "simulator/tasks.h"

namespace meshwright {

// The middle of one class's list.
struct Period {
  int32_t tasks = 0;                                // of one period
  std::array<int32_t, kNumStreams> on_stream = {};  // of these
  // Each task of [begin, end - tasks) is alike the one `tasks` later: the same run and layers, and its partner and what
  // it waits for are a period later, too.
  int32_t begin = 0, end = 0;
  // Or else it waits for what lies further back the later it is, as where a value of many micro-batches ago must have
  // been sent, and the first ones passed the stage faster. By stream one past the last of what tasks wait for like
  // this.
  std::array<int32_t, kNumStreams> long_ago = {};
  // Of the last period, in ascending order, the tasks that wait like this.
  std::vector<int32_t> irregular;
};

// By class; nothing where nothing is alike in the middle of some class, or where some class's last period is not met by
// periods of its peers. A period ends `distance` micro-batches after
// the one before it: the number that the same slot has the next time it is issued.
std::optional<std::vector<Period>> FindPeriods(const Program& program, const std::vector<TaskList>& lists,
                                               int64_t distance, const ClassCopies& copies = {});

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_REPETITION_H_
