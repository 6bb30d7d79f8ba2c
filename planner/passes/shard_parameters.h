// Splits parameters and gradients over the replicas, too (ZeRO-3, FSDP): a rank holds its rows, and whole parameters
// only of the layer that runs and of the next one.
//
//   before   all-gather p of every layer;  F0 F1 .. B1 B0 for each micro-batch;  reduce-scatter each gradient once
//   after    G0 G1 F0 G2 F1 .. B1 R1 G- B0 A1 R0 A0 for each micro-batch:
//              G  all-gather of a layer's parameters, one layer ahead of the pass that reads them; not where they are
//                 still there
//              R  reduce-scatter of what this micro-batch adds to a layer's gradients
//              A  adds the rank's rows of it to the rank's gradient, after the next layer's pass; with one micro-batch
//                 R writes the gradient itself
//
// Where groups of replicas have copies of the rows, these are all-reduced between the groups once a step, behind the
// last A of a layer.
//
// Where a segment repeats a run of three layers or more, these go one by one, too: a run's first layer is gathered in
// front of its pass, as above, those behind it within the pass, each when the one before it begins, and gradients of
// all but the last are scattered and added there (ir/graph.h, Segment::layer_ends):
//   before   F: f0 f1 f2          B: b2 b1 b0
//   after    F: G1 f0 G2 f1 f2    B: G1 b2 R2 G0 b1 A2 R1 b0 A1
//
// Gathered parameters and whole gradients have memory for two layers, which the layers use in turn. A parameter takes
// part where shard_optimizer split its update and only one segment's passes use it; others stay as that pass left them.
// What is frozen has G alone.
//
// ShardGradients leaves parameters whole and does R and A alone (S11.10, ZeRO-2). Where there are no more layers than
// are whole at one time, as in networks of operators, it scatters within the backward pass: scatter_in_backward.h.
//
// Values do not change. Runs after shard_optimizer and before bucket_gradients, which fuses the calls of a layer.
#ifndef MESHWRIGHT_PLANNER_PASSES_SHARD_PARAMETERS_H_
#define MESHWRIGHT_PLANNER_PASSES_SHARD_PARAMETERS_H_

#include <set>
#include <string>

#include "ir/program.h"

namespace meshwright {

// Of a program that ShardOptimizer made with the strategy's shard_parameters. `layer_ends`: names of what layers of
// runs end with.
Program ShardParameters(Program program, const std::set<std::string>& layer_ends = {});

// Of a program that ShardOptimizer made with the strategy's gradient_accumulation_shard: rows that last from one
// micro-batch to the next must not lie inside of the whole gradient, which each one writes. With one micro-batch there
// is nothing to accumulate, and nothing changes.
Program ShardGradients(Program program);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_SHARD_PARAMETERS_H_
