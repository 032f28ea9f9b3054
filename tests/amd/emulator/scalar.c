/* scalar.c - scalar instructions about the program counter, the generic address
 * apertures and the clocks; and indexed vector moves, which a scalar instruction
 * opens and another one closes.
 */
#include "wave.h"

#include <time.h>

static u32 destination(const u32* S) { return bits(code(S)[0], 16, 7); }
static u32 source(const u32* S) { return bits(code(S)[0], 0, 8); }

INSTRUCTION(s_getpc_b64) {
  const u32 to = destination(S);
  advance(S, 4);
  set_pair(S, to, pair(S, PC));
}
INSTRUCTION(s_setpc_b64) { set_pair(S, PC, pair(S, source(S))); }
INSTRUCTION(s_swappc_b64) {
  const u32 to = destination(S);
  const u64 target = pair(S, source(S));
  advance(S, 4);
  set_pair(S, to, pair(S, PC));
  set_pair(S, PC, target);
}

/* SRC_SHARED_BASE, SHARED_LIMIT, PRIVATE_BASE, PRIVATE_LIMIT: upper halves; see memory.c. */
static u32 aperture(u32 operand_code) {
  static const u32 upper[] = {0x10000, 0x1ffff, 0x20000, 0x2ffff};
  return upper[operand_code - 235];
}
INSTRUCTION(s_mov_b32_aperture) {
  S[destination(S)] = aperture(source(S));
  advance(S, 4);
}
INSTRUCTION(s_mov_b64_aperture) {
  set_pair(S, destination(S), (u64)aperture(source(S)) << 32);
  advance(S, 4);
}

static u64 monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}
/* The shader clock, here one tick a nanosecond; the constant clock has 100 MHz. */
INSTRUCTION(s_memtime) {
  set_pair(S, bits(code(S)[0], 6, 7), monotonic_ns());
  advance(S, 8);
}
INSTRUCTION(s_memrealtime) {
  set_pair(S, bits(code(S)[0], 6, 7), monotonic_ns() / 10);
  advance(S, 8);
}

/* s_set_gpr_idx_on ... v_mov_b32 ... s_set_gpr_idx_off as one unit. The caller has seen that
 * nothing but plain moves lies between. */
static const u32 INDEX_OFF = 0xbf9c0000u;
enum { INDEXES_SOURCE = 1, INDEXES_DESTINATION = 8 };
INSTRUCTION(s_set_gpr_idx_on) {
  const u32* words = code(S);
  const u32 mode = bits(words[0], 8, 4), index = S[source(S)] & 255;
  S[M0] = (S[M0] & ~0xf0ffu) | index | mode << 12;
  u32 count = 1;
  for (; words[count] != INDEX_OFF; ++count) {
    const u32 from = bits(words[count], 0, 9) + (mode & INDEXES_SOURCE ? index : 0);
    const u32 to = bits(words[count], 17, 8) + (mode & INDEXES_DESTINATION ? index : 0);
    FOR_LANES(lane) V[to * lanes_of_wave + lane] = operand(S, V, from, lane);
  }
  advance(S, 4 * (count + 1));
}
