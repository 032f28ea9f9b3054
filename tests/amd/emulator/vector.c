/* vector.c - vector instructions that tinygrad's emulator lacks or gets wrong:
 * exchanges between lanes, a double fused multiply-add, and conversions to and
 * from bfloat16, fp8 and fp4. gfx942 has the FNUZ variants of fp8 (bias one larger,
 * no minus zero, one NaN), gfx950 the OCP ones.
 */
#include "wave.h"

/* --- lanes ----------------------------------------------------------------------------------- */

static void swap_halves(u32* S, u32* V, u32 width) {
  u32* a = V + bits(code(S)[0], 17, 8) * lanes_of_wave;
  u32* b = V + (bits(code(S)[0], 0, 9) - FIRST_VECTOR_OPERAND) * lanes_of_wave;
  for (u32 lane = 0; lane < lanes_of_wave; ++lane) {
    if (lane & width) continue;
    const u32 upper = a[lane + width];
    a[lane + width] = b[lane];
    b[lane] = upper;
  }
  advance(S, 4);
}
INSTRUCTION(v_permlane32_swap_b32_e32) { swap_halves(S, V, 32); }
INSTRUCTION(v_permlane16_swap_b32_e32) { swap_halves(S, V, 16); }

/* v_mov_b32 with DPP row_bcast:15 (each row gets the last lane of the row before) or :31. */
INSTRUCTION(v_mov_b32_row_bcast) {
  enum { BROADCAST_31 = 0x143 };
  const u32 control = code(S)[1];
  const int half = bits(control, 8, 9) == BROADCAST_31;
  const u32* from = V + bits(control, 0, 8) * lanes_of_wave;
  u32* to = V + bits(code(S)[0], 17, 8) * lanes_of_wave;
  u32 before[lanes_of_wave];
  memcpy(before, from, sizeof before);
  FOR_LANES(lane) {
    const int has_source = half ? lane >= 32 : lane >= 16;
    const int in_row = bits(control, 28, 4) >> (lane >> 4) & 1;
    const int in_bank = bits(control, 24, 4) >> (lane >> 2 & 3) & 1;
    if (has_source && in_row && in_bank) to[lane] = before[half ? 31 : (lane & ~15u) - 1];
  }
  advance(S, 8);
}

/* --- operands of three-operand instructions (VOP3) ------------------------------------------ */

static u32 vop3_source(const u32* S, u32 index) { return bits(code(S)[1], 9 * index, 9); }

/* As a float, with the modifiers for absolute value and sign. */
static float vop3_float(const u32* S, const u32* V, u32 index, u32 lane) {
  const u32* words = code(S);
  u32 word = operand(S, V, vop3_source(S, index), lane);
  if (words[0] >> (8 + index) & 1) word &= 0x7fffffff;
  if (words[1] >> (29 + index) & 1) word ^= 0x80000000;
  return as_float(word);
}
static u32* vop3_destination(const u32* S, u32* V) {
  return V + bits(code(S)[0], 0, 8) * lanes_of_wave;
}

static double double_register(const u32* S, const u32* V, u32 index, u32 lane) {
  const u32* from = V + (vop3_source(S, index) - FIRST_VECTOR_OPERAND) * lanes_of_wave + lane;
  return as_double(from[0] | (u64)from[lanes_of_wave] << 32);
}
/* Registers only, no modifiers: the caller has looked. */
INSTRUCTION(v_fmac_f64_e64) {
  u32* to = vop3_destination(S, V);
  FOR_LANES(lane) {
    const double addend = as_double(to[lane] | (u64)to[lanes_of_wave + lane] << 32);
    const double a = double_register(S, V, 0, lane), b = double_register(S, V, 1, lane);
    const u64 sum = as_words(__builtin_fma(a, b, addend));
    to[lane] = (u32)sum;
    to[lanes_of_wave + lane] = (u32)(sum >> 32);
  }
  advance(S, 8);
}

/* --- number formats -------------------------------------------------------------------------- */

static u32 bfloat16_of(float value) {
  const u32 word = as_word(value);
  if ((word & 0x7fffffff) > 0x7f800000) return word >> 16 | 0x40;
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
INSTRUCTION(v_cvt_pk_bf16_f32) {
  FOR_LANES(lane)
  vop3_destination(S, V)[lane] =
      bfloat16_of(vop3_float(S, V, 0, lane)) | bfloat16_of(vop3_float(S, V, 1, lane)) << 16;
  advance(S, 8);
}

struct fp8 {
  u32 fraction_bits; /* 3: e4m3, 2: e5m2 */
  int bias;
  int fnuz;
};
#define FP8_FORMAT(kind) FP8_##kind
static const struct fp8 FP8_fp8 = {3, 7, 0}, FP8_bf8 = {2, 15, 0};
static const struct fp8 FP8_fp8_fnuz = {3, 8, 1}, FP8_bf8_fnuz = {2, 16, 1};

static int is_nan8(const struct fp8* f, u32 byte) {
  if (f->fnuz) return byte == 0x80;
  return f->fraction_bits == 3 ? (byte & 0x7f) == 0x7f : (byte & 0x7f) > 0x7c;
}
static float decode8(const struct fp8* f, u32 byte) {
  const u32 exponent = bits(byte, f->fraction_bits, 7 - f->fraction_bits);
  const u32 fraction = bits(byte, 0, f->fraction_bits);
  if (is_nan8(f, byte)) return as_float(0x7fc00000);
  if (!f->fnuz && f->fraction_bits == 2 && (byte & 0x7f) == 0x7c)
    return as_float((byte & 0x80) << 24 | 0x7f800000);
  const float one_step = as_float((u32)(1 - f->bias - (int)f->fraction_bits + 127) << 23);
  const float magnitude = exponent == 0 ? (float)fraction * one_step
                                        : as_float((u32)((int)exponent - f->bias + 127) << 23 |
                                                   fraction << (23 - f->fraction_bits));
  return byte & 0x80 ? -magnitude : magnitude;
}

/* Drops `shift` bits of a significand: to nearest even, or by adding random bits. */
static u32 drop_bits(u32 significand, u32 shift, const u32* random) {
  if (shift > 31) return 0;
  const u64 added = random != 0 ? *random >> (32 - shift)
                                : ((u64)1 << (shift - 1)) - 1 + (significand >> shift & 1);
  return (u32)((significand + added) >> shift);
}
/* Overflow gives NaN or infinity: the mode that saturates is off by default. */
static u32 encode8(const struct fp8* f, float value, const u32* random) {
  const u32 word = as_word(value), sign = f->fnuz ? 0x80 : word >> 31 << 7;
  const u32 magnitude = word & 0x7fffffff;
  const u32 largest = f->fnuz ? 0x7f : f->fraction_bits == 3 ? 0x7e : 0x7b;
  const u32 overflow = f->fnuz ? 0x80 : sign | (largest + 1);
  if (magnitude > 0x7f800000) return f->fnuz ? 0x80 : sign | 0x7f;
  if (magnitude == 0x7f800000) return overflow;
  const int exponent = (int)(magnitude >> 23) - 127;
  const u32 significand = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000 : 0);
  const int below = 1 - f->bias - exponent; /* > 0: subnormal in the narrow format */
  const u32 rounded =
      drop_bits(significand, 23 - f->fraction_bits + (u32)(below > 0 ? below : 0), random);
  const u32 byte =
      below > 0 ? rounded : rounded + ((u32)(exponent + f->bias - 1) << f->fraction_bits);
  if (byte > largest) return overflow;
  return byte == 0 && f->fnuz ? 0 : word >> 31 << 7 | byte;
}

/* e2m1: to nearest even, saturating. */
static u32 encode4(float value) {
  static const float between[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = __builtin_fabsf(value);
  u32 code_of = 0;
  for (u32 i = 0; i < 7; ++i)
    if (magnitude > between[i] || (magnitude == between[i] && (i & 1))) code_of = i + 1;
  return as_word(value) >> 31 << 3 | code_of;
}

/* --- conversions ----------------------------------------------------------------------------- */

/* Writes `count` bits of a register at the place that the instruction's op_sel bits choose. */
static void insert(u32* to, u32 value, u32 count, u32 at) {
  const u32 mask = (count == 16 ? 0xffffu : 0xffu) << at;
  *to = (*to & ~mask) | value << at;
}
static u32 upper_half(const u32* S) { return code(S)[0] >> 14 & 1 ? 16 : 0; }
static u32 chosen_byte(const u32* S) { return bits(code(S)[0], 13, 2) * 8; }

/* The scale's exponent alone counts. */
static float scale_of(const u32* S, const u32* V, u32 lane) {
  return as_float(operand(S, V, vop3_source(S, 2), lane) & 0x7f800000);
}

#define NARROW(kind, suffix)                                                                   \
  INSTRUCTION(v_cvt_pk_##kind##_f32##suffix) {                                                 \
    const struct fp8* f = &FP8_FORMAT(kind##suffix);                                           \
    FOR_LANES(lane)                                                                            \
    insert(vop3_destination(S, V) + lane,                                                      \
           encode8(f, vop3_float(S, V, 0, lane), 0) | encode8(f, vop3_float(S, V, 1, lane), 0) \
                                                          << 8,                                \
           16, upper_half(S));                                                                 \
    advance(S, 8);                                                                             \
  }                                                                                            \
  INSTRUCTION(v_cvt_sr_##kind##_f32##suffix) {                                                 \
    const struct fp8* f = &FP8_FORMAT(kind##suffix);                                           \
    FOR_LANES(lane) {                                                                          \
      const u32 random = operand(S, V, vop3_source(S, 1), lane);                               \
      insert(vop3_destination(S, V) + lane, encode8(f, vop3_float(S, V, 0, lane), &random), 8, \
             chosen_byte(S));                                                                  \
    }                                                                                          \
    advance(S, 8);                                                                             \
  }
NARROW(fp8, )
NARROW(bf8, )
NARROW(fp8, _fnuz)
NARROW(bf8, _fnuz)

#define NARROW_SCALED(kind)                                                                   \
  INSTRUCTION(v_cvt_scalef32_pk_##kind##_f32) {                                               \
    FOR_LANES(lane) {                                                                         \
      const float scale = scale_of(S, V, lane);                                               \
      const u32 both = encode8(&FP8_FORMAT(kind), vop3_float(S, V, 0, lane) / scale, 0) |     \
                       encode8(&FP8_FORMAT(kind), vop3_float(S, V, 1, lane) / scale, 0) << 8; \
      insert(vop3_destination(S, V) + lane, both, 16, upper_half(S));                         \
    }                                                                                         \
    advance(S, 8);                                                                            \
  }
NARROW_SCALED(fp8)
NARROW_SCALED(bf8)

INSTRUCTION(v_cvt_scalef32_pk_fp4_f32) {
  FOR_LANES(lane) {
    const float scale = scale_of(S, V, lane);
    const u32 both = encode4(vop3_float(S, V, 0, lane) / scale) |
                     encode4(vop3_float(S, V, 1, lane) / scale) << 4;
    insert(vop3_destination(S, V) + lane, both, 8, chosen_byte(S));
  }
  advance(S, 8);
}

/* One byte, or a pair, of a source that a second word may choose (SDWA). */
static void widen(u32* S, u32* V, const struct fp8* f, int is_pair) {
  enum { SDWA = 249, WORD_1 = 5 };
  const u32* words = code(S);
  u32 from = bits(words[0], 0, 9), shift = 0, bytes = 4;
  if (from == SDWA) {
    const u32 chosen = bits(words[1], 16, 3);
    from = bits(words[1], 0, 8) + (words[1] >> 23 & 1 ? 0 : FIRST_VECTOR_OPERAND);
    shift = chosen < 4 ? chosen * 8 : chosen == WORD_1 ? 16 : 0;
    bytes = 8;
  }
  u32* to = V + bits(words[0], 17, 8) * lanes_of_wave;
  FOR_LANES(lane) {
    const u32 word = operand(S, V, from, lane) >> shift;
    to[lane] = as_word(decode8(f, word & 0xff));
    if (is_pair) to[lanes_of_wave + lane] = as_word(decode8(f, word >> 8 & 0xff));
  }
  advance(S, bytes);
}
#define WIDEN(kind, suffix)                                                            \
  INSTRUCTION(v_cvt_f32_##kind##suffix) { widen(S, V, &FP8_FORMAT(kind##suffix), 0); } \
  INSTRUCTION(v_cvt_pk_f32_##kind##suffix) { widen(S, V, &FP8_FORMAT(kind##suffix), 1); }
WIDEN(fp8, )
WIDEN(bf8, )
WIDEN(fp8, _fnuz)
WIDEN(bf8, _fnuz)
