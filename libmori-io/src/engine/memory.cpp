// memory.cpp - regions of an engine: registering, describing, and taking them back,
// which ends every transfer with them before it returns.
#include <mori/io_types.h>

#include <algorithm>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

// What a process that has attached memory gets to confirm that it lets go.
constexpr uint64_t revoke_patience_ns = 2 * base::ns_per_s;

}  // namespace

std::shared_ptr<const memory::region> engine::find_region(uint32_t id) const {
  const std::shared_lock guard(regions_lock_);
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : found->second;
}

base::result<uint32_t> engine::register_memory(void* begin, uint64_t bytes, int32_t location,
                                               int32_t device, int32_t access) {
  MORI_CHECK(check_alive());
  if (begin == nullptr) return base::fail(MORI_E_INVALID, "in_memory is NULL");
  if (bytes == 0) return base::fail(MORI_E_INVALID, "size_bytes is 0, at least 1 is needed");
  const auto address = reinterpret_cast<uintptr_t>(begin);
  if (bytes > UINT64_MAX - address)
    return base::fail(MORI_E_INVALID, "{} bytes at {:#x} go beyond the end of the address space",
                      bytes, address);
  if (location < MORI_IO_LOCATION_DETECT || location > MORI_IO_LOCATION_GPU)
    return base::fail(MORI_E_INVALID, "location {} is none of MORI_IO_LOCATION_*", location);
  if (access < 0 || access > (MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE))
    return base::fail(MORI_E_INVALID, "access {} is outside 0 .. {}", access,
                      MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE);
  if (location == MORI_IO_LOCATION_CPU && device != -1)
    return base::fail(MORI_E_INVALID, "device {} for host memory, which has -1", device);
  auto made = std::make_shared<memory::region>();
  made->begin = static_cast<std::byte*>(begin);
  made->size_bytes = bytes;
  made->access = access == 0 ? MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE : access;
  MORI_CHECK(transport::locate_memory(*made, location, device));
  made->read_capability = wire::fresh_capability();
  made->write_capability = wire::fresh_capability();
  uint32_t id = 0;
  {
    const std::unique_lock guard(regions_lock_);
    if (regions_.size() >= max_region_count)
      return base::fail(MORI_E_NO_MEMORY, "{} regions are registered, {} are allowed",
                        regions_.size(), max_region_count);
    do id = ++last_region_;
    while (id == 0 || regions_.contains(id));
    made->id = id;
  }
  std::array<direct_backend, backend_count> backends;
  {
    const section held(*this);
    backends = direct_;
  }
  for (const direct_backend& each : backends)
    if (each.made != nullptr) MORI_CHECK(each.made->describe(*made, made->blobs));
  const std::unique_lock guard(regions_lock_);
  regions_.emplace(id, std::move(made));
  return id;
}

base::result<link::byte_vector> engine::describe_memory(uint32_t id) const {
  MORI_CHECK(check_alive());
  const std::shared_lock guard(regions_lock_);
  const auto found = regions_.find(id);
  if (found == regions_.end())
    return base::fail(MORI_E_NOT_FOUND, "region {} is not registered", id);
  const memory::region& of = *found->second;
  return wire::pack(wire::memory_desc{
      .engine_key = settings_.key,
      .instance = instance_,
      .region = id,
      .address = reinterpret_cast<uintptr_t>(of.begin),
      .size_bytes = of.size_bytes,
      .location = of.location,
      .device = of.device,
      .device_bus_id = of.device_bus_id,
      .numa_node = of.numa_node,
      .access = of.access,
      .read_capability = of.read_capability,
      .write_capability = of.write_capability,
      .blobs = of.blobs,
  });
}

base::status engine::check_unregistered(const void* begin, uint64_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const std::shared_lock guard(regions_lock_);
  for (const auto& [id, each] : regions_) {
    const auto at = reinterpret_cast<uintptr_t>(each->begin);
    if (at < first + bytes && first < at + each->size_bytes)
      return base::fail(MORI_E_STATE, "region {} is registered in this memory", id);
  }
  return {};
}

base::status engine::deregister_memory(uint32_t id) {
  MORI_CHECK(check_alive());
  std::shared_ptr<memory::region> gone;
  {
    const std::unique_lock guard(regions_lock_);
    const auto found = regions_.find(id);
    if (found == regions_.end())
      return base::fail(MORI_E_NOT_FOUND, "region {} is not registered", id);
    gone = std::move(found->second);
    regions_.erase(found);
    gone->revoked.store(true, std::memory_order_seq_cst);
  }
  // First nobody can attach it any more, then those who have are told.
  std::array<direct_backend, backend_count> backends;
  {
    const section held(*this);
    backends = direct_;
  }
  for (const direct_backend& each : backends)
    if (each.made != nullptr) each.made->withdraw(*gone);
  {
    const section held(*this);
    now_ns_ = base::now_ns();
    take_submitted();
    for_each_transfer([&](transfer_record& what) {
      if (what.local == gone.get())
        end_transfer(what, MORI_E_CANCELLED, fmt::format("region {} was deregistered", id));
    });
    std::vector<wire::instance_id>& waiting = revocations_[id];
    for (const auto& [instance, each] : guests_) {
      if (each->control == nullptr) continue;
      if (each->link.drop_region(id)) {
        lose_guest(*each, "a region that was being read was deregistered");
        continue;
      }
      if (!each->link.has_attached(id)) continue;
      each->link.revoke(id);
      waiting.push_back(instance);
      if (!std::exchange(each->is_dirty, true)) dirty_guests_.push_back(each.get());
    }
    work_off();
    planned_ns_.store(0, std::memory_order_relaxed);
  }
  kick();
  const auto is_free = [&] {
    const section held(*this);
    bool used = false;
    for_each_transfer(
        [&](const transfer_record& what) { used |= what.local == gone.get() && !what.told; });
    return !used;
  };
  const bool is_unused = wait(is_free, base::deadline::after(settings_.control_timeout_ns));
  MORI_CHECK(wait_for_revoked(id));
  if (!is_unused)
    return base::fail(MORI_E_TIMEOUT, "region {} is revoked, but transfers use it after {} ms", id,
                      settings_.control_timeout_ns / base::ns_per_ms);
  return {};
}

// Until who has attached the region has said that it lets go, or is gone.
base::status engine::wait_for_revoked(uint32_t id) {
  const uint64_t patience_ns = std::min(settings_.control_timeout_ns, revoke_patience_ns);
  (void)wait(
      [&] {
        const section held(*this);
        return revocations_[id].empty();
      },
      base::deadline::after(patience_ns));
  const section held(*this);
  const std::vector<wire::instance_id> silent = std::move(revocations_[id]);
  revocations_.erase(id);
  if (silent.empty()) return {};
  const auto found = guests_.find(silent.front());
  return base::fail(MORI_E_TIMEOUT,
                    "region {} is revoked, but engine '{}'{} has attached it and did not confirm "
                    "for {} ms: it may still touch the memory",
                    id, found != guests_.end() ? found->second->key : "?",
                    silent.size() > 1 ? fmt::format(" and {} more", silent.size() - 1) : "",
                    patience_ns / base::ns_per_ms);
}

}  // namespace mori::io_core
