// __half for the CPU stand-in: IEEE binary16 by conversion to and from float, rounding to nearest even.
#ifndef LATECOMER_SHIM_CUDA_FP16_H
#define LATECOMER_SHIM_CUDA_FP16_H

#include <cmath>
#include <cstdint>
#include <cstring>

struct __half {
  uint16_t bits;
};

inline float __half2float(__half h) {
  const int sign = h.bits >> 15, exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  float value;
  if (exponent == 31)
    value = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(fraction), -24);
  else
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return sign ? -value : value;
}

inline __half __float2half_rn(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (size >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};  // half way above the greatest
  if (size < 0x1p-14f) {
    const uint16_t steps = static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
    return {static_cast<uint16_t>(sign | steps)};
  }
  int exponent;
  const float fraction = std::frexp(size, &exponent);  // 0.5 … 1
  const uint16_t digits = static_cast<uint16_t>(std::nearbyint(std::ldexp(fraction, 11)));  // 1024 … 2048
  return {static_cast<uint16_t>(sign | (((exponent + 13) << 10) + digits))};  // a carry moves to the exponent
}

#endif
