// What one rank has to do for one operator: the facts from which a kernel is priced, and no price.
//
// Derived from the operator's index rule and its local shapes (ir/op.h, WorkOf), never stored beside them.
#ifndef MESHWRIGHT_IR_KERNEL_WORK_H_
#define MESHWRIGHT_IR_KERNEL_WORK_H_

#include <cstdint>

#include "ir/dtype.h"
#include "ir/quantities.h"

namespace meshwright {

// The shapes of time a kernel can have. One row of the cost model prices one class.
enum class KernelClass : uint8_t {
  kNone,             // no kernel runs (a view)
  kContraction,      // a (batched) matrix product: batch x (m x k)(k x n)
  kLinearAttention,  // batch heads, m tokens, states of k x n
  kAttention,        // fused attention: batch x heads, m queries, n keys, head size k (of keys and values in the mean)
  kMemory,           // streams its operands once: elementwise, copies, casts, optimizer updates
  kNormalize,        // streams its operands and reduces along rows: norms, softmax, cross entropy
  kGather,           // reads or adds rows named by indices: embedding
};

struct KernelWork {
  KernelClass kernel = KernelClass::kNone;
  DType dtype = DType::kFloat32;           // of the arithmetic: that of the first floating operand
  bool backward = false;                   // attention and normalize kernels cost differently backward
  bool delta = false;                      // linear attention: by the delta rule
  bool by_row = false;                     // of that, where rows of the state decay apart
  bool causal = false;                     // attention: half of the score matrix is skipped
  bool fused = true;                       // attention: no score matrix in memory
  int64_t window = 0;                      // causal attention: keys that a query sees, fewer than n; 0: all before it
  bool functions = false;                  // memory and normalize: exponentials and their like at every point
  int64_t steps = 0;                       // operators that eager PyTorch runs for it besides the first
  bool wide = false;                       // contraction: of 16 bits also where a device runs others in float8
  int64_t batch = 1, m = 1, n = 1, k = 1;  // contraction and attention; see KernelClass
  Flops flops;                             // useful operations (causal attention: only the kept half)
  Flops epilogue;                          // contraction: elementwise, of its result, outside of the tensor cores
  Bytes read, written;                     // each operand once
};

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_KERNEL_WORK_H_
