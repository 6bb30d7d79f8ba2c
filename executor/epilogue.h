// The two kernels that an op with an epilogue stands for (ir/op_list.h, OpInfo::epilogue).
//
// They are the definition of such a kernel: the host runs it as them, and so does a device whose kernel or library does
// not take the operands at hand. Between them the first's result is kept in the call's own outputs, rounded to their
// type.
//
// Inputs are those of the op in front, then what the epilogue takes besides its result. Outputs are the epilogue's,
// then what the op in front makes besides its result, then perhaps that result. Nothing is added to what the epilogue
// writes.
//
// Thread safety: as that of what is run.
#ifndef MESHWRIGHT_EXECUTOR_EPILOGUE_H_
#define MESHWRIGHT_EXECUTOR_EPILOGUE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "executor/kernel_call.h"

namespace meshwright {

inline bool HasEpilogue(const KernelCall& call) { return InfoOf(call.op).epilogue != OpKind::kNumOps; }

// Errors are those of `run`, and operands that are too few or too many; the calls that it gets live as long as it runs.
absl::Status RunInParts(const KernelCall& call, absl::FunctionRef<absl::Status(const KernelCall&)> run);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_EPILOGUE_H_
