// Compares the kernels of devices with the host's, operator by operator: the same checks on a GPU (tests/gpu) and on a
// stand-in that plays the threads. For tests only.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_OP_CHECKS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_OP_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/kernels.h"
#include "executor/op_examples.h"
#include "ir/dtype.h"

namespace meshwright::cuda::testing {

struct OpCheck {
  DType dtype = DType::kFloat64;  // of floating operands
  uint64_t seed = 1;              // of inputs
  bool accumulate = false;        // outputs are added to what is there
  bool large = false;             // with more than one block and tile, instead of the table's examples
  bool in_place = false;          // the first output lies where an input of its dims lies, if there is one
};

// How far a result may be from the host's float64, relative to 1 + its size, for inputs of order 1.
double BoundOf(DType dtype);

// OK, or the first example, element and difference. Inputs are drawn, rounded to `dtype`, and given to both; outputs
// start as NaN, and what stands around them must stay.
absl::Status CheckOp(Driver& driver, Kernels& kernels, OpKind op, const OpCheck& check);

// Attention of random queries, keys and values, then its gradients, from the host's results; with `accumulate` the
// latter alone. What is computed is as in KernelCall: (s, b, g, q + 2, d), or `apart` (s, b, g, q, d)
// and (keys, b, g, 2, d).
struct AttentionCheck {
  int64_t s = 1, b = 1, g = 1, q = 1, d = 64;
  bool causal = true, apart = false;
  int64_t keys = 0, context = 1, shift = -1, window = 0;
};
absl::Status CheckAttention(Driver& driver, Kernels& kernels, const AttentionCheck& attention, const OpCheck& check);

// All kinds that have a kernel; those that take outputs to add to.
std::vector<OpKind> CheckedOps();
bool CanAccumulate(OpKind op);

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_OP_CHECKS_H_
