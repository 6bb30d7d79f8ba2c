// Bodies that look at one element of each operand at a time, or move elements. See kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_POINTWISE_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_POINTWISE_H_

#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/vectors.h"

namespace meshwright::cuda {

enum class PointOp : uint8_t { kCopy, kAdd, kSub, kMul, kDiv, kEqual, kActivation, kActivationGrad, kMseGrad };
enum class Activation : uint8_t { kRelu, kSquaredRelu, kGelu, kTanh, kSigmoid, kSilu, kSqrt };

template <class A>
MESHWRIGHT_DEVICE A SigmoidOf(A x) {
  using std::exp;
  return A(1) / (A(1) + exp(-x));
}

// As executor/host/elementwise.cc has them.
template <class A>
MESHWRIGHT_DEVICE A Activate(Activation f, A x) {
  using std::sqrt;
  using std::tanh;
  switch (f) {
    case Activation::kRelu:
      return x > A(0) ? x : A(0);
    case Activation::kSquaredRelu:
      return x > A(0) ? x * x : A(0);
    case Activation::kTanh:
      return tanh(x);
    case Activation::kSqrt:
      return sqrt(x);
    case Activation::kSigmoid:
      return SigmoidOf(x);
    case Activation::kSilu:
      return x * SigmoidOf(x);
    case Activation::kGelu:
      return A(0.5) * x * (A(1) + tanh(A(0.79788456080286535588) * (x + A(0.044715) * x * x * x)));
  }
  return A(0);
}
template <class A>
MESHWRIGHT_DEVICE A Derivative(Activation f, A x) {
  using std::sqrt;
  using std::tanh;
  switch (f) {
    case Activation::kRelu:
      return x > A(0) ? A(1) : A(0);
    case Activation::kSquaredRelu:
      return x > A(0) ? A(2) * x : A(0);
    case Activation::kSqrt:
      return A(0.5) / sqrt(x);
    case Activation::kTanh: {
      const A t = tanh(x);
      return A(1) - t * t;
    }
    case Activation::kSigmoid: {
      const A s = SigmoidOf(x);
      return s * (A(1) - s);
    }
    case Activation::kSilu: {
      const A s = SigmoidOf(x);
      return s * (A(1) + x * (A(1) - s));
    }
    case Activation::kGelu: {
      const A scale = A(0.79788456080286535588), cubic = A(0.044715);
      const A t = tanh(scale * (x + cubic * x * x * x));
      return A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * scale * (A(1) + A(3) * cubic * x * x);
    }
  }
  return A(0);
}

// Calls `use` with the function as a constant.
template <class F>
MESHWRIGHT_DEVICE void WithConstant(Activation f, const F& use) {
  switch (f) {
    case Activation::kRelu:
      return use(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kSquaredRelu:
      return use(std::integral_constant<Activation, Activation::kSquaredRelu>());
    case Activation::kGelu:
      return use(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kTanh:
      return use(std::integral_constant<Activation, Activation::kTanh>());
    case Activation::kSigmoid:
      return use(std::integral_constant<Activation, Activation::kSigmoid>());
    case Activation::kSilu:
      return use(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kSqrt:
      return use(std::integral_constant<Activation, Activation::kSqrt>());
  }
}

// y (+)= f(x[0], x[1], x[2]); operand 0 of `places` is y.
struct Pointwise {
  static constexpr int kBlocksPerSm = 3;
  PointOp op = PointOp::kCopy;
  Activation activation = Activation::kRelu;
  int32_t inputs = 1;
  bool add = false, vectors = false;
  double scale = 1;  // of copies, fills and kMseGrad
  Ref y, x[3];
  Ref factor;  // kMseGrad: a scalar
  Places places;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const A s = static_cast<A>(op == PointOp::kMseGrad ? 2 * scale : scale);
    const A by = op == PointOp::kMseGrad ? s * Load<A>(factor, 0) : s;
    OverRange<A>(First(ctx), Step(ctx), places.total, vectors,
                 [&](auto some, int64_t i) { Points<A, some.value>(i, by); });
  }

 private:
  template <class A, int N>
  MESHWRIGHT_DEVICE void Points(int64_t i, A by) const {
    int64_t at[4];
    places.At(i, at);
    Some<A, N> got[3];
    A v[3][N] = {}, value[N];
    MESHWRIGHT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k < inputs) got[k] = Fetch<A, N>(x[k], at[k + 1], places.Spreads(k + 1));
    }
    MESHWRIGHT_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (k < inputs) Unpack(x[k].type, got[k], v[k]);
    }
    const auto each = [&](const auto& f) {
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) value[j] = f(v[0][j], v[1][j], v[2][j]);
    };
    switch (op) {
      case PointOp::kCopy:
        each([&](A a, A, A) { return by * a; });
        break;
      case PointOp::kAdd:
        each([](A a, A b, A c) { return a + b + c; });
        break;
      case PointOp::kSub:
        each([](A a, A b, A) { return a - b; });
        break;
      case PointOp::kMul:
        each([](A a, A b, A) { return a * b; });
        break;
      case PointOp::kDiv:
        each([](A a, A b, A) { return a / b; });
        break;
      case PointOp::kEqual:
        each([](A a, A b, A) { return a == b ? A(1) : A(0); });
        break;
      case PointOp::kActivation:
        WithConstant(activation, [&](auto f) { each([&](A a, A b, A) { return Activate<A>(f.value, a + b); }); });
        break;
      case PointOp::kActivationGrad:
        WithConstant(activation,
                     [&](auto f) { each([&](A a, A b, A c) { return a * Derivative<A>(f.value, b + c); }); });
        break;
      case PointOp::kMseGrad:
        each([&](A a, A b, A) { return by * (a - b); });
        break;
    }
    PutSome(y, at[0], value, add);
  }
};

// to[...] = from[...], bytes as they are; operand 0 of `places` is `to`.
struct RawCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int32_t element = 4;  // bytes: 1, 2, 4, 8 or 16
  Places places;

  template <class T>
  MESHWRIGHT_DEVICE void CopyOne(const int64_t (&at)[2]) const {
    static_cast<T*>(to)[at[0]] = static_cast<const T*>(from)[at[1]];
  }
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t i = First(ctx); i < places.total; i += Step(ctx)) {
      int64_t at[2];
      places.At(i, at);
      if (element == 1) CopyOne<uint8_t>(at);
      if (element == 2) CopyOne<uint16_t>(at);
      if (element == 4) CopyOne<uint32_t>(at);
      if (element == 8) CopyOne<uint64_t>(at);
      if (element == 16) CopyOne<Piece>(at);
    }
  }
};

// y = f(x[0]) * x[half], or its gradient, f SiLU or GeLU; operands of `places`: y or dy, x, dx.
struct Gate {
  static constexpr int kBlocksPerSm = 4;
  bool gradient = false, add = false, vectors = false, gelu = false;
  Ref y, x, dx;
  int64_t half = 0;
  Places places;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    OverRange<A>(First(ctx), Step(ctx), places.total, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      int64_t at[3];
      places.At(i, at);
      const auto got_gate = Fetch<A, N>(x, at[1]), got_value = Fetch<A, N>(x, at[1] + half);
      A gate[N], value[N], g[N], of_gate[N], of_value[N];
      if (gradient) LoadSome(y, at[0], g);
      Unpack(x.type, got_gate, gate);
      Unpack(x.type, got_value, value);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const Activation f = gelu ? Activation::kGelu : Activation::kSilu;
        of_value[j] = Activate(f, gate[j]) * (gradient ? g[j] : value[j]);
        if (gradient) of_gate[j] = g[j] * value[j] * Derivative(f, gate[j]);
      }
      if (!gradient) return PutSome(y, at[0], of_value, add);
      PutSome(dx, at[2], of_gate, add);
      PutSome(dx, at[2] + half, of_value, add);
    });
  }
};

// Rows of a table by id. Ids outside the rows here give 0, those of no table NaN. Operands of `places`: out, ids, row.
struct GatherRows {
  bool add = false;
  Ref table, out;
  const int32_t* ids = nullptr;
  int64_t begin = 0, rows = 0, whole = 0, row_stride = 0;
  Places places;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t i = First(ctx); i < places.total; i += Step(ctx)) {
      int64_t at[3];
      places.At(i, at);
      const int64_t id = ids[at[1]], row = id - begin;
      A value = id < 0 || id >= whole ? static_cast<A>(NAN) : A(0);
      if (row >= 0 && row < rows) value = Load<A>(table, row * row_stride + at[2]);
      Put(out, at[0], value, add);
    }
  }
};

// table[id] (+)= sum of dy over the points with that id, in their order: a block per row. Operands of `points`: ids,
// dy; of `row`: table, dy.
struct GatherRowsGrad {
  bool add = false;
  Ref dy, table;
  const int32_t* ids = nullptr;
  int64_t begin = 0, rows = 0, row_stride = 0;
  Places points, row;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    int64_t* const hits = static_cast<int64_t*>(ctx.shared());  // one per thread: where dy has the row, or -1
    for (int64_t r = ctx.block(); r < rows; r += ctx.blocks()) {
      for (int64_t c = ctx.thread(); c < row.total && !add; c += ctx.threads()) {
        int64_t at[2];
        row.At(c, at);
        Store(table, r * row_stride + at[0], A(0));
      }
      for (int64_t first = 0; first < points.total; first += ctx.threads()) {
        int64_t at[2] = {0, 0};
        const int64_t p = first + ctx.thread();
        bool hit = false;
        if (p < points.total) {
          points.At(p, at);
          hit = ids[at[0]] - begin == r;
        }
        if (ctx.Sum(hit ? A(1) : A(0)) == A(0)) continue;
        hits[ctx.thread()] = hit ? at[1] : -1;
        ctx.Sync();
        for (int64_t c = ctx.thread(); c < row.total; c += ctx.threads()) {
          int64_t in_row[2];
          row.At(c, in_row);
          A sum = Load<A>(table, r * row_stride + in_row[0]);
          for (int t = 0; t < ctx.threads(); ++t) {
            if (hits[t] >= 0) sum += Load<A>(dy, hits[t] + in_row[1]);
          }
          Store(table, r * row_stride + in_row[0], sum);
        }
        ctx.Sync();
      }
    }
  }
};

// 1 at the place that an id names, else 0; NaN for ids of no class.
struct OneHot {
  bool add = false;
  Ref y;
  const int32_t* ids = nullptr;
  int64_t count = 0, classes = 0, begin = 0, whole = 0;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t i = First(ctx); i < count * classes; i += Step(ctx)) {
      const int64_t id = ids[i / classes];
      A value = id - begin == i % classes ? A(1) : A(0);
      if (id < 0 || id >= whole) value = static_cast<A>(NAN);
      Put(y, i, value, add);
    }
  }
};

MESHWRIGHT_DEVICE uint64_t MixBits(uint64_t x) {  // Mix of executor/random.h
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// x / (1 - rate), or 0 where the element's draw says so: Uniform of executor/random.h, of the stream `key`; and the
// summand, where there is one. The operand of `places` is the element's number in the whole, less `base`.
struct Dropout {
  static constexpr int kBlocksPerSm = 4;
  bool add = false, vectors = false;
  double rate = 0;
  uint64_t key = 0;
  const uint64_t* key_at = nullptr;  // where there is one, it counts
  int64_t base = 0;
  Ref x, summand, y;
  Places places;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const A kept = static_cast<A>(1 / (1 - rate));
    const uint64_t stream = key_at != nullptr ? *key_at : key;
    OverRange<A>(First(ctx), Step(ctx), places.total, vectors, [&](auto some, int64_t i) {
      int64_t at[1];
      places.At(i, at);
      constexpr int N = some.value;
      const auto got = Fetch<A, N>(x, i);
      Some<A, N> also;
      if (summand.data != nullptr) also = Fetch<A, N>(summand, i);
      A value[N], rest[N] = {};
      Unpack(x.type, got, value);
      if (summand.data != nullptr) Unpack(summand.type, also, rest);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const uint64_t bits = MixBits(stream + 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(base + at[0] + j) + 1));
        const double uniform = static_cast<double>(bits >> 11) * 0x1.0p-53;
        value[j] = value[j] * (uniform < rate ? A(0) : kept) + rest[j];
      }
      PutSome(y, i, value, add);
    });
  }
};

// Rotates pairs (x[i], x[i + d/2]) of each head but the last of its group, the value, which is no wider. x and y are
// (s, groups, heads of a group one behind the other). A thread has one or eight pairs of a position, whose angles it
// computes once, and goes over one of `parts` parts of the heads.
struct Rotary {
  bool add = false, vectors = false;
  double direction = 1, theta = 10000;
  Ref x, y;
  int64_t steps = 0, heads = 0, group = 0, d = 0, value_width = 0, turned = 0, parts = 1;  // turned: of a head
  SequenceOrder order;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::cos;
    using std::pow;
    using std::sin;
    const int64_t half = d / 2, each = heads / parts, stride = (group - 1) * d + value_width;
    OverRange<A>(First(ctx), Step(ctx), steps * parts * half, vectors, [&](auto some, int64_t i) {
      constexpr int N = some.value;
      const int64_t pair = i % half, part = i / half % parts, s = i / half / parts;
      // What is not turned comes in pairs, too.
      const bool turns = pair < turned / 2;
      const int64_t first = turns ? pair : pair + turned / 2, apart = (turns ? turned : d - turned) / 2;
      A c[N], z[N];
      const double step = -2.0 / static_cast<double>(turned), next = N == 1 ? 1 : pow(theta, step);
      double angle = static_cast<double>(order.PositionOf(s)) * pow(theta, step * static_cast<double>(pair));
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        c[j] = static_cast<A>(cos(angle));
        z[j] = static_cast<A>(direction * sin(angle));
        angle *= next;
      }
      for (int64_t head = part * each; head < (part + 1) * each; ++head) {
        const bool value = head % group == group - 1;
        if (value && pair >= value_width / 2) continue;
        const int64_t begin = (s * (heads / group) + head / group) * stride + head % group * d;
        const int64_t at = begin + (value ? pair : first), other = at + (value ? value_width / 2 : apart);
        const auto got_a = Fetch<A, N>(x, at), got_b = Fetch<A, N>(x, other);
        A a[N], b[N];
        Unpack(x.type, got_a, a);
        Unpack(x.type, got_b, b);
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N && turns && !value; ++j) {
          const A before = a[j];
          a[j] = before * c[j] - b[j] * z[j];
          b[j] = b[j] * c[j] + before * z[j];
        }
        PutSome(y, at, a, add);
        PutSome(y, other, b, add);
      }
    });
  }
};

// Which of several tensors the chunk is of, ends[t] being the chunks of the tensors up to t; `chunk` becomes its own.
MESHWRIGHT_DEVICE int32_t TensorOf(const int32_t* ends, int64_t& chunk) {
  int32_t t = 0;
  while (chunk >= ends[t]) ++t;
  if (t > 0) chunk -= ends[t - 1];
  return t;
}

// Every element of up to kMost tensors = value: a block for each chunk.
struct Fill {
  static constexpr int kBlocksPerSm = 4;
  static constexpr int kMost = 128;
  static constexpr int64_t kChunk = 4 * 256 * kVector;
  bool vectors = false;
  int32_t count = 0;
  double value = 0;
  Ref y[kMost];
  int64_t n[kMost] = {};
  int32_t ends[kMost] = {};

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    int64_t chunk = ctx.block();
    const int32_t t = TensorOf(ends, chunk);
    const int64_t begin = chunk * kChunk, left = n[t] - begin, size = left < kChunk ? left : kChunk;
    OverRange<A>(ctx.thread(), ctx.threads(), size, vectors, [&](auto some, int64_t i) {
      A values[some.value];
      MESHWRIGHT_UNROLL
      for (int j = 0; j < some.value; ++j) values[j] = static_cast<A>(value);
      PutSome(y[t], begin + i, values);
    });
  }
};
static_assert(sizeof(Fill) <= 4096, "what CUDA takes as a kernel's parameters everywhere");

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_POINTWISE_H_
