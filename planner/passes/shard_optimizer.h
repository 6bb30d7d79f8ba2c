// Splits the optimizer over the replicas of each parameter (the parallel optimizer, S11.4, S11.5 and S11.8; ZeRO-1).
//
//   before   all-reduce g;  update p, state from g                       on every replica
//   after    reduce-scatter g;  update the rank's rows of p, state
//            start of the next step: all-gather p                        before its first use
//
// Which ranks share a parameter says Strategy::optimizer_group. Of all its replicas (kReplicas), in ascending order,
// member j keeps the rows [j, j + 1) * (local rows / R). Gradients are summands over some of them only: where ranks
// repeat a calculation they hold the same gradient already, and a slice does what a reduce-scatter would.
// With Strategy::optimizer_shard_size k, k consecutive members share; with kCopy those of one copy do. What is left of
// the reduction is an all-reduce over the members at the same position, of their rows alone and where these lie. Norms
// over a whole parameter (LAMB) are added up over its parts.
//
// With kOwner, parameter i (in the order of the updates; one that is split stays as it is) is updated by the rank i mod
// N alone, which alone has its state; then the owners, in ascending order, broadcast what they have updated (S11.1).
//
// A rank's rows of the parameter and of its gradient lie inside of the whole (Buffer::alias), as NCCL reduces and
// gathers in place, where they are multiples of kAlignment bytes; not of gradients under ZeRO-2 and of both under 3,
// whose whole ones are of two layers, nor of parameters where ranks start with the values of one.
//
// With Strategy::shard_parameters, what is frozen is split, too, among its replicas on ranks that add up a gradient of
// its segment: rows that nothing writes ("w@shard"), gathered like those that are trained, and saved. A segment without
// any update stays whole.
//
// Values do not change. Must run before the buckets: it changes which collectives there are.
#ifndef MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_
#define MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/strategy.h"

namespace meshwright {

Program ShardOptimizer(Program program, const Strategy& strategy);

// One line for each parameter of the program that the parallel optimizer leaves whole, with the reason:
// "w: 20480 bytes, the threshold is 65536". `program` has been through ShardOptimizer.
std::vector<std::string> WhyWhole(const Program& program, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SHARD_OPTIMIZER_H_
