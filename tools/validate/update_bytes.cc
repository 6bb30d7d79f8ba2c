#include "tools/validate/update_bytes.h"

#include "ir/dtype.h"
#include "simulator/price.h"
#include "tools/validate/eager_kernels.h"
#include "tools/validate/signs.h"

namespace meshwright {
namespace {

double BytesOf(DType dtype) { return static_cast<double>(SizeOf(dtype).raw()); }

// The program's AdamW: two moments and the master in float32, read and written, the gradient, and the parameter where
// it is narrower.
double OursMoves(const TrainingRun& run) {
  const double parameter = BytesOf(run.training.dtype);
  return 3 * 2 * 4 + BytesOf(run.gradient_dtype) + (parameter < 4 ? parameter : 0);
}

}  // namespace

double UpdateBytes(const Framework& framework, const TrainingRun& run) {
  const bool scaled = run.training.dtype == DType::kFloat16 && !framework.HasNarrowStates();
  if (framework.updates == 0) {
    const bool widened = framework.Is(Sign::kPrecisionAware) && framework.Is(Sign::kNarrowMoments);
    return kClippingBytes + (scaled ? kUnscalingBytes : 0) + (widened ? kWideningBytes : 0);
  }
  const double element = framework.HasNarrowStates() ? BytesOf(run.training.dtype) : 4;
  double moves = framework.updates * element;
  // Both moments of a byte, in one kernel.
  if (framework.Is(Sign::kEightBitState)) moves = 3 * element + 2 * 2;
  const double passes = kClippingPasses + (scaled ? kUnscalingPasses : 0);
  return moves + passes * element - OursMoves(run);
}

}  // namespace meshwright
