// number_format.cpp - see number_format.hpp.
#include "kernels/number_format.hpp"

#include <mori/ep.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace mori::ep_reference {
namespace {

uint32_t sign_bit(const number_format& f) { return 1u << (f.exponent_bits + f.fraction_bits); }

uint32_t nan_bits(const number_format& f) {
  if (f.unsigned_zero) return sign_bit(f);
  const uint32_t all_exponent = ((1u << f.exponent_bits) - 1) << f.fraction_bits;
  // IEEE: the quiet bit alone; e4m3fn: all ones is the one NaN of each sign.
  return all_exponent |
         (f.has_infinity ? 1u << (f.fraction_bits - 1) : (1u << f.fraction_bits) - 1);
}

uint32_t largest_bits(const number_format& f) {
  if (f.has_infinity) return (((1u << f.exponent_bits) - 1) << f.fraction_bits) - 1;
  const uint32_t all_ones = sign_bit(f) - 1;
  return f.unsigned_zero ? all_ones : all_ones - 1;  // e4m3fn: all ones is NaN
}

double largest(const number_format& f) { return decode(f, largest_bits(f)); }

}  // namespace

bool is_nan(const number_format& f, uint32_t bits) { return std::isnan(decode(f, bits)); }

double decode(const number_format& f, uint32_t bits) {
  const uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
  const uint32_t exponent = bits >> f.fraction_bits & ((1u << f.exponent_bits) - 1);
  const double sign = (bits & sign_bit(f)) != 0 ? -1.0 : 1.0;
  const uint32_t top = (1u << f.exponent_bits) - 1;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.unsigned_zero && bits == sign_bit(f)) return nan;
  if (f.has_infinity && exponent == top)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : nan;
  if (!f.has_infinity && !f.unsigned_zero && exponent == top &&
      fraction == (1u << f.fraction_bits) - 1)
    return nan;
  // Subnormals have the exponent of the smallest normal and no hidden one.
  const double significand = exponent == 0
                                 ? static_cast<double>(fraction)
                                 : static_cast<double>(fraction + (1u << f.fraction_bits));
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - f.bias - f.fraction_bits;
  return sign * std::ldexp(significand, power);
}

uint32_t encode(const number_format& f, double value) {
  if (std::isnan(value)) return nan_bits(f);
  const uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return f.unsigned_zero ? 0 : sign;

  // The spacing of representable values around this one, then the nearest multiple of it.
  const int smallest_power = 1 - f.bias;
  int power = smallest_power;
  if (!std::isinf(magnitude)) power = std::max(std::ilogb(magnitude), smallest_power);
  const double spacing = std::ldexp(1.0, power - f.fraction_bits);
  double steps = std::nearbyint(magnitude / spacing);
  if (std::isinf(magnitude) || steps * spacing > largest(f)) {
    if (f.has_infinity) return sign | ((1u << f.exponent_bits) - 1) << f.fraction_bits;
    return sign | largest_bits(f);
  }
  if (steps == 0) return f.unsigned_zero ? 0 : sign;
  const double hidden = std::ldexp(1.0, f.fraction_bits);
  if (steps == 2 * hidden) {  // rounded up into the next power of two
    steps = hidden;
    ++power;
  }
  if (steps < hidden) return sign | static_cast<uint32_t>(steps);  // subnormal
  const auto exponent = static_cast<uint32_t>(power + f.bias);
  return sign | exponent << f.fraction_bits | static_cast<uint32_t>(steps - hidden);
}

const number_format& format_of_dtype(int32_t dtype) {
  switch (dtype) {
    case MORI_EP_BF16: return bf16;
    case MORI_EP_F16: return f16;
    case MORI_EP_F8_E4M3FN: return e4m3fn;
    case MORI_EP_F8_E4M3FNUZ: return e4m3fnuz;
    default: return f32;
  }
}

}  // namespace mori::ep_reference
