// Attention in tiles, forward and backward (Dao, arXiv:2205.14135 and 2307.08691): a block holds a tile of queries and
// goes over tiles of keys and values, or the other way round. See kernels/simt.h, and executor/host/attention.cc for
// the layout of the operands. Plain: products by the ordinary units, all in shared memory.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// Queries and keys of d elements and values of u, in one operand or two (ir/heads.h); y is (s, b, g, q, u). Of a group
// at one position the operands hold `of_queries` and `of_keys` elements, of the latter the key begins at `key_at`.
struct AttentionShape {
  int64_t s = 0, keys = 0, b = 0, g = 0, q = 0, d = 0, u = 0, of_queries = 0, of_keys = 0, key_at = 0;
  bool causal = true, fused = true;
  int64_t window = 0;  // causal: a query sees so many keys at most, where above 0
  double scale = 1;
  int32_t tile = 16;  // rows of queries, and of keys
  SequenceOrder row_order, key_order;
  int64_t blocks = 1;  // of a ring: each part of the queries has keys of its own

  MESHWRIGHT_DEVICE int64_t widest() const { return d > u ? d : u; }  // a tile's room in shared memory is for that
  MESHWRIGHT_DEVICE int64_t row_tiles() const { return (s + tile - 1) / tile; }
  MESHWRIGHT_DEVICE int64_t key_tiles() const { return (keys + tile - 1) / tile; }
  MESHWRIGHT_DEVICE int64_t Query(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return ((i * b + batch) * g + group) * of_queries + head * d;
  }
  // `which`: 0 the key, 1 the value
  MESHWRIGHT_DEVICE int64_t Key(int64_t i, int64_t batch, int64_t group, int64_t which) const {
    return ((i * b + batch) * g + group) * of_keys + key_at + which * d;
  }
  MESHWRIGHT_DEVICE int64_t Y(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return (((i * b + batch) * g + group) * q + head) * u;
  }
  MESHWRIGHT_DEVICE int64_t Saved(int64_t i, int64_t batch, int64_t group, int64_t head) const {
    return (((i * b + batch) * g + group) * q + head) * (fused ? 1 : keys);
  }
  MESHWRIGHT_DEVICE bool Sees(int64_t i, int64_t j) const {
    if (i >= s || j >= keys) return false;
    if (blocks > 1 && i / (s / blocks) != j / (keys / blocks)) return false;
    const int64_t before = row_order.PositionOf(i) - key_order.PositionOf(j);
    return !causal || (before >= 0 && (window == 0 || before < window));
  }
  // Whether keys behind a row, and rows before a key, need not be looked at.
  MESHWRIGHT_DEVICE bool in_order() const { return causal && row_order.ranks <= 1; }
  // Where, at a multiple of `keys_of_tile`, the keys begin that rows from `row` on may see, and where the rows end that
  // may see keys before `key`.
  MESHWRIGHT_DEVICE int64_t KeysFrom(int64_t row, int64_t keys_of_tile) const {
    const int64_t first = in_order() && window > 0 ? row_order.begin - key_order.begin + row - window + 1 : 0;
    return first > 0 ? first / keys_of_tile * keys_of_tile : 0;
  }
  MESHWRIGHT_DEVICE int64_t RowsUntil(int64_t key) const {
    const int64_t end = in_order() && window > 0 ? key_order.begin - row_order.begin + key - 1 + window : s;
    return end < s ? end : s;
  }
  // Where the keys end that rows before `row` may see, and where, at a multiple of `rows`, the rows begin that may see
  // keys from `key` on.
  MESHWRIGHT_DEVICE int64_t KeysUntil(int64_t row) const {
    const int64_t end = in_order() ? row_order.begin - key_order.begin + row : keys;
    return end < keys ? end : keys;
  }
  MESHWRIGHT_DEVICE int64_t RowsFrom(int64_t key, int64_t rows) const {
    const int64_t first = in_order() ? key_order.begin - row_order.begin + key : 0;
    return first > 0 ? first / rows * rows : 0;
  }
};

enum class Part : uint8_t { kQueries, kResult, kKeys, kValues };

// Copies a tile of rows of one head into shared memory; rows beyond the sequence are 0.
template <class A, class Ctx>
MESHWRIGHT_DEVICE void LoadTile(Ctx& ctx, const AttentionShape& a, const Ref& from, Part part, int64_t first,
                                int64_t batch, int64_t group, int64_t head, A* to) {
  const bool of_keys = part == Part::kKeys || part == Part::kValues;
  const int64_t width = part == Part::kResult || part == Part::kValues ? a.u : a.d;
  for (int64_t e = ctx.thread(); e < a.tile * width; e += ctx.threads()) {
    const int64_t i = first + e / width, c = e % width;
    const int64_t at = part == Part::kResult ? a.Y(i, batch, group, head)
                       : of_keys             ? a.Key(i, batch, group, part == Part::kValues ? 1 : 0)
                                             : a.Query(i, batch, group, head);
    to[e] = i < (of_keys ? a.keys : a.s) ? Load<A>(from, at + c) : A(0);
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
  Ref queries, keys, y, saved;

  static int64_t SharedElements(int64_t tile, int64_t d) { return 4 * tile * d + tile * tile + 3 * tile; }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::exp;
    using std::log;
    const int64_t t = a.tile, heads = a.b * a.g * a.q;
    const int64_t room = t * a.widest(), u = a.u;
    A *const q = static_cast<A*>(ctx.shared()), *const k = q + room, *const v = k + room, *const o = v + room;
    A *const s = o + room, *const top = s + t * t, *const sum = top + t, *const shrink = sum + t;
    for (int64_t block = ctx.block(); block < a.row_tiles() * heads; block += ctx.blocks()) {
      const int64_t first = block / heads * t, head = block % a.q, group = block / a.q % a.g,
                    batch = block / a.q / a.g % a.b;
      ctx.Sync();
      LoadTile(ctx, a, queries, Part::kQueries, first, batch, group, head, q);
      for (int64_t e = ctx.thread(); e < t * u; e += ctx.threads()) o[e] = A(0);
      for (int64_t i = ctx.thread(); i < t; i += ctx.threads()) {
        top[i] = static_cast<A>(-INFINITY);
        sum[i] = A(0);
      }
      const int64_t end = a.KeysUntil(first + t);
      for (int64_t column = a.KeysFrom(first, t); column < end; column += t) {
        ctx.Sync();
        LoadTile(ctx, a, keys, Part::kKeys, column, batch, group, head, k);
        LoadTile(ctx, a, keys, Part::kValues, column, batch, group, head, v);
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
        for (int64_t e = ctx.thread(); e < t * u; e += ctx.threads()) {
          const int64_t i = e / u, c = e % u;
          A value = o[e] * shrink[i];
          for (int64_t j = 0; j < t; ++j) value += s[i * t + j] * v[j * u + c];
          o[e] = value;
        }
      }
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < t * u; e += ctx.threads()) {
        const int64_t i = e / u, c = e % u;
        // A row that sees no key of a ring's block: nothing, and the log of nothing is kept.
        if (first + i < a.s) Store(y, a.Y(first + i, batch, group, head) + c, sum[i] > A(0) ? o[e] / sum[i] : A(0));
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
    for (int64_t column = 0; column < a.keys; column += t) {
      ctx.Sync();
      LoadTile(ctx, a, keys, Part::kKeys, column, batch, group, head, k);
      ctx.Sync();
      Scores(ctx, first, column, q, k, s);
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < t * t; e += ctx.threads()) {
        const int64_t i = e / t, j = e % t;
        if (first + i >= a.s || column + j >= a.keys) continue;
        const A p = a.Sees(first + i, column + j) ? exp(s[e] - top[i]) / sum[i] : A(0);
        Store(saved, a.Saved(first + i, batch, group, head) + column + j, p);
      }
    }
  }
};

// dy, queries and keys, y, saved -> gradients of queries and keys. With `of_keys` a block takes a tile of keys and
// values of one group and sums over its heads and all queries, else a tile of queries of one head.
struct AttentionBackward {
  AttentionShape a;
  bool of_keys = false, add = false;
  Ref dy, queries, keys, y, saved, gradient;

  static int64_t SharedElements(int64_t tile, int64_t d) { return 6 * tile * d + 2 * tile * tile + tile; }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t t = a.tile, per_tile = a.b * a.g * (of_keys ? 1 : a.q);
    const int64_t room = t * a.widest(), u = a.u;
    A *const q = static_cast<A*>(ctx.shared()), *const dout = q + room, *const k = dout + room;
    A *const v = k + room, *const first_sum = v + room, *const second_sum = first_sum + room;
    A *const p = second_sum + room, *const ds = p + t * t, *const dot = ds + t * t;
    const int64_t tiles = of_keys ? a.key_tiles() : a.row_tiles();
    for (int64_t block = ctx.block(); block < tiles * per_tile; block += ctx.blocks()) {
      const int64_t own = block / per_tile * t, rest = block % per_tile;
      const int64_t group = of_keys ? rest % a.g : rest / a.q % a.g, batch = of_keys ? rest / a.g : rest / a.q / a.g;
      ctx.Sync();
      for (int64_t e = ctx.thread(); e < room; e += ctx.threads()) first_sum[e] = second_sum[e] = A(0);
      if (of_keys) {
        LoadTile(ctx, a, keys, Part::kKeys, own, batch, group, 0, k);
        LoadTile(ctx, a, keys, Part::kValues, own, batch, group, 0, v);
        for (int64_t head = 0; head < a.q; ++head) {
          for (int64_t row = a.RowsFrom(own, t), end = a.RowsUntil(own + t); row < end; row += t) {
            LoadQueries(ctx, row, batch, group, head, q, dout, dot);
            Gradients(ctx, row, own, batch, group, head, q, k, v, dout, dot, p, ds);
            // dk += ds^T q, dv += p^T dy
            for (int64_t e = ctx.thread(); e < t * a.d; e += ctx.threads()) {
              const int64_t j = e / a.d, c = e % a.d;
              for (int64_t i = 0; i < t; ++i) first_sum[e] += ds[i * t + j] * q[i * a.d + c];
            }
            for (int64_t e = ctx.thread(); e < t * u; e += ctx.threads()) {
              const int64_t j = e / u, c = e % u;
              for (int64_t i = 0; i < t; ++i) second_sum[e] += p[i * t + j] * dout[i * u + c];
            }
          }
        }
        ctx.Sync();
        Write(ctx, own, batch, group, 0, first_sum);
        Write(ctx, own, batch, group, 1, second_sum);
      } else {
        const int64_t head = rest % a.q, end = a.KeysUntil(own + t);
        LoadQueries(ctx, own, batch, group, head, q, dout, dot);
        for (int64_t column = a.KeysFrom(own, t); column < end; column += t) {
          ctx.Sync();
          LoadTile(ctx, a, keys, Part::kKeys, column, batch, group, head, k);
          LoadTile(ctx, a, keys, Part::kValues, column, batch, group, head, v);
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
    LoadTile(ctx, a, queries, Part::kQueries, row, batch, group, head, q);
    LoadTile(ctx, a, dy, Part::kResult, row, batch, group, head, dout);
    for (int64_t i = ctx.thread(); i < a.tile; i += ctx.threads()) {
      A sum = A(0);
      if (row + i < a.s) {
        const int64_t at = a.Y(row + i, batch, group, head);
        for (int64_t c = 0; c < a.u; ++c) sum += Load<A>(dy, at + c) * Load<A>(y, at + c);
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
      ds[e] = probability * (Dot(dout + i * a.u, v + j * a.u, a.u) - dot[i]) * static_cast<A>(a.scale);
    }
    ctx.Sync();
  }

  // `head` counts queries, or key and value.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Write(Ctx& ctx, int64_t first, int64_t batch, int64_t group, int64_t head,
                               const A* sum) const {
    const int64_t width = of_keys && head == 1 ? a.u : a.d;
    for (int64_t e = ctx.thread(); e < a.tile * width; e += ctx.threads()) {
      const int64_t i = first + e / width;
      if (i >= (of_keys ? a.keys : a.s)) continue;
      const int64_t at = of_keys ? a.Key(i, batch, group, head) : a.Query(i, batch, group, head);
      Put(gradient, at + e % width, sum[e], add);
    }
  }
};

// Results and logs of sums of the same queries over different keys, in turn, to those over all keys: a row a block.
struct AttentionMerge {
  static constexpr int kMost = 64;
  int32_t parts = 0;
  int64_t rows = 0, d = 0;
  Ref results[kMost], sums[kMost], y, saved;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::exp;
    using std::log;
    for (int64_t row = ctx.block(); row < rows; row += ctx.blocks()) {
      A top = Load<A>(sums[0], row), sum = A(0);
      for (int k = 1; k < parts; ++k) {
        const A other = Load<A>(sums[k], row);
        top = other > top ? other : top;
      }
      for (int k = 0; k < parts; ++k) sum += exp(Load<A>(sums[k], row) - top);
      const A all = top + log(sum);
      for (int64_t c = ctx.thread(); c < d; c += ctx.threads()) {
        A value = A(0);
        for (int k = 0; k < parts; ++k) value += exp(Load<A>(sums[k], row) - all) * Load<A>(results[k], row * d + c);
        Store(y, row * d + c, value);
      }
      if (ctx.thread() == 0) Store(saved, row, all);
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_ATTENTION_H_
