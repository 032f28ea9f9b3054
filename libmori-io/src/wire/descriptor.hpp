// descriptor.hpp - what an engine tells others about itself and about memory of
// its process, as bytes that may be stored and sent. An engine descriptor holds
// no secret; a memory descriptor holds the capabilities of its region, so
// whoever has it may use the memory.
//
//   magic 4 | format u16 | least reader u16 | body bytes u32 | body | checksum 8
//
// A newer writer may append fields that an older reader skips; `least reader`
// says from which format on a reader understands enough. The checksum is
// against damage, not against forgery: a forged one names another public key.
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/tcp/address.hpp>

#include <optional>
#include <string>
#include <vector>

#include "wire/crypto.hpp"
#include "wire/limits.hpp"

namespace mori::io_core::wire {

struct engine_desc {
  std::string key;
  std::string node_id;
  std::string hostname;
  std::vector<link::tcp::address> addresses;  // best first, with the port; may be empty
  uint16_t port = 0;                          // 0: takes no connections
  int32_t os_process_id = 0;
  instance_id instance{};  // made at create: an engine that restarts has another
  wire::public_key public_key{};
  uint16_t least_version = least_protocol_version;
  uint16_t version = protocol_version;

  bool operator==(const engine_desc&) const = default;
};

// Facts for one backend; what a reader does not know it leaves alone.
enum class blob_kind : uint16_t {
  shared_segment = 1,  // memory of mori_io_alloc: how to get it
  process = 2,         // for attaching to the process's memory, see process_facts
  gpu_ipc = 3,         // a GPU allocation's handle and the region's offset in it
  rdma = 4,            // device, keys
};

struct desc_blob {
  blob_kind kind{};
  std::vector<uint8_t> bytes;
  bool operator==(const desc_blob&) const = default;
};

struct memory_desc {
  std::string engine_key;
  instance_id instance{};
  uint32_t region = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int32_t location = 1;  // MORI_IO_LOCATION_CPU or _GPU
  int32_t device = -1;
  std::string device_bus_id;
  int32_t numa_node = -1;
  int32_t access = 3;  // MORI_IO_ACCESS_*
  capability read_capability{};
  capability write_capability{};
  std::vector<desc_blob> blobs;

  const desc_blob* find(blob_kind kind) const;
  bool operator==(const memory_desc&) const = default;
};

// Blob `process`: enough to prove, through an attached read, that the process
// with this id is the one that registered.
struct process_facts {
  int32_t os_process_id = 0;
  uint64_t start_time = 0;  // clock ticks since boot, /proc/PID/stat
  std::array<uint8_t, 16> boot_id{};
  uint64_t pid_namespace = 0;  // inode of /proc/PID/ns/pid; 0: unknown
  uint64_t nonce_address = 0;
  std::array<uint8_t, 16> nonce{};
  bool operator==(const process_facts&) const = default;
};
desc_blob pack_process(const process_facts& facts);
base::result<process_facts> unpack_process(const desc_blob& blob);

// MORI_E_INVALID when a field exceeds its limit: its name, value and limit.
base::result<link::byte_vector> pack(const engine_desc& what);
base::result<link::byte_vector> pack(const memory_desc& what);

// MORI_E_INVALID (empty, not such a descriptor), MORI_E_PROTOCOL (damaged),
// MORI_E_VERSION (newer than this library).
base::result<engine_desc> unpack_engine(byte_span bytes);
base::result<memory_desc> unpack_memory(byte_span bytes);

// For logs and error messages: one line, no secret.
std::string text(const engine_desc& what);
std::string text(const memory_desc& what);

}  // namespace mori::io_core::wire
