// The two kernels that a product with an epilogue stands for (ir/op_list.h, OpInfo::epilogue).
//
// They are the definition of such a kernel: the host runs it as them, and a device whose library has no such epilogue
// for the operands at hand. Between them the product is kept in the call's own outputs, rounded to their type.
//
// Nothing is added to what they write: epilogues are for products that overwrite.
//
// Thread safety: as that of what is run.
#ifndef MESHWRIGHT_EXECUTOR_EPILOGUE_H_
#define MESHWRIGHT_EXECUTOR_EPILOGUE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "executor/kernel_call.h"

namespace meshwright {

inline bool HasEpilogue(const KernelCall& call) { return InfoOf(call.op).epilogue != OpKind::kNumOps; }

// `call` has as many operands as its op takes. Errors are those of `run`; the calls that it gets live as long as it
// runs.
absl::Status RunInParts(const KernelCall& call, absl::FunctionRef<absl::Status(const KernelCall&)> run);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_EPILOGUE_H_
