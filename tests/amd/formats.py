"""Narrow number formats by their definition, for tests: bfloat16 and the 8-bit formats, in the
variants of OCP and of gfx942 (FNUZ: bias one larger, no minus zero, 0x80 the only NaN)."""

import functools
import math

EXPONENT_AND_FRACTION = {"e4m3": (4, 3), "e5m2": (5, 2)}


def bfloat16_of(word):
    """The bfloat16 nearest to a float's bits, ties to even; a NaN stays one."""
    if word & 0x7FFFFFFF > 0x7F800000:
        return word >> 16 | 0x40
    return word + 0x7FFF + (word >> 16 & 1) >> 16 & 0xFFFF


def without_nan(bits):
    """bfloat16 bits, all NaNs alike."""
    return "nan" if bits & 0x7FFF > 0x7F80 else bits


def nan_as_word(value):
    """A float, all NaNs alike."""
    return "nan" if math.isnan(value) else value


def decode8(byte, name, fnuz):
    exponent_bits, fraction_bits = EXPONENT_AND_FRACTION[name]
    bias = (1 << (exponent_bits - 1)) - 1 + (1 if fnuz else 0)
    exponent = byte >> fraction_bits & (1 << exponent_bits) - 1
    fraction = byte & (1 << fraction_bits) - 1
    sign = -1.0 if byte >> 7 else 1.0
    if fnuz and byte == 0x80:
        return math.nan
    if not fnuz and name == "e4m3" and byte & 0x7F == 0x7F:
        return math.nan
    if not fnuz and name == "e5m2" and exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - fraction_bits)
    return sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias)


@functools.cache
def finite_values(name, fnuz):
    """(value, byte) of all finite encodings."""
    pairs = [(decode8(byte, name, fnuz), byte) for byte in range(256)]
    return [(value, byte) for value, byte in pairs if math.isfinite(value)]


def encode8(value, name, fnuz):
    """The nearest finite encoding of the value's sign, ties to even."""
    negative = math.copysign(1, value) < 0
    candidates = (
        (abs(found - value), byte & 1, byte)
        for found, byte in finite_values(name, fnuz)
        if (byte >> 7 == 1) == negative or (fnuz and byte == 0)
    )
    return min(candidates)[2]
