/* lds.c - instructions on shared memory (DS): accesses, integer atomics, swizzle.
 * The array given as L ends where the workgroup's shared memory ends, and an
 * unmapped page follows.
 */
#include "wave.h"

enum { READ2_STRIDE64 = 64 };

static u32* vector(u32* V, u32 word, u32 low) { return V + bits(word, low, 8) * lanes_of_wave; }

struct access {
  const u32* address;
  u32 offset;     /* of plain accesses and atomics                                        */
  u32 offsets[2]; /* of the two elements of READ2 and WRITE2                              */
  u32* data[2];
  u32* result;
};

static struct access decode(const u32* S, u32* V) {
  const u32* words = code(S);
  return (struct access){.address = vector(V, words[1], 0),
                         .offset = bits(words[0], 0, 16),
                         .offsets = {bits(words[0], 0, 8), bits(words[0], 8, 8)},
                         .data = {vector(V, words[1], 8), vector(V, words[1], 16)},
                         .result = vector(V, words[1], 24)};
}

/* The sum has 32 bits: compilers move negative parts between address and offset. */
static char* at(char* L, const struct access* it, u32 lane, u32 offset) {
  return L + (u32)(it->address[lane] + offset);
}
static void load_words(u32* to, const char* from, u32 count, u32 lane) {
  for (u32 i = 0; i < count; ++i) memcpy(to + i * lanes_of_wave + lane, from + 4 * i, 4);
}
static void store_words(char* to, const u32* from, u32 count, u32 lane) {
  for (u32 i = 0; i < count; ++i) memcpy(to + 4 * i, from + i * lanes_of_wave + lane, 4);
}

/* --- accesses -------------------------------------------------------------------------------- */

#define READ_NARROW(name, type)                                  \
  INSTRUCTION(ds_read_##name) {                                  \
    const struct access it = decode(S, V);                       \
    FOR_LANES(lane) {                                            \
      type value;                                                \
      memcpy(&value, at(L, &it, lane, it.offset), sizeof value); \
      it.result[lane] = (u32)(i32)value;                         \
    }                                                            \
    advance(S, 8);                                               \
  }
READ_NARROW(u8, u8)
READ_NARROW(i8, i8)
READ_NARROW(u16, u16)
READ_NARROW(i16, i16)

#define WRITE_NARROW(name, bytes)                                                  \
  INSTRUCTION(ds_write_##name) {                                                   \
    const struct access it = decode(S, V);                                         \
    FOR_LANES(lane) memcpy(at(L, &it, lane, it.offset), it.data[0] + lane, bytes); \
    advance(S, 8);                                                                 \
  }
WRITE_NARROW(b8, 1)
WRITE_NARROW(b16, 2)

#define WIDE(name, count)                                                              \
  INSTRUCTION(ds_read_##name) {                                                        \
    const struct access it = decode(S, V);                                             \
    FOR_LANES(lane) {                                                                  \
      /* The result may overwrite the address. */                                      \
      const char* from = at(L, &it, lane, it.offset);                                  \
      load_words(it.result, from, count, lane);                                        \
    }                                                                                  \
    advance(S, 8);                                                                     \
  }                                                                                    \
  INSTRUCTION(ds_write_##name) {                                                       \
    const struct access it = decode(S, V);                                             \
    FOR_LANES(lane) store_words(at(L, &it, lane, it.offset), it.data[0], count, lane); \
    advance(S, 8);                                                                     \
  }
WIDE(b32, 1)
WIDE(b64, 2)
WIDE(b96, 3)
WIDE(b128, 4)

#define PAIRED(name, count, stride)                                                               \
  INSTRUCTION(ds_read##name) {                                                                    \
    const struct access it = decode(S, V);                                                        \
    FOR_LANES(lane) {                                                                             \
      const char* from[2];                                                                        \
      for (u32 i = 0; i < 2; ++i) from[i] = at(L, &it, lane, it.offsets[i] * 4 * count * stride); \
      for (u32 i = 0; i < 2; ++i)                                                                 \
        load_words(it.result + i * count * lanes_of_wave, from[i], count, lane);                  \
    }                                                                                             \
    advance(S, 8);                                                                                \
  }                                                                                               \
  INSTRUCTION(ds_write##name) {                                                                   \
    const struct access it = decode(S, V);                                                        \
    FOR_LANES(lane) for (u32 i = 0; i < 2; ++i) {                                                 \
      char* to = at(L, &it, lane, it.offsets[i] * 4 * count * stride);                            \
      store_words(to, it.data[i], count, lane);                                                   \
    }                                                                                             \
    advance(S, 8);                                                                                \
  }
PAIRED(2_b32, 1, 1)
PAIRED(2_b64, 2, 1)
PAIRED(2st64_b32, 1, READ2_STRIDE64)
PAIRED(2st64_b64, 2, READ2_STRIDE64)

/* --- atomics --------------------------------------------------------------------------------- */

static u64 data_of(const u32* from, u32 lane, u32 width) {
  return width == 8 ? from[lane] | (u64)from[lanes_of_wave + lane] << 32 : from[lane];
}

#define ATOMIC_FORM(name, type, after, returns)                           \
  INSTRUCTION(ds_##name) {                                                \
    const struct access it = decode(S, V);                                \
    FOR_LANES(lane) {                                                     \
      const type data = (type)data_of(it.data[0], lane, sizeof(type));    \
      const type second = (type)data_of(it.data[1], lane, sizeof(type));  \
      char* word = at(L, &it, lane, it.offset);                           \
      type old;                                                           \
      memcpy(&old, word, sizeof old);                                     \
      const type value = (type)(after);                                   \
      (void)second;                                                       \
      memcpy(word, &value, sizeof value);                                 \
      if (returns) store_result(it.result, lane, (u64)old, sizeof(type)); \
    }                                                                     \
    advance(S, 8);                                                        \
  }
static void store_result(u32* to, u32 lane, u64 value, u32 width) {
  to[lane] = (u32)value;
  if (width == 8) to[lanes_of_wave + lane] = (u32)(value >> 32);
}
#define ATOMIC(operation, suffix, type, after)      \
  ATOMIC_FORM(operation##_##suffix, type, after, 0) \
  ATOMIC_FORM(operation##_rtn_##suffix, type, after, 1)
#define ATOMICS(operation, kind, type32, type64, after) \
  ATOMIC(operation, kind##32, type32, after)            \
  ATOMIC(operation, kind##64, type64, after)
ATOMICS(add, u, u32, u64, old + data)
ATOMICS(sub, u, u32, u64, old - data)
ATOMICS(inc, u, u32, u64, old >= data ? 0 : old + 1)
ATOMICS(dec, u, u32, u64, old == 0 || old > data ? data : old - 1)
ATOMICS(min, u, u32, u64, data < old ? data : old)
ATOMICS(max, u, u32, u64, data > old ? data : old)
ATOMICS(min, i, i32, i64, data < old ? data : old)
ATOMICS(max, i, i32, i64, data > old ? data : old)
ATOMICS(and, b, u32, u64, old& data)
ATOMICS(or, b, u32, u64, old | data)
ATOMICS(xor, b, u32, u64, old ^ data)
ATOMICS(cmpst, b, u32, u64, old == data ? second : old)
ATOMICS(wrxchg, b, u32, u64, data)

/* --- swizzle --------------------------------------------------------------------------------- */

/* The lane whose value lane `lane` gets; its pattern is in the offset field. */
static u32 swizzled(u32 pattern, u32 lane) {
  if (pattern & 0x8000) return (lane & ~3u) + bits(pattern, 2 * (lane & 3), 2);
  const u32 within = ((lane & bits(pattern, 0, 5)) | bits(pattern, 5, 5)) ^ bits(pattern, 10, 5);
  return (lane & 32) | within;
}

INSTRUCTION(ds_swizzle_b32) {
  const struct access it = decode(S, V);
  u32 before[lanes_of_wave];
  memcpy(before, it.address, sizeof before);
  FOR_LANES(lane) {
    const u32 source = swizzled(it.offset, lane);
    it.result[lane] = exec_of_wave >> source & 1 ? before[source] : 0;
  }
  advance(S, 8);
}
