// handle.hpp - handles that can be checked. What C callers hold is not an
// address but a ticket (kind, fork generation, slot, serial number), so a stale,
// foreign or forked one is an error and never a stray access.
#pragma once

#include <mori/base/process.hpp>
#include <mori/base/result.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace mori::base {

// T is the implementation, Opaque the type of the C handle. One table for each
// handle type of a library, never destroyed.
template <class T, class Opaque>
class handle_table {
 public:
  // kind: 1 .. 15, differs between the handle types of all libraries. A table
  // lives for ever: its lock is held across fork().
  handle_table(unsigned kind, const char* name) : kind_(kind), name_(name) {
    hold_across_fork(lock_);
  }

  // shared_ptr: owned by the table and by each call in progress.
  Opaque* insert(std::shared_ptr<T> object) {
    const std::lock_guard guard(lock_);
    uint64_t slot = 0;
    while (slot < slots_.size() && slots_[slot].object) ++slot;
    if (slot == slots_.size()) slots_.emplace_back();
    slots_[slot].object = std::move(object);
    slots_[slot].serial = ++last_serial_ & serial_mask;
    return reinterpret_cast<Opaque*>(ticket(slot, slots_[slot].serial));
  }

  result<std::shared_ptr<T>> pin(const Opaque* handle) const { return take(handle, false); }
  // Takes the object out of the table; calls in progress keep it alive.
  result<std::shared_ptr<T>> remove(const Opaque* handle) { return take(handle, true); }

 private:
  struct slot_type {
    std::shared_ptr<T> object;
    uint64_t serial = 0;
  };
  static constexpr uint64_t serial_mask = (uint64_t{1} << 32) - 1;

  // kind 4 bits | fork generation 8 | slot 16 | serial 32, low to high from bit 0.
  uint64_t ticket(uint64_t slot, uint64_t serial) const {
    return kind_ | (fork_generation() & 0xFFu) << 4 | slot << 12 | serial << 28;
  }

  result<std::shared_ptr<T>> take(const Opaque* handle, bool out) const {
    const auto value = reinterpret_cast<uint64_t>(handle);
    if (handle == nullptr) return fail(MORI_E_STATE, "{} handle is NULL", name_);
    if ((value & 0xF) != kind_ || value >> 60 != 0)
      return fail(MORI_E_STATE, "{:#x} is not a {} handle", value, name_);
    // Before the lock: in a fork()ed child another thread may have held it.
    if ((value >> 4 & 0xFF) != (fork_generation() & 0xFFu))
      return fail(MORI_E_STATE, "{} handle was made before fork(); make a new one in the child",
                  name_);
    const std::lock_guard guard(lock_);
    const uint64_t slot = value >> 12 & 0xFFFF;
    if (slot >= slots_.size() || !slots_[slot].object || slots_[slot].serial != value >> 28)
      return fail(MORI_E_STATE, "{} handle {:#x} has been destroyed", name_, value);
    if (!out) return slots_[slot].object;
    return std::move(slots_[slot].object);
  }

  const unsigned kind_;
  const char* const name_;
  mutable std::mutex lock_;
  mutable std::vector<slot_type> slots_;
  uint64_t last_serial_ = 0;
};

}  // namespace mori::base
