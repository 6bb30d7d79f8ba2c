// 16-bit floating types in memory, as float32 in arithmetic: IEEE 754 binary16 and bfloat16, rounded to the nearest,
// ties to even; what is too large becomes infinite.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_EXECUTOR_NARROW_FLOATS_H_
#define MESHWRIGHT_EXECUTOR_NARROW_FLOATS_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "ir/dtype.h"

namespace meshwright {

constexpr bool IsNarrow(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

inline float FromFloat16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float subnormal = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -subnormal : subnormal;
}

inline uint16_t ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00u;
  if (size >= 65520) return sign | 0x7c00u;  // halfway from the largest number, 65504, to the next power of two
  if (size < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  // Ten of the 23 bits of the fraction stay; the carry of rounding goes on into the exponent.
  const uint32_t rest = bits & 0x7fffffffu, odd = rest >> 13 & 1;
  return sign | static_cast<uint16_t>((rest - (112u << 23) + 0xfffu + odd) >> 13);
}

inline float FromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// REQUIRES: IsNarrow(dtype).
inline float FromNarrow(DType dtype, uint16_t bits) {
  return dtype == DType::kFloat16 ? FromFloat16(bits) : FromBFloat16(bits);
}
inline uint16_t ToNarrow(DType dtype, float value) {
  return dtype == DType::kFloat16 ? ToFloat16(value) : ToBFloat16(value);
}

}  // namespace meshwright

#endif  // MESHWRIGHT_EXECUTOR_NARROW_FLOATS_H_
