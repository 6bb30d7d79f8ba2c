// Row-major matrix product by the BLAS library, for float and double.
#ifndef MESHWRIGHT_EXECUTOR_HOST_BLAS_H_
#define MESHWRIGHT_EXECUTOR_HOST_BLAS_H_

#include <cblas.h>

#include <cstdint>

namespace meshwright::host {

// A matrix inside a larger array: rows `leading` elements apart; `transposed`: stored as its transpose.
template <class T>
struct Matrix {
  T* data;
  int64_t leading;
  bool transposed = false;
};

// c = alpha * a b + beta * c, where a is m x k, b is k x n and c is m x n (never transposed). With beta = 0, c is only
// written. Extents must fit 31 bits.
template <class T>
void Gemm(int64_t m, int64_t n, int64_t k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  const CBLAS_TRANSPOSE ta = a.transposed ? CblasTrans : CblasNoTrans;
  const CBLAS_TRANSPOSE tb = b.transposed ? CblasTrans : CblasNoTrans;
  const auto i = [](int64_t x) { return static_cast<blasint>(x); };
  if constexpr (sizeof(T) == sizeof(double)) {
    cblas_dgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a.data, i(a.leading), b.data, i(b.leading), beta,
                c.data, i(c.leading));
  } else {
    cblas_sgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a.data, i(a.leading), b.data, i(b.leading), beta,
                c.data, i(c.leading));
  }
}

// Ranks are threads or processes of their own: the library must not start more. To be called once, before the ranks.
inline void UseOneBlasThread() { openblas_set_num_threads(1); }

}  // namespace meshwright::host

#endif  // MESHWRIGHT_EXECUTOR_HOST_BLAS_H_
