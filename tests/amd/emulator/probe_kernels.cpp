// probe_kernels.cpp - small kernels that test the emulator itself, each about one kind of
// instruction; what they must give is in probe_test.py. They use the compiler's builtins
// alone, so that a kernel contains what its name says. Compiled for AMD GPUs only, never part of
// a library.
#define DEVICE __attribute__((device))
#define KERNEL extern "C" __attribute__((global)) void
#define SHARED __attribute__((shared)) static
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long;
using i32 = int;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
#define SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define BLOCK __HIP_MEMORY_SCOPE_WORKGROUP

DEVICE inline u32 lane_of_block() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE inline u32 block_index() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE inline u32 block_size() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE inline u32 index() { return block_index() * block_size() + lane_of_block(); }
DEVICE inline u32 lane() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
DEVICE inline void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// --- arithmetic ---------------------------------------------------------------------------------

KERNEL add(const float* a, const float* b, float* c, u32 n) {
  if (index() < n) c[index()] = a[index()] + b[index()];
}

KERNEL places_in_three_dimensions(u32* out) {
  const u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
  const u32 z = __builtin_amdgcn_workitem_id_z();
  const u32 group =
      (__builtin_amdgcn_workgroup_id_z() * 2 + __builtin_amdgcn_workgroup_id_y()) * 3 +
      __builtin_amdgcn_workgroup_id_x();
  const u32 width = __builtin_amdgcn_workgroup_size_x();
  const u32 height = __builtin_amdgcn_workgroup_size_y();
  const u32 depth = __builtin_amdgcn_workgroup_size_z();
  const u32 place = (z * height + y) * width + x;
  out[group * width * height * depth + place] = group << 16 | z << 12 | y << 8 | x;
}

KERNEL divergence(u32* out) {  // steps of the Collatz sequence, then a switch
  const u32 g = index();
  u32 n = g + 1, steps = 0;
  while (n != 1) {
    n = n & 1 ? 3 * n + 1 : n >> 1;
    if (++steps > 500) break;
  }
  switch (g % 5) {
    case 0: steps += 1000; break;
    case 1: steps *= 3; break;
    case 2: steps ^= 0x55; break;
    case 3: steps = ~steps; break;
    default: steps *= steps;
  }
  out[g] = steps;
}

KERNEL division(const u32* a, const u64* b, u32* out, u64* out64) {
  const u32 g = index();
  out[g] = a[g] / (g + 3) * 1000 + a[g] % (g + 3);
  out64[g] = b[g] / (g * 12345ul + 7) + b[g] % (g * 12345ul + 7);
}

KERNEL float_operations(const float* a, const float* b, float* out, u32 n) {
  const u32 i = index();
  const float x = a[i], y = b[i];
  out[i] = __builtin_fmaf(x, y, 1.0f);
  out[n + i] = x / y;
  out[2 * n + i] = __builtin_sqrtf(__builtin_fabsf(x));
  out[3 * n + i] = __builtin_amdgcn_rcpf(y);
  out[4 * n + i] = __builtin_fmaxf(x, y);
  out[5 * n + i] = static_cast<float>(static_cast<i32>(x * 100.0f));
  out[6 * n + i] = __builtin_amdgcn_exp2f(x * 0.01f);
  out[7 * n + i] = __builtin_rintf(x);
  out[8 * n + i] = static_cast<float>(static_cast<double>(x) * static_cast<double>(y) + 0.5);
  out[9 * n + i] = static_cast<float>(static_cast<u64>(__builtin_fabsf(x * 1000.0f)));
  out[10 * n + i] = __builtin_fminf(x, y);
  out[11 * n + i] = __builtin_ldexpf(x, 3);
}
KERNEL subnormals(const float* a, float* out) { out[index()] = a[index()] * 0.5f; }
KERNEL halves(const _Float16* a, _Float16* out) {
  out[index()] = static_cast<_Float16>(static_cast<float>(a[index()]) * 1.5f + 0.25f);
}

// --- lanes and shared memory --------------------------------------------------------------------

KERNEL across_lanes(u32* out) {  // one wave; rows of 64 results
  const u32 l = lane(), v = l * 3 + 1;
  u32* row = out + l;
  const auto put = [&](u32 value) {
    *row = value;
    row += 64;
  };
  const u64 mask = __builtin_amdgcn_ballot_w64((l * 7) % 3 == 0);
  u32 written = v;
  asm("v_writelane_b32 %0, %1, 9" : "+v"(written) : "s"(4242));  // has no builtin
  put(l);
  put(static_cast<u32>(
      __builtin_amdgcn_ds_bpermute(static_cast<i32>((l + 5) & 63) << 2, static_cast<i32>(v))));
  put(static_cast<u32>(__builtin_amdgcn_readlane(static_cast<i32>(v), 37)));
  put(static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<i32>(v))));
  put(static_cast<u32>(mask));
  put(static_cast<u32>(mask >> 32));
  put(static_cast<u32>(__builtin_popcountl(mask)));
  put(__builtin_amdgcn_mbcnt_hi(static_cast<u32>(mask >> 32),
                                __builtin_amdgcn_mbcnt_lo(static_cast<u32>(mask), 0)));
  put(static_cast<u32>(__builtin_amdgcn_mov_dpp(static_cast<i32>(v), 0x111, 0xf, 0xf, true)));
  put(static_cast<u32>(
      __builtin_amdgcn_update_dpp(77, static_cast<i32>(v), 0x142, 0xa, 0xf, false)));
  put(static_cast<u32>(
      __builtin_amdgcn_update_dpp(77, static_cast<i32>(v), 0xb1, 0xf, 0xf, false)));
  put(written);
  put(static_cast<u32>(__builtin_ctzl(mask)));
}
KERNEL swizzle(u32* out) {  // the value of lane ^ 1
  out[lane()] =
      static_cast<u32>(__builtin_amdgcn_ds_swizzle(static_cast<i32>(lane() * 3 + 1), 0x041f));
}
KERNEL wave_sum(const u32* a, u32* out) {
  u32 v = a[index()];
  for (u32 mask = 32; mask != 0; mask >>= 1)
    v += static_cast<u32>(
        __builtin_amdgcn_ds_bpermute(static_cast<i32>((lane() ^ mask) << 2), static_cast<i32>(v)));
  out[index()] = v;
}

KERNEL block_sum(const u32* a, u32* out) {  // 256 lanes
  SHARED u32 part[256];
  const u32 t = lane_of_block();
  part[t] = a[index()];
  sync();
  for (u32 half = 128; half != 0; half >>= 1) {
    if (t < half) part[t] += part[t + half];
    sync();
  }
  if (t == 0) out[block_index()] = part[0];
}
KERNEL shared_accesses(u32* out) {  // 256 lanes: atomics, 8, 16, 64 and 128 bits
  SHARED u32 word[4];
  SHARED u64 wide;
  SHARED u8 bytes[256];
  SHARED u16 shorts[256];
  SHARED u32x4 quads[256];
  const u32 t = lane_of_block();
  if (t < 4) word[t] = 0;
  if (t == 0) wide = 0;
  sync();
  const u32 slot = __hip_atomic_fetch_add(&word[0], 1u, __ATOMIC_RELAXED, BLOCK);
  __hip_atomic_fetch_max(&word[1], t * 5, __ATOMIC_RELAXED, BLOCK);
  __hip_atomic_fetch_or(&word[2], 1u << (t & 31), __ATOMIC_RELAXED, BLOCK);
  __hip_atomic_fetch_add(&wide, 0x100000001ul, __ATOMIC_RELAXED, BLOCK);
  u32 expected = 0;
  __hip_atomic_compare_exchange_strong(&word[3], &expected, t + 1, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED, BLOCK);
  bytes[255 - t] = static_cast<u8>(t);
  shorts[t ^ 1] = static_cast<u16>(t * 257);
  quads[t ^ 3] = u32x4{t, t + 1, t + 2, t + 3};
  sync();
  out[slot] = 1;
  const u32x4 q = quads[t];
  out[256 + t] = bytes[t] | static_cast<u32>(shorts[t]) << 8;
  out[512 + t] = q.x + 1000 * q.y + 1000000 * q.z - q.w;
  if (t < 4) out[768 + t] = word[t];
  if (t == 0) out[772] = static_cast<u32>(wide);
  if (t == 0) out[773] = static_cast<u32>(wide >> 32);
}
KERNEL dynamic_shared(u32* out) {
  extern __attribute__((shared)) u32 dynamic[];
  const u32 t = lane_of_block();
  dynamic[t] = t * t;
  sync();
  out[index()] = dynamic[block_size() - 1 - t];
}
KERNEL shared_overrun(u32* out) {  // 64 lanes: the last one reads past the end
  SHARED u32 words[64];
  const u32 t = lane_of_block();
  words[t] = t;
  sync();
  u32 place = t + 1;
  asm volatile("" : "+v"(place));
  out[t] = words[place];
}

KERNEL leftovers(u32* out) {  // what nobody has written: shared memory and a register
  SHARED u32 words[64];
  u32* p = words;
  asm volatile("" : "+v"(p));
  u32 left;
  asm volatile("v_mov_b32 %0, v77" : "=v"(left)::"v77");
  out[lane_of_block()] = p[lane_of_block()];
  out[64 + lane_of_block()] = left;
}

// --- memory -------------------------------------------------------------------------------------

KERNEL atomics(u32* a, u64* b, u32* out, u64* out64) {
  const u32 g = index();
  out[g] = __hip_atomic_fetch_add(a, 1u, __ATOMIC_RELAXED, SYSTEM);
  out64[g] = __hip_atomic_fetch_add(b, 3ul, __ATOMIC_ACQ_REL, SYSTEM);
  __hip_atomic_fetch_or(a + 1, 1u << (g & 31), __ATOMIC_RELAXED, SYSTEM);
  __hip_atomic_fetch_max(a + 2, g, __ATOMIC_RELAXED, AGENT);
  __hip_atomic_fetch_min(b + 1, u64{g}, __ATOMIC_RELAXED, SYSTEM);
  // No value is wanted: the form that returns none.
  __hip_atomic_fetch_add(a + 3, g, __ATOMIC_RELAXED, SYSTEM);
  __hip_atomic_fetch_add(b + 2, u64{g} << 20, __ATOMIC_RELEASE, SYSTEM);
  __hip_atomic_exchange(a + 4, g, __ATOMIC_RELAXED, SYSTEM);
}
KERNEL relaxed_atomics(u32* a, u32* out) {
  const u32 g = index();
  out[g] = __hip_atomic_fetch_add(a + (g & 3), g | 1u << 20, __ATOMIC_RELAXED, SYSTEM);
}
KERNEL compare_loops(u32* a, u64* b) {  // every lane contends
  u32 e = __hip_atomic_load(a, __ATOMIC_RELAXED, SYSTEM);
  while (!__hip_atomic_compare_exchange_strong(a, &e, e + 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED,
                                               SYSTEM)) {
  }
  u64 f = __hip_atomic_load(b, __ATOMIC_ACQUIRE, SYSTEM);
  while (!__hip_atomic_compare_exchange_strong(b, &f, f * 3 + 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED,
                                               SYSTEM)) {
  }
}
KERNEL float_atomics(float* a, double* d) {
  __hip_atomic_fetch_add(a, 0.5f, __ATOMIC_RELAXED, AGENT);
  __hip_atomic_fetch_add(d, 0.25, __ATOMIC_RELAXED, AGENT);
}
KERNEL copy16(const u32x4* a, u32x4* b, u32 n) {
  for (u32 i = index(); i < n; i += 2 * block_size()) b[i] = a[i];
}
KERNEL copy_nontemporal(const u32x4* a, u32x4* b) {
  __builtin_nontemporal_store(__builtin_nontemporal_load(a + index()), b + index());
}
KERNEL copy_narrow(const u8* a, u8* b, u32 n) {  // 8, 16, 64 and 96 bits
  const u32 i = index();
  if (i >= n) return;
  struct triple {
    u32 x, y, z;
  };
  b[i] = a[i] ^ 0x5a;
  reinterpret_cast<u16*>(b + 4096)[i] =
      static_cast<u16>(reinterpret_cast<const u16*>(a + 4096)[i] + 1);
  reinterpret_cast<u64*>(b + 8192)[i] =
      reinterpret_cast<const u64*>(a + 8192)[i] * 0x9E3779B97F4A7C15ul;
  triple t = reinterpret_cast<const triple*>(a + 16384)[i];
  t.y ^= t.x;
  reinterpret_cast<triple*>(b + 16384)[i] = t;
}
KERNEL unaligned(const u8* a, u8* b) {  // words at odd addresses, which the hardware allows
  struct __attribute__((packed)) word {
    u32 value;
  };
  const u32 i = index();
  reinterpret_cast<word*>(b + 1)[i].value = reinterpret_cast<const word*>(a + 3)[i].value;
}
KERNEL generic_pointers(u32* out, u32* global) {  // to shared or to global memory
  SHARED u32 words[128];
  const u32 t = lane_of_block();
  words[t] = t * 3;
  sync();
  u32* p = t & 1 ? words + t : global + t;
  asm volatile("" : "+v"(p));
  out[t] = *p;
}
KERNEL cache_instructions(u32* a) {
  const u32 g = index();
  a[g] = g + 1;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  __builtin_amdgcn_s_sleep(2);
  __builtin_amdgcn_s_waitcnt(0);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
  __builtin_amdgcn_wave_barrier();
  a[256 + g] = a[g] + 1;
}
KERNEL clocks(u64* out) {
  out[2 * index()] = __builtin_amdgcn_s_memtime();
  out[2 * index() + 1] = __builtin_amdgcn_s_memrealtime();
}
KERNEL priority_and_trap(u32* a) {
  __builtin_amdgcn_s_setprio(3);
  if (a[0] == 12345) __builtin_trap();
  a[index()] = 7;
  __builtin_amdgcn_s_setprio(0);
}

// --- private memory and calls -------------------------------------------------------------------

KERNEL indexed_registers(u32* out, const u32* at) {
  u32 v[32];
  const u32 g = index();
  for (u32 i = 0; i < 32; ++i) v[at[i] & 31] = g * 32 + i;
  u32 sum = 0;
  for (u32 i = 0; i < 32; ++i) sum = sum * 31 + v[at[(i + g) & 31] & 31];
  out[g] = sum;
}
KERNEL stack(u32* out) {  // private memory across a barrier
  volatile u32 v[16];
  const u32 g = index();
  u32 sum = 0;
  for (u32 i = 0; i < 16; ++i) v[(i + g) & 15] = g * 16 + i;
  sync();
  for (u32 i = 0; i < 16; ++i) sum = sum * 7 + v[i];
  out[g] = sum;
}
__attribute__((device, noinline)) void fill(u32* p, u32 g) {
  for (u32 i = 0; i < 8; ++i) p[i] = g + i;
}
KERNEL generic_stack(u32* out) {
  u32 v[8];
  fill(v, index());
  u32 sum = 0;
  for (u32 i = 0; i < 8; ++i) sum += v[i] * i;
  out[index()] = sum;
}
__attribute__((device, noinline)) u32 times_seven(u32 a, u32 b) { return a * 7 + b; }
__attribute__((device, noinline)) u32 difference(u32 a, u32 b) { return a - b; }
KERNEL calls(u32* out) { out[index()] = times_seven(index(), times_seven(index(), 3)); }
typedef u32 (*function)(u32, u32);
DEVICE function table[2] = {times_seven, difference};
KERNEL indirect_calls(u32* out) { out[index()] = table[index() & 1](index(), 5); }
DEVICE u32 variable[4] = {11, 22, 33, 44};
__attribute__((constant)) u32 constant[4] = {5, 6, 7, 8};
KERNEL globals(u32* out) {
  out[index()] = variable[index() & 3] + constant[index() & 3];
  variable[index() & 3] = 0;
}

// --- number formats -----------------------------------------------------------------------------

KERNEL bfloat16_conversion(const float* a, u16* out, float* back) {
  const __bf16 h = static_cast<__bf16>(a[index()]);
  out[index()] = __builtin_bit_cast(u16, h);
  back[index()] = static_cast<float>(h) + 1.0f;
}
KERNEL bfloat16_pairs(const f32x2* a, u32* out) {
  out[index()] = __builtin_bit_cast(u32, __builtin_convertvector(a[index()], bf16x2));
}
KERNEL fp8_narrow(const float* a, u32* out) {
  const float* x = a + 4 * index();
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0, false);
  out[index()] = static_cast<u32>(__builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], low, true));
}
KERNEL bf8_narrow(const float* a, u32* out) {
  const float* x = a + 4 * index();
  const int low = __builtin_amdgcn_cvt_pk_bf8_f32(x[0], x[1], 0, false);
  out[index()] = static_cast<u32>(__builtin_amdgcn_cvt_pk_bf8_f32(x[2], x[3], low, true));
}
KERNEL fp8_stochastic(const float* a, u32* out) {
  out[index()] = static_cast<u32>(__builtin_amdgcn_cvt_sr_fp8_f32(a[index()], 0, 0, 0));
}
KERNEL fp8_widen(const u32* a, float* out) {
  const int w = static_cast<int>(a[index()]);
  float* to = out + 4 * index();
  to[0] = __builtin_amdgcn_cvt_f32_fp8(w, 0);
  to[1] = __builtin_amdgcn_cvt_f32_fp8(w, 1);
  to[2] = __builtin_amdgcn_cvt_f32_fp8(w, 2);
  to[3] = __builtin_amdgcn_cvt_f32_fp8(w, 3);
}
KERNEL bf8_widen(const u32* a, float* out) {
  const int w = static_cast<int>(a[index()]);
  float* to = out + 4 * index();
  to[0] = __builtin_amdgcn_cvt_f32_bf8(w, 0);
  to[1] = __builtin_amdgcn_cvt_f32_bf8(w, 1);
  to[2] = __builtin_amdgcn_cvt_f32_bf8(w, 2);
  to[3] = __builtin_amdgcn_cvt_f32_bf8(w, 3);
}
KERNEL fp8_widen_pairs(const u32* a, f32x2* out) {
  const int w = static_cast<int>(a[index()]);
  out[2 * index()] = __builtin_amdgcn_cvt_pk_f32_fp8(w, false);
  out[2 * index() + 1] = __builtin_amdgcn_cvt_pk_f32_fp8(w, true);
}
#if defined(__gfx950__)
KERNEL fp8_scaled(const float* a, u32* out) {
  typedef short s16x2 __attribute__((ext_vector_type(2)));
  const s16x2 both = __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(s16x2{0, 0}, a[2 * index()],
                                                              a[2 * index() + 1], 2.0f, false);
  out[index()] = __builtin_bit_cast(u32, both);
}
KERNEL fp4_scaled(const float* a, u32* out) {
  out[index()] =
      __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(0, a[2 * index()], a[2 * index() + 1], 1.0f, 0);
}
KERNEL permlane_swap(u32* out) {
  const u32x2 both = __builtin_amdgcn_permlane32_swap(lane(), 100 + lane(), false, false);
  out[lane()] = both.x;
  out[64 + lane()] = both.y;
}
#endif

// --- waiting ------------------------------------------------------------------------------------

KERNEL blocks_alternate(u32* flags, u32 rounds) {  // two blocks answer each other
  if (lane_of_block() == 0) {
    u32* own = flags + 16 * block_index();
    u32* other = flags + 16 * (block_index() ^ 1);
    for (u32 r = 1; r <= rounds; ++r) {
      if (block_index() == 1) __hip_atomic_store(other, r, __ATOMIC_RELEASE, SYSTEM);
      while (__hip_atomic_load(own, __ATOMIC_ACQUIRE, SYSTEM) < r) __builtin_amdgcn_s_sleep(1);
      if (block_index() == 0) __hip_atomic_store(other, r, __ATOMIC_RELEASE, SYSTEM);
    }
  }
  sync();
  flags[32 + index()] = rounds;
}
KERNEL wave_waits_for_wave(u32* out) {  // through shared memory, without a barrier
  SHARED u32 flag;
  const u32 t = lane_of_block();
  if (t == 0) flag = 0;
  sync();
  if (t < 64) {
    while (__hip_atomic_load(&flag, __ATOMIC_ACQUIRE, BLOCK) == 0) {
    }
  } else if (t == 64) {
    __hip_atomic_store(&flag, 1u, __ATOMIC_RELEASE, BLOCK);
  }
  out[t] = 1;
}
KERNEL peers_exchange(u32* own, u32* peer, u32 pe) {  // 256 words, then a flag
  const u32 t = lane_of_block();
  peer[t] = (pe << 16) + t;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  sync();
  if (t == 0) {
    __hip_atomic_store(peer + 256, 1u, __ATOMIC_RELEASE, SYSTEM);
    while (__hip_atomic_load(own + 256, __ATOMIC_ACQUIRE, SYSTEM) == 0) __builtin_amdgcn_s_sleep(1);
  }
  sync();
  own[512 + t] = own[t] + 1;
}
KERNEL waits_for_ever(u32* flag) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, SYSTEM) == 0) __builtin_amdgcn_s_sleep(1);
}
// The shape of a dispatch: a wave per token, 16 bytes per lane, a slot by atomic.
KERNEL dispatch(const u32x4* rows, const u32* destinations, u32* counts, u32x4* const* peers,
                u32* slots, u32 row_count, u32 row_quads) {
  const u32 wave = static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<i32>(index() / 64)));
  const u32 wave_count = block_size() * 8 / 64;
  for (u32 row = wave; row < row_count; row += wave_count) {
    const u32 pe = destinations[row];
    u32 slot = 0;
    if (lane() == 0) slot = __hip_atomic_fetch_add(counts + pe, 1u, __ATOMIC_RELAXED, SYSTEM);
    slot = static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<i32>(slot)));
    u32x4* to = peers[pe] + u64{slot} * row_quads;
    for (u32 i = lane(); i < row_quads; i += 64) to[i] = rows[u64{row} * row_quads + i];
    if (lane() == 0) slots[row] = slot;
  }
}
