// settings.hpp - what a context runs with: the caller's options, completed from
// the environment and checked. The only file of the library that reads
// environment variables.
#pragma once

#include <mori/shmem.h>
#include <mori/base/result.hpp>

#include <sched.h>

#include <cstdint>
#include <string>

namespace mori::shmem_core {

struct settings {
  int pe = 0;
  int pe_count = 0;
  int32_t backend = MORI_BACKEND_HOST;
  int32_t heap_mode = MORI_SHMEM_HEAP_STATIC;
  uint64_t heap_bytes = 0;
  uint64_t vmm_chunk_bytes = 0;  // what a heap of mode vmm grows by
  uint64_t bootstrap_timeout_ns = 0;
  uint64_t wait_timeout_ns = 0;
  uint64_t heartbeat_timeout_ns = 0;
  bool disable_p2p = false;
  bool authenticates_bulk = true;  // what the network moves
  int worker_count = 0;            // 0: decided once the node's PEs are known
  int queue_pair_per_pe_count = 1;
  int gpu_sharer_count = 0;    // 0: the PEs that are found on the same GPU
  std::string heap_directory;  // empty: memfd
  std::string node_id;         // empty: the machine's own
};

inline constexpr int largest_pe_count = 4096;
inline constexpr int largest_worker_count = 1024;
inline constexpr uint64_t smallest_heap_bytes = 64 << 10;
inline constexpr uint64_t smallest_chunk_bytes = 2 << 20;
inline constexpr uint64_t largest_heap_bytes = uint64_t{1} << 44;
inline constexpr uint64_t smallest_heartbeat_ns = 100'000'000;

base::result<settings> read_settings(const mori_shmem_options* options);

// Cores that the calling thread may run on; none when the system does not say.
cpu_set_t usable_cores();

}  // namespace mori::shmem_core
