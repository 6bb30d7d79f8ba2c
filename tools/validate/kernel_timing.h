// What the way in which a kernel was timed adds to its price, as the words of its row say it.
//
// Loops, which keep the device busy, are what the price is of; there the device's power limit moves the clock. Thread
// safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_KERNEL_TIMING_H_
#define MESHWRIGHT_TOOLS_VALIDATE_KERNEL_TIMING_H_

#include "ir/cluster.h"
#include "ir/kernel_work.h"
#include "tools/validate/csv.h"

namespace meshwright {

// Seconds that a kernel takes more where it was timed alone: by a profiler, between two events behind an emptied cache,
// or by the host between two synchronisations. 0 in a loop, and where the row does not say.
double SecondsAlone(const CsvCells& cells);

// The clock that the row's loop leaves to products of 16 bits that never wait, of the data sheet's: `loop_clock`, less
// under a power limit of its own ("400 of 575 W"), all of it where too few were run for a limit to act.
double ClockInLoops(const CsvCells& cells, const KernelConstants& kernels);

// In a loop, at the clock that the power limit leaves to kernels that are as busy, where it leaves `sustained_clock` to
// products of 16 bits that never wait.
double LoopSeconds(const KernelWork& work, Device device);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_KERNEL_TIMING_H_
