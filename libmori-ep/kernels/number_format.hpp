// number_format.hpp - small floating-point formats by their definition: decode
// by exponent and fraction, encode as "the nearest representable value, ties to
// the even one". Written for reading; the fast conversions of the kernels are
// compared with it for every bit pattern. Part of the reference, used by tests
// alone. Read reference.hpp next.
#pragma once

#include <cstdint>

namespace mori::ep_reference {

struct number_format {
  int exponent_bits;
  int fraction_bits;
  int bias;
  bool has_infinity;   // largest exponent field: infinities and NaN, as in IEEE 754
  bool unsigned_zero;  // fnuz: the pattern of -0 is the only NaN

  uint32_t total_bits() const { return static_cast<uint32_t>(1 + exponent_bits + fraction_bits); }
  uint32_t total_bytes() const { return total_bits() / 8; }
};

inline constexpr number_format f32{8, 23, 127, true, false};
inline constexpr number_format bf16{8, 7, 127, true, false};
inline constexpr number_format f16{5, 10, 15, true, false};
inline constexpr number_format e4m3fn{4, 3, 7, false, false};
inline constexpr number_format e4m3fnuz{4, 3, 8, false, true};

// Exact: every value of these formats is a double (NaN for NaN).
double decode(const number_format& format, uint32_t bits);

// What lies beyond the largest value becomes infinity where the format has it;
// formats without one saturate, infinities too. The boundary is halfway to the
// value that would come next.
uint32_t encode(const number_format& format, double value);

bool is_nan(const number_format& format, uint32_t bits);

// The format of a dtype of mori/ep.h that combine takes.
const number_format& format_of_dtype(int32_t dtype);

}  // namespace mori::ep_reference
