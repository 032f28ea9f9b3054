// own_memory.hpp - this PE's memory as its proxy reaches it: the heap, which peers'
// requests change, and whatever its own commands name. host_memory.hpp is memory of this
// process; a GPU's is reached by copies and a kernel (context/gpu_port.hpp).
#pragma once

#include <mori/base/result.hpp>
#include <mori/link/bytes.hpp>

#include <cstdint>

namespace mori::shmem_core {

struct word_change {
  uint64_t address = 0;
  uint64_t value = 0;
  uint64_t compare = 0;
  int32_t operation = 0;  // MORI_SHMEM_AMO_* or MORI_SHMEM_SIGNAL_*
  uint32_t word_bytes = 8;
  uint64_t* before = nullptr;  // where the value before goes, at flush() at the latest
};

class own_memory {
 public:
  virtual ~own_memory() = default;

  // Take effect in the order of the calls, all of them by the end of flush(). `bytes` may go when
  // the call returns.
  virtual base::status write(uint64_t address, link::byte_span bytes) = 0;
  virtual base::status change(const word_change& what) = 0;
  virtual base::status flush() = 0;

  // Where bytes for `address` may be received before they are written: there, or null.
  virtual std::byte* place_of(uint64_t /*address*/) { return nullptr; }

  // What is there now; valid until the next call, or as long as the memory is if is_near().
  virtual base::result<link::byte_span> read(uint64_t address, uint64_t bytes) = 0;
  virtual bool is_near() const { return false; }
};

}  // namespace mori::shmem_core
