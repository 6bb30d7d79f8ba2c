#include "executor/cuda/probe.h"

namespace meshwright {
namespace {

__global__ void Add(int a, int b, int* sum) { *sum = a + b; }

}  // namespace

cudaError_t AddOnDevice(int a, int b, int* sum) {
  int* on_device = nullptr;
  if (const cudaError_t error = cudaMalloc(&on_device, sizeof(int)); error != cudaSuccess) return error;
  Add<<<1, 1>>>(a, b, on_device);
  cudaError_t error = cudaGetLastError();  // a launch that was refused, e.g. no code for this device
  if (error == cudaSuccess) error = cudaMemcpy(sum, on_device, sizeof(int), cudaMemcpyDeviceToHost);
  const cudaError_t freed = cudaFree(on_device);
  return error != cudaSuccess ? error : freed;
}

}  // namespace meshwright
