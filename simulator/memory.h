// How much of the arena is in use over time, and by what.
//
// Parameters, masters, gradients, optimizer state and the loss are there for the whole step. Every other buffer
// instance lives from the beginning of the slot that first writes it to the end of the slot that last uses it, before
// it is written anew; what is only used inside of one block counts while a slot of that block runs, at the most that is
// alive at one time in issue order. The finest step is therefore the slot,
// and memory that is handed on inside of one slot counts twice there: the peak is an upper bound of what is in use.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_SIMULATOR_MEMORY_H_
#define MESHWRIGHT_SIMULATOR_MEMORY_H_

#include <array>
#include <cstddef>
#include <vector>

#include "ir/program.h"
#include "ir/quantities.h"
#include "ir/trace.h"

namespace meshwright {

inline constexpr size_t kNumRoles = static_cast<size_t>(BufferRole::kNumRoles);
using BytesByRole = std::array<Bytes, kNumRoles>;  // indexed by BufferRole

// When a slot's first instruction begins and its last ends.
struct SlotTimes {
  Nanos begin, end;
};

struct MemoryUse {
  std::vector<MemoryPoint> points;  // of the class's first rank, in order of time, the first at 0
  Bytes peak;                       // the highest point
  Nanos peak_time;
  BytesByRole at_peak = {};
};

// `slots` are the times of program.classes[class_index].slots.
MemoryUse MemoryOverTime(const Program& program, size_t class_index, const std::vector<SlotTimes>& slots);

// All instances of all buffers, by role. Temporaries of one block that do not live at the same time share memory, so
// the sum may be more than the arena.
BytesByRole ReservedBytes(const RankClass& rank_class);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_MEMORY_H_
