// Quantities with units, so that bytes are not mistaken for operations or bits for bytes.
//
// A Quantity is one number with a unit in its type. Same units add and compare; a number scales; the few products and
// ratios that mean something (bytes / rate = time) are spelled out at the end of this file. Nothing else compiles.
//
// Time is an integer number of nanoseconds everywhere: sums do not depend on their order, and tests compare with ==.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_IR_QUANTITIES_H_
#define MESHWRIGHT_IR_QUANTITIES_H_

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

namespace meshwright {

template <class Tag, class Rep>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep base_units) : n_(base_units) {}
  constexpr Rep raw() const { return n_; }  // in the base unit named beside each alias below

  constexpr Quantity& operator+=(Quantity other) {
    n_ += other.n_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    n_ -= other.n_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.n_ + b.n_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.n_ - b.n_); }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.n_ * k); }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return Quantity(a.n_ * k); }
  friend constexpr Quantity operator/(Quantity a, Rep k) { return Quantity(a.n_ / k); }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  Rep n_ = 0;
};

using Bytes = Quantity<struct BytesTag, int64_t>;                   // bytes
using Nanos = Quantity<struct NanosTag, int64_t>;                   // nanoseconds, a duration or a point in time
using Flops = Quantity<struct FlopsTag, double>;                    // operations; a multiply-add counts two
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;  // bytes per second, one direction
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;  // operations per second

constexpr Bytes KiB(int64_t n) { return Bytes(n << 10); }  // memory: powers of two
constexpr Bytes MiB(int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(int64_t n) { return Bytes(n << 30); }
constexpr BytesPerSecond GBps(double n) { return BytesPerSecond(n * 1e9); }  // links: powers of ten
constexpr FlopsPerSecond Teraflops(double n) { return FlopsPerSecond(n * 1e12); }
constexpr Nanos Micros(double n) { return Nanos(static_cast<int64_t>(n * 1e3 + 0.5)); }
constexpr Nanos Millis(double n) { return Nanos(static_cast<int64_t>(n * 1e6 + 0.5)); }

// The end of time: what a price becomes when it cannot be expressed (a rate of zero). Adding to it must be avoided.
inline constexpr Nanos kForever = Nanos(std::numeric_limits<int64_t>::max() / 4);

inline Nanos FromSeconds(double seconds) {
  if (!(seconds < 2.0e9)) return kForever;
  return Nanos(std::llround(seconds * 1e9));
}
constexpr double ToSeconds(Nanos t) { return static_cast<double>(t.raw()) * 1e-9; }

inline Nanos operator/(Bytes b, BytesPerSecond r) { return FromSeconds(static_cast<double>(b.raw()) / r.raw()); }
inline Nanos operator/(Flops f, FlopsPerSecond r) { return FromSeconds(f.raw() / r.raw()); }

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_QUANTITIES_H_
