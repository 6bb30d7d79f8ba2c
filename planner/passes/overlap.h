// Lets gradient reduction and parameter gathering run beside the kernels.
//
//   before   compute   B3 R3 B2 R2 B1 R1 U
//   after    compute   B3 B2 B1 .. U
//            comm         R3 R2 R1
//
// Collectives of gradients and parameters go to the stream kComm, those between groups of replicas (axis "copy") to
// kContext, behind what kComm was given before them: the next layer's parameters are gathered inside of a group
// meanwhile. They wait for what was issued on the compute stream before them, and the first slot that uses what they
// write waits for them. Within a pass that gathers parameters (shard_parameters.h) the first instruction that uses what
// they write, or overwrites what they read, waits, and in any case the next call of their kind. Changes streams, waits
// and records, and cuts slots where a wait must stand between two layers; never what is computed. Must run after
// bucket_gradients: a call that has been moved is not merged any more.
#ifndef MESHWRIGHT_PLANNER_PASSES_OVERLAP_H_
#define MESHWRIGHT_PLANNER_PASSES_OVERLAP_H_

#include "ir/program.h"

namespace meshwright {

Program OverlapCommunication(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_OVERLAP_H_
