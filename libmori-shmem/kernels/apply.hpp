// apply.hpp - changes of words of this GPU's heap that peers asked for over the network, as
// a kernel of one lane: so they are atomic with those of mapped peers and of other kernels. They
// are made in their order; what was there before is stored where the host reads it.
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/atomic.hpp>

namespace mori::shmem_core {

struct apply_entry {
  device::u64 address;
  device::u64 value;
  device::u64 compare;
  device::u64 before;
  device::u32 word_bytes;  // 4 or 8
  device::i32 operation;   // MORI_SHMEM_AMO_* or MORI_SHMEM_SIGNAL_*
};

struct apply_args {
  device::u64 entries;  // address of apply_entry[count], in host memory
  device::u64 count;
};

template <class T>
MORI_DEVICE device::u64 apply_one(const apply_entry& entry) {
  return static_cast<device::u64>(device_api::apply_atomic(
      device::pointer<T>(entry.address),
      device_api::atomic_request<T>{nullptr, static_cast<T>(entry.value), entry.operation, 0,
                                    static_cast<T>(entry.compare)}));
}

MORI_DEVICE void apply(const device::grid& g, const apply_args& args) {
  if (g.block_index() != 0 || g.this_block().rank() != 0) return;
  auto* entries = device::pointer<apply_entry>(args.entries);
  for (device::u64 i = 0; i < args.count; ++i) {
    apply_entry entry = entries[i];
    if (entry.operation == MORI_SHMEM_SIGNAL_SET) entry.operation = MORI_SHMEM_AMO_SET;
    if (entry.operation == MORI_SHMEM_SIGNAL_ADD) entry.operation = MORI_SHMEM_AMO_ADD;
    entries[i].before =
        entry.word_bytes == 4 ? apply_one<device::u32>(entry) : apply_one<device::u64>(entry);
  }
}

}  // namespace mori::shmem_core
