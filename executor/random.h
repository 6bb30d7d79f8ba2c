// Random numbers by place: the same for an element of a tensor however the tensor is split, and whoever asks.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_EXECUTOR_RANDOM_H_
#define MESHWRIGHT_EXECUTOR_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

#include "absl/strings/string_view.h"
#include "executor/kernel_call.h"

namespace meshwright {

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the result depends on every bit of x.
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// SplitMix64 with its counter as an argument: the stream of (seed, name, layer), element by element.
class Draws {
 public:
  Draws(uint64_t seed, absl::string_view name, int64_t layer) : key_(Mix(seed + kStep)) {
    for (const char c : name) key_ = Mix((key_ ^ static_cast<uint8_t>(c)) + kStep);
    key_ = Mix(key_ + kStep * static_cast<uint64_t>(layer + 1));
  }
  // The stream of number `part` among many behind this one.
  Draws Sub(int64_t part) const {
    Draws draws = *this;
    draws.key_ = Mix(key_ + kStep * (static_cast<uint64_t>(part) + 1));
    return draws;
  }
  // In [0, 1), 53 bits.
  double Uniform(uint64_t counter) const {
    return static_cast<double>(Mix(key_ + kStep * (counter + 1)) >> 11) * 0x1.0p-53;
  }
  // Box and Muller's transform of two uniform numbers; the first is moved to (0, 1].
  double Normal(uint64_t element) const {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform(2 * element)));
    return radius * std::cos(2 * std::numbers::pi * Uniform(2 * element + 1));
  }
  // What makes this stream: for who draws from it elsewhere, as Uniform does.
  uint64_t key() const { return key_; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, odd
  uint64_t key_;
};

// Calls f(place in the piece, row-major element number in the whole) for every element, row by row.
template <class F>
void ForEachElement(const TensorView& piece, const F& f) {
  const size_t dims = piece.shape.size();
  const int64_t row = dims == 0 ? 1 : piece.shape.back();
  Shape at(dims, 0);
  for (int64_t i = 0, n = piece.size(); i < n; i += row) {
    int64_t element = 0;
    for (size_t d = 0; d < dims; ++d) element = element * piece.global[d] + piece.begin[d] + at[d];
    for (int64_t k = 0; k < row; ++k) f(i + k, element + k);
    for (size_t d = dims; d-- > 1;) {
      if (++at[d - 1] < piece.shape[d - 1]) break;
      at[d - 1] = 0;
    }
  }
}

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_RANDOM_H_
