// host_memory.cpp - see host_memory.hpp.
#include "network/host_memory.hpp"

#include <mori/device_api/atomic.hpp>

namespace mori::shmem_core {
namespace {

template <class T>
void store_word(uint64_t address, link::byte_span bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  device::store<device::scope::system, device::order::release>(device::pointer<T>(address), value);
}

template <class T>
uint64_t apply(const word_change& what) {
  return device_api::apply_atomic(
      device::pointer<T>(what.address),
      device_api::atomic_request<T>{nullptr, static_cast<T>(what.value), what.operation, 0,
                                    static_cast<T>(what.compare)});
}

}  // namespace

// What one store of a mapped peer would write is written by one store.
base::status host_memory::write(uint64_t address, link::byte_span bytes) {
  changed_ = true;
  if (bytes.data() == place_of(address)) return {};  // received in place
  if (bytes.size() == 8 && address % 8 == 0)
    store_word<uint64_t>(address, bytes);
  else if (bytes.size() == 4 && address % 4 == 0)
    store_word<uint32_t>(address, bytes);
  else
    std::memcpy(device::pointer<void>(address), bytes.data(), bytes.size());
  return {};
}

base::status host_memory::change(const word_change& what) {
  changed_ = true;
  uint64_t before = 0;
  if (what.operation == MORI_SHMEM_SIGNAL_SET)
    device::store_signal<device::order::release>(device::pointer<uint64_t>(what.address),
                                                 what.value);
  else if (what.operation == MORI_SHMEM_SIGNAL_ADD)
    device::fetch_add<device::scope::system, device::order::acq_rel>(
        device::pointer<uint64_t>(what.address), what.value);
  else
    before = what.word_bytes == 4 ? apply<uint32_t>(what) : apply<uint64_t>(what);
  if (what.before != nullptr) *what.before = before;
  return {};
}

base::status host_memory::flush() {
  if (!changed_) return {};
  changed_ = false;
  // Between the last store and the look for sleepers.
  device::fence<device::scope::system, device::order::seq_cst>();
  device::ring_doorbell(device_api::doorbell_of(&sync_));
  return {};
}

std::byte* host_memory::place_of(uint64_t address) { return device::pointer<std::byte>(address); }

base::result<link::byte_span> host_memory::read(uint64_t address, uint64_t bytes) {
  return link::byte_span(device::pointer<const std::byte>(address), bytes);
}

}  // namespace mori::shmem_core
