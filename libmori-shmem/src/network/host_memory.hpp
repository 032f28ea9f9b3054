// host_memory.hpp - see own_memory.hpp: memory of this process. Changes are made by the
// same atomics as those of mapped peers, so both may work on one word.
#pragma once

#include "network/own_memory.hpp"

#include <mori/shmem_device.h>

namespace mori::shmem_core {

class host_memory final : public own_memory {
 public:
  explicit host_memory(mori_shmem_sync_v1& sync) : sync_(sync) {}

  base::status write(uint64_t address, link::byte_span bytes) override;
  base::status change(const word_change& what) override;
  base::status flush() override;
  std::byte* place_of(uint64_t address) override;
  base::result<link::byte_span> read(uint64_t address, uint64_t bytes) override;
  bool is_near() const override { return true; }

 private:
  mori_shmem_sync_v1& sync_;  // its doorbell wakes who waits for a word of the heap
  bool changed_ = false;
};

}  // namespace mori::shmem_core
