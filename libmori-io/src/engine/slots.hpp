// slots.hpp - handles of what is made and dropped often, from many threads: sessions and
// transfers. As base/handle.hpp, what a caller holds is a ticket (kind, fork
// generation, slot, serial); here slots are reused, never freed, and taken without a
// lock. An object is recycled when its handle was given back and nobody refers to it.
#pragma once

#include <mori/base/process.hpp>
#include <mori/base/result.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace mori::io_core {

// T has recycle(), called when the last reference goes. Lives for ever.
template <class T, class Opaque>
class slot_table {
  struct slot {
    // serial 26 bits << 32 | handle is out 1 bit << 31 | references 31 bits
    std::atomic<uint64_t> life{0};
    std::atomic<uint32_t> next_free{0};
    uint32_t index = 0;
    slot_table* of = nullptr;
    T object;
  };

 public:
  // A reference; the object stays what it is while there is one.
  class ref {
   public:
    ref() = default;
    ref(ref&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    ref& operator=(ref&& other) noexcept {
      ref(std::move(other)).swap(*this);
      return *this;
    }
    ref(const ref& other) : slot_(other.slot_) {
      if (slot_ != nullptr) slot_->life.fetch_add(1, std::memory_order_relaxed);
    }
    ref& operator=(const ref& other) {
      ref(other).swap(*this);
      return *this;
    }
    ~ref() {
      if (slot_ != nullptr) drop(*slot_, 1);
    }
    void swap(ref& other) noexcept { std::swap(slot_, other.slot_); }
    void reset() { ref().swap(*this); }
    explicit operator bool() const { return slot_ != nullptr; }
    T* get() const { return slot_ != nullptr ? &slot_->object : nullptr; }
    T* operator->() const { return &slot_->object; }
    T& operator*() const { return slot_->object; }

   private:
    friend slot_table;
    explicit ref(slot* of) : slot_(of) {}
    slot* slot_ = nullptr;
  };

  slot_table(unsigned kind, const char* name) : kind_(kind), name_(name) {
    base::hold_across_fork(growing_);
  }

  // A fresh or recycled object, without a handle yet. MORI_E_NO_MEMORY at the limit.
  base::result<ref> acquire() {
    slot* taken = pop();
    if (taken == nullptr) {
      MORI_TRY(taken, grow());
    }
    taken->life.fetch_add(1, std::memory_order_acquire);
    return ref(taken);
  }

  // The handle; it counts as a reference until it is given back.
  Opaque* publish(const ref& of) {
    const uint64_t before = of.slot_->life.fetch_add(handle_bit + 1, std::memory_order_release);
    return reinterpret_cast<Opaque*>(kind_ | (base::fork_generation() & 0xFFu) << 4 |
                                     uint64_t{of.slot_->index} << 12 | serial_of(before) << 34);
  }

  base::result<ref> pin(const Opaque* handle) {
    MORI_TRY(slot * found, look_up(handle));
    uint64_t life = found->life.load(std::memory_order_relaxed);
    do {
      if (!is_of(life, handle)) return destroyed(handle);
    } while (!found->life.compare_exchange_weak(life, life + 1, std::memory_order_acquire,
                                                std::memory_order_relaxed));
    return ref(found);
  }

  // Gives the handle back; the object is the caller's to look at once more.
  base::result<ref> remove(const Opaque* handle) {
    MORI_TRY(slot * found, look_up(handle));
    uint64_t life = found->life.load(std::memory_order_relaxed);
    do {
      if (!is_of(life, handle)) return destroyed(handle);
    } while (!found->life.compare_exchange_weak(life, life - handle_bit, std::memory_order_acquire,
                                                std::memory_order_relaxed));
    return ref(found);  // the handle's own reference
  }

  // f(ref) for each object with a handle; others may come and go meanwhile.
  template <class Function>
  void for_each(Function&& f) {
    const uint32_t count = count_.load(std::memory_order_acquire);
    for (uint32_t index = 0; index < count; ++index) {
      slot& each = at(index);
      uint64_t life = each.life.load(std::memory_order_relaxed);
      do {
        if ((life & handle_bit) == 0) break;
      } while (!each.life.compare_exchange_weak(life, life + 1, std::memory_order_acquire,
                                                std::memory_order_relaxed));
      if ((life & handle_bit) == 0) continue;
      ref held(&each);
      f(held);
    }
  }

 private:
  static constexpr uint64_t handle_bit = uint64_t{1} << 31;
  static constexpr uint64_t serial_mask = (uint64_t{1} << 26) - 1;
  static constexpr uint32_t chunk_count = 4096;
  static constexpr uint32_t chunk_slots = 1024;  // 4096 * 1024 slots: 22 bits

  static uint64_t serial_of(uint64_t life) { return life >> 32 & serial_mask; }
  static bool is_of(uint64_t life, const Opaque* handle) {
    return (life & handle_bit) != 0 && serial_of(life) == reinterpret_cast<uint64_t>(handle) >> 34;
  }

  base::failure destroyed(const Opaque* handle) const {
    return base::fail(MORI_E_STATE, "{} handle {:#x} has been destroyed", name_,
                      reinterpret_cast<uint64_t>(handle));
  }

  base::result<slot*> look_up(const Opaque* handle) {
    const auto value = reinterpret_cast<uint64_t>(handle);
    if (handle == nullptr) return base::fail(MORI_E_STATE, "{} handle is NULL", name_);
    const auto index = static_cast<uint32_t>(value >> 12 & 0x3FFFFF);
    if ((value & 0xF) != kind_ || value >> 60 != 0 ||
        index >= count_.load(std::memory_order_acquire))
      return base::fail(MORI_E_STATE, "{:#x} is not a {} handle", value, name_);
    if ((value >> 4 & 0xFF) != (base::fork_generation() & 0xFFu))
      return base::fail(MORI_E_STATE,
                        "{} handle was made before fork(); make a new one in the child", name_);
    return &at(index);
  }

  slot& at(uint32_t index) const {
    return chunks_[index / chunk_slots].load(std::memory_order_acquire)[index % chunk_slots];
  }

  static void drop(slot& from, uint64_t count) {
    uint64_t life = from.life.load(std::memory_order_acquire);
    for (;;) {
      if ((life & (handle_bit - 1)) == count) {
        // Nobody else can reach it: the handle is back and this is the last reference.
        from.object.recycle();
        from.life.store(((life >> 32) + 1) << 32, std::memory_order_release);
        from.of->push(from);
        return;
      }
      if (from.life.compare_exchange_weak(life, life - count, std::memory_order_acq_rel,
                                          std::memory_order_acquire))
        return;
    }
  }

  // A stack of free slots: tag << 32 | index + 1; the tag tells a head from an earlier equal one.
  void push(slot& free) {
    uint64_t head = free_.load(std::memory_order_relaxed);
    uint64_t next = 0;
    do {
      free.next_free.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
      next = ((head >> 32) + 1) << 32 | (free.index + 1);
    } while (!free_.compare_exchange_weak(head, next, std::memory_order_release,
                                          std::memory_order_relaxed));
  }
  slot* pop() {
    uint64_t head = free_.load(std::memory_order_acquire);
    for (;;) {
      const auto index = static_cast<uint32_t>(head);
      if (index == 0) return nullptr;
      slot& first = at(index - 1);
      const uint64_t next =
          ((head >> 32) + 1) << 32 | first.next_free.load(std::memory_order_relaxed);
      if (free_.compare_exchange_weak(head, next, std::memory_order_acquire,
                                      std::memory_order_acquire))
        return &first;
    }
  }

  base::result<slot*> grow() {
    const std::lock_guard guard(growing_);
    if (slot* again = pop()) return again;
    const uint32_t count = count_.load(std::memory_order_relaxed);
    const uint32_t chunk = count / chunk_slots;
    if (chunk == chunk_count)
      return base::fail(MORI_E_NO_MEMORY, "{} handles of {} are in use", count, name_);
    auto* const made = new slot[chunk_slots];
    for (uint32_t i = 0; i < chunk_slots; ++i) {
      made[i].index = count + i;
      made[i].of = this;
    }
    chunks_[chunk].store(made, std::memory_order_release);
    count_.store(count + chunk_slots, std::memory_order_release);
    for (uint32_t i = chunk_slots - 1; i > 0; --i) push(made[i]);
    return made;
  }

  const unsigned kind_;
  const char* const name_;
  std::mutex growing_;
  std::atomic<uint32_t> count_{0};
  std::atomic<uint64_t> free_{0};
  std::array<std::atomic<slot*>, chunk_count> chunks_{};
};

}  // namespace mori::io_core
