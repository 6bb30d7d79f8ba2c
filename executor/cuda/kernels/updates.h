// Updates of parameters, and what loss scaling looks at and decides.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_UPDATES_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_UPDATES_H_

#include "executor/cuda/kernels/pointwise.h"

namespace meshwright::cuda {

enum class UpdateKind : uint8_t { kSgd, kMomentum, kAdamW, kLambStep, kLamb, kMuonStep, kMuon };

// As executor/host/optimizers.cc, but for the norms of kLambStep: up to kMost parameters, a block for each chunk of
// their elements. What an optimizer does not have is null; `copy` may be.
struct Update {
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kMost = 48;
  static constexpr int64_t kChunk = 256 * kVector;  // of one parameter: a vector for each thread
  struct Tensor {
    void *w, *g, *m, *v, *to, *new_m, *new_v, *copy;  // of kLamb m and v are the sums of squares, scalars
    int64_t n;
  };
  struct Types {  // of all parameters
    Elem w, g, m, v, to, new_m, new_v, copy;
    friend bool operator==(const Types&, const Types&) = default;
  };
  UpdateKind kind = UpdateKind::kSgd;
  bool vectors = false;
  Types types = {};
  int32_t count = 0;
  double rate = 0, beta1 = 0, beta2 = 0, decay = 0, epsilon = 0, scale = 1, correct_m = 1, correct_v = 1;
  const double *correct_m_at = nullptr, *correct_v_at = nullptr;  // where there are some, they count
  // Loss scaling: scalars, null without it. The corrections are then of the steps that were not skipped.
  Ref factor, skipped;
  double step = 1;
  const double* step_at = nullptr;  // where there is one, it counts
  Tensor tensors[kMost] = {};
  int32_t ends[kMost] = {};  // chunks of the tensors up to this one

  // Chunks of `points` elements.
  static constexpr int64_t ChunksOf(int64_t points) { return (points + kChunk - 1) / kChunk; }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    OfChunk<A>(ctx, [](A, A) {});
  }

  // Calls note(weight, step) for each element of the block's chunk that gets the latter in place of the former.
  template <class A, class Ctx, class Note>
  MESHWRIGHT_DEVICE void OfChunk(Ctx& ctx, const Note& note) const {
    using std::pow;
    using std::sqrt;
    A fix_m = static_cast<A>(correct_m_at != nullptr ? *correct_m_at : correct_m);
    A fix_v = static_cast<A>(correct_v_at != nullptr ? *correct_v_at : correct_v);
    A lr = static_cast<A>(rate), unscale = A(1);
    bool keep = false;
    if (factor.data != nullptr) {
      unscale = Load<A>(factor, 0);
      keep = unscale == A(0);
      // The steps that these take are of the gradient unscaled.
      if (kind == UpdateKind::kLamb || kind == UpdateKind::kMuon) unscale = A(1);
      const double done = (step_at != nullptr ? *step_at : step) - Load<double>(skipped, 0);
      if (kind == UpdateKind::kAdamW || kind == UpdateKind::kLambStep) {
        fix_m = static_cast<A>(1 / (1 - pow(beta1, done)));
        fix_v = static_cast<A>(1 / (1 - pow(beta2, done)));
      }
    }
    int64_t chunk = ctx.block();
    const int32_t t = TensorOf(ends, chunk);
    if (kind == UpdateKind::kLamb) {
      const A weight_norm = sqrt(Load<A>({tensors[t].m, types.m}, 0)),
              step_norm = sqrt(Load<A>({tensors[t].v, types.v}, 0));
      if (weight_norm > A(0) && step_norm > A(0)) lr *= weight_norm / step_norm;
    }
    const int64_t begin = chunk * kChunk, left = tensors[t].n - begin, size = left < kChunk ? left : kChunk;
    if (keep) {
      Keep<A>(ctx, tensors[t], begin, size);
    } else {
      Step<A>(ctx, tensors[t], begin, size, unscale, lr, fix_m, fix_v, note);
    }
  }

  template <class A, class Ctx, class Note>
  MESHWRIGHT_DEVICE void Step(Ctx& ctx, const Tensor& p, int64_t begin, int64_t size, A unscale, A lr, A fix_m, A fix_v,
                              const Note& note) const {
    using std::sqrt;
    const A b1 = static_cast<A>(beta1), b2 = static_cast<A>(beta2);
    const Ref w = {p.w, types.w}, g = {p.g, types.g}, m = {p.m, types.m}, v = {p.v, types.v};
    const bool moments = kind == UpdateKind::kAdamW || kind == UpdateKind::kLambStep;
    const bool has_w = kind != UpdateKind::kMuonStep;
    const bool has_m = p.m != nullptr && kind != UpdateKind::kLamb, has_v = p.v != nullptr && has_m;
    OverRange<A>(ctx.thread(), ctx.threads(), size, vectors, [&](auto some, int64_t at) {
      constexpr int N = some.value;
      const int64_t i = begin + at;
      const auto got_g = Fetch<A, N>(g, i);
      Some<A, N> got_w, got_m, got_v;
      if (has_w) got_w = Fetch<A, N>(w, i);
      if (has_m) got_m = Fetch<A, N>(m, i);
      if (has_v) got_v = Fetch<A, N>(v, i);
      A weight[N] = {}, gradient[N], first[N] = {}, second[N] = {};
      if (has_w) Unpack(w.type, got_w, weight);
      Unpack(g.type, got_g, gradient);
      if (has_m) Unpack(m.type, got_m, first);
      if (has_v) Unpack(v.type, got_v, second);
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) {
        const A d = unscale * gradient[j];
        if (moments) {
          first[j] = b1 * first[j] + (A(1) - b1) * d;
          second[j] = b2 * second[j] + (A(1) - b2) * d * d;
          const A towards = first[j] * fix_m / (sqrt(second[j] * fix_v) + static_cast<A>(epsilon));
          const A step = towards + static_cast<A>(decay) * weight[j];
          note(weight[j], step);
          weight[j] = kind == UpdateKind::kAdamW ? weight[j] - lr * step : step;
        } else if (kind == UpdateKind::kMuon) {
          weight[j] -= lr * (static_cast<A>(scale) * d + static_cast<A>(decay) * weight[j]);
        } else if (kind == UpdateKind::kMuonStep) {
          first[j] = b1 * first[j] + d;
          weight[j] = d + b1 * first[j];
        } else {
          first[j] = b1 * first[j] + d;
          weight[j] -= lr * (kind == UpdateKind::kMomentum ? first[j] : d);
        }
      }
      if (p.new_m != nullptr) PutSome(Ref{p.new_m, types.new_m}, i, first);
      if (p.new_v != nullptr) PutSome(Ref{p.new_v, types.new_v}, i, second);
      PutSome(Ref{p.to, types.to}, i, weight);
      if (p.copy != nullptr) PutSome(Ref{p.copy, types.copy}, i, weight);
    });
  }

  // The step is skipped: everything stays as it is.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Keep(Ctx& ctx, const Tensor& p, int64_t begin, int64_t size) const {
    for (int64_t i = begin + ctx.thread(); i < begin + size; i += ctx.threads()) {
      const bool makes_step = kind == UpdateKind::kLambStep || kind == UpdateKind::kMuonStep;
      const A value = makes_step ? A(0) : Load<A>({p.w, types.w}, i);
      Store({p.to, types.to}, i, value);
      if (p.copy != nullptr) Store({p.copy, types.copy}, i, value);
      if (p.new_m != nullptr) Store({p.new_m, types.new_m}, i, Load<A>({p.m, types.m}, i));
      if (p.new_v != nullptr) Store({p.new_v, types.new_v}, i, Load<A>({p.v, types.v}, i));
    }
  }
};
static_assert(sizeof(Update) <= 4096, "what CUDA takes as a kernel's parameters everywhere");

// kLambStep, and of each chunk the sums of the squares of the parameters and of the steps.
struct LambStep : Update {
  double* sums = nullptr;  // two for each chunk

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    A weights = A(0), steps = A(0);
    OfChunk<A>(ctx, [&](A weight, A step) {
      weights += weight * weight;
      steps += step * step;
    });
    weights = ctx.Sum(weights);
    steps = ctx.Sum(steps);
    if (ctx.thread() != 0) return;
    sums[2 * ctx.block()] = static_cast<double>(weights);
    sums[2 * ctx.block() + 1] = static_cast<double>(steps);
  }
};
static_assert(sizeof(LambStep) <= 4096, "what CUDA takes as a kernel's parameters everywhere");

// The sums of whole parameters from those of their chunks, in their order: a block for each.
struct LambNorms {
  static constexpr int kBlocksPerSm = 8;
  const double* sums = nullptr;
  Ref weights[Update::kMost], steps[Update::kMost];  // scalars
  int32_t ends[Update::kMost] = {};

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t t = ctx.block();
    double of_weights = 0, of_steps = 0;
    for (int64_t c = (t > 0 ? ends[t - 1] : 0) + ctx.thread(); c < ends[t]; c += ctx.threads()) {
      of_weights += sums[2 * c];
      of_steps += sums[2 * c + 1];
    }
    of_weights = ctx.Sum(of_weights);
    of_steps = ctx.Sum(of_steps);
    if (ctx.thread() != 0) return;
    Store(weights[t], 0, static_cast<A>(of_weights));
    Store(steps[t], 0, static_cast<A>(of_steps));
  }
};

// y = infinity if an element of an x is not finite. Many blocks may write it; they write the same.
struct NotFinite {
  static constexpr int kMost = 64;  // tensors in one launch
  int32_t count = 0;
  bool vectors = false;
  int64_t n[kMost] = {};
  Ref x[kMost], y;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    bool found = false;
    for (int t = 0; t < count; ++t) {
      OverRange<A>(First(ctx), Step(ctx), n[t], vectors, [&](auto some, int64_t i) {
        A value[some.value];
        LoadSome(x[t], i, value);
        for (const A v : value) found = found || v - v != A(0);
      });
    }
    if (ctx.Max(found ? A(1) : A(0)) > A(0) && ctx.thread() == 0) Store(y, 0, static_cast<A>(INFINITY));
  }
};

// As executor/host/optimizers.cc, by one thread.
struct AdjustScale {
  double growth = 1, backoff = 1, interval = 1;
  Ref scale, good, skipped, found, new_scale, new_good, new_skipped, factor;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    if (First(ctx) != 0) return;
    const A now = Load<A>(scale, 0), steps = Load<A>(good, 0), bad = Load<A>(found, 0), before = Load<A>(skipped, 0);
    const bool skip = bad - bad != A(0), grows = !skip && steps + A(1) >= static_cast<A>(interval);
    const A grown = now * static_cast<A>(growth), less = now * static_cast<A>(backoff), least = now < A(1) ? now : A(1);
    A next = now;
    if (skip) next = less > least ? less : least;
    if (grows && grown - grown == A(0)) next = grown;
    Store(new_scale, 0, next);
    Store(new_good, 0, skip || grows ? A(0) : steps + A(1));
    Store(new_skipped, 0, skip ? before + A(1) : before);
    Store(factor, 0, skip ? A(0) : A(1) / now);
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_UPDATES_H_
