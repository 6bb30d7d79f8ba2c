// Linear attention and state spaces, forward and backward (ir/recurrence.h has the formulas and operands). See
// kernels/simt.h.
//
// A block walks along the sequence with some columns of one head's state: they do not depend on each other, and blocks
// are few otherwise. A thread has kRows rows of one column in registers; neighbours have neighbouring columns. What is
// summed over the rows of a column, or over the columns of a row, goes through shared memory. Tokens are brought there
// several at a time. Rows and columns behind the last are zeros.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LINEAR_ATTENTION_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LINEAR_ATTENTION_H_

#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/kernels/vectors.h"

namespace meshwright::cuda {

struct HeadColumns {
  int64_t batch, group, head, first;  // column
};

// Sizes and operands of a walk, of the heads of so many pairs (row of the batch, group).
struct StateWalk {
  static constexpr int kRows = 32, kColumns = 32;
  static constexpr int kOfToken = 4;  // numbers beside its elements: decay, amount, and what q and k are multiplied by
  bool delta = false, by_row = false, vectors = false;  // by_row: rows of the state decay apart
  int64_t s = 0, b = 0, groups = 0, heads = 0, width = 0, value_width = 0;
  int64_t first_pair = 0, pairs = 0;
  int32_t lanes = 1, tokens = 16;  // threads for the rows of a column; tokens in shared memory at a time
  SequenceOrder order;
  Ref x, dy;                      // dy: backward
  const void* scalars = nullptr;  // what LinearAttentionScalars has found

  MESHWRIGHT_DEVICE int64_t slices() const { return (value_width + kColumns - 1) / kColumns; }
  MESHWRIGHT_DEVICE int64_t blocks() const { return pairs * heads * slices(); }
  MESHWRIGHT_DEVICE int32_t rows() const { return lanes * kRows; }
  MESHWRIGHT_DEVICE int32_t threads() const { return lanes * kColumns; }
  MESHWRIGHT_DEVICE int64_t elements() const { return int64_t{rows()} * kColumns; }  // of a block's state
  // Of a token in shared memory: its elements, behind which are the decays of rows, where they have some.
  MESHWRIGHT_DEVICE int32_t of_operands() const { return 2 * rows() + (dy.data != nullptr ? 2 : 1) * kColumns; }
  MESHWRIGHT_DEVICE int32_t of_tile() const { return of_operands() + (by_row ? rows() : 0); }
  MESHWRIGHT_DEVICE int64_t of_scalars() const { return 2 + heads * (4 + (by_row ? width : 0)); }
  // Of a head's decays in those.
  MESHWRIGHT_DEVICE int64_t ScalarOfDecays(int64_t head) const { return 2 + 4 * heads + head * width; }
  // Sums of a token's gradient in one block: of the rows of q and k; of the decays, by row or by lane; of the amount;
  // of dy v.
  MESHWRIGHT_DEVICE int32_t sums_of_decays() const { return by_row ? rows() : lanes; }
  MESHWRIGHT_DEVICE int32_t of_sums() const { return 2 * rows() + sums_of_decays() + 2; }

  MESHWRIGHT_DEVICE int64_t Row(int64_t t, int64_t batch, int64_t group) const {
    return (order.PlaceOf(t) * b + batch) * groups + group;
  }
  MESHWRIGHT_DEVICE int64_t Query(int64_t row) const { return row * (2 * width + heads * value_width); }
  MESHWRIGHT_DEVICE int64_t Value(int64_t row, int64_t head) const {
    return Query(row) + 2 * width + head * value_width;
  }
  MESHWRIGHT_DEVICE int64_t Gate(int64_t row, int64_t head) const {
    return by_row ? (row * heads + head) * width : row * (delta ? 2 * heads : heads) + head;
  }
  MESHWRIGHT_DEVICE int64_t Result(int64_t row, int64_t head) const { return (row * heads + head) * value_width; }
  MESHWRIGHT_DEVICE HeadColumns ColumnsOf(int64_t block) const {
    const int64_t head = block / slices(), pair = first_pair + head / heads;
    return {pair / groups, pair % groups, head % heads, block % slices() * kColumns};
  }
  // Elements of shared memory, but for what is needed beside.
  MESHWRIGHT_DEVICE int64_t SharedElements() const { return tokens * (of_tile() + kOfToken) + 2 * threads(); }

 protected:
  template <class A>
  struct Memory {
    A *tiles, *scalars, *sums, *rest;  // of a token: q, k, the slice of v, that of dy
  };
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE Memory<A> MemoryOf(Ctx& ctx) const {
    A* const tiles = static_cast<A*>(ctx.shared());
    A* const numbers = tiles + tokens * of_tile();
    A* const sums = numbers + tokens * kOfToken;
    return {tiles, numbers, sums, sums + 2 * threads()};
  }

  // Calls f(n, lane, column) for each part of the state that this thread has, n of those that it plays.
  template <class Ctx, class F>
  MESHWRIGHT_DEVICE void EachPart(const Ctx& ctx, const F& f) const {
    MESHWRIGHT_UNROLL
    for (int n = 0; n < Ctx::kPlays; ++n) {
      const int part = ctx.thread() + n * ctx.threads();
      if (part < threads()) f(n, part / kColumns, part % kColumns);
    }
  }
  // Calls f(i, elements) for each four of kRows that are side by side in shared memory.
  template <class A, class F>
  static MESHWRIGHT_DEVICE void EachFour(const A* from, const F& f) {
    MESHWRIGHT_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      A four[4];
      memcpy(four, __builtin_assume_aligned(from + i, 16), sizeof(four));
      f(i, four);
    }
  }
  template <class A>
  static MESHWRIGHT_DEVICE A Dot(const A* from, const A (&state)[kRows]) {
    A sum[4] = {};
    EachFour(from, [&](int i, const A(&four)[4]) {
      MESHWRIGHT_UNROLL
      for (int j = 0; j < 4; ++j) sum[j] += four[j] * state[i + j];
    });
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  // Of keys with a state that has decayed by row.
  template <class A>
  static MESHWRIGHT_DEVICE A Dot(const A* from, const A* decays, const A (&state)[kRows]) {
    A sum[4] = {};
    EachFour(from, [&](int i, const A(&four)[4]) {
      MESHWRIGHT_UNROLL
      for (int j = 0; j < 4; ++j) sum[j] += four[j] * decays[i + j] * state[i + j];
    });
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  // What the state has for the key of a token in shared memory, in the rows of a lane. Where rows decay apart it is the
  // state before its decay, which is applied here; where a head has one decay the caller multiplies by it.
  template <class A>
  MESHWRIGHT_DEVICE A Found(const A* tile, int lane, const A (&state)[kRows]) const {
    const A* const k = tile + rows() + lane * kRows;
    return by_row ? Dot(k, tile + of_operands() + lane * kRows, state) : Dot(k, state);
  }
  template <class A>
  MESHWRIGHT_DEVICE A SumOfLanes(const A* sums, int column) const {
    A sum = A(0);
    for (int lane = 0; lane < lanes; ++lane) sum += sums[lane * kColumns + column];
    return sum;
  }

  // States in memory: rows of kColumns elements.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Keep(Ctx& ctx, const A (&state)[Ctx::kPlays][kRows], A* to) const {
    EachPart(ctx, [&](int n, int lane, int column) {
      MESHWRIGHT_UNROLL
      for (int i = 0; i < kRows; ++i) to[(lane * kRows + i) * kColumns + column] = state[n][i];
    });
  }
  // Null: zeros.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Recall(Ctx& ctx, const A* from, A (&state)[Ctx::kPlays][kRows]) const {
    EachPart(ctx, [&](int n, int lane, int column) {
      MESHWRIGHT_UNROLL
      for (int i = 0; i < kRows; ++i) {
        state[n][i] = from != nullptr ? from[(lane * kRows + i) * kColumns + column] : A(0);
      }
    });
  }

  // Brings `count` tokens from `first` on to shared memory, when all threads are done with what is there.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Bring(Ctx& ctx, const HeadColumns& of, int64_t first, int32_t count,
                               const Memory<A>& to) const {
    ctx.Sync();
    if constexpr (std::is_same_v<A, float>) {
      if (vectors) {
        BringTiles<kVector>(ctx, of, first, count, to.tiles);
      } else {
        BringTiles<1>(ctx, of, first, count, to.tiles);
      }
    } else {
      BringTiles<1>(ctx, of, first, count, to.tiles);
    }
    for (int32_t e = ctx.thread(); e < count * kOfToken; e += ctx.threads()) {
      const A* const from =
          static_cast<const A*>(scalars) + Row(first + e / kOfToken, of.batch, of.group) * of_scalars();
      const int32_t i = e % kOfToken;
      to.scalars[e] = i < 2 ? from[2 + 4 * of.head + i] : from[i - 2];
    }
    for (int32_t e = ctx.thread(); by_row && e < count * rows(); e += ctx.threads()) {
      const int32_t row = e % rows();
      const A* const from = static_cast<const A*>(scalars) + Row(first + e / rows(), of.batch, of.group) * of_scalars();
      to.tiles[e / rows() * of_tile() + of_operands() + row] = row < width ? from[ScalarOfDecays(of.head) + row] : A(0);
    }
    ctx.Sync();
  }
  template <int N, class A, class Ctx>
  MESHWRIGHT_DEVICE void BringTiles(Ctx& ctx, const HeadColumns& of, int64_t first, int32_t count, A* to) const {
    constexpr int kAhead = 4;  // on their way at a time
    const int32_t of_token = of_operands() / N, all = count * of_token;
    for (int32_t begin = ctx.thread(); begin < all; begin += kAhead * ctx.threads()) {
      Some<A, N> got[kAhead];
      bool from_dy[kAhead], there[kAhead];
      MESHWRIGHT_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t e = begin + a * ctx.threads(), c = e % of_token * N, column = (c - 2 * rows()) % kColumns;
        from_dy[a] = c >= 2 * rows() + kColumns;
        there[a] = e < all && (c < 2 * rows() ? c % rows() < width : of.first + column < value_width);
        if (!there[a]) continue;
        const int64_t row = Row(first + e / of_token, of.batch, of.group);
        const int64_t at = c < rows()       ? Query(row) + c
                           : c < 2 * rows() ? Query(row) + width + c - rows()
                           : from_dy[a]     ? Result(row, of.head) + of.first + column
                                            : Value(row, of.head) + of.first + column;
        got[a] = Fetch<A, N>(from_dy[a] ? dy : x, at);
      }
      MESHWRIGHT_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t e = begin + a * ctx.threads();
        if (e >= all) continue;
        A value[N] = {};
        if (there[a]) Unpack(from_dy[a] ? dy.type : x.type, got[a], value);
        A* const place = to + e / of_token * of_tile() + e % of_token * N;
        MESHWRIGHT_UNROLL
        for (int j = 0; j < N; ++j) place[j] = value[j];
      }
    }
  }

  // Takes the tokens from `begin` to `end`. In front of every so manieth the state goes to `marks`, where that is not
  // null. `result`, where it is not null, is called with the first token and the number of those that stand in shared
  // memory, when `rest` has what their queries read, by token, lane and column.
  template <class A, class Ctx, class F>
  MESHWRIGHT_DEVICE void Walk(Ctx& ctx, const HeadColumns& of, int64_t begin, int64_t end,
                              A (&state)[Ctx::kPlays][kRows], A* marks, int64_t every, const F& result) const {
    const Memory<A> memory = MemoryOf<A>(ctx);
    int64_t next = marks != nullptr ? begin : end;
    for (int64_t first = begin; first < end; first += tokens) {
      const int32_t count = end - first < tokens ? static_cast<int32_t>(end - first) : tokens;
      Bring(ctx, of, first, count, memory);
      for (int32_t t = 0; t < count; ++t) {
        if (first + t == next) {
          Keep(ctx, state, marks);
          marks += elements();
          next += every;
        }
        Take<!std::is_null_pointer_v<F>>(ctx, memory, t, state);
      }
      if constexpr (!std::is_null_pointer_v<F>) {
        ctx.Sync();
        result(first, count);
      }
    }
  }

 private:
  // `sums` is taken by turns, so that a token wants one barrier.
  template <bool kReads, class A, class Ctx>
  MESHWRIGHT_DEVICE void Take(Ctx& ctx, const Memory<A>& memory, int32_t t, A (&state)[Ctx::kPlays][kRows]) const {
    const A *const q = memory.tiles + t * of_tile(), *const k = q + rows(), *const v = k + rows();
    const A* const decays = q + of_operands();
    const A* const scalar = memory.scalars + t * kOfToken;
    const A decay = scalar[0], amount = scalar[1], q_by = scalar[2], k_by = scalar[3];
    A* const found = memory.sums + t % 2 * threads();
    if (delta) {
      EachPart(ctx, [&](int n, int lane, int column) { found[lane * kColumns + column] = Found(q, lane, state[n]); });
      ctx.Sync();
    }
    EachPart(ctx, [&](int n, int lane, int column) {
      const A before = delta ? (by_row ? A(1) : decay) * k_by * SumOfLanes(found, column) : A(0);
      const A change = amount * k_by * (v[column] - before);
      EachFour(k + lane * kRows, [&](int i, const A(&of_k)[4]) {
        MESHWRIGHT_UNROLL
        for (int j = 0; j < 4; ++j) {
          const A of_row = by_row ? decays[lane * kRows + i + j] : decay;
          state[n][i + j] = of_row * state[n][i + j] + of_k[j] * change;
        }
      });
      if constexpr (kReads) {
        memory.rest[(t * lanes + lane) * kColumns + column] = q_by * Dot(q + lane * kRows, state[n]);
      }
    });
  }
};

// What a logit of a decay says of it.
template <class A>
struct DecayOf {
  A step, slope, decay;

  MESHWRIGHT_DEVICE DecayOf(A logit, A log_rate) {
    using std::exp;
    using std::log1p;
    step = logit > A(0) ? logit + log1p(exp(-logit)) : log1p(exp(logit));
    slope = A(1) / (A(1) + exp(-logit));
    decay = exp(-exp(log_rate) * step);
  }
};

// Of each row (place, row of the batch, group): what its query and key are multiplied by; then of each head decay,
// amount, step and the step's slope; where rows of the state decay apart, of these the amount alone, and behind them
// all decays. A block takes a row.
struct LinearAttentionScalars : StateWalk {
  double epsilon = 1e-6;              // of squares of lengths
  Ref gates, rates, biases, amounts;  // the last: where rows decay apart
  void* out = nullptr;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::exp;
    using std::sqrt;
    for (int64_t row = ctx.block(); row < s * b * groups; row += ctx.blocks()) {
      A* const to = static_cast<A*>(out) + row * of_scalars();
      for (int which = 0; which < 2; ++which) {
        A squares = A(0);
        for (int64_t i = ctx.thread(); delta && i < width; i += ctx.threads()) {
          const A value = Load<A>(x, Query(row) + which * width + i);
          squares += value * value;
        }
        squares = ctx.Sum(squares) + static_cast<A>(epsilon);
        if (ctx.thread() != 0) continue;
        to[which] = delta ? A(1) / sqrt(which == 0 ? squares * static_cast<A>(width) : squares) : A(1);
      }
      for (int64_t head = ctx.thread(); head < heads; head += ctx.threads()) {
        const int64_t gate = Gate(row, head), parameter = row % groups * heads + head;
        A* const of_head = to + 2 + 4 * head;
        if (by_row) {
          of_head[1] = A(1) / (A(1) + exp(-Load<A>(amounts, row * heads + head)));
          continue;
        }
        const DecayOf<A> of(Load<A>(gates, gate) + Load<A>(biases, parameter), Load<A>(rates, parameter));
        of_head[0] = of.decay;
        of_head[1] = delta ? A(1) / (A(1) + exp(-Load<A>(gates, gate + heads))) : of.step;
        of_head[2] = of.step;
        of_head[3] = of.slope;
      }
      for (int64_t e = ctx.thread(); by_row && e < heads * width; e += ctx.threads()) {
        const int64_t group = row % groups;
        const A logit = Load<A>(gates, Gate(row, 0) + e) + Load<A>(biases, group * heads * width + e);
        to[ScalarOfDecays(0) + e] = DecayOf<A>(logit, Load<A>(rates, group * heads + e / width)).decay;
      }
    }
  }
};

// y; or, where `marks` is not null, the state in front of every so manieth token, of each block one after the other.
struct LinearAttentionForward : StateWalk {
  static constexpr int kBlocksPerSm = 2;  // of 256 threads
  bool add = false;
  Ref weights, y;  // weights: of state spaces
  void* marks = nullptr;
  int64_t every = 0;

  MESHWRIGHT_DEVICE int64_t SharedElements() const { return StateWalk::SharedElements() + tokens * threads(); }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const Memory<A> memory = MemoryOf<A>(ctx);
    A state[Ctx::kPlays][kRows];
    for (int64_t block = ctx.block(); block < blocks(); block += ctx.blocks()) {
      const HeadColumns of = ColumnsOf(block);
      Recall<A>(ctx, nullptr, state);
      if (marks != nullptr) {
        A* const to = static_cast<A*>(marks) + block * ((s + every - 1) / every) * elements();
        Walk(ctx, of, 0, s, state, to, every, nullptr);
        continue;
      }
      const A weight = delta ? A(0) : Load<A>(weights, of.group * heads + of.head);
      Walk(ctx, of, 0, s, state, static_cast<A*>(nullptr), 0, [&](int64_t first, int32_t count) {
        for (int32_t e = ctx.thread(); e < count * kColumns; e += ctx.threads()) {
          const int32_t t = e / kColumns, column = e % kColumns;
          if (of.first + column >= value_width) continue;
          const A v = memory.tiles[t * of_tile() + 2 * rows() + column];
          const A value = SumOfLanes(memory.rest + t * threads(), column) + weight * v;
          Put(y, Result(Row(first + t, of.batch, of.group), of.head) + of.first + column, value, add);
        }
      });
    }
  }
};

// One part of the sequence backward, from the last to the first: of `part` tokens, themselves parts of `step` tokens.
// The state in front of a part is known; a walk keeps those in front of its parts, and a walk of each part those in
// front of its tokens. Writes the gradients of values. Sums over columns go to `partials`, of_sums() for each token of
// the part of each block, for LinearAttentionSums.
struct LinearAttentionBackward : StateWalk {
  bool add = false;
  Ref weights, dx;
  int64_t part = 1, step = 1, now = 0;  // `now`: which part
  const void* marks = nullptr;          // of LinearAttentionForward
  void *states = nullptr, *d_states = nullptr, *partials = nullptr;

  MESHWRIGHT_DEVICE int64_t SharedElements() const { return StateWalk::SharedElements() + of_sums() * (kColumns + 1); }
  MESHWRIGHT_DEVICE int64_t parts() const { return (s + part - 1) / part; }
  // Of `marks` and `states`, for a block.
  MESHWRIGHT_DEVICE int64_t of_marks() const { return parts() * elements(); }
  MESHWRIGHT_DEVICE int64_t of_states() const { return (part / step + step) * elements(); }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    A state[Ctx::kPlays][kRows], ds[Ctx::kPlays][kRows];
    const int64_t begin = now * part, end = s - begin < part ? s : begin + part;
    for (int64_t block = ctx.block(); block < blocks(); block += ctx.blocks()) {
      const HeadColumns of = ColumnsOf(block);
      A* const inner = static_cast<A*>(states) + block * of_states();
      A* const of_tokens = inner + part / step * elements();
      A* const d_state = static_cast<A*>(d_states) + block * elements();
      Recall(ctx, static_cast<const A*>(marks) + block * of_marks() + now * elements(), state);
      Walk(ctx, of, begin, end, state, inner, step, nullptr);
      Recall(ctx, end < s ? d_state : nullptr, ds);
      for (int64_t m = (end - begin - 1) / step; m >= 0; --m) {
        const int64_t first = begin + m * step, last = end - first < step ? end : first + step;
        Recall(ctx, inner + m * elements(), state);
        Walk(ctx, of, first, last, state, of_tokens, 1, nullptr);
        Back(ctx, of, first, last, of_tokens, static_cast<A*>(partials) + (block * part + m * step) * of_sums(), state,
             ds);
      }
      Keep(ctx, ds, d_state);
    }
  }

 private:
  // `ds` is the gradient of the state behind the tokens, then of that in front.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Back(Ctx& ctx, const HeadColumns& of, int64_t first, int64_t last, const A* of_tokens, A* to,
                              A (&state)[Ctx::kPlays][kRows], A (&ds)[Ctx::kPlays][kRows]) const {
    const Memory<A> memory = MemoryOf<A>(ctx);
    const A weight = delta ? A(0) : Load<A>(weights, of.group * heads + of.head);
    Recall(ctx, of_tokens + (last - first - 1) * elements(), state);
    for (int64_t end = last; end > first;) {
      const int32_t count = end - first < tokens ? static_cast<int32_t>(end - first) : tokens;
      end -= count;
      Bring(ctx, of, end, count, memory);
      for (int32_t t = count; t-- > 0;) {
        const int64_t token = end + t - first;
        Sums(ctx, memory, t, state, ds);
        ctx.Sync();
        Step(ctx, of, Row(first + token, of.batch, of.group), memory, t, weight,
             of_tokens + (token > 0 ? token - 1 : 0) * elements(), state, ds);
        ctx.Sync();
        for (int32_t row = ctx.thread(); row < of_sums(); row += ctx.threads()) {
          const A* const from = memory.rest + row * (kColumns + 1);
          A sum[4] = {};
          for (int32_t c = 0; c < kColumns; c += 4) {
            MESHWRIGHT_UNROLL
            for (int j = 0; j < 4; ++j) sum[j] += from[c + j];
          }
          to[token * of_sums() + row] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
      }
    }
  }
  // What the query reads reaches ds; then over rows the sums with the key, of the state before and of ds.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Sums(Ctx& ctx, const Memory<A>& memory, int32_t t, const A (&state)[Ctx::kPlays][kRows],
                              A (&ds)[Ctx::kPlays][kRows]) const {
    const A *const q = memory.tiles + t * of_tile(), *const k = q + rows(), *const of_dy = k + rows() + kColumns;
    const A q_by = memory.scalars[t * kOfToken + 2];
    EachPart(ctx, [&](int n, int lane, int column) {
      const A d = q_by * of_dy[column];
      EachFour(q + lane * kRows, [&](int i, const A(&of_q)[4]) {
        MESHWRIGHT_UNROLL
        for (int j = 0; j < 4; ++j) ds[n][i + j] += of_q[j] * d;
      });
      A* const sums = memory.sums + lane * kColumns + column;
      if (delta) sums[0] = Found(q, lane, state[n]);
      sums[threads()] = Dot(k + lane * kRows, ds[n]);
    });
  }
  // The token's gradients; `state` becomes that at `next`, the one before.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Step(Ctx& ctx, const HeadColumns& of, int64_t token_row, const Memory<A>& memory, int32_t t,
                              A weight, const A* next, A (&state)[Ctx::kPlays][kRows],
                              A (&ds)[Ctx::kPlays][kRows]) const {
    const A *const k = memory.tiles + t * of_tile() + rows(), *const v = k + rows(), *const of_dy = v + kColumns;
    const A* const decays = memory.tiles + t * of_tile() + of_operands();
    const A* const scalar = memory.scalars + t * kOfToken;
    const A decay = scalar[0], amount = scalar[1], k_by = scalar[3];
    EachPart(ctx, [&](int n, int lane, int column) {
      const A found = delta ? (by_row ? A(1) : decay) * k_by * SumOfLanes(memory.sums, column) : A(0);
      const A d_change = k_by * SumOfLanes(memory.sums + threads(), column);
      const A change = amount * (v[column] - found), d = of_dy[column], of_change = k_by * change;
      // By what was found.
      const A by_state = delta ? amount * d_change : A(0), by_key = delta ? k_by * amount * d_change : A(0);
      A* const of_q = memory.rest + lane * kRows * (kColumns + 1) + column;
      A* const of_k = of_q + rows() * (kColumns + 1);
      A* const others = of_q - lane * kRows * (kColumns + 1) + 2 * rows() * (kColumns + 1);
      A of_decay = A(0);
      EachFour(k + lane * kRows, [&](int i, const A(&key)[4]) {
        MESHWRIGHT_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int r = i + j;
          const A of_row = by_row ? decays[lane * kRows + r] : decay, before = state[n][r];
          of_q[r * (kColumns + 1)] = (of_row * before + key[j] * of_change) * d;
          of_k[r * (kColumns + 1)] = ds[n][r] * change - of_row * before * by_state;
          const A in_front = ds[n][r] - key[j] * by_key;
          if (by_row) {
            others[(lane * kRows + r) * (kColumns + 1)] = in_front * before;
          } else {
            of_decay += in_front * before;
          }
          ds[n][r] = of_row * in_front;
          state[n][r] = next[(lane * kRows + r) * kColumns + column];
        }
      });
      if (!by_row) others[lane * (kColumns + 1)] = of_decay;
      if (lane != 0) return;
      others[sums_of_decays() * (kColumns + 1)] = d_change * (v[column] - found);
      others[(sums_of_decays() + 1) * (kColumns + 1)] = d * v[column];
      if (of.first + column >= value_width) return;
      Put(dx, Value(token_row, of.head) + of.first + column, amount * d_change + weight * d, add);
    });
  }
};

// Sums what LinearAttentionBackward leaves over blocks: gradients of q, k and gates, and of amounts. Of each decay, row
// of the batch and token goes to `parameters` what it adds to the gradients of rate and bias, and behind these of each
// head to that of its weight, to be reduced. A block takes a token of a pair.
struct LinearAttentionSums : StateWalk {
  bool add = false, add_gates = false, add_amounts = false;
  Ref dx, d_gates, d_amounts, gates, rates, biases;
  int64_t part = 1, begin = 0, count = 0;  // tokens
  const void* partials = nullptr;
  void* parameters = nullptr;  // twice (groups, heads, decays, b, s), then (groups, heads, b, s)

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    for (int64_t e = ctx.block(); e < count * pairs; e += ctx.blocks()) {
      const int64_t token = e / pairs, pair = e % pairs, batch = (first_pair + pair) / groups,
                    group = (first_pair + pair) % groups, row = Row(begin + token, batch, group);
      const int64_t blocks_of_head = slices(), blocks_of_pair = heads * blocks_of_head;
      const A* const of_row = static_cast<const A*>(scalars) + row * of_scalars();
      // Of each block the sums are so far apart.
      const int64_t stride = part * of_sums();
      const A* const from = static_cast<const A*>(partials) + pair * blocks_of_pair * stride + token * of_sums();
      for (int which = 0; which < 2; ++which) {
        OfUnit(ctx, from + which * rows(), blocks_of_pair, stride, of_row[which], which == 0,
               Query(row) + which * width);
      }
      for (int64_t head = ctx.thread(); head < heads; head += ctx.threads()) {
        A sums[3] = {};
        for (int64_t block = head * blocks_of_head; block < (head + 1) * blocks_of_head; ++block) {
          const A* const others = from + block * stride + 2 * rows();
          for (int lane = 0; !by_row && lane < lanes; ++lane) sums[0] += others[lane];
          sums[1] += others[sums_of_decays()];
          sums[2] += others[sums_of_decays() + 1];
        }
        OfHead(row, batch * s + begin + token, head, of_row + 2 + 4 * head, sums);
      }
      for (int64_t e = ctx.thread(); by_row && e < heads * width; e += ctx.threads()) {
        const int64_t head = e / width;
        A sum = A(0);
        for (int64_t block = head * blocks_of_head; block < (head + 1) * blocks_of_head; ++block) {
          sum += from[block * stride + 2 * rows() + e % width];
        }
        OfDecay(row, batch * s + begin + token, e, sum);
      }
    }
  }

 private:
  // From the gradient of y = by * x, which is summed over blocks, to that of x, by the inverse of x's length, of a
  // query over the root of the width.
  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void OfUnit(Ctx& ctx, const A* from, int64_t blocks_of_pair, int64_t stride, A by, bool query,
                                int64_t at) const {
    A* const d = static_cast<A*>(ctx.shared());  // each thread reads what it has written
    A along = A(0);
    for (int64_t i = ctx.thread(); i < width; i += ctx.threads()) {
      A sum = A(0);
      for (int64_t block = 0; block < blocks_of_pair; ++block) sum += from[block * stride + i];
      d[i] = sum;
      if (delta) along += by * Load<A>(x, at + i) * sum;
    }
    if (delta) along = ctx.Sum(along) * (query ? static_cast<A>(width) : A(1));
    for (int64_t i = ctx.thread(); i < width; i += ctx.threads()) {
      const A y = delta ? by * Load<A>(x, at + i) : A(0);
      Put(dx, at + i, by * (d[i] - y * along), add);
    }
  }
  // `sums`: the gradients of decay, amount and weight.
  template <class A>
  MESHWRIGHT_DEVICE void OfHead(int64_t row, int64_t token, int64_t head, const A* scalar, const A (&sums)[3]) const {
    using std::exp;
    const int64_t all = groups * heads, parameter = row % groups * heads + head;
    const A decay = scalar[0], amount = scalar[1], step = scalar[2], slope = scalar[3];
    if (by_row) {
      Put(d_amounts, row * heads + head, sums[1] * amount * (A(1) - amount), add_amounts);
      return;
    }
    const A by_rate = -exp(Load<A>(rates, parameter)) * sums[0] * decay;
    const A d_logit = (by_rate + (delta ? A(0) : sums[1])) * slope;
    const int64_t gate = Gate(row, head);
    Put(d_gates, gate, d_logit, add_gates);
    if (delta) Put(d_gates, gate + heads, sums[1] * amount * (A(1) - amount), add_gates);
    const A of_parameters[3] = {by_rate * step, d_logit, sums[2]};
    MESHWRIGHT_UNROLL
    for (int i = 0; i < 3; ++i) {
      static_cast<A*>(parameters)[((i * all + parameter) * b) * s + token] = of_parameters[i];
    }
  }
  // `e` of a group's decays; `d_decay`: its gradient.
  template <class A>
  MESHWRIGHT_DEVICE void OfDecay(int64_t row, int64_t token, int64_t e, A d_decay) const {
    using std::exp;
    const int64_t group = row % groups, all = groups * heads * width, parameter = group * heads * width + e;
    const A log_rate = Load<A>(rates, group * heads + e / width);
    const DecayOf<A> of(Load<A>(gates, Gate(row, 0) + e) + Load<A>(biases, parameter), log_rate);
    const A by_rate = -exp(log_rate) * d_decay * of.decay;
    Put(d_gates, Gate(row, 0) + e, by_rate * of.slope, add_gates);
    A* const to = static_cast<A*>(parameters) + parameter * b * s + token;
    to[0] = by_rate * of.step;
    to[all * b * s] = by_rate * of.slope;
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LINEAR_ATTENTION_H_
