// Bodies that reduce: rows of the last dim (softmax, norms, losses), sums over labels, sums of everything. See
// kernels/simt.h. A block takes a row; sums of everything are kept in double.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ROWS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ROWS_H_

#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/vectors.h"

namespace meshwright::cuda {

enum class ReduceKind : uint8_t { kSum, kMax, kMin };

// out (+)= scale * sum of x over `reduced`, for every point of `kept`. Operands of `kept`: out, x; of `reduced`: x. A
// thread per point where neighbours of `kept` are neighbours of x, else a block per point. Or the largest or smallest,
// with what is there where it adds.
struct Reduce {
  ReduceKind kind = ReduceKind::kSum;
  bool add = false, by_thread = false, vectors = false;  // vectors: with by_thread
  double scale = 1;
  Ref x, out;
  Places kept, reduced;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    if (by_thread) {
      return OverRange<A>(First(ctx), Step(ctx), kept.total, vectors, [&](auto some, int64_t p) {
        int64_t at[2];
        kept.At(p, at);
        A result[some.value];
        Combine(at[1], 0, 1, result);
        Finish(at[0], result);
      });
    }
    for (int64_t p = ctx.block(); p < kept.total; p += ctx.blocks()) {
      int64_t at[2];
      kept.At(p, at);
      A result[1];
      Combine(at[1], ctx.thread(), ctx.threads(), result);
      result[0] = kind == ReduceKind::kSum ? ctx.Sum(result[0]) : ctx.Max(result[0]);
      if (ctx.thread() == 0) Finish(at[0], result);
    }
  }

 private:
  template <class A>
  MESHWRIGHT_DEVICE A Sign() const {
    return kind == ReduceKind::kMin ? A(-1) : A(1);  // the smallest is the largest of the negatives
  }
  template <class A, int N>
  MESHWRIGHT_DEVICE void Combine(int64_t from, int64_t first, int64_t step, A (&result)[N]) const {
    const A sign = Sign<A>();
    for (A& r : result) r = kind == ReduceKind::kSum ? A(0) : static_cast<A>(-INFINITY);
    for (int64_t i = first; i < reduced.total; i += step) {
      int64_t in[1];
      reduced.At(i, in);
      A value[N];
      LoadSome(x, from + in[0], value);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const A v = sign * value[j];
        result[j] = kind == ReduceKind::kSum ? result[j] + v : v > result[j] ? v : result[j];
      }
    }
  }
  template <class A, int N>
  MESHWRIGHT_DEVICE void Finish(int64_t to, A (&result)[N]) const {
    const A sign = Sign<A>();
    if (kind == ReduceKind::kSum) {
      for (A& r : result) r *= static_cast<A>(scale);
      return PutSome(out, to, result, add);
    }
    A before[N];
    if (add) LoadSome(out, to, before);
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) result[j] = sign * (add && sign * before[j] > result[j] ? sign * before[j] : result[j]);
    PutSome(out, to, result);
  }
};

// Calls f(N, i) for the elements of a row that this thread of its block takes.
template <class A, class Ctx, class F>
MESHWRIGHT_DEVICE void OverRow(Ctx& ctx, int64_t width, bool vectors, const F& f) {
  OverRange<A>(ctx.thread(), ctx.threads(), width, vectors, f);
}

enum class RowKind : uint8_t {
  kSoftmax,           // x -> y
  kSoftmaxGrad,       // dy, y -> dx
  kLogSoftmax,        // x -> y
  kLogSoftmaxGrad,    // dy, y -> dx
  kMax,               // logits -> top
  kExpSumAndPick,     // logits, top, labels -> sum, pick
  kPartials,          // logits, labels -> top, sum, pick: of each of `parts` parts of the row
  kJoinPartials,      // tops, sums, picks, the largest of all (in `factor`, its place that of labels) -> sum, pick
  kPartialsGrad,      // logits, top, sum, labels -> dlogits, times factor
  kCrossEntropy,      // logits, labels -> loss of the row
  kCrossEntropyGrad,  // logits, labels -> dlogits, times factor
};

// Operands of `places`, one row a point: a, b, c or out3, labels, out, out2, as far as the kind has them; a, and what
// has its shape, are contiguous along the row. Logits are read once for what is made of a row, and once more for its
// gradient, which may be written over them: each thread reads its elements before it writes them.
struct RowOp {
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kAhead = 4;  // vectors of a thread on their way: 32 KiB an SM, enough for 3.35 TB/s and 1 us
  RowKind kind = RowKind::kSoftmax;
  bool add = false, add2 = false, add3 = false, vectors = false;
  int64_t width = 0, begin = 0, whole = 0;  // classes here (of a part), the number of the first, of all ranks
  int64_t parts = 1;
  double scale = 1;
  Ref a, b, c, factor, out, out2, out3;
  const int32_t* labels = nullptr;
  Places places;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    int64_t at[6];
    if (kind == RowKind::kJoinPartials) {  // of a few parts: a thread a row
      for (int64_t p = First(ctx); p < places.total; p += Step(ctx)) {
        places.At(p, at);
        Join<A>(at);
      }
      return;
    }
    for (int64_t p = ctx.block(); p < places.total; p += ctx.blocks()) {
      places.At(p, at);
      Row<A>(ctx, at, p % parts);
    }
  }

 private:
  // Calls f(elements of a, the number of the first) for those of a row that this thread of its block takes, eight or
  // one at a time. Before the row's first multiple of 16 bytes, and behind its last, they go one by one: widths may be
  // odd. `to`: the place of a row that f writes, in step with this one or not.
  template <class A, class Ctx, class F>
  MESHWRIGHT_DEVICE void OverA(Ctx& ctx, int64_t row, int64_t to, const F& f) const {
    int64_t first = 0, in_vectors = 0;
    if constexpr (std::is_same_v<A, float>) {
      if (vectors && (to - row) % kVector == 0) {
        first = (kVector - row % kVector) % kVector;
        const int64_t count = width > first ? (width - first) / kVector : 0, step = ctx.threads();
        in_vectors = count * kVector;
        for (int64_t v = ctx.thread(); v < count; v += kAhead * step) {
          Some<A, kVector> got[kAhead];
          MESHWRIGHT_UNROLL
          for (int k = 0; k < kAhead; ++k) {
            if (v + k * step < count) got[k] = Fetch<A, kVector>(a, row + first + (v + k * step) * kVector);
          }
          MESHWRIGHT_UNROLL
          for (int k = 0; k < kAhead; ++k) {
            if (v + k * step >= count) continue;
            A x[kVector];
            Unpack(a.type, got[k], x);
            f(x, first + (v + k * step) * kVector);
          }
        }
      }
    }
    for (int64_t i = ctx.thread(); i < width - in_vectors; i += ctx.threads()) {
      const int64_t at = i < first ? i : i + in_vectors;
      A x[1] = {Load<A>(a, row + at)};
      f(x, at);
    }
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE A Top(Ctx& ctx, int64_t row) const {
    A top = static_cast<A>(-INFINITY);
    OverA<A>(ctx, row, row, [&](auto& x, int64_t) {
      for (const A value : x) top = value > top || value != value ? value : top;
    });
    return ctx.Max(top);
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE A ExpSum(Ctx& ctx, int64_t row, A top) const {
    using std::exp;
    A sum = A(0);
    OverA<A>(ctx, row, row, [&](auto& x, int64_t) {
      for (const A value : x) sum += exp(value - top);
    });
    return ctx.Sum(sum);
  }
  // The largest of a row, and the sum of exponentials less that, in one pass: when something larger comes, what has
  // been summed up is brought to it. 0 where all are -infinity.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Statistics(Ctx& ctx, int64_t row, A& top, A& sum) const {
    using std::exp;
    const A least = static_cast<A>(-INFINITY);
    A mine = least, sum_of_mine = A(0);
    OverA<A>(ctx, row, row, [&](auto& x, int64_t) {
      A most = least;
      for (const A value : x) most = value > most ? value : most;
      if (most > mine) {
        sum_of_mine *= exp(mine - most);
        mine = most;
      }
      const A base = mine == least ? A(0) : mine;
      for (const A value : x) sum_of_mine += exp(value - base);
    });
    top = ctx.Max(mine);
    sum = ctx.Sum(mine == top ? sum_of_mine : sum_of_mine * exp(mine - top));
  }

  // out (+)= f(element of a, its number) along the row; or of a and b.
  template <class A, class Ctx, class F>
  MESHWRIGHT_DEVICE void Each(Ctx& ctx, const int64_t (&at)[6], const F& f) const {
    OverA<A>(ctx, at[0], at[4], [&](auto& x, int64_t i) {
      int64_t number = i;
      for (A& value : x) value = f(value, number++);
      PutSome(out, at[4] + i, x, add);
    });
  }
  template <class A, class Ctx, class F>
  MESHWRIGHT_DEVICE void EachOfTwo(Ctx& ctx, const int64_t (&at)[6], const F& f) const {
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      const auto got_a = Fetch<A, N>(a, at[0] + i), got_b = Fetch<A, N>(b, at[1] + i);
      A x[N], y[N];
      Unpack(a.type, got_a, x);
      Unpack(b.type, got_b, y);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) x[j] = f(x[j], y[j]);
      PutSome(out, at[4] + i, x, add);
    });
  }
  template <class A>
  MESHWRIGHT_DEVICE void Join(const int64_t (&at)[6]) const {
    using std::exp;
    const A top = Load<A>(factor, at[3]);
    A sum = A(0), pick = A(0);
    for (int64_t i = 0; i < width; ++i) {
      sum += Load<A>(b, at[1] + i) * exp(Load<A>(a, at[0] + i) - top);
      pick += Load<A>(c, at[2] + i);
    }
    Put(out, at[4], sum, add);
    Put(out2, at[5], pick, add2);
  }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Row(Ctx& ctx, const int64_t (&at)[6], int64_t part) const {
    using std::exp;
    using std::log;
    const bool has_label = labels != nullptr;
    const int64_t id = has_label ? labels[at[3]] : 0, label = id - begin - part * width;
    const A wrong = has_label && (id < 0 || id >= whole) ? static_cast<A>(NAN) : A(0);
    const bool leads = ctx.thread() == 0;
    A top = A(0), sum = A(0), pick = wrong;
    const bool picks = kind == RowKind::kPartials || kind == RowKind::kCrossEntropy || kind == RowKind::kExpSumAndPick;
    if (picks && leads && label >= 0 && label < width) pick += Load<A>(a, at[0] + label);
    if (kind == RowKind::kSoftmax || kind == RowKind::kLogSoftmax || kind == RowKind::kPartials ||
        kind == RowKind::kCrossEntropy || kind == RowKind::kCrossEntropyGrad) {
      Statistics(ctx, at[0], top, sum);
    }
    switch (kind) {
      case RowKind::kSoftmax:
        Exponentials(ctx, at, top, A(1) / sum, int64_t{-1}, A(0));
        break;
      case RowKind::kSoftmaxGrad: {
        A dot = A(0);
        OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
          A x[some.value], y[some.value];
          LoadSome(a, at[0] + i, x);
          LoadSome(b, at[1] + i, y);
          for (int j = 0; j < some.value; ++j) dot += x[j] * y[j];
        });
        dot = ctx.Sum(dot);
        EachOfTwo<A>(ctx, at, [&](A dy, A y) { return y * (dy - dot); });
        break;
      }
      case RowKind::kLogSoftmax: {
        const A log_sum = top + log(sum);
        Each<A>(ctx, at, [&](A x, int64_t) { return x - log_sum; });
        break;
      }
      case RowKind::kLogSoftmaxGrad: {
        A total = A(0);
        OverA<A>(ctx, at[0], at[0], [&](auto& x, int64_t) {
          for (const A value : x) total += value;
        });
        total = ctx.Sum(total);
        EachOfTwo<A>(ctx, at, [&](A dy, A y) { return dy - exp(y) * total; });
        break;
      }
      case RowKind::kMax: {
        top = Top<A>(ctx, at[0]);
        if (!leads) break;
        const A before = add ? Load<A>(out, at[4]) : top;
        Store(out, at[4], before > top ? before : top);
        break;
      }
      case RowKind::kExpSumAndPick:
        sum = ExpSum(ctx, at[0], Load<A>(b, at[1]));
        if (!leads) break;
        Put(out, at[4], sum, add);
        Put(out2, at[5], pick, add2);
        break;
      case RowKind::kPartials:
        if (!leads) break;
        Put(out, at[4], top, add);
        Put(out2, at[5], sum, add2);
        Put(out3, at[2], pick, add3);
        break;
      case RowKind::kPartialsGrad:
      case RowKind::kCrossEntropyGrad: {
        const bool given = kind == RowKind::kPartialsGrad;
        const A f = static_cast<A>(scale) * Load<A>(factor, 0);
        if (given) top = Load<A>(b, at[1]);
        if (given) sum = Load<A>(c, at[2]);
        Exponentials(ctx, at, top, f / sum + wrong, label, f);
        break;
      }
      case RowKind::kCrossEntropy:
        if (leads) Store(out, at[4], top + log(sum) - pick);
        break;
      case RowKind::kJoinPartials:
        break;  // no row of logits: Join
    }
  }
  // out (+)= share * exp(x - top), less `f` at the label.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Exponentials(Ctx& ctx, const int64_t (&at)[6], A top, A share, int64_t label, A f) const {
    using std::exp;
    Each<A>(ctx, at, [&](A x, int64_t i) { return share * exp(x - top) - (i == label ? f : A(0)); });
  }
};

// Which row of gamma a head has of a group of `heads`: queries the first, the key the second, the value none. Without
// heads there is one row.
MESHWRIGHT_DEVICE int64_t GammaOf(int64_t row, int64_t heads) {  // -1: none
  const int64_t r = heads > 0 ? row % heads : 0;
  return heads == 0 || r < heads - 2 ? 0 : r == heads - 2 ? 1 : -1;
}

// y = (x - mean) * inverse * gamma + beta, with `inverse` 1 / sqrt(variance + epsilon), or without centring mean 0 and
// 1 / sqrt(mean square + epsilon); or dx, from y = dy, with the statistics kept as pairs of doubles. What is read more
// than once of a row comes from the L1 cache.
//
// x may be made first, as the sum of `terms`, and dx may be added to one term. Terms are of x's shape, or one row.
//
// With `heads` rows are heads, so many to a group: queries, which have the first row of gamma, a key, which has the
// second, and a value, which stays as it is.
struct Norm {
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kMostTerms = 3;
  bool gradient = false, centred = true, add = false, vectors = false;
  double epsilon = 1e-5;
  int64_t rows = 0, width = 0, heads = 0;
  Ref x, gamma, beta, y, dx;
  double* statistics = nullptr;
  int32_t terms = 0;
  Ref term[kMostTerms];
  bool one_row[kMostTerms] = {};

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t r = ctx.block(); r < rows; r += ctx.blocks()) {
      const int64_t row = r * width, which = GammaOf(r, heads);
      if (which < 0) {
        Copy<A>(ctx, row);
        continue;
      }
      if (terms > 0 && !gradient) AddUp<A>(ctx, row);
      A mean, inverse;
      Statistics(ctx, row, mean, inverse);
      if (gradient) {
        Gradient(ctx, row, which * width, mean, inverse);
        if (ctx.thread() != 0) continue;
        statistics[2 * r] = static_cast<double>(mean);
        statistics[2 * r + 1] = static_cast<double>(inverse);
        continue;
      }
      OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
        constexpr int N = some.value;
        A value[N], by[N], plus[N] = {};
        LoadSome(x, row + i, value);
        LoadSome(gamma, which * width + i, by);
        if (centred) LoadSome(beta, i, plus);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) value[j] = (value[j] - mean) * inverse * by[j] + plus[j];
        PutSome(y, row + i, value, add);
      });
    }
  }

 private:
  // A row as it is, of x or of its gradient.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Copy(Ctx& ctx, int64_t row) const {
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      A value[some.value];
      LoadSome(gradient ? y : x, row + i, value);
      PutSome(gradient ? dx : y, row + i, value, add);
    });
  }
  // Each thread makes the elements of the row that it reads afterwards.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void AddUp(Ctx& ctx, int64_t row) const {
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      Some<A, N> got[kMostTerms];
      MESHWRIGHT_UNROLL
      for (int t = 0; t < kMostTerms; ++t) {
        if (t < terms) got[t] = Fetch<A, N>(term[t], (one_row[t] ? 0 : row) + i);
      }
      A sum[N] = {};
      MESHWRIGHT_UNROLL
      for (int t = 0; t < kMostTerms; ++t) {
        if (t >= terms) continue;
        A value[N];
        Unpack(term[t].type, got[t], value);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) sum[j] += value[j];
      }
      PutSome(x, row + i, sum);
    });
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Statistics(Ctx& ctx, int64_t row, A& mean, A& inverse) const {
    using std::sqrt;
    mean = A(0);
    if (centred) {
      A sum = A(0);
      OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
        A value[some.value];
        LoadSome(x, row + i, value);
        for (const A v : value) sum += v;
      });
      mean = ctx.Sum(sum) / static_cast<A>(width);
    }
    A squares = A(0);
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      A value[some.value];
      LoadSome(x, row + i, value);
      for (const A v : value) squares += (v - mean) * (v - mean);
    });
    inverse = A(1) / sqrt(ctx.Sum(squares) / static_cast<A>(width) + static_cast<A>(epsilon));
  }

  // Of the elements from i on: x normalized, and dy * gamma, whose row begins at `at`.
  template <class A, int N>
  MESHWRIGHT_DEVICE void Both(int64_t row, int64_t i, int64_t at, A mean, A inverse, A (&n)[N], A (&g)[N]) const {
    const auto got_x = Fetch<A, N>(x, row + i), got_y = Fetch<A, N>(y, row + i), got_gamma = Fetch<A, N>(gamma, at + i);
    A by[N];
    Unpack(x.type, got_x, n);
    Unpack(y.type, got_y, g);
    Unpack(gamma.type, got_gamma, by);
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) {
      n[j] = (n[j] - mean) * inverse;
      g[j] *= by[j];
    }
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Gradient(Ctx& ctx, int64_t row, int64_t at, A mean, A inverse) const {
    A sum_g = A(0), sum_gn = A(0);
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      A n[some.value], g[some.value];
      Both(row, i, at, mean, inverse, n, g);
      for (int j = 0; j < some.value; ++j) {
        sum_g += g[j];
        sum_gn += g[j] * n[j];
      }
    });
    if (centred) sum_g = ctx.Sum(sum_g);
    const A mean_g = centred ? sum_g / static_cast<A>(width) : A(0);
    const A mean_gn = ctx.Sum(sum_gn) / static_cast<A>(width);
    OverRow<A>(ctx, width, vectors, [&](auto some, int64_t i) {
      A n[some.value], g[some.value];
      Both(row, i, at, mean, inverse, n, g);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < some.value; ++j) n[j] = inverse * (g[j] - mean_g - n[j] * mean_gn);
      if (terms > 0) {
        A value[some.value];
        LoadSome(term[0], (one_row[0] ? 0 : row) + i, value);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < some.value; ++j) n[j] += value[j];
      }
      PutSome(dx, row + i, n, add);
    });
  }
};

// dgamma = sum over rows of dy * n, dbeta = sum over rows of dy, of `parts` parts of the rows each: a thread for one or
// eight columns of a part. Results are (parts, width), of heads (parts, 2, width), to be reduced.
struct NormParameters {
  bool centred = true, vectors = false;
  int64_t rows = 0, width = 0, parts = 1, heads = 0;
  Ref dy, x, dgamma, dbeta;
  const double* statistics = nullptr;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t each = rows / parts, of_part = heads > 0 ? 2 * width : width;
    OverRange<A>(First(ctx), Step(ctx), of_part * parts, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      const int64_t first = i / of_part * each, column = i % width, which = i % of_part / width;
      A gamma_sum[N] = {}, beta_sum[N] = {};
      for (int64_t r = first; r < first + each; ++r) {
        if (GammaOf(r, heads) != which) continue;
        const auto got_dy = Fetch<A, N>(dy, r * width + column), got_x = Fetch<A, N>(x, r * width + column);
        const A mean = static_cast<A>(statistics[2 * r]), inverse = static_cast<A>(statistics[2 * r + 1]);
        A g[N], value[N];
        Unpack(dy.type, got_dy, g);
        Unpack(x.type, got_x, value);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) {
          gamma_sum[j] += g[j] * (value[j] - mean) * inverse;
          beta_sum[j] += g[j];
        }
      }
      PutSome(dgamma, i, gamma_sum);
      if (centred) PutSome(dbeta, i, beta_sum);
    });
  }
};

enum class SumKind : uint8_t { kValues, kSquaredErrors, kLogLoss };  // a; (a - b)^2; log(b) + a - c

// One sum a block, in double, into `partial`; with one block, the sum of all into `out`.
struct SumAll {
  SumKind kind = SumKind::kValues;
  bool add = false, vectors = false;
  double scale = 1;
  Ref a, b, c, out;
  double* partial = nullptr;  // null: this is the last
  Places places;              // operands: a, b, c

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::log;
    double sum = 0;
    OverRange<A>(First(ctx), Step(ctx), places.total, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      using V = std::conditional_t<N == 1, double, float>;  // one by one also what is of double in a call that is not
      int64_t at[3];
      places.At(i, at);
      V of_a[N], of_b[N] = {}, of_c[N] = {};
      LoadSome(a, at[0], of_a);
      if (kind == SumKind::kSquaredErrors || kind == SumKind::kLogLoss) LoadSome(b, at[1], of_b);
      if (kind == SumKind::kLogLoss) LoadSome(c, at[2], of_c);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const double value = of_a[j], second = of_b[j];
        if (kind == SumKind::kValues) sum += value;
        if (kind == SumKind::kSquaredErrors) sum += (value - second) * (value - second);
        if (kind == SumKind::kLogLoss) sum += log(second) + value - static_cast<double>(of_c[j]);
      }
    });
    sum = ctx.Sum(sum);
    if (ctx.thread() != 0) return;
    if (partial != nullptr) {
      partial[ctx.block()] = sum;
    } else {
      Put(out, 0, static_cast<A>(sum * scale), add);
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ROWS_H_
