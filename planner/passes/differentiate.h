// Adds the backward pass to a forward graph.
//
//   before   forward ops of every segment, a loss
//   after    the same, plus in each segment its backward ops (phase kBackward): recomputed forward ops just before
//            their first reader (Recompute::kLayer: all of a layer, first), gradients in terms of existing operators,
//            sums where a value has several readers; gradient carries of repeated segments; one accumulator per
//            trainable parameter
//
// Never changes a forward op. Deterministic.
#ifndef MESHWRIGHT_PLANNER_PASSES_DIFFERENTIATE_H_
#define MESHWRIGHT_PLANNER_PASSES_DIFFERENTIATE_H_

#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/strategy.h"

namespace meshwright {

struct DifferentiateOptions {
  Recompute recompute = Recompute::kNone;
  std::set<std::string> recompute_ops;  // forward ops that are run again besides, by name
  double loss_gradient = 1;             // what the loss's gradient starts as (1 / micro-batches for a mean over them)
  DType gradient_dtype = DType::kFloat32;  // of the accumulators
  // What a parameter "loss_scale" starts as that the loss's gradient is a multiple of (scale_loss.h); without it, there
  // is none.
  std::optional<double> loss_scale;
};

// kInvalidArgument: no loss, or a parameter that has the loss scale's name. kUnimplemented, naming the op: an op on the
// way from a parameter to the loss has no gradient, or an op of a stack of layers reads a value from outside that needs
// one.
absl::StatusOr<Graph> Differentiate(Graph forward, const DifferentiateOptions& options);

}  // namespace meshwright

#endif  // MESHWRIGHT_PLANNER_PASSES_DIFFERENTIATE_H_
