// Tests of the number formats against an independent reference: a format is a
// table of all its finite values as doubles, built from its definition with
// ldexp, and rounding is a search for the nearest entry of that table.
#include <mori/device/convert.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

namespace device = mori::device;

namespace {

struct format {
  const char* name;
  int mantissa_bits;
  int bias;
  uint32_t largest;  // code of the largest finite value
  uint32_t sign_bit;
  bool saturates;
  bool has_minus_zero;
};

constexpr format bf16{"bfloat16", 7, 127, 0x7f7f, 0x8000, false, true};
constexpr format f16{"float16", 10, 15, 0x7bff, 0x8000, false, true};
constexpr format e4m3{"float8_e4m3fn", 3, 7, 0x7e, 0x80, true, true};
constexpr format e4m3z{"float8_e4m3fnuz", 3, 8, 0x7f, 0x80, true, false};
constexpr format e5m2{"float8_e5m2", 2, 15, 0x7b, 0x80, true, true};

// The definition of a binary floating-point format.
double value_of(const format& f, uint32_t code) {
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const double fraction =
      static_cast<double>(code & ((1u << f.mantissa_bits) - 1)) / (1 << f.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias)
                       : std::ldexp(1 + fraction, exponent - f.bias);
}

// Magnitudes of all finite codes, ascending.
std::vector<double> finite_values(const format& f) {
  std::vector<double> values;
  for (uint32_t code = 0; code <= f.largest; ++code) values.push_back(value_of(f, code));
  return values;
}

// Nearest entry, ties to the even code. Past the last: infinity (the next code) or the last.
uint32_t rounded(const format& f, const std::vector<double>& values, float input) {
  const double x = std::fabs(static_cast<double>(input));
  const auto above = std::lower_bound(values.begin(), values.end(), x);
  uint32_t code = 0;
  if (above == values.end()) {
    const double step = values[f.largest] - values[f.largest - 1];
    const bool overflows = x >= values[f.largest] + step / 2;
    code = f.largest + (overflows && !f.saturates ? 1 : 0);
  } else if (*above == x || above == values.begin()) {
    code = static_cast<uint32_t>(above - values.begin());
  } else {
    const uint32_t high = static_cast<uint32_t>(above - values.begin());
    const double to_high = *above - x, to_low = x - *(above - 1);
    const bool takes_high = to_high < to_low || (to_high == to_low && high % 2 == 0);
    code = takes_high ? high : high - 1;
  }
  const bool negative = std::signbit(input) && (f.has_minus_zero || code != 0);
  return code | (negative ? f.sign_bit : 0);
}

template <class T>
uint32_t narrowed(float x) {
  return device::from_float<T>(x).bits;
}
template <class T>
float widened(uint32_t bits) {
  return device::to_float(T{static_cast<decltype(T::bits)>(bits)});
}

// Every value, every midpoint between neighbours and the floats around them, both signs.
template <class T>
void check_rounding(const format& f) {
  CAPTURE(f.name);
  const std::vector<double> values = finite_values(f);
  uint64_t wrong = 0;
  float first_wrong = 0;
  const auto check = [&](float x) {
    for (const float signed_x : {x, -x})
      if (narrowed<T>(signed_x) != rounded(f, values, signed_x) && wrong++ == 0)
        first_wrong = signed_x;
  };
  for (uint32_t code = 0; code <= f.largest; ++code) {
    const float low = static_cast<float>(values[code]);
    const double step = code == 0 ? values[1] : values[code] - values[code - 1];
    const double next = code < f.largest ? values[code + 1] : values[code] + step;
    const float middle = static_cast<float>((values[code] + next) / 2);
    for (const float x : {low, middle}) {
      check(x);
      check(std::nextafterf(x, 0));
      check(std::nextafterf(x, std::numeric_limits<float>::infinity()));
    }
  }
  // A float for each of the upper 16 bits, and random ones.
  const char* given = std::getenv("MORI_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 20240607;
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  for (uint32_t high = 0; high < 0x7f80; ++high)
    check(std::bit_cast<float>(high << 16 | static_cast<uint32_t>(random() & 0xffff)));
  for (int i = 0; i < 50'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7fff'ffffu);
    if (std::isfinite(x)) check(x);
  }
  CAPTURE(first_wrong);
  CHECK_MESSAGE(wrong == 0, "repeat with MORI_TEST_SEED=", seed, " device_test -tc='*rounding*'");
}

// All codes: the value is the definition's, and narrowing it again gives the code.
template <class T>
void check_values(const format& f) {
  CAPTURE(f.name);
  uint64_t wrong = 0;
  for (uint32_t code = 0; code <= f.largest; ++code)
    for (const uint32_t bits : {code, code | f.sign_bit}) {
      if (bits == f.sign_bit && !f.has_minus_zero) continue;
      const float wide = widened<T>(bits);
      const double expected = bits == code ? value_of(f, code) : -value_of(f, code);
      if (static_cast<double>(wide) != expected || std::signbit(wide) != std::signbit(expected) ||
          narrowed<T>(wide) != bits)
        ++wrong;
    }
  CHECK(wrong == 0);
}

constexpr float infinity = std::numeric_limits<float>::infinity();
const float quiet_nan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("all codes widen to their defined value and back") {
  check_values<device::bfloat16>(bf16);
  check_values<device::float16>(f16);
  check_values<device::float8_e4m3fn>(e4m3);
  check_values<device::float8_e4m3fnuz>(e4m3z);
  check_values<device::float8_e5m2>(e5m2);
}

TEST_CASE("rounding is to nearest, ties to even, at every boundary") {
  check_rounding<device::bfloat16>(bf16);
  check_rounding<device::float16>(f16);
  check_rounding<device::float8_e4m3fn>(e4m3);
  check_rounding<device::float8_e4m3fnuz>(e4m3z);
  check_rounding<device::float8_e5m2>(e5m2);
}

TEST_CASE("infinity and overflow: infinity in the 16-bit formats, the largest value in fp8") {
  CHECK(narrowed<device::bfloat16>(infinity) == 0x7f80);
  CHECK(narrowed<device::bfloat16>(-infinity) == 0xff80);
  CHECK(narrowed<device::bfloat16>(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(narrowed<device::float16>(infinity) == 0x7c00);
  CHECK(narrowed<device::float16>(-infinity) == 0xfc00);
  CHECK(narrowed<device::float16>(65519.996f) == 0x7bff);
  CHECK(narrowed<device::float16>(65520.0f) == 0x7c00);
  CHECK(widened<device::float16>(0x7c00) == infinity);
  CHECK(widened<device::bfloat16>(0xff80) == -infinity);
  CHECK(widened<device::float8_e4m3fn>(narrowed<device::float8_e4m3fn>(infinity)) == 448.0f);
  CHECK(widened<device::float8_e4m3fn>(narrowed<device::float8_e4m3fn>(-1e30f)) == -448.0f);
  CHECK(widened<device::float8_e4m3fnuz>(narrowed<device::float8_e4m3fnuz>(infinity)) == 240.0f);
  CHECK(widened<device::float8_e4m3fnuz>(narrowed<device::float8_e4m3fnuz>(-1e9f)) == -240.0f);
  CHECK(widened<device::float8_e5m2>(narrowed<device::float8_e5m2>(infinity)) == 57344.0f);
  CHECK(widened<device::float8_e5m2>(narrowed<device::float8_e5m2>(-infinity)) == -57344.0f);
  CHECK(widened<device::float8_e5m2>(0x7c) == infinity);
  CHECK(widened<device::float8_e5m2>(0xfc) == -infinity);
}

TEST_CASE("NaN stays NaN, whatever its payload; e4m3fnuz has one NaN and one zero") {
  for (const uint32_t payload : {0x7f80'0001u, 0x7f80'ffffu, 0x7fff'ffffu, 0xffc0'0000u}) {
    const float nan = std::bit_cast<float>(payload);
    CHECK(std::isnan(widened<device::bfloat16>(narrowed<device::bfloat16>(nan))));
    CHECK(std::isnan(widened<device::float16>(narrowed<device::float16>(nan))));
    CHECK(std::isnan(widened<device::float8_e4m3fn>(narrowed<device::float8_e4m3fn>(nan))));
    CHECK(std::isnan(widened<device::float8_e5m2>(narrowed<device::float8_e5m2>(nan))));
    CHECK(narrowed<device::float8_e4m3fnuz>(nan) == 0x80);
  }
  CHECK(std::isnan(widened<device::float8_e4m3fnuz>(0x80)));
  CHECK(std::isnan(widened<device::float8_e4m3fn>(0xff)));
  CHECK(std::isnan(widened<device::float8_e5m2>(0x7d)));
  CHECK(std::isnan(widened<device::float16>(0x7c01)));
  CHECK(narrowed<device::float8_e4m3fn>(quiet_nan) == 0x7f);
  CHECK(narrowed<device::float8_e4m3fnuz>(-0.0f) == 0);
  CHECK(narrowed<device::float8_e4m3fnuz>(-1e-20f) == 0);
  CHECK(narrowed<device::float8_e4m3fn>(-0.0f) == 0x80);
}
