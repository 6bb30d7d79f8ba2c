// The derivatives of the collectives (S3.8): given the gradient of the outputs on every rank, that of the inputs, where
// the loss is the sum of what the ranks call their loss (S8.1). They are collectives themselves, called by all members
// in the same order, with the arguments of the forward call; their errors are those of executor/manual/collectives.h.
//
//   forward                    backward
//   AllReduce sum              AllReduce sum of dy
//   AllReduce max, min         AllReduce sum of dy, where x is the result; members that tie get it in full
//   AllReduce prod             AllReduce sum of dy * y, divided by x: not finite where x is 0
//   AllGather                  ReduceScatter sum
//   ReduceScatter sum          AllGather; E-STATE for other reductions
//   AlltoAll                   AlltoAll with the dims exchanged
//   Broadcast                  the sum of all at the root, zero elsewhere
//   NeighborExchange, V2       the reverse exchange; what V2 gets back is added to the border
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_GRADIENTS_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/manual/collectives.h"
#include "executor/manual/context.h"
#include "executor/manual/tensor.h"

namespace meshwright::manual {

// x and y are input and output of the forward call; dy has their shape and type. E-TYPE for prod of integers.
absl::StatusOr<Tensor> AllReduceGrad(Context& context, const Tensor& x, const Tensor& y, const Tensor& dy,
                                     absl::string_view op = "sum", absl::string_view group = "");

absl::StatusOr<Tensor> AllGatherGrad(Context& context, const Tensor& dy, absl::string_view group = "");

absl::StatusOr<Tensor> ReduceScatterGrad(Context& context, const Tensor& dy, absl::string_view op = "sum",
                                         absl::string_view group = "");

absl::StatusOr<Tensor> AlltoAllGrad(Context& context, const Tensor& dy, const AlltoAllSpec& forward,
                                    absl::string_view group = "");

absl::StatusOr<std::vector<Tensor>> BroadcastGrad(Context& context, const std::vector<Tensor>& dys, int64_t root,
                                                  absl::string_view group = "");

// The gradients have the type of what was received; all inputs of the forward call must have had it too.
absl::StatusOr<std::vector<Tensor>> NeighborExchangeGrad(Context& context, const std::vector<Tensor>& dys,
                                                         const NeighborExchangeSpec& forward,
                                                         absl::string_view group = "");

absl::StatusOr<Tensor> NeighborExchangeV2Grad(Context& context, const Tensor& dy, const NeighborExchangeV2Spec& forward,
                                              absl::string_view group = "");

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_GRADIENTS_H_
