/* memory.c - loads, stores and atomics of the FLAT, GLOBAL and SCRATCH families, and
 * the cache instructions. Memory is sequentially consistent here: an instruction
 * of one wave is done before the next one of any wave begins, so write-backs and
 * invalidations do nothing, and leaving them out goes unnoticed.
 * Field positions: "MI300 and MI350 ISA", section on the FLAT format.
 */
#include "wave.h"

/* The upper halves of generic addresses that mean LDS and scratch; see S_MOV_B64 in scalar.c. */
enum { LDS_APERTURE = 0x10000, SCRATCH_APERTURE = 0x20000 };
enum { SEGMENT_FLAT, SEGMENT_SCRATCH, SEGMENT_GLOBAL };
enum { NO_SCALAR = 127 };

struct access {
  u32 segment;
  const u32* address; /* vector register with the address or its low half, or null          */
  u64 base;           /* what all lanes add                                                */
  u32* data;          /* vector registers to store from                                    */
  u32* result;        /* vector registers to load into                                     */
  int returns;        /* atomics: whether the value before is wanted                       */
};

static struct access decode(u32* S, u32* V, const char* P, u32* A) {
  const u32* words = code(S);
  const u32 scalar = bits(words[1], 16, 7);
  u32* file = bits(words[1], 23, 1) ? A : V;
  struct access it = {.segment = bits(words[0], 14, 2)};
  const i64 offset = bits(words[0], 0, 13);
  it.address = V + bits(words[1], 0, 8) * lanes_of_wave;
  it.base = (u64)(it.segment == SEGMENT_FLAT ? offset & 0xfff
                  : offset & 0x1000          ? offset - 0x2000
                                             : offset);
  if (it.segment == SEGMENT_GLOBAL && scalar != NO_SCALAR) it.base += pair(S, scalar);
  if (it.segment == SEGMENT_SCRATCH) {
    if (scalar != NO_SCALAR) it.base += S[scalar];
    if (!bits(words[0], 13, 1)) it.address = 0;
    it.base += (u64)P;
  }
  it.data = file + bits(words[1], 8, 8) * lanes_of_wave;
  it.result = file + bits(words[1], 24, 8) * lanes_of_wave;
  it.returns = (int)bits(words[0], 16, 1);
  return it;
}

static char* address_of(const struct access* it, const u32* S, char* L, char* P, u32 lane) {
  const u64 stride = S[SCRATCH_STRIDE];
  u64 at = it->base;
  if (it->segment == SEGMENT_SCRATCH)
    return (char*)(at + stride * lane + (it->address ? it->address[lane] : 0));
  at += it->address[lane];
  /* A global access with a scalar base takes a 32-bit offset per lane. */
  if (it->segment == SEGMENT_FLAT || bits(code(S)[1], 16, 7) == NO_SCALAR)
    at += (u64)it->address[lanes_of_wave + lane] << 32;
  if (it->segment == SEGMENT_FLAT) {
    if (at >> 32 == LDS_APERTURE) return L + (u32)at;
    if (at >> 32 == SCRATCH_APERTURE) return P + stride * lane + (u32)at;
  }
  return (char*)at;
}

/* --- loads and stores ------------------------------------------------------------------------ */

#define LOAD(name, type, into)                                      \
  INSTRUCTION(memory_load_##name) {                                 \
    const struct access it = decode(S, V, P, A);                    \
    FOR_LANES(lane) {                                               \
      type value;                                                   \
      u32* to = it.result + lane;                                   \
      memcpy(&value, address_of(&it, S, L, P, lane), sizeof value); \
      *to = into;                                                   \
    }                                                               \
    advance(S, 8);                                                  \
  }
LOAD(ubyte, u8, value)
LOAD(sbyte, i8, (u32)(i32)value)
LOAD(ushort, u16, value)
LOAD(sshort, i16, (u32)(i32)value)
LOAD(ubyte_d16, u8, (*to & 0xffff0000) | value)
LOAD(ubyte_d16_hi, u8, (*to & 0xffff) | (u32)value << 16)
LOAD(sbyte_d16, i8, (*to & 0xffff0000) | (u16)value)
LOAD(sbyte_d16_hi, i8, (*to & 0xffff) | (u32)(u16)value << 16)
LOAD(short_d16, u16, (*to & 0xffff0000) | value)
LOAD(short_d16_hi, u16, (*to & 0xffff) | (u32)value << 16)

#define STORE(name, type, from)                                     \
  INSTRUCTION(memory_store_##name) {                                \
    const struct access it = decode(S, V, P, A);                    \
    FOR_LANES(lane) {                                               \
      const u32 word = it.data[lane];                               \
      const type value = (type)(from);                              \
      memcpy(address_of(&it, S, L, P, lane), &value, sizeof value); \
    }                                                               \
    advance(S, 8);                                                  \
  }
STORE(byte, u8, word)
STORE(byte_d16_hi, u8, word >> 16)
STORE(short, u16, word)
STORE(short_d16_hi, u16, word >> 16)

#define WORDS(suffix, count)                                                          \
  INSTRUCTION(memory_load_##suffix) {                                                 \
    const struct access it = decode(S, V, P, A);                                      \
    FOR_LANES(lane) {                                                                 \
      u32 value[count];                                                               \
      memcpy(value, address_of(&it, S, L, P, lane), sizeof value);                    \
      for (u32 i = 0; i < count; ++i) it.result[i * lanes_of_wave + lane] = value[i]; \
    }                                                                                 \
    advance(S, 8);                                                                    \
  }                                                                                   \
  INSTRUCTION(memory_store_##suffix) {                                                \
    const struct access it = decode(S, V, P, A);                                      \
    FOR_LANES(lane) {                                                                 \
      u32 value[count];                                                               \
      for (u32 i = 0; i < count; ++i) value[i] = it.data[i * lanes_of_wave + lane];   \
      memcpy(address_of(&it, S, L, P, lane), value, sizeof value);                    \
    }                                                                                 \
    advance(S, 8);                                                                    \
  }
WORDS(dword, 1)
WORDS(dwordx2, 2)
WORDS(dwordx3, 3)
WORDS(dwordx4, 4)

/* --- atomics --------------------------------------------------------------------------------- */

/* The operand that begins at `word` words into the data registers. */
static u64 data_of(const struct access* it, u32 lane, u32 word, u32 width) {
  const u32* from = it->data + word * lanes_of_wave + lane;
  return width == 8 ? from[0] | (u64)from[lanes_of_wave] << 32 : from[0];
}

static void return_before(const struct access* it, u32 lane, u64 before, u32 width) {
  if (!it->returns) return;
  it->result[lane] = (u32)before;
  if (width == 8) it->result[lanes_of_wave + lane] = (u32)(before >> 32);
}

#define ATOMIC(name, type, after)                                  \
  INSTRUCTION(memory_atomic_##name) {                              \
    const struct access it = decode(S, V, P, A);                   \
    FOR_LANES(lane) {                                              \
      const type data = (type)data_of(&it, lane, 0, sizeof(type)); \
      char* at = address_of(&it, S, L, P, lane);                   \
      type old;                                                    \
      memcpy(&old, at, sizeof old);                                \
      const type value = (type)(after);                            \
      memcpy(at, &value, sizeof value);                            \
      return_before(&it, lane, (u64)old, sizeof(type));            \
    }                                                              \
    advance(S, 8);                                                 \
  }
#define ATOMICS(name, unsigned_after, type32, type64) \
  ATOMIC(name, type32, unsigned_after)                \
  ATOMIC(name##_x2, type64, unsigned_after)
ATOMICS(add, old + data, u32, u64)
ATOMICS(sub, old - data, u32, u64)
ATOMICS(and, old& data, u32, u64)
ATOMICS(or, old | data, u32, u64)
ATOMICS(xor, old ^ data, u32, u64)
ATOMICS(swap, data, u32, u64)
ATOMICS(umin, data < old ? data : old, u32, u64)
ATOMICS(umax, data > old ? data : old, u32, u64)
ATOMICS(smin, data < old ? data : old, i32, i64)
ATOMICS(smax, data > old ? data : old, i32, i64)
ATOMICS(inc, old >= data ? 0 : old + 1, u32, u64)
ATOMICS(dec, old == 0 || old > data ? data : old - 1, u32, u64)
ATOMIC(add_f32, u32, as_word(as_float(old) + as_float(data)))
ATOMIC(add_f64, u64, as_words(as_double(old) + as_double(data)))
ATOMIC(min_f64, u64, as_double(data) < as_double(old) ? data : old)
ATOMIC(max_f64, u64, as_double(data) > as_double(old) ? data : old)

#define COMPARE_SWAP(name, type)                                                      \
  INSTRUCTION(memory_atomic_##name) {                                                 \
    const struct access it = decode(S, V, P, A);                                      \
    FOR_LANES(lane) {                                                                 \
      const type data = (type)data_of(&it, lane, 0, sizeof(type));                    \
      const type expected = (type)data_of(&it, lane, sizeof(type) / 4, sizeof(type)); \
      char* at = address_of(&it, S, L, P, lane);                                      \
      type old;                                                                       \
      memcpy(&old, at, sizeof old);                                                   \
      if (old == expected) memcpy(at, &data, sizeof data);                            \
      return_before(&it, lane, old, sizeof(type));                                    \
    }                                                                                 \
    advance(S, 8);                                                                    \
  }
COMPARE_SWAP(cmpswap, u32)
COMPARE_SWAP(cmpswap_x2, u64)

/* --- caches ---------------------------------------------------------------------------------- */

INSTRUCTION(buffer_wbl2) { advance(S, 8); }
INSTRUCTION(buffer_inv) { advance(S, 8); }
