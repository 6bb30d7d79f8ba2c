// One kernel to run: an operator, its attributes and rule, and this rank's pieces of its operands.
//
// What the runner hands to a back end. Everything a kernel needs to know about its place in the whole (positions of a
// split sequence, rows of a split table) stands in the views.
//
// Ownership: views point into the rank's arena; rule and attributes into the Program. Thread safety: plain values.
#ifndef MESHWRIGHT_EXECUTOR_KERNEL_CALL_H_
#define MESHWRIGHT_EXECUTOR_KERNEL_CALL_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/graph.h"
#include "ir/index_rule.h"
#include "ir/layout.h"
#include "ir/op_list.h"

namespace meshwright {

// A rank's piece of a tensor, row-major and contiguous.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;   // of the piece
  Shape global;  // of the whole
  Shape begin;   // where the piece starts in the whole

  int64_t size() const { return NumElements(shape); }
  int64_t bytes() const { return size() * SizeOf(dtype).raw(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

struct KernelCall {
  OpKind op = OpKind::kFill;
  const OpAttrs* attrs = nullptr;
  const IndexRule* rule = nullptr;
  uint32_t accumulate = 0;  // bit i: add to output i instead of overwriting it; those from 32 on are overwritten
  int64_t step = 1;         // training step, from 1: AdamW corrects its averages by it
  absl::Span<const TensorView> inputs, outputs;
  // What random operators draw from, besides `step` and their own stream.
  uint64_t seed = 0;
  int64_t layer = 0;  // of the whole model
  // Input 0 as a piece of that of all micro-batches, without data; no dims: input 0 is all of it.
  TensorView in_step = {};

  // By whose places random operators draw.
  const TensorView& Drawn() const { return in_step.shape.empty() ? inputs[0] : in_step; }
  bool Adds(size_t output) const { return output < 32 && (accumulate >> output & 1) != 0; }
};

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_KERNEL_CALL_H_
