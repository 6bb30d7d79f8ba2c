// Moves communication of one block from the compute stream to another one, with the events that keep its place among
// the others.
//
//   before   compute   A0 R0 A1 R1 B0 B1           R0 reads what A0 makes, B0 what R0 makes
//   after    compute   A0    A1    B0 B1           B0 waits for R0
//            stream       R0    R1                 R0 waits for A0
//
// What travels starts when the last instruction before it that makes what it reads, or uses what it writes, is done (or
// where it stands); the next instruction that uses what it writes, or overwrites what it reads, waits for it, and so
// does the end of the block. What is issued stays in its order.
//
// Who travels: collectives of an operator's pieces (partition), a ring's keys and values (below), collectives of passes
// that take turns (take_turns.h). Gradients and parameters travel from block to block: overlap.h.
#ifndef MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_
#define MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "ir/program.h"

namespace meshwright {

enum class TravelStart : uint8_t {
  kWhenReady,     // as soon as the data allow
  kWhereItStands  // behind the kernels that stand before it
};

// `which` are indices of instructions of the block on the compute stream; new events are added to `events`. Nothing is
// moved across a Sync, by which earlier calls have ordered others.
void RunBesideKernels(const std::set<size_t>& which, Stream stream, TravelStart start, Block& block,
                      std::vector<Event>& events);

// Lets keys and values of context parallelism, the Permutes over ContextAxes that name their sources, travel
// round the ring beside the attention over those at hand, each from where it stands: so at most two blocks are held
// besides the rank's own, the one that is read and the one that arrives. Must run before PlanMemory, which keeps what
// travels in place.
Program RunRingBesideKernels(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_
