// gpu_port.hpp - memory that a GPU reaches, as the network's proxy changes and reads it (see
// network/own_memory.hpp). Bytes and plain signals go through pinned host memory and the
// device's copy engines, which no waiting kernel holds up; atomics by a kernel of one
// lane. All of it is on one helper stream, so it keeps its order.
#pragma once

#include "network/own_memory.hpp"

#include <mori/device/gpu_memory.hpp>
#include <mori/device/runtime.hpp>

#include <memory>
#include <vector>

namespace mori::shmem_core {

struct apply_entry;

class gpu_port final : public own_memory {
 public:
  // The runtime has the kernel mori_shmem_apply and outlives the port.
  static base::result<std::unique_ptr<gpu_port>> create(std::shared_ptr<device::gpu> gpu,
                                                        device::runtime& kernels);

  base::status write(uint64_t address, link::byte_span bytes) override;
  base::status change(const word_change& what) override;
  base::status flush() override;
  base::result<link::byte_span> read(uint64_t address, uint64_t bytes) override;

 private:
  gpu_port(std::shared_ptr<device::gpu> gpu, device::runtime& kernels)
      : gpu_(std::move(gpu)), kernels_(kernels) {}
  apply_entry* entries() const;
  std::byte* staging() const;
  std::byte* incoming() const;
  // Enqueues the changes that were collected.
  base::status launch();

  std::shared_ptr<device::gpu> gpu_;
  device::runtime& kernels_;
  void* stream_ = nullptr;
  device::pinned_buffer memory_;
  uint64_t staged_bytes_ = 0;
  size_t launched_count_ = 0;
  std::vector<uint64_t*> befores_;  // of all entries since the last flush
  bool is_dirty_ = false;
};

}  // namespace mori::shmem_core
