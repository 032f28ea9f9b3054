// operations.cpp - host calls of the device operations. They check what a
// kernel could not report well, then run the same device functions that
// kernels run, as one lane.
#include "context/context.hpp"

#include <mori/device_api/shmem.hpp>

namespace mori::shmem_core {
namespace {

namespace api = mori::device_api;
namespace device = mori::device;

base::status check_word(const void* address, uint64_t size_bytes) {
  if (size_bytes != 4 && size_bytes != 8)
    return base::fail(MORI_E_INVALID, "size_bytes {} is neither 4 nor 8", size_bytes);
  if (reinterpret_cast<uint64_t>(address) % size_bytes != 0)
    return base::fail(MORI_E_INVALID, "address {} is not aligned to {}", address, size_bytes);
  return {};
}

bool is_atomic_operation(int32_t op) {
  return (op >= MORI_SHMEM_AMO_INC && op <= MORI_SHMEM_AMO_XOR) ||
         (op >= MORI_SHMEM_AMO_FETCH && op <= MORI_SHMEM_AMO_COMPARE_SWAP);
}

}  // namespace
}  // namespace mori::shmem_core
