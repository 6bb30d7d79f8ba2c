#include <cmath>
#include <utility>

#include "executor/cuda/testing/stand_in_work.h"
#include "executor/narrow_floats.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

// The tanh form, as executor/host/elementwise.cc has it.
double Gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double GeluGrad(double x) {
  const double scale = std::sqrt(2 / M_PI), t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

// What cuBLASLt's header asks for.
absl::Status CheckEpilogue(const GemmCall& call) {
  if (call.bias != nullptr && (call.batch != 1 || call.add || call.c.transposed || call.c.dtype == DType::kFloat64)) {
    return absl::InvalidArgumentError("a bias is of one product that is not added to, and not of float64");
  }
  if (call.epilogue == GemmEpilogue::kNone) {
    if (call.aux != nullptr) return absl::InvalidArgumentError("an aux without an epilogue");
    return absl::OkStatus();
  }
  if (call.add || call.c.transposed || !IsNarrow(call.c.dtype)) {
    return absl::InvalidArgumentError("an epilogue is of 16-bit results that are not added to");
  }
  if (call.aux != nullptr && (call.c.leading % 8 != 0 || call.c.batch_stride % 8 != 0)) {
    return absl::InvalidArgumentError("the rows of an aux have a multiple of 8 elements");
  }
  if (call.epilogue == GemmEpilogue::kGeluGrad && (call.aux == nullptr || call.bias != nullptr)) {
    return absl::InvalidArgumentError("GELU's gradient takes an aux and no bias");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostGemm> PlanGemm(const GemmCall& call) {
  HostGemm gemm;
  const auto reach = [&](const MatrixRef& matrix, int64_t rows, int64_t columns, bool write) {
    if (matrix.transposed) std::swap(rows, columns);
    const int64_t last = (call.batch - 1) * matrix.batch_stride + (rows - 1) * matrix.leading + columns;
    return Access{matrix.data, last * SizeOf(matrix.dtype).raw(), write};
  };
  const auto at = [](const MatrixRef& matrix, int64_t batch, int64_t row, int64_t column) {
    if (matrix.transposed) std::swap(row, column);
    return batch * matrix.batch_stride + row * matrix.leading + column;
  };
  const auto load = [](const std::byte* data, DType dtype, int64_t i) {
    if (dtype == DType::kFloat64) return reinterpret_cast<const double*>(data)[i];
    if (IsNarrow(dtype)) {
      return static_cast<double>(FromNarrow(dtype, reinterpret_cast<const uint16_t*>(data)[i]));
    }
    return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
  };
  const auto store = [](std::byte* data, DType dtype, int64_t i, double value) {
    if (dtype == DType::kFloat64) {
      reinterpret_cast<double*>(data)[i] = value;
    } else if (IsNarrow(dtype)) {
      reinterpret_cast<uint16_t*>(data)[i] = ToNarrow(dtype, static_cast<float>(value));
    } else {
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
    }
  };
  for (const MatrixRef* matrix : {&call.a, &call.b, &call.c}) {
    if (matrix->dtype != DType::kFloat64 && matrix->dtype != DType::kFloat32 && !IsNarrow(matrix->dtype)) {
      return absl::UnimplementedError("the stand-in multiplies floating types of 2 bytes or more");
    }
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckEpilogue(call));
  MatrixRef aux = call.c;
  aux.data = call.aux;
  const bool gradient = call.epilogue == GemmEpilogue::kGeluGrad;
  std::vector<Access> accesses = {reach(call.a, call.m, call.k, false), reach(call.b, call.k, call.n, false)};
  if (call.add) accesses.push_back(reach(call.c, call.m, call.n, false));
  if (call.bias != nullptr) accesses.push_back({call.bias, call.n * SizeOf(call.c.dtype).raw(), false});
  accesses.push_back(reach(call.c, call.m, call.n, true));
  if (call.aux != nullptr) accesses.push_back(reach(aux, call.m, call.n, !gradient));
  gemm.accesses = std::move(accesses);
  gemm.run = [=] {
    for (int64_t b = 0; b < call.batch; ++b) {
      for (int64_t i = 0; i < call.m; ++i) {
        for (int64_t j = 0; j < call.n; ++j) {
          const int64_t place = at(call.c, b, i, j);
          double sum = call.add ? load(call.c.data, call.c.dtype, place) : 0;
          if (call.bias != nullptr) sum += load(call.bias, call.c.dtype, j);
          for (int64_t l = 0; l < call.k; ++l) {
            sum += load(call.a.data, call.a.dtype, at(call.a, b, i, l)) *
                   load(call.b.data, call.b.dtype, at(call.b, b, l, j));
          }
          if (gradient) sum *= GeluGrad(load(call.aux, call.c.dtype, place));
          if (!gradient && call.aux != nullptr) store(call.aux, call.c.dtype, place, sum);
          if (call.epilogue == GemmEpilogue::kGelu) sum = Gelu(sum);
          store(call.c.data, call.c.dtype, place, sum);
        }
      }
    }
    return absl::OkStatus();
  };
  return gemm;
}

}  // namespace meshwright::cuda::testing
