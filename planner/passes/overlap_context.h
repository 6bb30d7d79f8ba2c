// Lets keys and values of context parallelism travel round the ring beside the attention over those at hand.
//
//   before   compute   K1 A0 K2 A1 A2        Kn: the n-th block arrives
//   after    compute   A0 A1 A2
//            context   K1 K2                 K2 waits for what stands before it (A0), A2 for K2
//
// So at most two blocks are held besides the rank's own: the one that is read and the one that arrives.
//
// Changes streams and waits, never what is computed. Must run before PlanMemory, which keeps what travels in place.
#ifndef MESHWRIGHT_PLANNER_PASSES_OVERLAP_CONTEXT_H_
#define MESHWRIGHT_PLANNER_PASSES_OVERLAP_CONTEXT_H_

#include "ir/program.h"

namespace meshwright {

// Moves the Permutes over the mesh axis "cp" that name their sources.
Program OverlapContext(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_OVERLAP_CONTEXT_H_
