// Products by cuBLASLt. For executor/cuda/real_driver.cc.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_REAL_PRODUCTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_REAL_PRODUCTS_H_

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/cuda/driver.h"

namespace meshwright::cuda {

class Products {
 public:
  static absl::StatusOr<std::unique_ptr<Products>> Make();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  absl::Status Run(cudaStream_t stream, const GemmCall& call);
  void Abandon() { abandoned_ = true; }

 private:
  struct Plan;
  Products() = default;
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const GemmCall& call);
  static absl::Status SetEpilogue(const GemmCall& call, const Plan& plan);
  static absl::Status SetPointers(const GemmCall& call, const Plan& plan);
  absl::Status Launch(cudaStream_t stream, const GemmCall& call, const Plan& plan,
                      const cublasLtMatmulAlgo_t& algorithm);
  absl::Status Choose(cudaStream_t stream, const GemmCall& call, Plan& plan);
  absl::Status Time(cudaStream_t stream, const GemmCall& call, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                    cudaEvent_t begin, cudaEvent_t end, float& milliseconds);
  absl::StatusOr<void*> WorkspaceOf(cudaStream_t stream);

  cublasLtHandle_t handle_ = nullptr;
  std::map<std::vector<int64_t>, std::unique_ptr<Plan>> plans_;  // by shape, types, strides and alignment
  std::map<cudaStream_t, void*> workspaces_;                     // one product of a stream at a time
  bool abandoned_ = false;
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_REAL_PRODUCTS_H_
