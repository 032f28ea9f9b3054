// convert.hpp - float32 to and from the narrow formats:
//
//   to_float(bfloat16{bits})          from_float<bfloat16>(value)
//
// for bfloat16, float16, float8_e4m3fn (OCP), float8_e4m3fnuz and float8_e5m2;
// float itself passes through, so kernels can be templates over the element.
//
// from_float rounds correctly: to nearest, ties to even, subnormals included. Out
// of range ("overflow" is decided after rounding as if exponents had no bound):
//   bfloat16, float16   overflow and infinity give infinity; NaN stays NaN (quiet,
//                       sign kept)
//   float8 formats      saturate: overflow *and* infinity give the largest finite
//                       value of that sign (448, 240, 57344); NaN stays NaN. e4m3fnuz
//                       has one NaN (0x80) and no minus zero: what rounds to zero is +0
//
// Everything is integer arithmetic and single IEEE additions, which are exact or
// rounded to nearest on every processor: all back ends give the same bits.
// Branches are written as selects, so that g++ -O3 vectorises loops over them. Code
// must not be built with -ffast-math, nor flush subnormals.
#pragma once

#include <mori/device/core.hpp>

namespace mori::device {

struct bfloat16 {
  u16 bits;
};
struct float16 {
  u16 bits;
};
struct float8_e4m3fn {
  u8 bits;
};
struct float8_e4m3fnuz {
  u8 bits;
};
struct float8_e5m2 {
  u8 bits;
};

namespace convert {

inline constexpr u32 sign_mask = 0x8000'0000u;
inline constexpr u32 infinity = 0x7f80'0000u;

// Narrow magnitude with E exponent and M mantissa bits and the given bias, no
// special values, to float: subnormals by subtracting the implied one.
template <u32 M, u32 Bias>
MORI_HOT u32 widen_magnitude(u32 magnitude) {
  constexpr u32 rebias = (127 - Bias) << 23;
  constexpr u32 one = (128 - Bias) << 23;  // the smallest normal number
  const u32 shifted = magnitude << (23 - M);
  const u32 normal = shifted + rebias;
  const u32 subnormal = bit_cast<u32>(bit_cast<float>(shifted + one) - bit_cast<float>(one));
  return magnitude >> M == 0 ? subnormal : normal;
}

// Float magnitude bits (finite) to a narrow magnitude, rounded to nearest even. A
// result past the largest encoding is left for the caller to clamp.
template <u32 M, u32 Bias>
MORI_HOT u32 narrow_magnitude(u32 magnitude) {
  constexpr u32 drop = 23 - M;
  constexpr u32 rebias = (127 - Bias) << 23;
  constexpr u32 smallest_normal = (128 - Bias) << 23;
  // A number of the binade whose last place is the narrow format's smallest subnormal.
  constexpr u32 anchor = (128 - Bias + drop) << 23;
  const u32 odd = magnitude >> drop & 1;
  const u32 normal = (magnitude - rebias + ((1u << (drop - 1)) - 1) + odd) >> drop;
  const u32 subnormal =
      bit_cast<u32>(bit_cast<float>(magnitude) + bit_cast<float>(anchor)) - anchor;
  return magnitude < smallest_normal ? subnormal : normal;
}

}  // namespace convert

MORI_HOT float to_float(float value) { return value; }

MORI_HOT float to_float(bfloat16 value) {
  return bit_cast<float>(static_cast<u32>(value.bits) << 16);
}

MORI_HOT float to_float(float16 value) {
  const u32 magnitude = value.bits & 0x7fffu;
  const u32 sign = static_cast<u32>(value.bits & 0x8000u) << 16;
  const u32 special = magnitude >= 0x7c00u ? (112u << 23) : 0u;  // to the float's top exponent
  return bit_cast<float>((convert::widen_magnitude<10, 15>(magnitude) + special) | sign);
}

MORI_HOT float to_float(float8_e4m3fn value) {
  const u32 magnitude = value.bits & 0x7fu;
  const u32 sign = static_cast<u32>(value.bits & 0x80u) << 24;
  const u32 wide = convert::widen_magnitude<3, 7>(magnitude);
  return bit_cast<float>((magnitude == 0x7fu ? 0x7fc0'0000u : wide) | sign);
}

MORI_HOT float to_float(float8_e4m3fnuz value) {
  const u32 magnitude = value.bits & 0x7fu;
  const u32 sign = static_cast<u32>(value.bits & 0x80u) << 24;
  const u32 wide = convert::widen_magnitude<3, 8>(magnitude);
  return bit_cast<float>(value.bits == 0x80u ? 0x7fc0'0000u : wide | sign);
}

MORI_HOT float to_float(float8_e5m2 value) {
  const u32 magnitude = value.bits & 0x7fu;
  const u32 sign = static_cast<u32>(value.bits & 0x80u) << 24;
  const u32 special = magnitude >= 0x7cu ? (112u << 23) : 0u;
  return bit_cast<float>((convert::widen_magnitude<2, 15>(magnitude) + special) | sign);
}

namespace convert {

template <class To>
struct narrow;

template <>
struct narrow<float> {
  static MORI_HOT float of(float value) { return value; }
};

template <>
struct narrow<bfloat16> {
  static MORI_HOT bfloat16 of(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    const u32 nan = bits >> 16 | 0x40u;
    return {static_cast<u16>((bits & ~sign_mask) > infinity ? nan : rounded)};
  }
};

template <>
struct narrow<float16> {
  static MORI_HOT float16 of(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 magnitude = bits & ~sign_mask;
    const u32 finite = min(narrow_magnitude<10, 15>(min(magnitude, 0x4780'0000u)), 0x7c00u);
    const u32 nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    return {static_cast<u16>((magnitude > infinity ? nan : finite) | (bits >> 16 & 0x8000u))};
  }
};

template <>
struct narrow<float8_e4m3fn> {
  static MORI_HOT float8_e4m3fn of(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 magnitude = bits & ~sign_mask;
    const u32 finite = min(narrow_magnitude<3, 7>(min(magnitude, 0x4400'0000u)), 0x7eu);
    return {static_cast<u8>((magnitude > infinity ? 0x7fu : finite) | (bits >> 24 & 0x80u))};
  }
};

template <>
struct narrow<float8_e4m3fnuz> {
  static MORI_HOT float8_e4m3fnuz of(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 magnitude = bits & ~sign_mask;
    const u32 finite = min(narrow_magnitude<3, 8>(min(magnitude, 0x4400'0000u)), 0x7fu);
    const u32 sign = finite == 0 ? 0u : bits >> 24 & 0x80u;
    return {static_cast<u8>(magnitude > infinity ? 0x80u : finite | sign)};
  }
};

template <>
struct narrow<float8_e5m2> {
  static MORI_HOT float8_e5m2 of(float value) {
    const u32 bits = bit_cast<u32>(value);
    const u32 magnitude = bits & ~sign_mask;
    const u32 finite = min(narrow_magnitude<2, 15>(min(magnitude, 0x4780'0000u)), 0x7bu);
    return {static_cast<u8>((magnitude > infinity ? 0x7eu : finite) | (bits >> 24 & 0x80u))};
  }
};

}  // namespace convert

template <class To>
MORI_HOT To from_float(float value) {
  return convert::narrow<To>::of(value);
}

}  // namespace mori::device
