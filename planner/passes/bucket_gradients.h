// Fuses the collectives of gradients and parameters into buckets (S10).
//
//   before   one collective per parameter and layer
//   after    one call for all neighbours of the same kind, group, type and purpose, up to `bucket` bytes: within a
//   layer,
//            and over several layers where these are smaller than a bucket
//
// What decides, in this order (S10.3): a parameter's fusion id other than 1 (0: alone; equal ids: together, whatever
// the size); the index rule, for all-reduces; the size rule, S10.6: walk in parameter order, close the bucket before
// the tensor that would exceed it, a tensor over the limit is alone. A bucket of several layers runs when the last of
// its layers is ready. The index rule counts the gradients of a stage in parameter order, layer by layer (S10.4).
// Values do not change.
//
// Collectives that the author of a program wrote are fused where the strategy has a fusion id for them (S10.8): behind
// what does not use their results, before what does.
#ifndef MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
#define MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_

#include "ir/program.h"
#include "ir/strategy.h"

namespace meshwright {

// Reads the fusion fields of the strategy.
Program BucketGradients(Program program, const Strategy& strategy);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
