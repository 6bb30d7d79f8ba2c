// The toy of S17.2, for tests: seed A's way to train, on numbers that one can follow by hand.
#ifndef MESHWRIGHT_EXECUTOR_MANUAL_TOY_H_
#define MESHWRIGHT_EXECUTOR_MANUAL_TOY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "executor/manual/context.h"

namespace meshwright::manual {

// What a rank does with the gradient of its loss before it takes a step.
enum class GradientUse : uint8_t { kAsWritten, kMean, kSum };

struct ToyResult {
  double w = 0;     // this rank's weight after the steps
  double loss = 0;  // that the next step would print: the mean of the ranks' losses
};

// y = w x with x = 1 + 2 rank and target 0: the local loss is (w x)^2. w = 1 at first, learning rate 0.01. Calls Init.
absl::StatusOr<ToyResult> TrainToy(Context& context, GradientUse use, int64_t steps);

}  // namespace meshwright::manual

#endif  // MESHWRIGHT_EXECUTOR_MANUAL_TOY_H_
