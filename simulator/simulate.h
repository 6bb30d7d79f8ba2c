// The simulator: how long one step of a Program takes, why, and what happens when.
//
// Plays all rank classes of a program with given prices (simulator/price.h) in simulated time, exactly and
// deterministically: integer nanoseconds, the same result for the same input, on any machine. Overlap, contention on a
// device's links and multiprocessors, waiting for other stages and bubbles come out of playing; nothing is estimated in
// closed form. The rules of the game are simulator/player.h; a step starts with empty streams at time 0.
//
//   const CostModel costs(cluster);
//   MESHWRIGHT_ASSIGN_OR_RETURN(const Prices prices, PriceProgram(program, costs));
//   MESHWRIGHT_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(program, prices));
//   result.makespan, result.classes[result.critical_class].time.exclusive[TimeUse::kWait], ...
//
// Not modelled: the time the CPU needs to issue instructions, data loading, traffic of other classes on the same node's
// links, and congestion inside the network. simulator/variation.h plays devices that vary.
//
// Cost: proportional to the number of tasks (simulator/tasks.h), not of instructions, ranks or layers.
// Thread safety: pure function.
#ifndef MESHWRIGHT_SIMULATOR_SIMULATE_H_
#define MESHWRIGHT_SIMULATOR_SIMULATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/quantities.h"
#include "ir/trace.h"
#include "simulator/breakdown.h"
#include "simulator/class_copies.h"
#include "simulator/memory.h"
#include "simulator/price.h"

namespace meshwright {

enum class TraceDetail : uint8_t {
  kNone,
  kSlots,         // one span per slot and stream that it uses; none where it computes for no time; memory by steps
  kInstructions,  // one span per instruction; turns folding off, so it costs time and memory
};

struct SimulateOptions {
  TraceDetail trace = TraceDetail::kNone;
  // Fills in ClassResult::memory, and the trace's memory points. Costs about as much as the simulation.
  bool memory = false;
  // Plays runs of kernels at once where nothing tells their parts apart. Off: one by one, with the same result.
  bool fold = true;
};

struct ClassResult {
  Breakdown time;
  Bytes arena;                // what one rank allocates
  BytesByRole reserved = {};  // ReservedBytes
  MemoryUse memory;           // empty unless asked for
};

struct SimulationResult {
  Nanos makespan;             // of the step
  size_t critical_class = 0;  // ends last; of several, the one that is busiest
  std::vector<ClassResult> classes;
  int64_t num_tasks = 0;  // that were played
  Trace trace;            // empty unless asked for
};

// Errors: those of Unroll (simulator/tasks.h) and Play (simulator/player.h): prices of another program, a transfer
// without partner, an instruction that cannot run on the cluster, instructions that wait for each other.
// REQUIRES: ids in the program are in range (ir/verify.h).
absl::StatusOr<SimulationResult> Simulate(const Program& program, const Prices& prices,
                                          const SimulateOptions& options = {});

// How long the step of a program takes that runs `more` periods more in the middle (simulator/repetition.h), each
// `distance` micro-batches after the one before; nothing where what the program does in its middle does not tell what
// it does there, or where instructions wait for each other. Other errors as above. Cost: Simulate's of the longer
// program until the state of play comes back, which it may never do, and a fifteenth of that where only the order of
// what happens does; memory for this program.
// With none more the program is played as it is, and nothing noted but the end.
struct MorePeriods {
  int64_t distance = 1, more = 0;
};
absl::StatusOr<std::optional<Nanos>> SimulateLonger(const Program& program, const Prices& prices,
                                                    const MorePeriods& periods, const ClassCopies& copies = {});

// "step 812.3 ms, stage 3 ends last: forward 31.0 %, backward 58.2 %, ...": one line for each use of the critical
// class.
std::string ToText(const SimulationResult& result, const Program& program);

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_SIMULATE_H_
