// Fuses the collectives of gradients and parameters into buckets (S10).
//
//   before   one collective per parameter and layer
//   after    one call for all neighbours of the same kind, group, type and purpose, up to `bucket` bytes: within a
//   layer,
//            and over several layers where these are smaller than a bucket
//
// The size rule is S10.6: walk in parameter order; close the bucket before the tensor that would exceed it; a tensor
// over the limit is alone. A bucket of several layers runs when the last of its layers is ready. Values do not change.
#ifndef MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
#define MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_

#include "ir/program.h"

namespace meshwright {

// `bucket` = 0: nothing is fused.
Program BucketGradients(Program program, Bytes bucket);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
