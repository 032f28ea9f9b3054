/* wave.h - one wave as instructions see it. An instruction is a function of six
 * arrays, the same for those of this folder and those that tinygrad's emulator
 * makes, so that one loop (machine.c) runs both:
 *
 *   S  scalar registers 0 .. 127 and inline constants 128 .. 255, in the order of operand
 *      encodings; then the program counter (2 words), SCC and the bytes of scratch per lane
 *   V  vector registers, register * 64 + lane        A  the accumulation registers, likewise
 *   M  memory: address 0, addresses are those of this process
 *   L  shared memory of the workgroup (LDS)          P  scratch of the wave, lane after lane
 *
 * The program counter is the address of the instruction's words. Read memory.c next.
 */
#ifndef MORI_AMD_WAVE_H
#define MORI_AMD_WAVE_H

#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

enum { lanes_of_wave = 64 };
enum { M0 = 124, EXEC = 126, PC = 256, SCRATCH_STRIDE = 259, FIRST_VECTOR_OPERAND = 256 };

#define INSTRUCTION(name) void instruction_##name(u32* S, u32* V, char* M, char* L, char* P, u32* A)
#define FOR_LANES(lane)                            \
  const u64 exec_of_wave = pair(S, EXEC);          \
  for (u32 lane = 0; lane < lanes_of_wave; ++lane) \
    if (exec_of_wave >> lane & 1)

static inline u64 pair(const u32* S, u32 index) { return S[index] | (u64)S[index + 1] << 32; }
static inline void set_pair(u32* S, u32 index, u64 value) {
  S[index] = (u32)value;
  S[index + 1] = (u32)(value >> 32);
}
/* The words of the instruction itself. */
static inline const u32* code(const u32* S) { return (const u32*)pair(S, PC); }
static inline void advance(u32* S, u32 bytes) { set_pair(S, PC, pair(S, PC) + bytes); }

/* Bits [low, low + count) of a word. */
static inline u32 bits(u32 word, u32 low, u32 count) { return word >> low & ((1u << count) - 1); }

static inline float as_float(u32 word) {
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}
static inline u32 as_word(float value) {
  u32 word;
  memcpy(&word, &value, sizeof word);
  return word;
}
static inline double as_double(u64 word) {
  double value;
  memcpy(&value, &word, sizeof value);
  return value;
}
static inline u64 as_words(double value) {
  u64 word;
  memcpy(&word, &value, sizeof word);
  return word;
}

/* A 9-bit operand: scalar register, constant or vector register. */
static inline u32 operand(const u32* S, const u32* V, u32 source, u32 lane) {
  return source >= FIRST_VECTOR_OPERAND ? V[(source - FIRST_VECTOR_OPERAND) * lanes_of_wave + lane]
                                        : S[source];
}

#endif
