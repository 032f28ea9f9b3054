// gpu_share.hpp - memory of GPUs between processes of one node: what the owner says of a
// region, and how another process gets at it. Plain allocations travel as a handle of the
// driver, with the region's offset in the allocation; virtual memory that was made to be
// exported travels as descriptors, part by part, over the owner's desk. Before either is
// used, a nonce of the owner is read back from its device by the same way.
#pragma once

#include <mori/device/gpu_memory.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "local/process.hpp"
#include "local/share_desk.hpp"

namespace mori::io_core::local {

enum class gpu_way : uint8_t { handle = 1, descriptors = 2 };

// What the owner says of a region; goes into its memory descriptor.
struct gpu_offer {
  gpu_way way = gpu_way::handle;
  int32_t backend = 0;                // MORI_BACKEND_*
  std::array<uint8_t, 16> device{};   // its UUID
  std::array<uint8_t, 16> process{};  // nonce of the owner's process_card
  int32_t ordinal = 0;                // as the owner numbers the device
  uint64_t address = 0;               // of the region, in the owner's process
  uint64_t offset = 0;                // of the region in what is shared
  device::ipc_handle handle{};        // of the allocation
  // Asks whether the region is still offered; way descriptors: for parts 0 .. part_count - 1, then
  // the proof.
  invitation from;
  uint32_t part_count = 0;
  uint64_t shared_bytes = 0;          // of the allocation, or of all parts
  device::ipc_handle proof_handle{};  // way handle
  std::array<uint8_t, 16> nonce{};    // at the start of the proof
};
link::byte_vector encode(const gpu_offer& what);
base::result<gpu_offer> decode_gpu_offer(link::byte_span bytes);

// Owner's side.
class gpu_exporter {
 public:
  static constexpr size_t most_parts = 65536;

  // MORI_E_UNAVAILABLE: memory that no other process can get at, and what would help.
  base::result<gpu_offer> offer(share_desk& desk, const std::shared_ptr<device::gpu>& on,
                                uint64_t address, uint64_t bytes);

 private:
  // A few bytes of a device with a nonce in them, shared by the same way as what is to be proven.
  struct proof {
    device::device_buffer plain;
    device::mapped_memory mapped;
    device::ipc_handle handle{};
    std::array<uint8_t, 16> nonce{};
  };
  base::result<std::shared_ptr<proof>> proof_of(const std::shared_ptr<device::gpu>& on,
                                                gpu_way way);
  base::status share_parts(share_desk& desk, const std::shared_ptr<device::gpu>& on, uint64_t bytes,
                           gpu_offer& made);

  std::mutex lock_;
  std::map<std::pair<device::gpu*, gpu_way>, std::shared_ptr<proof>> proofs_;
};

// A region of another process, as addresses of this one. The memory stays while one lives.
class gpu_import {
 public:
  virtual ~gpu_import() = default;
  virtual uint64_t address() const = 0;  // of the region
  virtual std::string text() const = 0;  // "GPU memory by handle"
};

// Other's side.
class gpu_importer {
 public:
  gpu_importer();
  // `on`: the device that will copy. Failures are reasons why it cannot be reached.
  base::result<std::shared_ptr<gpu_import>> get(const gpu_offer& offer,
                                                const std::shared_ptr<device::gpu>& on,
                                                base::deadline until);

 private:
  class handles;
  class by_handle;
  class by_descriptors;
  class own_memory;

  base::status prove_handle(const gpu_offer& offer, const std::shared_ptr<device::gpu>& on);

  std::shared_ptr<handles> handles_;  // shared with what was imported
  std::mutex lock_;
  std::set<std::pair<device::gpu*, std::array<uint8_t, 16>>> proven_;  // by nonce
};

}  // namespace mori::io_core::local
