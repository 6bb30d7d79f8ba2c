#include "executor/manual/toy.h"

#include "executor/manual/collectives.h"
#include "executor/manual/gradients.h"
#include "executor/manual/tensor.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

Tensor Scalar(double value) { return Tensor::Full<double>({}, value); }
double Value(const Tensor& scalar) { return scalar.As<double>()[0]; }

}  // namespace

absl::StatusOr<ToyResult> TrainToy(Context& context, GradientUse use, int64_t steps) {
  MESHWRIGHT_RETURN_IF_ERROR(context.Init());
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, context.GetGroupSize());
  const double x = 1 + 2 * static_cast<double>(rank);
  const double n = static_cast<double>(size);
  ToyResult result = {.w = 1};
  for (int64_t step = 0; step <= steps; ++step) {
    const Tensor local = Scalar(result.w * x * result.w * x);
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(context, local));
    result.loss = Value(sum) / n;
    if (step == steps) break;
    // d printed / d sum = 1/N on every rank, and the derivative of the AllReduce adds them up: 1.
    MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor dlocal, AllReduceGrad(context, local, sum, Scalar(1 / n)));
    Tensor dw = Scalar(Value(dlocal) * 2 * result.w * x * x);
    if (use != GradientUse::kAsWritten) {
      MESHWRIGHT_ASSIGN_OR_RETURN(dw, AllReduce(context, dw));
      if (use == GradientUse::kMean) dw = Scalar(Value(dw) / n);
    }
    result.w -= 0.01 * Value(dw);
  }
  return result;
}

}  // namespace meshwright::manual
