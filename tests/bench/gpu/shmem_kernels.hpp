// shmem_kernels.hpp - the kernels of the shmem comparison, one source for both
// libraries: each is a template over a small class that says how that library
// spells an operation. So both have the same loops, lanes, counts and clocks. Read
// shmem_ours.cu and shmem_nvshmem.cu for the two classes, shmem_measure.hpp for what runs them.
//
//   me()                                              this PE
//   signal(word, value, pe)                           one lane: store value there
//   await(word, value, pe)                            one lane: until the own word is >= value
//   put_signal(to, from, bytes, word, value, pe)      a block
//   await_by_block(word, value, pe)                   a block: all lanes may read what came
//   put(to, from, bytes, pe), quiet(), barrier()      a block
#pragma once

#include "device.hpp"

namespace mori_bench {

// Messages of one launch: the first `warm_up` are not timed. Values go on from launch to launch
// (`base`), so that no word needs resetting.
struct turns {
  std::uint64_t base;
  std::uint64_t warm_up;
  std::uint64_t count;
};

// PE 0 sends n and waits for n, PE 1 answers n with n.
template <class Library>
__global__ void signal_round_trips(const __grid_constant__ Library library, std::uint64_t* word,
                                   turns how, std::uint64_t* spent_ns) {
  const int peer = 1 - library.me();
  std::uint64_t start = 0;
  for (std::uint64_t n = 1; n <= how.warm_up + how.count; ++n) {
    if (n == how.warm_up + 1) start = gpu_clock_ns();
    if (peer == 1) library.signal(word, how.base + n, peer);
    library.await(word, how.base + n, peer);
    if (peer == 0) library.signal(word, how.base + n, peer);
  }
  *spent_ns = gpu_clock_ns() - start;
}

struct message {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
  std::uint64_t* word;
};

template <class Library>
__global__ void put_round_trips(const __grid_constant__ Library library, message what, turns how,
                                std::uint64_t* spent_ns) {
  const int peer = 1 - library.me();
  std::uint64_t start = 0;
  for (std::uint64_t n = 1; n <= how.warm_up + how.count; ++n) {
    const std::uint64_t value = how.base + n;
    if (n == how.warm_up + 1) start = gpu_clock_ns();
    if (peer == 1) library.put_signal(what.to, what.from, what.bytes, what.word, value, peer);
    library.await_by_block(what.word, value, peer);
    if (peer == 0) library.put_signal(what.to, what.from, what.bytes, what.word, value, peer);
  }
  if (threadIdx.x == 0) *spent_ns = gpu_clock_ns() - start;
}

template <class Library>
__global__ void barriers(const __grid_constant__ Library library, turns how,
                         std::uint64_t* spent_ns) {
  std::uint64_t start = 0;
  for (std::uint64_t n = 1; n <= how.warm_up + how.count; ++n) {
    if (n == how.warm_up + 1) start = gpu_clock_ns();
    library.barrier();
  }
  if (threadIdx.x == 0) *spent_ns = gpu_clock_ns() - start;
}

// Each block puts its part of `bytes`, a multiple of 16 * block count, and completes it.
template <class Library>
__global__ void put_parts(const __grid_constant__ Library library, message what, int peer) {
  const std::size_t part = what.bytes / gridDim.x;
  const std::size_t at = part * blockIdx.x;
  library.put(what.to + at, what.from + at, part, peer);
  library.quiet();
}

// The byte that PE `pe` has at `at` of its source.
__host__ __device__ inline std::uint8_t source_byte(int pe, std::uint64_t at) {
  const std::uint64_t mixed = (at + 1) * 0x9E37'79B9'7F4A'7C15u + static_cast<unsigned>(pe) * 97u;
  return static_cast<std::uint8_t>(mixed >> 41);
}

static __global__ void fill_source(std::byte* source, std::uint64_t bytes, int pe) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < bytes;
       at += step)
    source[at] = static_cast<std::byte>(source_byte(pe, at));
}

static __global__ void count_wrong_bytes(const std::byte* target, std::uint64_t bytes, int pe,
                                         unsigned long long* wrong) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < bytes;
       at += step)
    if (target[at] != static_cast<std::byte>(source_byte(pe, at))) atomicAdd(wrong, 1ull);
}

}  // namespace mori_bench
