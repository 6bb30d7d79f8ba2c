// Kernels that run on the host of a rank's device (Compute::on_host, S13.5): what they read is copied down, what they
// write is copied up, whatever the device is.
//
// Thread safety: one thread, the rank's own.
#ifndef MESHWRIGHT_EXECUTOR_HOST_OP_H_
#define MESHWRIGHT_EXECUTOR_HOST_OP_H_

#include "absl/status/status.h"
#include "executor/backend.h"
#include "executor/kernel_call.h"
#include "ir/program.h"

namespace meshwright {

// Returns when the kernel has run and its results are on their way. The copies stand in the stream's order: what was
// issued on it before is waited for, what is issued on it later sees the results.
absl::Status RunOnHost(Backend& backend, Stream stream, const KernelCall& call);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_HOST_OP_H_
