// The heads of latent attention, put together and taken apart (ir/op_list.h, LatentHeads). See kernels/simt.h.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LATENT_HEADS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LATENT_HEADS_H_

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda {

// A block has the heads of one row at one position, whose angles it computes once. `query` is (s, b, g, width),
// `shared` (s, b, positions), `latent` (s, b, g, width - positions + value_width), `packed` (s, b, g, 2 width +
// value_width); with `back` all are gradients, and `packed` is read.
struct LatentHeads {
  bool back = false, add[3] = {};  // to the operands that are written
  double theta = 10000;
  Ref query, shared, latent, packed;
  int64_t rows = 0, b = 1, g = 0, width = 0, value_width = 0, positions = 0;
  SequenceOrder order;

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Run(Ctx& ctx) const {
    using std::cos;
    using std::pow;
    using std::sin;
    const int64_t half = positions / 2;
    A* const cosine = static_cast<A*>(ctx.shared());
    A* const sine = cosine + half;
    for (int64_t row = ctx.block(); row < rows; row += ctx.blocks()) {
      const auto position = static_cast<double>(order.PositionOf(row / b));
      ctx.Sync();
      for (int64_t i = ctx.thread(); i < half; i += ctx.threads()) {
        const double angle = position * pow(theta, -static_cast<double>(i) / static_cast<double>(half));
        cosine[i] = static_cast<A>(cos(angle));
        sine[i] = static_cast<A>((back ? -1 : 1) * sin(angle));
      }
      ctx.Sync();
      if (back) {
        TakeApart(ctx, row, cosine, sine);
      } else {
        Join(ctx, row, cosine, sine);
      }
    }
  }

 private:
  // Element i of the turned elements that begin at `at`.
  template <class A>
  MESHWRIGHT_DEVICE A Turned(const Ref& from, int64_t at, int64_t i, const A* cosine, const A* sine) const {
    const int64_t half = positions / 2;
    if (i < half) return Load<A>(from, at + i) * cosine[i] - Load<A>(from, at + i + half) * sine[i];
    return Load<A>(from, at + i) * cosine[i - half] + Load<A>(from, at + i - half) * sine[i - half];
  }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void Join(Ctx& ctx, int64_t row, const A* cosine, const A* sine) const {
    const int64_t plain = width - positions, of_latent = plain + value_width, all = 2 * width + value_width;
    for (int64_t e = ctx.thread(); e < g * all; e += ctx.threads()) {
      const int64_t head = row * g + e / all, c = e % all, k = c - width;
      A value;
      if (c < plain) {
        value = Load<A>(query, head * width + c);
      } else if (c < width) {
        value = Turned(query, head * width + plain, c - plain, cosine, sine);
      } else if (k < plain) {
        value = Load<A>(latent, head * of_latent + k);
      } else if (k < width) {
        value = Turned(shared, row * positions, k - plain, cosine, sine);
      } else {
        value = Load<A>(latent, head * of_latent + plain + k - width);
      }
      Put(packed, head * all + c, value, add[0]);
    }
  }

  template <class A, class Ctx>
  MESHWRIGHT_DEVICE void TakeApart(Ctx& ctx, int64_t row, const A* cosine, const A* sine) const {
    const int64_t plain = width - positions, of_latent = plain + value_width, all = 2 * width + value_width;
    for (int64_t e = ctx.thread(); e < g * (width + of_latent); e += ctx.threads()) {
      const int64_t head = row * g + e / (width + of_latent), c = e % (width + of_latent), from = head * all;
      if (c < width) {
        const A value = c < plain ? Load<A>(packed, from + c) : Turned(packed, from + plain, c - plain, cosine, sine);
        Put(query, head * width + c, value, add[0]);
      } else {
        const int64_t k = c - width, at = k < plain ? width + k : 2 * width + k - plain;
        Put(latent, head * of_latent + k, Load<A>(packed, from + at), add[2]);
      }
    }
    for (int64_t i = ctx.thread(); i < positions; i += ctx.threads()) {
      A sum = A(0);
      for (int64_t head = row * g; head < (row + 1) * g; ++head) {
        sum += Turned(packed, head * all + width + plain, i, cosine, sine);
      }
      Put(shared, row * positions + i, sum, add[1]);
    }
  }
};

}  // namespace meshwright::cuda

#endif  // MESHWRIGHT_EXECUTOR_CUDA_KERNELS_LATENT_HEADS_H_
