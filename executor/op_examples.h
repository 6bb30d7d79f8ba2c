// Small examples of every operator, for tests that walk the op table. For tests only.
//
// The switch over OpKind is complete: an operator without an example does not compile. All extents of labels that may
// be split are even.
#ifndef MESHWRIGHT_EXECUTOR_OP_EXAMPLES_H_
#define MESHWRIGHT_EXECUTOR_OP_EXAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel_call.h"
#include "ir/graph.h"

namespace meshwright {

struct OpExample {
  OpKind op = OpKind::kFill;
  std::string rule;  // empty: the row's own, for these inputs
  std::vector<Shape> inputs;
  OpAttrs attrs = {};
  std::vector<int64_t> ids = {};    // per input: 0 where it is floating, else it holds integers in [0, ids)
  double low = -1, high = 1;        // of floating inputs
  std::vector<Shape> outputs = {};  // where the rule leaves them open
};

// Empty for Feed and Exchange, which are no kernels, and Fill, which has no rule.
std::vector<OpExample> ExamplesOf(OpKind op);

// A whole tensor of doubles or integers that owns its elements.
struct OwnedTensor {
  DType dtype = DType::kFloat64;
  Shape shape;
  std::vector<std::byte> data;

  OwnedTensor() = default;
  OwnedTensor(DType dtype, const Shape& shape);
  TensorView View();
  double At(int64_t i) const;  // float64, float32 or int32
  void Set(int64_t i, double value);
};

// An example made ready to run.
struct OpCase {
  OpExample example;
  IndexRule rule;
  std::vector<OwnedTensor> inputs, outputs;  // outputs are NaN
  std::string text;                          // "MatMul m k, k n -> m n", for messages
};

// Inputs drawn from `seed`; floating tensors are of `dtype`. An example that contradicts its row ends the process.
OpCase MakeCase(const OpExample& example, uint64_t seed, DType dtype = DType::kFloat64);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_OP_EXAMPLES_H_
