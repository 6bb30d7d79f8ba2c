// A tensor from one rank to another, and the derivatives (the last row of S3.8). Calls of one pair of ranks meet in
// their order; a Send does not wait for its Receive.
//
// Errors: E-STATE before init; E-VALUE for a rank that there is not and, where it is received, for a tensor of another
// shape or type than was wanted; kDeadlineExceeded and kCancelled as in executor/host/communicator.h.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_POINT_TO_POINT_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_POINT_TO_POINT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/manual/context.h"
#include "executor/manual/tensor.h"

namespace meshwright::manual {

absl::Status Send(Context& context, const Tensor& x, int64_t to);
absl::StatusOr<Tensor> Receive(Context& context, const Shape& shape, DType dtype, int64_t from);

// The gradient of what was sent comes back from the receiver, which sends it with ReceiveGrad.
absl::StatusOr<Tensor> SendGrad(Context& context, const Tensor& x, int64_t to);
absl::Status ReceiveGrad(Context& context, const Tensor& dy, int64_t from);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_POINT_TO_POINT_H_
