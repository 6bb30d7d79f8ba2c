// Kernels along the last dim: softmax and norms. Norms' gradients take dy, x, gamma and compute the statistics again.
#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/call_operands.h"
#include "executor/host/kernel_functions.h"
#include "ir/status.h"

namespace meshwright::host {
namespace {

// A tensor as rows of its last dim.
struct Rows {
  int64_t count, width;
  explicit Rows(const TensorView& view)
      : count(view.shape.empty() ? 1 : view.size() / view.shape.back()),
        width(view.shape.empty() ? 1 : view.shape.back()) {}
};

template <class T>
void Put(bool add, T value, T& out) {
  out = (add ? out : T(0)) + value;
}

// Mean and 1 / sqrt(variance + epsilon) of a row; with `centred` false, 0 and 1 / sqrt(mean square + epsilon).
template <class T>
struct Statistics {
  T mean = 0, inverse = 0;
  Statistics(const T* x, int64_t n, bool centred, double epsilon) {
    if (centred) {
      T sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += x[i];
      mean = sum / static_cast<T>(n);
    }
    T squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    inverse = T(1) / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(epsilon));
  }
};

// A row's dx, and what it adds to dgamma and dbeta, see NormalizeGrad.
template <class T>
void RowGrad(const T* dy, const T* x, const T* gamma, int64_t n, bool centred, const KernelCall& call, T* dx, T* dgamma,
             T* dbeta) {
  const Statistics<T> s(x, n, centred, call.attrs->epsilon);
  T mean_g = 0, mean_gn = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T normed = (x[i] - s.mean) * s.inverse, g = dy[i] * gamma[i];
    mean_g += g;
    mean_gn += g * normed;
    dgamma[i] += dy[i] * normed;
    if (centred) dbeta[i] += dy[i];
  }
  mean_g = centred ? mean_g / static_cast<T>(n) : T(0);
  mean_gn /= static_cast<T>(n);
  for (int64_t i = 0; i < n; ++i) {
    const T normed = (x[i] - s.mean) * s.inverse, g = dy[i] * gamma[i];
    Put(call.Adds(0), s.inverse * (g - mean_g - normed * mean_gn), dx[i]);
  }
}

// y = (x - mean) * inverse * gamma + beta; beta may be null.
template <class T>
void Normalize(const KernelCall& call, bool centred) {
  const Rows rows(call.inputs[0]);
  const T* gamma = call.inputs[1].as<T>();
  const T* beta = centred ? call.inputs[2].as<T>() : nullptr;
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.inputs[0].as<T>() + r * rows.width;
    T* y = call.outputs[0].as<T>() + r * rows.width;
    const Statistics<T> s(x, rows.width, centred, call.attrs->epsilon);
    for (int64_t i = 0; i < rows.width; ++i) {
      Put(call.Adds(0), (x[i] - s.mean) * s.inverse * gamma[i] + (beta != nullptr ? beta[i] : T(0)), y[i]);
    }
  }
}

// With n = (x - mean) * inverse and g = dy * gamma:
//   dx = inverse * (g - mean(g) - n * mean(g * n)), without the first mean where not centred
//   dgamma = sum over rows of dy * n, dbeta = sum over rows of dy
template <class T>
void NormalizeGrad(const KernelCall& call, bool centred) {
  const Rows rows(call.inputs[1]);
  const T* gamma = call.inputs[2].as<T>();
  std::vector<T> dgamma(rows.width, T(0)), dbeta(rows.width, T(0));
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* dy = call.inputs[0].as<T>() + r * rows.width;
    const T* x = call.inputs[1].as<T>() + r * rows.width;
    T* dx = call.outputs[0].as<T>() + r * rows.width;
    RowGrad(dy, x, gamma, rows.width, centred, call, dx, dgamma.data(), dbeta.data());
  }
  for (int64_t i = 0; i < rows.width; ++i) {
    Put(call.Adds(1), dgamma[i], call.outputs[1].as<T>()[i]);
    if (centred) Put(call.Adds(2), dbeta[i], call.outputs[2].as<T>()[i]);
  }
}

// Which row of gamma head `r` of a group of `heads` has: queries the first, the key the second, the value none, -1.
int64_t GammaOf(int64_t r, int64_t heads) { return r == heads - 1 ? -1 : r == heads - 2 ? 1 : 0; }

}  // namespace

template <class T>
absl::Status NormHeads(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, NormedHeadsOf(call));
  const Rows rows(call.inputs[0]);
  const int64_t d = rows.width;
  for (int64_t row = 0; row < rows.count; ++row) {
    const T* x = call.inputs[0].as<T>() + row * d;
    T* y = call.outputs[0].as<T>() + row * d;
    const int64_t which = GammaOf(row % heads, heads);
    if (which < 0) {
      for (int64_t i = 0; i < d; ++i) Put(call.Adds(0), x[i], y[i]);
      continue;
    }
    const T* gamma = call.inputs[1].as<T>() + which * d;
    const Statistics<T> s(x, d, /*centred=*/false, call.attrs->epsilon);
    for (int64_t i = 0; i < d; ++i) Put(call.Adds(0), x[i] * s.inverse * gamma[i], y[i]);
  }
  return absl::OkStatus();
}

template <class T>
absl::Status NormHeadsGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 2));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t heads, NormedHeadsOf(call));
  const Rows rows(call.inputs[1]);
  const int64_t d = rows.width;
  std::vector<T> dgamma(2 * d, T(0));
  for (int64_t row = 0; row < rows.count; ++row) {
    const T* dy = call.inputs[0].as<T>() + row * d;
    T* dx = call.outputs[0].as<T>() + row * d;
    const int64_t which = GammaOf(row % heads, heads);
    if (which < 0) {
      for (int64_t i = 0; i < d; ++i) Put(call.Adds(0), dy[i], dx[i]);
      continue;
    }
    RowGrad<T>(dy, call.inputs[1].as<T>() + row * d, call.inputs[2].as<T>() + which * d, d, /*centred=*/false, call, dx,
               dgamma.data() + which * d, nullptr);
  }
  for (int64_t i = 0; i < 2 * d; ++i) Put(call.Adds(1), dgamma[i], call.outputs[1].as<T>()[i]);
  return absl::OkStatus();
}

// silu(z) and its derivative.
template <class T>
struct Gated {
  explicit Gated(T z) {
    const T s = 1 / (1 + std::exp(-z));
    value = z * s;
    slope = s * (1 + z * (1 - s));
  }
  T value, slope;
};

template <class T>
absl::Status GatedRmsNorm(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t gammas, GammaRowsOf(call));
  const Rows rows(call.inputs[0]);
  const bool first = call.attrs->gate_first;
  std::vector<T> normed(rows.width);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.inputs[0].as<T>() + r * rows.width;
    const T* z = call.inputs[1].as<T>() + r * rows.width;
    const T* gamma = call.inputs[2].as<T>() + r % gammas * rows.width;
    T* y = call.outputs[0].as<T>() + r * rows.width;
    for (int64_t i = 0; i < rows.width; ++i) normed[i] = first ? x[i] * Gated<T>(z[i]).value : x[i];
    const Statistics<T> s(normed.data(), rows.width, /*centred=*/false, call.attrs->epsilon);
    for (int64_t i = 0; i < rows.width; ++i) {
      Put(call.Adds(0), normed[i] * s.inverse * gamma[i] * (first ? T(1) : Gated<T>(z[i]).value), y[i]);
    }
  }
  return absl::OkStatus();
}

// With n = u inverse, where u is what is normed: dn = dy gamma (gate), du as of RMSNorm.
template <class T>
absl::Status GatedRmsNormGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 4, 4, 3));
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t gammas, GammaRowsOf(call));
  const Rows rows(call.inputs[1]);
  const bool first = call.attrs->gate_first;
  const int64_t width = rows.width;
  std::vector<T> dgamma(gammas * width, T(0)), u(width), dn(width);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* dy = call.inputs[0].as<T>() + r * width;
    const T* x = call.inputs[1].as<T>() + r * width;
    const T* z = call.inputs[2].as<T>() + r * width;
    const T* gamma = call.inputs[3].as<T>() + r % gammas * width;
    T *dx = call.outputs[0].as<T>() + r * width, *dz = call.outputs[1].as<T>() + r * width;
    for (int64_t i = 0; i < width; ++i) u[i] = first ? x[i] * Gated<T>(z[i]).value : x[i];
    const Statistics<T> s(u.data(), width, /*centred=*/false, call.attrs->epsilon);
    T mean = 0;
    for (int64_t i = 0; i < width; ++i) {
      const T gate = first ? T(1) : Gated<T>(z[i]).value, n = u[i] * s.inverse;
      dn[i] = dy[i] * gamma[i] * gate;
      mean += dn[i] * n;
      dgamma[r % gammas * width + i] += dy[i] * n * gate;
    }
    mean /= static_cast<T>(width);
    for (int64_t i = 0; i < width; ++i) {
      const Gated<T> gate(z[i]);
      const T n = u[i] * s.inverse, du = s.inverse * (dn[i] - n * mean);
      Put(call.Adds(0), first ? du * gate.value : du, dx[i]);
      Put(call.Adds(1), first ? du * x[i] * gate.slope : dy[i] * n * gamma[i] * gate.slope, dz[i]);
    }
  }
  for (int64_t i = 0; i < gammas * width; ++i) Put(call.Adds(2), dgamma[i], call.outputs[2].as<T>()[i]);
  return absl::OkStatus();
}

template <class T>
absl::Status Softmax(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const Rows rows(call.inputs[0]);
  std::vector<T> e(rows.width);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.inputs[0].as<T>() + r * rows.width;
    T* y = call.outputs[0].as<T>() + r * rows.width;
    const T top = *std::max_element(x, x + rows.width);
    T sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += e[i] = std::exp(x[i] - top);
    for (int64_t i = 0; i < rows.width; ++i) Put(call.Adds(0), e[i] / sum, y[i]);
  }
  return absl::OkStatus();
}

// dy, y -> dx = y * (dy - sum(dy * y))
template <class T>
absl::Status SoftmaxGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const Rows rows(call.inputs[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* dy = call.inputs[0].as<T>() + r * rows.width;
    const T* y = call.inputs[1].as<T>() + r * rows.width;
    T* dx = call.outputs[0].as<T>() + r * rows.width;
    T dot = 0;
    for (int64_t i = 0; i < rows.width; ++i) dot += dy[i] * y[i];
    for (int64_t i = 0; i < rows.width; ++i) Put(call.Adds(0), y[i] * (dy[i] - dot), dx[i]);
  }
  return absl::OkStatus();
}

template <class T>
absl::Status LogSoftmax(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 1, 1, 1));
  const Rows rows(call.inputs[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = call.inputs[0].as<T>() + r * rows.width;
    T* y = call.outputs[0].as<T>() + r * rows.width;
    const T top = *std::max_element(x, x + rows.width);
    T sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += std::exp(x[i] - top);
    const T log_sum = top + std::log(sum);
    for (int64_t i = 0; i < rows.width; ++i) Put(call.Adds(0), x[i] - log_sum, y[i]);
  }
  return absl::OkStatus();
}

// dy, y -> dx = dy - exp(y) * sum(dy)
template <class T>
absl::Status LogSoftmaxGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  const Rows rows(call.inputs[0]);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* dy = call.inputs[0].as<T>() + r * rows.width;
    const T* y = call.inputs[1].as<T>() + r * rows.width;
    T* dx = call.outputs[0].as<T>() + r * rows.width;
    T sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += dy[i];
    for (int64_t i = 0; i < rows.width; ++i) Put(call.Adds(0), dy[i] - std::exp(y[i]) * sum, dx[i]);
  }
  return absl::OkStatus();
}

template <class T>
absl::Status LayerNorm(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 1));
  Normalize<T>(call, true);
  return absl::OkStatus();
}

template <class T>
absl::Status LayerNormGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 3));
  NormalizeGrad<T>(call, true);
  return absl::OkStatus();
}

template <class T>
absl::Status RmsNorm(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 2, 2, 1));
  Normalize<T>(call, false);
  return absl::OkStatus();
}

template <class T>
absl::Status RmsNormGrad(const KernelCall& call) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckCounts(call, 3, 3, 2));
  NormalizeGrad<T>(call, false);
  return absl::OkStatus();
}

#define MESHWRIGHT_INSTANTIATE(T)                             \
  template absl::Status Softmax<T>(const KernelCall&);        \
  template absl::Status SoftmaxGrad<T>(const KernelCall&);    \
  template absl::Status LogSoftmax<T>(const KernelCall&);     \
  template absl::Status LogSoftmaxGrad<T>(const KernelCall&); \
  template absl::Status LayerNorm<T>(const KernelCall&);      \
  template absl::Status LayerNormGrad<T>(const KernelCall&);  \
  template absl::Status RmsNorm<T>(const KernelCall&);        \
  template absl::Status RmsNormGrad<T>(const KernelCall&);    \
  template absl::Status NormHeads<T>(const KernelCall&);      \
  template absl::Status NormHeadsGrad<T>(const KernelCall&);  \
  template absl::Status GatedRmsNorm<T>(const KernelCall&);   \
  template absl::Status GatedRmsNormGrad<T>(const KernelCall&);
MESHWRIGHT_INSTANTIATE(float)
MESHWRIGHT_INSTANTIATE(double)
#undef MESHWRIGHT_INSTANTIATE

}  // namespace meshwright::host
