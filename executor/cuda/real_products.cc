#include "executor/cuda/real_products.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "executor/cuda/setup_deadline.h"
#include "executor/steady_clock.h"
#include "ir/status.h"

namespace meshwright::cuda {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS recommends on Hopper
constexpr int kCandidates = 8;                   // algorithms that are tried
constexpr int kTimedRuns = 3;
constexpr absl::Duration kPatience = absl::Minutes(5);  // what is before it may wait for other ranks

absl::Status ToStatus(cublasStatus_t code, absl::string_view call) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", cublasLtGetStatusName(code)));
}
absl::Status ToStatus(cudaError_t code, absl::string_view call) {
  if (code == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // not for whoever asks next
  return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorName(code), ", ", cudaGetErrorString(code)));
}

std::string ToText(const MatrixRef& m) {
  return absl::StrCat(NameOf(m.dtype), m.transposed ? " transposed" : "", " leading ", m.leading,
                      m.batch_stride != 0 ? absl::StrCat(" stride ", m.batch_stride) : "", " at ...",
                      absl::Hex(reinterpret_cast<uintptr_t>(m.data) % 256));
}
// All that decides what the library says to it.
std::string ToText(const GemmCall& call) {
  static const char* const kEpilogues[] = {"", ", GELU", ", GELU's gradient"};
  return absl::StrCat(call.m, " x ", call.k, " times ", call.k, " x ", call.n, ", batch ", call.batch, ", a ",
                      ToText(call.a), ", b ", ToText(call.b), ", c ", ToText(call.c), call.add ? ", added" : "",
                      call.bias != nullptr ? ", bias" : "", kEpilogues[static_cast<size_t>(call.epilogue)],
                      call.aux != nullptr ? ", aux" : "", call.tf32 ? ", tf32" : "");
}
absl::Status Named(const absl::Status& status, const GemmCall& call) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " (", ToText(call), ")"));
}

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kFloat64) return CUDA_R_64F;
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  if (dtype == DType::kBFloat16) return CUDA_R_16BF;
  return CUDA_R_32F;
}

// The power of two up to 256 that divides an address: algorithms differ in what they want.
int64_t AlignmentOf(const void* data) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  return static_cast<int64_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

std::vector<int64_t> KeyOf(const GemmCall& call) {
  std::vector<int64_t> key = {call.m,
                              call.n,
                              call.k,
                              call.batch,
                              call.add,
                              call.tf32,
                              call.bias != nullptr,
                              static_cast<int64_t>(call.epilogue),
                              call.aux != nullptr ? AlignmentOf(call.aux) : 0};
  for (const MatrixRef* m : {&call.a, &call.b, &call.c}) {
    key.insert(key.end(),
               {static_cast<int64_t>(m->dtype), m->leading, m->transposed, m->batch_stride, AlignmentOf(m->data)});
  }
  return key;
}

}  // namespace

// The library's matrices are by column: a row-major matrix is its transpose. So c^T = b^T a^T is asked for.
struct Products::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  bool wide = false;
  cublasLtMatmulAlgo_t algorithm = {};
  bool chosen = false;
  std::vector<cublasLtMatmulAlgo_t> candidates;
  absl::Status refused;  // the last candidate's launch
  ~Plan() {
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
};

absl::StatusOr<std::unique_ptr<Products>> Products::Make() {
  std::unique_ptr<Products> products(new Products());
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cublasLtCreate(&products->handle_), "cublasLtCreate"));
  return products;
}

Products::~Products() {
  plans_.clear();
  if (abandoned_) return;
  for (const auto& [stream, workspace] : workspaces_) cudaFree(workspace);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::StatusOr<void*> Products::WorkspaceOf(cudaStream_t stream) {
  void*& workspace = workspaces_[stream];
  if (workspace == nullptr) {
    const cudaError_t error = cudaMalloc(&workspace, kWorkspace);
    if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError("no memory for cuBLASLt's workspace");
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(error, "cudaMalloc"));
  }
  return workspace;
}

absl::Status Products::SetPointers(const GemmCall& call, const Plan& plan) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& pointer, absl::string_view name) {
    if (pointer == nullptr) return absl::OkStatus();
    return ToStatus(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &pointer, sizeof(pointer)), name);
  };
  MESHWRIGHT_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias, "BIAS_POINTER"));
  return set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux, "EPILOGUE_AUX_POINTER");
}

// Bias and aux along the rows of c^T, which are c's columns.
absl::Status Products::SetEpilogue(const GemmCall& call, const Plan& plan) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value, absl::string_view name) {
    return ToStatus(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof(value)), name);
  };
  if (call.bias == nullptr && call.epilogue == GemmEpilogue::kNone) return absl::OkStatus();
  const bool bias = call.bias != nullptr, aux = call.aux != nullptr;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  if (call.epilogue == GemmEpilogue::kGeluGrad) {
    epilogue = CUBLASLT_EPILOGUE_DGELU;
  } else if (call.epilogue == GemmEpilogue::kGelu) {
    const cublasLtEpilogue_t ways[2][2] = {{CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_AUX},
                                           {CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}};
    epilogue = ways[bias][aux];
  }
  MESHWRIGHT_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "EPILOGUE"));
  if (bias) {
    const cudaDataType_t type = TypeOf(call.c.dtype);
    MESHWRIGHT_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type, "BIAS_DATA_TYPE"));
  }
  if (aux) {  // its type is that of c unless something else is said
    MESHWRIGHT_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.c.leading, "EPILOGUE_AUX_LD"));
    MESHWRIGHT_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, call.c.batch_stride, "EPILOGUE_AUX_BATCH_STRIDE"));
  }
  return SetPointers(call, plan);
}

absl::StatusOr<std::unique_ptr<Products::Plan>> Products::MakePlan(const GemmCall& call) {
  auto plan = std::make_unique<Plan>();
  plan->wide = call.c.dtype == DType::kFloat64;
  const bool single = call.a.dtype == DType::kFloat32 && call.tf32;
  const cublasComputeType_t compute = plan->wide ? CUBLAS_COMPUTE_64F
                                      : single   ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                 : CUBLAS_COMPUTE_32F;
  MESHWRIGHT_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulDescCreate(&plan->operation, compute, plan->wide ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate"));
  // Row-major b (k x n) is by column b^T (n x k), which is what is wanted: not transposed there means not here.
  const cublasOperation_t ops[2] = {call.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    call.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N};
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &ops[0], sizeof(ops[0])), "TRANSA"));
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &ops[1], sizeof(ops[1])), "TRANSB"));
  MESHWRIGHT_RETURN_IF_ERROR(SetEpilogue(call, *plan));
  const auto layout = [&](cublasLtMatrixLayout_t& made, const MatrixRef& m, int64_t rows, int64_t columns) {
    if (m.transposed) std::swap(rows, columns);
    MESHWRIGHT_RETURN_IF_ERROR(
        ToStatus(cublasLtMatrixLayoutCreate(&made, TypeOf(m.dtype), static_cast<uint64_t>(columns),
                                            static_cast<uint64_t>(rows), std::max(m.leading, columns)),
                 "cublasLtMatrixLayoutCreate"));
    if (call.batch == 1) return absl::OkStatus();
    const int32_t count = static_cast<int32_t>(call.batch);
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "BATCH"));
    return ToStatus(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride,
                                                     sizeof(m.batch_stride)),
                    "STRIDE");
  };
  MESHWRIGHT_RETURN_IF_ERROR(layout(plan->first, call.b, call.k, call.n));
  MESHWRIGHT_RETURN_IF_ERROR(layout(plan->second, call.a, call.m, call.k));
  MESHWRIGHT_RETURN_IF_ERROR(layout(plan->result, call.c, call.m, call.n));

  cublasLtMatmulPreference_t preference = nullptr;
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  // Sums that are split over k are added up in the type of the computation: all schemes are allowed unless something
  // else is said, and the others round in between to that of the result (cublasLtReductionScheme_t).
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(AlignmentOf(call.b.data)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(AlignmentOf(call.a.data)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(AlignmentOf(call.c.data)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(AlignmentOf(call.c.data)));
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->first, plan->second, plan->result,
                                            plan->result, preference, kCandidates, found, &count);
  }
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) count = 0;
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
    MESHWRIGHT_RETURN_IF_ERROR(ToStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
  }
  for (int i = 0; i < count; ++i) {  // each result has a state of its own (cublasLt.h)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) plan->candidates.push_back(found[i].algo);
  }
  if (!plan->candidates.empty()) plan->algorithm = plan->candidates[0];
  return plan;
}

absl::Status Products::Launch(cudaStream_t stream, const GemmCall& call, const Plan& plan,
                              const cublasLtMatmulAlgo_t& algorithm) {
  MESHWRIGHT_ASSIGN_OR_RETURN(void* const workspace, WorkspaceOf(stream));
  MESHWRIGHT_RETURN_IF_ERROR(SetPointers(call, plan));
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  const void* const alpha = plan.wide ? static_cast<const void*>(&one) : &one_f;
  const void* const none = plan.wide ? static_cast<const void*>(&zero) : &zero_f;
  return ToStatus(cublasLtMatmul(handle_, plan.operation, alpha, call.b.data, plan.first, call.a.data, plan.second,
                                 call.add ? alpha : none, call.c.data, plan.result, call.c.data, plan.result,
                                 &algorithm, workspace, kWorkspace, stream),
                  "cublasLtMatmul");
}

// Times the candidates on the operands themselves: c must not be added to meanwhile, so such a call is timed on memory
// of its own. A candidate that cannot be launched is dropped: the heuristic only thinks that it can. While a stream is
// captured nothing is timed.
absl::Status Products::Choose(cudaStream_t stream, const GemmCall& call, Plan& plan) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing"));
  if (capture != cudaStreamCaptureStatusNone) return absl::OkStatus();
  const int64_t last = (call.batch - 1) * call.c.batch_stride + (call.m - 1) * call.c.leading + call.n;
  GemmCall trial = call;
  if (call.add) {
    const size_t bytes = static_cast<size_t>(last * SizeOf(call.c.dtype).raw());
    // In the order of the stream: a plain free would wait for the whole device, where communication may wait for
    // another rank.
    if (cudaMallocAsync(reinterpret_cast<void**>(&trial.c.data), bytes, stream) != cudaSuccess) {
      cudaGetLastError();  // not for whoever asks next
      return absl::OkStatus();
    }
  }
  plan.chosen = true;
  cudaEvent_t begin = nullptr, end = nullptr;
  absl::Status status = ToStatus(cudaEventCreate(&begin), "cudaEventCreate");
  if (status.ok()) status = ToStatus(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<cublasLtMatmulAlgo_t> able;
  float best = 0;
  for (size_t i = 0; i < plan.candidates.size() && status.ok(); ++i) {
    plan.refused = Launch(stream, trial, plan, plan.candidates[i]);
    if (!plan.refused.ok()) continue;
    able.push_back(plan.candidates[i]);
    float milliseconds = 0;
    status = Time(stream, trial, plan, plan.candidates[i], begin, end, milliseconds);
    if (status.ok() && (able.size() == 1 || milliseconds < best)) {
      best = milliseconds;
      plan.algorithm = plan.candidates[i];
    }
  }
  plan.candidates = std::move(able);
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  if (call.add) cudaFreeAsync(trial.c.data, stream);
  return status;
}

absl::Status Products::Time(cudaStream_t stream, const GemmCall& call, const Plan& plan,
                            const cublasLtMatmulAlgo_t& algorithm, cudaEvent_t begin, cudaEvent_t end,
                            float& milliseconds) {
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin, stream), "cudaEventRecord"));
  for (int run = 0; run < kTimedRuns; ++run) MESHWRIGHT_RETURN_IF_ERROR(Launch(stream, call, plan, algorithm));
  MESHWRIGHT_RETURN_IF_ERROR(ToStatus(cudaEventRecord(end, stream), "cudaEventRecord"));
  // Not cudaEventSynchronize, which would wait for ever behind a kernel that does not end.
  const absl::Duration patience = SetupDeadline(kPatience);
  for (const absl::Time until = SteadyNow() + patience;;) {
    const cudaError_t code = cudaEventQuery(end);
    if (code == cudaSuccess) break;
    if (code != cudaErrorNotReady) return ToStatus(code, "timing a product, or work before it");
    cudaGetLastError();  // not for whoever asks next
    if (SteadyNow() > until) {
      return absl::DeadlineExceededError(
          absl::StrCat("timing a product: it, or work before it, has no end within ", absl::FormatDuration(patience)));
    }
    sched_yield();
  }
  return ToStatus(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
}

absl::Status Products::Run(cudaStream_t stream, const GemmCall& call) {
  if (call.m == 0 || call.n == 0 || call.batch == 0) return absl::OkStatus();
  std::unique_ptr<Plan>& plan = plans_[KeyOf(call)];
  if (plan == nullptr) {
    absl::StatusOr<std::unique_ptr<Plan>> made = MakePlan(call);
    if (!made.ok()) return Named(made.status(), call);
    plan = *std::move(made);
  }
  if (!plan->candidates.empty() && !plan->chosen) {
    MESHWRIGHT_RETURN_IF_ERROR(Named(Choose(stream, call, *plan), call));
  }
  // Kept, so that the library is asked once.
  if (plan->candidates.empty()) {
    return Named(absl::UnimplementedError(absl::StrCat("cuBLASLt offers no algorithm that runs",
                                                       plan->refused.ok() ? "" : ": ", plan->refused.message())),
                 call);
  }
  return Named(Launch(stream, call, *plan, plan->algorithm), call);
}

}  // namespace meshwright::cuda
