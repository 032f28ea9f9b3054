// context.hpp - one PE of one group: membership (link::group), the node's
// mapped heaps, the own heap's bookkeeping, the sticky fault and the state that
// kernels get. What depends on where the heap is lies behind heap_memory and engine.
// C handles point here (capi/shmem.cpp). context.cpp makes and
// ends it, memory.cpp allocates, operations.cpp moves data.
//
// Locks: collective_lock_ orders the collective allocations of this PE and may
// be held when heap_lock_, which guards the bookkeeping, is taken; barrier_lock_
// orders host barriers and registered_lock_ guards the registrations.
#pragma once

#include "context/engine.hpp"
#include "context/health.hpp"
#include "context/heap_memory.hpp"
#include "context/settings.hpp"
#include "heap/backing.hpp"
#include "heap/heap.hpp"

#include <mori/shmem.h>
#include <mori/base/result.hpp>
#include <mori/link/group.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace mori::shmem_core {

class context {
 public:
  // Collective. shared_ptr: owned by the handle table and calls in progress.
  static base::result<std::shared_ptr<context>> create(const link::unique_id& id,
                                                       const settings& with);
  ~context();
  context(const context&) = delete;
  context& operator=(const context&) = delete;

  // Ends waits and membership; memory goes with the last reference.
  void shut_down();

  int pe() const { return settings_.pe; }
  int pe_count() const { return settings_.pe_count; }
  mori_shmem_report info() const;
  base::result<mori_shmem_peer_report> peer_info(int pe) const;
  const mori_shmem_device_state_v2& state() const { return state_; }
  // The same for code that speaks level 1, which knows mapped peers alone.
  mori_shmem_device_state_v1 state_of_level_1() const;

  // The sticky fault, told to the other PEs the first time it is seen here.
  base::status check();
  void abort();

  // memory.cpp
  struct allocation_request {
    uint64_t size_bytes = 0;
    uint64_t alignment_bytes = heap::granule_bytes;
    uint32_t flags = 0;  // MORI_SHMEM_MALLOC_*
  };
  base::result<void*> allocate(const allocation_request& wanted);
  mori_shmem_heap_report heap_stats() const;
  // Collective, in order with the allocations: one number of each PE, by PE; and a proof that all
  // PEs make the same call of what is no allocation.
  base::result<std::vector<int32_t>> gather(int32_t mine);
  struct same_call {
    uint64_t kind = 0;
    uint64_t digest = 0;
    bool operator==(const same_call&) const = default;
  };
  base::status verify_same(const char* what, const same_call& mine);
  base::status free(void* pointer);
  base::result<void*> peer_pointer(const void* pointer, int pe) const;
  base::status register_buffer(void* pointer, uint64_t size_bytes);
  base::status deregister_buffer(void* pointer, uint64_t size_bytes);

  // operations.cpp
  base::status barrier_all();
  base::status put(void* target, const void* source, uint64_t size_bytes, int pe);
  base::status get(void* target, const void* source, uint64_t size_bytes, int pe);
  base::status put_signal(const mori_shmem_put_signal_args& with);
  base::result<uint64_t> atomic(const mori_shmem_atomic_args& with);
  base::result<uint64_t> wait_until(const mori_shmem_wait_args& with);
  base::status quiet();
  base::status barrier_on_stream(void* stream);

  base::status init_module(void* module) { return engine_->init_module(module); }
  base::status forget_module(void* module) { return engine_->forget_module(module); }

 private:
  context(const settings& with, int node_core_count, std::unique_ptr<link::group> group);
  base::status attach(base::deadline until);
  base::status connect(base::deadline until);
  base::status fill_state();
  void watch_group();

  base::status check_pe(int pe) const;
  // [pointer, pointer + size_bytes) lies in the own heap; gives its offset.
  base::result<uint64_t> heap_offset(const void* pointer, uint64_t size_bytes) const;
  base::status check_remote(const void* symmetric, uint64_t size_bytes, int pe) const;
  base::status verify_same_request(const allocation_request& wanted, base::deadline until);
  base::status take_memory(uint64_t offset, uint64_t size_bytes);
  void give_back_memory(const heap::block& freed);
  base::status outcome_of(int32_t device_status);
  // A failed collective leaves PEs out of step, which is final.
  base::status sticky(base::status outcome, int32_t operation);

  settings settings_;
  const bool core_for_each_pe_;
  health health_;
  std::unique_ptr<link::group> group_;
  std::unique_ptr<heap_memory> memory_;
  std::unique_ptr<engine> engine_;
  std::unique_ptr<network> network_;  // null: all PEs are mapped
  mori_shmem_device_state_v2 state_{};

  std::mutex collective_lock_;
  uint64_t collective_count_ = 0;
  std::mutex barrier_lock_;
  mutable std::mutex heap_lock_;
  heap heap_;
  backing backing_;
  std::vector<heap::block> freed_;  // blocks whose pages the next allocation gives back
  std::mutex registered_lock_;
  std::map<uint64_t, uint64_t> registered_;  // start -> bytes
};

}  // namespace mori::shmem_core
