// Attention in tiles, forward and backward (Dao, arXiv:2205.14135 and 2307.08691): a block holds a tile of queries and
// goes over tiles of keys and values, or the other way round. See kernels/simt.h, and executor/host/attention.cc for
// the layout of the operands. Plain: products by the ordinary units, all in shared memory.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// qkv is (s, b, g, r, d): r - 2 queries, key, value of each group; y is (s, b, g, r - 2, d).
struct AttentionShape {
  int64_t s = 0, b = 0, g = 0, r = 0, d = 0;
  bool causal = true, fused = true;
  double scale = 1;
  int32_t tile = 16;  // rows of queries, and of keys

  MESHWRIGHT_DEVICE int64_t q() const { return r - 2; }
  MESHWRIGHT_DEVICE int64_t tiles() const { return (s + tile - 1) / tile; }
  MESHWRIGHT_DEVICE int64_t Qkv(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return (((i * b + batch) * g + group) * r + head) * d;
  }
  MESHWRIGHT_DEVICE int64_t Y(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return (((i * b + batch) * g + group) * q() + head) * d;
  }
  MESHWRIGHT_DEVICE int64_t Saved(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return (((i * b + batch) * g + group) * q() + head) * (fused ? 1 : s);
  }
  MESHWRIGHT_DEVICE bool Sees(int64_t i, int64_t j) const { return i < s && j < s && (!causal || j <= i); }
};

// Copies a tile of rows of one head into shared memory; rows beyond the sequence are 0.
template <class A, class Ctx>
MESHWRIGHT_DEVICE void LoadTile(Ctx& ctx, const AttentionShape& a, const Ref& from, bool of_y, int64_t first,
                                int64_t batch, int64_t group, int64_t head, A* to) {
  for (int64_t e = ctx.thread(); e < a.tile * a.d; e += ctx.threads()) {
    const int64_t i = first + e / a.d, c = e % a.d;
    const int64_t at = of_y ? a.Y(i, batch, group, head) : a.Qkv(i, batch, group, head);
    to[e] = i < a.s ? Load<A>(from, at + c) : A(0);
  }
}

template <class A>
MESHWRIGHT_DEVICE A Dot(const A* x, const A* y, int64_t n) {
  A sum = A(0);
  for (int64_t c = 0; c < n; ++c) sum += x[c] * y[c];
  return sum;
}

// A block per (tile of queries, head).
struct AttentionForward {
  AttentionShape a;
  Ref qkv, y, saved;

  static int64_t SharedElements(int64_t tile, int64_t d) { return 4 * tile * d + tile * tile + 3 * tile; }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::exp;
    using std::log;
    const int64_t t = a.tile, heads = a.b * a.g * a.q();
    A *const q = static_cast<A*>(ctx.shared()), *const k = q + t * a.d, *const v = k + t * a.d, *const o = v + t * a.d;
    A *const s = o + t * a.d, *const top = s + t * t, *const sum = top + t, *const shrink = sum + t;
    for (int64_t block = ctx.block(); block < a.tiles() * heads; block += ctx.blocks()) {
      const int64_t first = block / heads * t, head = block % a.q(), group = block / a.q() % a.g,
                    batch = block / a.q() / a.g % a.b;
      ctx.Sync();
      LoadTile(ctx, a, qkv, false, first, batch, group, head, q);
      for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) o[e] = A(0);
      for (int64_t i = ctx.thread(); i < t; i += ctx.threads()) {
        top[i] = static_cast<A>(-INFINITY);
        sum[i] = A(0);
      }
      const int64_t end = a.causal ? (first + t < a.s ? first + t : a.s) : a.s;
      for (int64_t column = 0; column < end; column += t) {
        ctx.Sync();
        LoadTile(ctx, a, qkv, false, column, batch, group, a.r - 2, k);
        LoadTile(ctx, a, qkv, false, column, batch, group, a.r - 1, v);
        ctx.Sync();
        Scores(ctx, first, column, q, k, s);
        ctx.Sync();
        for (int64_t i = ctx.thread(); i < t; i += ctx.threads()) {
          A now = top[i];
          for (int64_t j = 0; j < t; ++j) now = s[i * t + j] > now ? s[i * t + j] : now;
          // A row that has seen nothing yet, or lies beyond the sequence, keeps its zeros.
          shrink[i] = now == static_cast<A>(-INFINITY) ? A(1) : exp(top[i] - now);
          A added = A(0);
          for (int64_t j = 0; j < t; ++j) {
            const A e = s[i * t + j] == static_cast<A>(-INFINITY) ? A(0) : exp(s[i * t + j] - now);
            s[i * t + j] = e;
            added += e;
          }
          sum[i] = sum[i] * shrink[i] + added;
          top[i] = now;
        }
        ctx.Sync();
        for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) {
          const int64_t i = e / a.d, c = e % a.d;
          A value = o[e] * shrink[i];
          for (int64_t j = 0; j < t; ++j) value += s[i * t + j] * v[j * a.d + c];
          o[e] = value;
        }
      }
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) {
        const int64_t i = e / a.d, c = e % a.d;
        if (first + i < a.s) Store(y, a.Y(first + i, batch, group, head) + c, o[e] / sum[i]);
      }
      Keep(ctx, first, batch, group, head, q, k, s, top, sum);
    }
  }

 private:
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Scores(Ctx& ctx, int64_t first, int64_t column, const A* q, const A* k, A* s) const {
    const int64_t t = a.tile;
    for (int64_t e = ctx.thread(); e < t * t; e += ctx.threads()) {
      const int64_t i = e / t, j = e % t;
      s[e] = a.Sees(first + i, column + j) ? static_cast<A>(a.scale) * Dot(q + i * a.d, k + j * a.d, a.d)
                                           : static_cast<A>(-INFINITY);
    }
  }

  // What the backward pass reads: the log of each row's sum, or its probabilities.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Keep(Ctx& ctx, int64_t first, int64_t batch, int64_t group, int64_t head, const A* q, A* k,
                              A* s, const A* top, const A* sum) const {
    using std::exp;
    using std::log;
    const int64_t t = a.tile;
    if (a.fused) {
      for (int64_t i = ctx.thread(); i < t; i += ctx.threads()) {
        if (first + i < a.s) Store(saved, a.Saved(first + i, batch, group, head), top[i] + log(sum[i]));
      }
      return;
    }
    for (int64_t column = 0; column < a.s; column += t) {
      ctx.Sync();
      LoadTile(ctx, a, qkv, false, column, batch, group, a.r - 2, k);
      ctx.Sync();
      Scores(ctx, first, column, q, k, s);
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < t * t; e += ctx.threads()) {
        const int64_t i = e / t, j = e % t;
        if (first + i >= a.s || column + j >= a.s) continue;
        const A p = a.Sees(first + i, column + j) ? exp(s[e] - top[i]) / sum[i] : A(0);
        Store(saved, a.Saved(first + i, batch, group, head) + column + j, p);
      }
    }
  }
};

// dy, qkv, y, saved -> dqkv. With `keys` a block takes a tile of keys and values of one group and sums over its heads
// and all queries, else a tile of queries of one head.
struct AttentionBackward {
  AttentionShape a;
  bool keys = false, add = false;
  Ref dy, qkv, y, saved, dqkv;

  static int64_t SharedElements(int64_t tile, int64_t d) { return 6 * tile * d + 2 * tile * tile + tile; }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t t = a.tile, per_tile = a.b * a.g * (keys ? 1 : a.q());
    A *const q = static_cast<A*>(ctx.shared()), *const dout = q + t * a.d, *const k = dout + t * a.d;
    A *const v = k + t * a.d, *const first_sum = v + t * a.d, *const second_sum = first_sum + t * a.d;
    A *const p = second_sum + t * a.d, *const ds = p + t * t, *const dot = ds + t * t;
    for (int64_t block = ctx.block(); block < a.tiles() * per_tile; block += ctx.blocks()) {
      const int64_t own = block / per_tile * t, rest = block % per_tile;
      const int64_t group = keys ? rest % a.g : rest / a.q() % a.g, batch = keys ? rest / a.g : rest / a.q() / a.g;
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) first_sum[e] = second_sum[e] = A(0);
      if (keys) {
        LoadTile(ctx, a, qkv, false, own, batch, group, a.r - 2, k);
        LoadTile(ctx, a, qkv, false, own, batch, group, a.r - 1, v);
        for (int64_t head = 0; head < a.q(); ++head) {
          for (int64_t row = a.causal ? own : 0; row < a.s; row += t) {
            LoadQueries(ctx, row, batch, group, head, q, dout, dot);
            Gradients(ctx, row, own, batch, group, head, q, k, v, dout, dot, p, ds);
            // dk += ds^T q, dv += p^T dy
            for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) {
              const int64_t j = e / a.d, c = e % a.d;
              for (int64_t i = 0; i < t; ++i) {
                first_sum[e] += ds[i * t + j] * q[i * a.d + c];
                second_sum[e] += p[i * t + j] * dout[i * a.d + c];
              }
            }
          }
        }
        ctx.Sync();
        Write(ctx, own, batch, group, a.r - 2, first_sum);
        Write(ctx, own, batch, group, a.r - 1, second_sum);
      } else {
        const int64_t head = rest % a.q(), end = a.causal ? (own + t < a.s ? own + t : a.s) : a.s;
        LoadQueries(ctx, own, batch, group, head, q, dout, dot);
        for (int64_t column = 0; column < end; column += t) {
          ctx.Sync();
          LoadTile(ctx, a, qkv, false, column, batch, group, a.r - 2, k);
          LoadTile(ctx, a, qkv, false, column, batch, group, a.r - 1, v);
          Gradients(ctx, own, column, batch, group, head, q, k, v, dout, dot, p, ds);
          for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) {  // dq += ds k
            const int64_t i = e / a.d, c = e % a.d;
            for (int64_t j = 0; j < t; ++j) first_sum[e] += ds[i * t + j] * k[j * a.d + c];
          }
        }
        ctx.Sync();
        Write(ctx, own, batch, group, head, first_sum);
      }
    }
  }

 private:
  // A tile of q and dy, and for each row the sum of dy * y.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void LoadQueries(Ctx& ctx, int64_t row, int64_t batch, int64_t group, int64_t head, A* q, A* dout,
                                     A* dot) const {
    ctx.Sync();
    LoadTile(ctx, a, qkv, false, row, batch, group, head, q);
    LoadTile(ctx, a, dy, true, row, batch, group, head, dout);
    for (int64_t i = ctx.thread(); i < a.tile; i += ctx.threads()) {
      A sum = A(0);
      if (row + i < a.s) {
        const int64_t at = a.Y(row + i, batch, group, head);
        for (int64_t c = 0; c < a.d; ++c) sum += Load<A>(dy, at + c) * Load<A>(y, at + c);
      }
      dot[i] = sum;
    }
  }

  // p and ds = p * (dy v^T - dot) * scale of a tile of scores.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Gradients(Ctx& ctx, int64_t row, int64_t column, int64_t batch, int64_t group, int64_t head,
                                   const A* q, const A* k, const A* v, const A* dout, const A* dot, A* p, A* ds) const {
    using std::exp;
    const int64_t t = a.tile;
    ctx.Sync();
    for (int64_t e = ctx.thread(); e < t * t; e += ctx.threads()) {
      const int64_t i = e / t, j = e % t;
      A probability = A(0);
      if (a.Sees(row + i, column + j)) {
        const int64_t at = a.Saved(row + i, batch, group, head);
        probability = a.fused ? exp(static_cast<A>(a.scale) * Dot(q + i * a.d, k + j * a.d, a.d) - Load<A>(saved, at))
                              : Load<A>(saved, at + column + j);
      }
      p[e] = probability;
      ds[e] = probability * (Dot(dout + i * a.d, v + j * a.d, a.d) - dot[i]) * static_cast<A>(a.scale);
    }
    ctx.Sync();
  }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Write(Ctx& ctx, int64_t first, int64_t batch, int64_t group, int64_t head,
                               const A* sum) const {
    for (int64_t e = ctx.thread(); e < a.tile * a.d; e += ctx.threads()) {
      const int64_t i = first + e / a.d;
      if (i < a.s) Put(dqkv, a.Qkv(i, batch, group, head) + e % a.d, sum[e], add);
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_
