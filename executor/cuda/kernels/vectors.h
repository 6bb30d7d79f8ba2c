// Bodies that take eight neighbouring elements at a time, in pieces of 16 bytes, where their operands let them: one
// text for both, written for N elements.
//
//   OverRange<A>(First(ctx), Step(ctx), n, vectors, [&](auto some, int64_t i) {
//     constexpr int N = some;                          // 8, or 1
//     const auto got = Fetch<A, N>(x, i), also = Fetch<A, N>(w, i);
//     A a[N], b[N];
//     Unpack(x.type, got, a);
//     Unpack(w.type, also, b);
//     ...
//     PutSome(y, i, a, add);
//   });
//
// Elements are of 16 or 32 bits then, and computed in float; vectors begin at multiples of 16 bytes (lowering.h
// checks).
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_VECTORS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_VECTORS_H_

#include <type_traits>

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

inline constexpr int kVector = 8;

// Elements as they are in memory. They are unpacked apart from being fetched, so that several operands are on their way
// at the same time.
template <class A, int N>
struct Some {
  Piece raw[2];  // the second for elements of 32 bits
  bool same;     // raw has one element for all, as a float
};
template <class A>
struct Some<A, 1> {
  A value;
};

MESHWRIGHT_DEVICE bool IsNarrow(Elem type) { return type == Elem::kBFloat16 || type == Elem::kFloat16; }
MESHWRIGHT_DEVICE Piece* PiecesAt(const Ref& ref, int64_t i) {
  return reinterpret_cast<Piece*>(static_cast<unsigned char*>(ref.data) + i * (IsNarrow(ref.type) ? 2 : 4));
}

// `same`: element i for all of them.
template <class A, int N>
MESHWRIGHT_DEVICE Some<A, N> Fetch(const Ref& ref, int64_t i, bool same = false) {
  Some<A, N> some;
  if constexpr (N == 1) {
    some.value = Load<A>(ref, i);
  } else {
    some.same = same;
    if (same) {
      some.raw[0].words[0] = ToBits(Load<float>(ref, i));
    } else {
      const Piece* const from = PiecesAt(ref, i);
      some.raw[0] = from[0];
      if (!IsNarrow(ref.type)) some.raw[1] = from[1];
    }
  }
  return some;
}

template <class A, int N>
MESHWRIGHT_DEVICE void Unpack(Elem type, const Some<A, N>& some, A (&x)[N]) {
  if constexpr (N == 1) {
    x[0] = some.value;
  } else if (some.same) {
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) x[j] = FromBits(some.raw[0].words[0]);
  } else if (type == Elem::kBFloat16) {
    MESHWRIGHT_UNROLL
    for (int w = 0; w < N / 2; ++w) {
      x[2 * w] = Low<Elem::kBFloat16>(some.raw[0].words[w]);
      x[2 * w + 1] = High<Elem::kBFloat16>(some.raw[0].words[w]);
    }
  } else if (type == Elem::kFloat16) {
    MESHWRIGHT_UNROLL
    for (int w = 0; w < N / 2; ++w) {
      x[2 * w] = Low<Elem::kFloat16>(some.raw[0].words[w]);
      x[2 * w + 1] = High<Elem::kFloat16>(some.raw[0].words[w]);
    }
  } else if (type == Elem::kInt32) {
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) x[j] = static_cast<A>(static_cast<int32_t>(some.raw[j / 4].words[j % 4]));
  } else {
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) x[j] = FromBits(some.raw[j / 4].words[j % 4]);
  }
}
template <class A, int N>
MESHWRIGHT_DEVICE void LoadSome(const Ref& ref, int64_t i, A (&x)[N]) {
  Unpack(ref.type, Fetch<A, N>(ref, i), x);
}

// Writes, or adds to what is there.
template <class A, int N>
MESHWRIGHT_DEVICE void PutSome(const Ref& ref, int64_t i, const A (&x)[N], bool add = false) {
  if constexpr (N == 1) {
    Put(ref, i, x[0], add);
  } else {
    A y[N] = {};
    if (add) LoadSome(ref, i, y);
    MESHWRIGHT_UNROLL
    for (int j = 0; j < N; ++j) y[j] = add ? y[j] + x[j] : x[j];
    Piece raw[2];
    if (ref.type == Elem::kBFloat16) {
      MESHWRIGHT_UNROLL
      for (int w = 0; w < N / 2; ++w) raw[0].words[w] = Pack<Elem::kBFloat16>(y[2 * w], y[2 * w + 1]);
    } else if (ref.type == Elem::kFloat16) {
      MESHWRIGHT_UNROLL
      for (int w = 0; w < N / 2; ++w) raw[0].words[w] = Pack<Elem::kFloat16>(y[2 * w], y[2 * w + 1]);
    } else if (ref.type == Elem::kInt32) {
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) raw[j / 4].words[j % 4] = static_cast<uint32_t>(static_cast<int32_t>(y[j]));
    } else {
      MESHWRIGHT_UNROLL
      for (int j = 0; j < N; ++j) raw[j / 4].words[j % 4] = ToBits(y[j]);
    }
    Piece* const to = PiecesAt(ref, i);
    to[0] = raw[0];
    if (!IsNarrow(ref.type)) to[1] = raw[1];
  }
}

// Calls f(N, i) for the elements below `total` that thread `first` of `step` takes: for N = 8 of them from i on, with
// `vectors`, and for what is left with N = 1.
template <class A, class F>
MESHWRIGHT_DEVICE void OverRange(int64_t first, int64_t step, int64_t total, bool vectors, const F& f) {
  int64_t done = 0;
  if constexpr (std::is_same_v<A, float>) {
    if (vectors) {
      done = total / kVector * kVector;
      for (int64_t i = first * kVector; i < done; i += step * kVector) f(std::integral_constant<int, kVector>(), i);
    }
  }
  for (int64_t i = done + first; i < total; i += step) f(std::integral_constant<int, 1>(), i);
}

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_VECTORS_H_
