// settings.cpp - see settings.hpp.
#include "context/settings.hpp"

#include <mori/base/boundary.hpp>
#include <mori/base/clock.hpp>
#include <mori/base/env.hpp>
#include <mori/device/runtime.hpp>

#include <sched.h>

#include <algorithm>
#include <bit>

namespace mori::shmem_core {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr uint64_t day_ms = 86'400'000;

base::status check_enumerations(const mori_shmem_options& from) {
  if (from.pe_count < 1 || from.pe_count > largest_pe_count)
    return base::fail(MORI_E_INVALID, "pe_count {} is outside 1 .. {}", from.pe_count,
                      largest_pe_count);
  if (from.pe < 0 || from.pe >= from.pe_count)
    return base::fail(MORI_E_INVALID, "pe {} is outside 0 .. {}", from.pe, from.pe_count - 1);
  if (from.backend < MORI_BACKEND_AUTO || from.backend > MORI_BACKEND_NVIDIA)
    return base::fail(MORI_E_INVALID, "backend {} is none of MORI_BACKEND_*", from.backend);
  if (from.heap_mode < MORI_SHMEM_HEAP_DEFAULT || from.heap_mode > MORI_SHMEM_HEAP_ISOLATION)
    return base::fail(MORI_E_INVALID, "heap_mode {} is none of MORI_SHMEM_HEAP_*", from.heap_mode);
  if (from.disable_p2p != 0 && from.disable_p2p != 1)
    return base::fail(MORI_E_INVALID, "disable_p2p {} is neither 0 nor 1", from.disable_p2p);
  if (from.worker_count < 0 || from.worker_count > largest_worker_count)
    return base::fail(MORI_E_INVALID, "worker_count {} is outside 0 .. {}", from.worker_count,
                      largest_worker_count);
  return {};
}

// The option, else MORI_BACKEND, else the host.
base::result<int32_t> backend_of(const mori_shmem_options& from) {
  if (from.backend != MORI_BACKEND_AUTO) return from.backend;
  const std::string text = base::env_text("MORI_BACKEND").value_or("auto");
  for (int32_t each = MORI_BACKEND_AUTO; each <= MORI_BACKEND_NVIDIA; ++each)
    if (text == device::backend_name(each)) return std::max<int32_t>(each, MORI_BACKEND_HOST);
  return base::fail(MORI_E_INVALID, "MORI_BACKEND='{}' is none of auto, host, amd, nvidia", text);
}

base::result<int32_t> heap_mode_of(const mori_shmem_options& from) {
  int32_t mode = from.heap_mode;
  if (mode == MORI_SHMEM_HEAP_DEFAULT) {
    const std::string text = base::env_text("MORI_SHMEM_MODE").value_or("static");
    if (text == "static" || text == "static_heap")
      mode = MORI_SHMEM_HEAP_STATIC;
    else if (text == "vmm" || text == "vmm_heap")
      mode = MORI_SHMEM_HEAP_VMM;
    else if (text == "isolation")
      mode = MORI_SHMEM_HEAP_ISOLATION;
    else
      return base::fail(MORI_E_INVALID, "MORI_SHMEM_MODE='{}' is none of static, vmm, isolation",
                        text);
  }
  return mode;
}

// A heap that grows costs addresses alone, so it may be large.
constexpr uint64_t default_heap_bytes(int32_t mode) {
  return uint64_t{mode == MORI_SHMEM_HEAP_VMM ? 16u : 4u} << 30;
}

base::result<uint64_t> heap_bytes_of(const mori_shmem_options& from, int32_t mode) {
  uint64_t bytes = from.heap_bytes;
  if (bytes == 0) {
    MORI_TRY(const auto given, base::env_bytes("MORI_SHMEM_HEAP_SIZE"));
    bytes = given.value_or(default_heap_bytes(mode));
  }
  if (bytes < smallest_heap_bytes || bytes > largest_heap_bytes)
    return base::fail(MORI_E_INVALID, "heap size of {} bytes is outside {} .. {}", bytes,
                      smallest_heap_bytes, largest_heap_bytes);
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

base::result<uint64_t> vmm_chunk_bytes() {
  MORI_TRY(const auto given, base::env_bytes("MORI_SHMEM_VMM_CHUNK_SIZE"));
  const uint64_t bytes = given.value_or(uint64_t{64} << 20);
  if (!std::has_single_bit(bytes) || bytes < smallest_chunk_bytes || bytes > largest_heap_bytes)
    return base::fail(MORI_E_INVALID,
                      "MORI_SHMEM_VMM_CHUNK_SIZE is {} bytes, expected a power of two in {} .. {}",
                      bytes, smallest_chunk_bytes, largest_heap_bytes);
  return bytes;
}

// How a GPU caches the heap. Data reach peers by fences whatever it says; it is read so that a
// misspelt value does not go unnoticed.
base::status check_heap_type() {
  const std::string text = base::env_text("MORI_SHMEM_HEAP_TYPE").value_or("uncached");
  if (text == "uncached" || text == "normal") return {};
  return base::fail(MORI_E_INVALID, "MORI_SHMEM_HEAP_TYPE='{}' is neither uncached nor normal",
                    text);
}

// Whether a MAC goes with large data on the network, as with everything else.
base::result<bool> authenticates_bulk() {
  const std::string text = base::env_text("MORI_SHMEM_SECURITY").value_or("mac");
  if (text == "mac" || text == "trusted") return text == "mac";
  return base::fail(MORI_E_INVALID, "MORI_SHMEM_SECURITY='{}' is neither mac nor trusted", text);
}

// A duration: the option, else the variable (in `unit_ns`), else the default.
base::result<uint64_t> duration_of(uint64_t option_ns, const char* variable, uint64_t unit_ns,
                                   uint64_t default_ns) {
  if (option_ns != 0) return option_ns;
  MORI_TRY(const auto given, base::env_number(variable, 1, day_ms));
  return given ? *given * unit_ns : default_ns;
}

}  // namespace

cpu_set_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
  return set;
}

base::result<settings> read_settings(const mori_shmem_options* options) {
  MORI_TRY(const mori_shmem_options from, base::read_struct(options, "mori_shmem_options"));
  MORI_CHECK(check_enumerations(from));
  settings to;
  to.pe = from.pe;
  to.pe_count = from.pe_count;
  to.worker_count = from.worker_count;
  MORI_TRY(to.backend, backend_of(from));
  MORI_TRY(to.heap_mode, heap_mode_of(from));
  if (to.heap_mode != MORI_SHMEM_HEAP_STATIC && to.backend != MORI_BACKEND_HOST)
    return base::fail(MORI_E_UNSUPPORTED,
                      "heap mode {} on a GPU is not in this build: use static (MORI_SHMEM_MODE)",
                      to.heap_mode == MORI_SHMEM_HEAP_VMM ? "vmm" : "isolation");
  MORI_TRY(to.heap_bytes, heap_bytes_of(from, to.heap_mode));
  MORI_TRY(to.vmm_chunk_bytes, vmm_chunk_bytes());
  MORI_CHECK(check_heap_type());
  MORI_TRY(to.bootstrap_timeout_ns, duration_of(from.bootstrap_timeout_ns, "MORI_BOOTSTRAP_TIMEOUT",
                                                base::ns_per_s, 300 * base::ns_per_s));
  MORI_TRY(to.wait_timeout_ns, duration_of(from.wait_timeout_ns, "MORI_TIMEOUT_MS", base::ns_per_ms,
                                           300 * base::ns_per_s));
  MORI_TRY(to.heartbeat_timeout_ns,
           duration_of(from.heartbeat_timeout_ns, "MORI_HEARTBEAT_TIMEOUT_MS", base::ns_per_ms,
                       10 * base::ns_per_s));
  if (to.heartbeat_timeout_ns < smallest_heartbeat_ns)
    return base::fail(MORI_E_INVALID, "heartbeat timeout of {} ns is below {} ns",
                      to.heartbeat_timeout_ns, smallest_heartbeat_ns);
  MORI_TRY(const auto p2p_off, base::env_flag("MORI_DISABLE_P2P"));
  to.disable_p2p = from.disable_p2p == 1 || p2p_off.value_or(false);
  MORI_TRY(to.authenticates_bulk, authenticates_bulk());
  MORI_TRY(const auto queues, base::env_number("MORI_NUM_QP_PER_PE", 1, 64));
  to.queue_pair_per_pe_count = static_cast<int>(queues.value_or(1));
  MORI_TRY(const auto sharers, base::env_number("MORI_GPU_SHARERS", 1, largest_pe_count));
  to.gpu_sharer_count = static_cast<int>(sharers.value_or(0));
  to.heap_directory = base::env_text("MORI_SHMEM_HEAP_DIR").value_or("");
  to.node_id = base::env_text("MORI_NODE_ID").value_or("");
  return to;
}

}  // namespace mori::shmem_core
