// executor/cuda/probe.h
//
// The smallest question to a GPU: does a kernel of ours run on it? A toolkit, driver or device that do not fit together
// answer here, with one line, instead of in the middle of a training step.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_PROBE_H_
#define MESHWRIGHT_EXECUTOR_CUDA_PROBE_H_

#include <cuda_runtime.h>

namespace meshwright {

// Runs a kernel of one thread on the current device, which adds `a` and `b` there, and copies the result to `*sum`.
// Returns the first CUDA error, cudaSuccess if there was none.
cudaError_t AddOnDevice(int a, int b, int* sum);

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_CUDA_PROBE_H_
