// The convolution in front of linear attention and state spaces (ir/op_list.h, CausalConv), and its gradient. See
// kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_CAUSAL_CONV_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_CAUSAL_CONV_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// `x` is (s, b, channels), `weight` (channels, taps); the bias may be missing.
struct ConvOperands {
  int64_t s = 0, b = 1, channels = 0, taps = 1;
  SequenceOrder order;
  Ref x, weight, bias, dy;  // dy: of gradients

  MESHWRIGHT_DEVICE int64_t At(int64_t position, int64_t batch, int64_t channel) const {
    return (order.PlaceOf(position) * b + batch) * channels + channel;
  }
  // What taps and bias sum up to.
  template <class A>
  MESHWRIGHT_DEVICE A Sum(int64_t position, int64_t batch, int64_t channel) const {
    A sum = bias.data != nullptr ? Load<A>(bias, channel) : A(0);
    for (int64_t i = position < taps - 1 ? taps - 1 - position : 0; i < taps; ++i) {
      sum += Load<A>(weight, channel * taps + i) * Load<A>(x, At(position - (taps - 1 - i), batch, channel));
    }
    return sum;
  }
  // The gradient of that sum.
  template <class A>
  MESHWRIGHT_DEVICE A Gradient(int64_t position, int64_t batch, int64_t channel) const {
    using std::exp;
    const A sum = Sum<A>(position, batch, channel), sigmoid = A(1) / (A(1) + exp(-sum));
    return Load<A>(dy, At(position, batch, channel)) * sigmoid * (A(1) + sum * (A(1) - sigmoid));
  }
};

// A thread for each element: y, or dx, which is gathered from the sums that read x.
struct CausalConv {
  bool gradient = false, add = false;
  ConvOperands c;
  Ref out;
  Places places;  // place, row of the batch, channel

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::exp;
    for (int64_t e = First(ctx); e < places.total; e += Step(ctx)) {
      int64_t at[3];
      places.At(e, at);
      const int64_t position = c.order.PositionOf(at[0]);
      if (!gradient) {
        const A sum = c.template Sum<A>(position, at[1], at[2]);
        Put(out, e, sum / (A(1) + exp(-sum)), add);
        continue;
      }
      A value = A(0);
      for (int64_t back = 0; back < c.taps && position + back < c.s; ++back) {
        value += Load<A>(c.weight, at[2] * c.taps + c.taps - 1 - back) *
                 c.template Gradient<A>(position + back, at[1], at[2]);
      }
      Put(out, e, value, add);
    }
  }
};

// Gradients of weight and bias, of `parts` parts of the sequence each: (parts, channels, taps) and (parts, channels),
// to be reduced. A thread for kTaps taps of a channel of a part.
struct CausalConvParameters {
  static constexpr int kTaps = 8;
  ConvOperands c;
  int64_t parts = 1;
  Ref d_weight, d_bias;  // the second may be missing

  int64_t Points() const { return parts * c.channels * ((c.taps + kTaps - 1) / kTaps); }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    const int64_t each = c.s / parts, sets = (c.taps + kTaps - 1) / kTaps;
    for (int64_t e = First(ctx); e < parts * sets * c.channels; e += Step(ctx)) {
      const int64_t channel = e % c.channels, part = e / c.channels / sets, tap = e / c.channels % sets * kTaps;
      A sums[kTaps] = {}, of_bias = A(0);
      for (int64_t position = part * each; position < (part + 1) * each; ++position) {
        for (int64_t batch = 0; batch < c.b; ++batch) {
          const A d = c.template Gradient<A>(position, batch, channel);
          of_bias += d;
          MESHWRIGHT_UNROLL
          for (int i = 0; i < kTaps; ++i) {
            const int64_t from = position - (c.taps - 1 - tap - i);
            if (tap + i < c.taps && from >= 0) sums[i] += d * Load<A>(c.x, c.At(from, batch, channel));
          }
        }
      }
      const int64_t to = part * c.channels + channel;
      MESHWRIGHT_UNROLL
      for (int i = 0; i < kTaps; ++i) {
        if (tap + i < c.taps) Store(d_weight, to * c.taps + tap + i, sums[i]);
      }
      if (d_bias.data != nullptr && tap == 0) Store(d_bias, to, of_bias);
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_CAUSAL_CONV_H_
