// Moves collectives of one block from the compute stream to another one, with the events that keep their
// place among the others.
//
//   before   compute   A0 R0 A1 R1 B0 B1           R0 reads what A0 makes, B0 what R0 makes
//   after    compute   A0    A1    B0 B1           B0 waits for R0
//            stream       R0    R1                 R0 waits for A0
//
// A collective starts when the last instruction before it that makes what it reads, or uses what it writes, is done;
// the next instruction that uses what it writes, or overwrites what it reads, waits for it, and so does the end of the
// block. What is issued stays in its order.
#ifndef MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_
#define MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_

#include <cstddef>
#include <set>
#include <vector>

#include "ir/program.h"

namespace meshwright {

// `which` are indices of collectives of the block, all of whose instructions are on the compute stream; new events are
// added to `events`.
void RunBesideKernels(const std::set<size_t>& which, Stream stream, Block& block, std::vector<Event>& events);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_BESIDE_KERNELS_H_
