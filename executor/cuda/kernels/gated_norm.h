// The norm behind linear attention and state spaces (ir/op_list.h, GatedRMSNorm), and its gradient. See kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_GATED_NORM_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_GATED_NORM_H_

#include "executor/cuda/kernels/rows.h"

namespace meshwright::cuda {

// silu(z) and its derivative.
template <class A>
struct SiluOf {
  A value, slope;
  MESHWRIGHT_DEVICE explicit SiluOf(A z) {
    using std::exp;
    const A s = A(1) / (A(1) + exp(-z));
    value = z * s;
    slope = s * (A(1) + z * (A(1) - s));
  }
};

// A block takes a row. With n = u / root(mean square of u + epsilon), of u = x, or of u = x silu(z) with `first`:
// y = n gamma silu(z), without the gate with `first`; or dx and dz, and for GatedNormParameters the inverse of each
// row's root, as doubles.
struct GatedNorm {
  static constexpr int kBlocksPerSm = 2;
  bool gradient = false, first = false, add = false, add_dz = false, vectors = false;
  double epsilon = 1e-5;
  int64_t rows = 0, width = 0, gammas = 1;
  Ref x, z, gamma, y, dy, dx, dz;
  double* inverses = nullptr;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::sqrt;
    for (int64_t r = ctx.block(); r < rows; r += ctx.blocks()) {
      const int64_t row = r * width, of_gamma = r % gammas * width;
      A squares = A(0);
      OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
        A u[some.value];
        Normed(row + i, u);
        for (const A value : u) squares += value * value;
      });
      const A inverse = A(1) / sqrt(ctx.Sum(squares) / static_cast<A>(width) + static_cast<A>(epsilon));
      if (gradient) {
        Gradient(ctx, row, of_gamma, inverse);
        if (ctx.thread() == 0) inverses[r] = static_cast<double>(inverse);
        continue;
      }
      OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
        constexpr int N = some.value;
        A u[N], gate[N], by[N];
        Normed(row + i, u);
        LoadSome(gamma, of_gamma + i, by);
        LoadSome(z, row + i, gate);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) u[j] *= inverse * by[j] * (first ? A(1) : SiluOf<A>(gate[j]).value);
        PutSome(y, row + i, u, add);
      });
    }
  }

 private:
  template <class A, int N>
  MESHWRIGHT_DEVICE void Normed(int64_t at, A (&u)[N]) const {
    LoadSome(x, at, u);
    if (!first) return;
    A gate[N];
    LoadSome(z, at, gate);
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) u[j] *= SiluOf<A>(gate[j]).value;
  }
  // Of the elements from `at` on: n, and dy gamma, whose elements begin at `of_gamma`.
  template <class A, int N>
  MESHWRIGHT_DEVICE void Both(int64_t at, int64_t of_gamma, A inverse, A (&n)[N], A (&g)[N]) const {
    A by[N];
    Normed(at, n);
    LoadSome(dy, at, g);
    LoadSome(gamma, of_gamma, by);
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) {
      n[j] *= inverse;
      g[j] *= by[j];
    }
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Gradient(Ctx& ctx, int64_t row, int64_t of_gamma, A inverse) const {
    A dot = A(0);
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      A n[N], g[N], gate[N];
      Both(row + i, of_gamma + i, inverse, n, g);
      LoadSome(z, row + i, gate);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) dot += g[j] * n[j] * (first ? A(1) : SiluOf<A>(gate[j]).value);
    });
    const A mean = ctx.Sum(dot) / static_cast<A>(width);
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      A n[N], g[N], gate[N], value[N];
      Both(row + i, of_gamma + i, inverse, n, g);
      LoadSome(z, row + i, gate);
      LoadSome(x, row + i, value);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const SiluOf<A> silu(gate[j]);
        const A du = inverse * (g[j] * (first ? A(1) : silu.value) - n[j] * mean);
        value[j] = (first ? du * value[j] : g[j] * n[j]) * silu.slope;
        n[j] = first ? du * silu.value : du;
      }
      PutSome(dx, row + i, n, add);
      PutSome(dz, row + i, value, add_dz);
    });
  }
};

// dgamma of `parts` parts of the rows each, (parts, gammas, width), to be reduced: a thread for one or eight columns of
// a row of gamma of a part.
struct GatedNormParameters {
  bool vectors = false;
  int64_t rows = 0, width = 0, gammas = 1, parts = 1;
  Ref dy, x, z, dgamma;
  const double* inverses = nullptr;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t each = rows / parts, of_part = gammas * width;  // of rows, a multiple of gammas
    OverRange<A>(First(ctx), Step(ctx), of_part * parts, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      const int64_t begin = i / of_part * each, column = i % width;
      A sum[N] = {};
      for (int64_t r = begin + i % of_part / width; r < begin + each; r += gammas) {
        const int64_t at = r * width + column;
        const auto got_dy = Fetch<A, N>(dy, at), got_x = Fetch<A, N>(x, at), got_z = Fetch<A, N>(z, at);
        A g[N], value[N], gate[N];
        Unpack(dy.type, got_dy, g);
        Unpack(x.type, got_x, value);
        Unpack(z.type, got_z, gate);
        const A inverse = static_cast<A>(inverses[r]);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) sum[j] += g[j] * value[j] * inverse * SiluOf<A>(gate[j]).value;
      }
      PutSome(dgamma, i, sum);
    });
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_GATED_NORM_H_
