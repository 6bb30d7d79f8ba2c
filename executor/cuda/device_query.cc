// Lists the GPUs that CUDA finds, and whether a kernel of ours runs on each. Exit status: 0 if every GPU runs it or
// there is none, 1 if one does not.
#include <cuda_runtime.h>

#include <cstdio>

#include "executor/cuda/probe.h"

namespace meshwright {
namespace {

int Main() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    // The runtime's own text for a machine without driver, "driver version is insufficient", would mislead.
    std::printf("no CUDA driver or no device: %s\n", cudaGetErrorString(error));
    return 0;
  }
  int status = 0;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    int sum = 0;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = cudaSetDevice(device);
    if (error == cudaSuccess) error = AddOnDevice(2, 3, &sum);
    if (error != cudaSuccess || sum != 5) {
      std::printf("%d: fails: %s, 2 + 3 gave %d\n", device, cudaGetErrorString(error), sum);
      status = 1;
      continue;
    }
    std::printf("%d: %s, sm_%d%d, %d SMs, %.1f GiB: runs\n", device, properties.name, properties.major,
                properties.minor, properties.multiProcessorCount,
                static_cast<double>(properties.totalGlobalMem) / (1ull << 30));
  }
  return status;
}

}  // namespace
}  // namespace meshwright

int main() { return meshwright::Main(); }
