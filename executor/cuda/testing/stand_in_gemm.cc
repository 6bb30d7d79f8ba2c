#include <utility>

#include "executor/cuda/testing/stand_in_work.h"
#include "executor/narrow_floats.h"

namespace meshwright::cuda::testing {

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
  for (const MatrixRef* matrix : {&call.a, &call.b, &call.c}) {
    if (matrix->dtype != DType::kFloat64 && matrix->dtype != DType::kFloat32 && !IsNarrow(matrix->dtype)) {
      return absl::UnimplementedError("the stand-in multiplies floating types of 2 bytes or more");
    }
  }
  if (call.bias != nullptr && (call.batch != 1 || call.add || call.c.transposed || call.c.dtype == DType::kFloat64)) {
    return absl::InvalidArgumentError("a bias is of one product that is not added to, and not of float64");
  }
  std::vector<Access> accesses = {reach(call.a, call.m, call.k, false), reach(call.b, call.k, call.n, false)};
  if (call.add) accesses.push_back(reach(call.c, call.m, call.n, false));
  if (call.bias != nullptr) accesses.push_back({call.bias, call.n * SizeOf(call.c.dtype).raw(), false});
  accesses.push_back(reach(call.c, call.m, call.n, true));
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
          if (call.c.dtype == DType::kFloat64) {
            reinterpret_cast<double*>(call.c.data)[place] = sum;
          } else if (IsNarrow(call.c.dtype)) {
            reinterpret_cast<uint16_t*>(call.c.data)[place] = ToNarrow(call.c.dtype, static_cast<float>(sum));
          } else {
            reinterpret_cast<float*>(call.c.data)[place] = static_cast<float>(sum);
          }
        }
      }
    }
    return absl::OkStatus();
  };
  return gemm;
}

}  // namespace meshwright::cuda::testing
