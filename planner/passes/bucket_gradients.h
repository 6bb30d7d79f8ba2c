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
// Within a pass that gathers parameters (shard_parameters.h) calls that follow each other are one, and stay where they
// are.
//
// Collectives that the author of a program wrote are fused where the strategy has a fusion id for them (S10.8): behind
// what does not use their results, before what does.
#ifndef MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
#define MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ir/program.h"
#include "ir/quantities.h"
#include "ir/strategy.h"

namespace meshwright {

// Values of Strategy::bucket that make the same program, both ends included.
class BucketRange {
 public:
  bool Has(Bytes bucket) const { return least_ <= bucket && bucket <= most_; }
  // As far as nothing but whether `size` is within the bucket depends on it, and the answer is what it was.
  void Narrow(Bytes size, bool within) {
    if (within) {
      least_ = std::max(least_, size);
    } else {
      most_ = std::min(most_, size - Bytes(1));
    }
  }

 private:
  Bytes least_, most_ = Bytes(std::numeric_limits<int64_t>::max());
};

// Reads the fusion fields of the strategy. `same`, which may be null, is narrowed to the buckets that make the same of
// this program.
Program BucketGradients(Program program, const Strategy& strategy, BucketRange* same = nullptr);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_BUCKET_GRADIENTS_H_
