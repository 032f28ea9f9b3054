// plain_pes.hpp - PEs made of plain memory, with no library: each has a heap between
// two guard pages and a state filled by hand. An access outside a heap ends the
// program. What tests of the device API run on.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/device_api/shmem.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace mori::shmem_test {

// Memory between two inaccessible pages.
class guarded_memory {
 public:
  explicit guarded_memory(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    bytes_ = (bytes + page_ - 1) / page_ * page_;
    void* mapped = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(mapped);
    if (mprotect(data(), bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  guarded_memory(const guarded_memory&) = delete;
  guarded_memory& operator=(const guarded_memory&) = delete;
  ~guarded_memory() { munmap(base_, bytes_ + 2 * page_); }
  uint8_t* data() const { return base_ + page_; }
  size_t size() const { return bytes_; }

 private:
  size_t page_;
  size_t bytes_ = 0;
  uint8_t* base_ = nullptr;
};

struct fake_pe {
  explicit fake_pe(size_t heap_bytes) : heap(heap_bytes) {}

  // Where user data begins: after the sync words, on a cache line.
  uint8_t* user() const { return heap.data() + (sizeof(mori_shmem_sync_v1) + 63) / 64 * 64; }
  size_t user_bytes() const { return static_cast<size_t>(heap.data() + heap.size() - user()); }
  uint8_t* end() const { return heap.data() + heap.size(); }
  mori_shmem_sync_v1& sync() const { return *reinterpret_cast<mori_shmem_sync_v1*>(heap.data()); }

  guarded_memory heap;
  mori_shmem_device_state_v2 state{};
  mori_shmem_fault fault{};
  uint64_t abort_word = 0;
  std::vector<uint64_t> peer_bases;
  std::vector<int32_t> transports;
  std::vector<uint32_t> left;
};

// All PEs of one group, each reachable from each.
class fake_group {
 public:
  explicit fake_group(int32_t count, size_t heap_bytes = 1 << 16) {
    for (int32_t i = 0; i < count; ++i) pes_.push_back(std::make_unique<fake_pe>(heap_bytes));
    for (int32_t i = 0; i < count; ++i) {
      fake_pe& pe = *pes_[static_cast<size_t>(i)];
      for (const auto& other : pes_)
        pe.peer_bases.push_back(reinterpret_cast<uint64_t>(other->heap.data()));
      pe.transports.assign(pes_.size(), MORI_SHMEM_TRANSPORT_P2P);
      pe.left.assign(pes_.size(), 0);
      const auto address = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
      pe.state = {.struct_size = sizeof(mori_shmem_device_state_v2),
                  .level = 2,
                  .backend = MORI_BACKEND_HOST,
                  .my_pe = i,
                  .pe_count = count,
                  .heap_base = address(pe.heap.data()),
                  .heap_bytes = pe.heap.size(),
                  .peer_bases = address(pe.peer_bases.data()),
                  .transports = address(pe.transports.data()),
                  .fault = address(&pe.fault),
                  .abort_word = address(&pe.abort_word),
                  .wait_budget_ns = 60 * base::ns_per_s,
                  .spin_count = 20,
                  .peer_left = address(pe.left.data()),
                  .peer_stride = 0,
                  .strided_first = 0,
                  .strided_count = 0,
                  .rings = 0,
                  .ring_count = 0,
                  .all_mapped = 1};
    }
  }

  fake_pe& operator[](int32_t i) { return *pes_[static_cast<size_t>(i)]; }
  int32_t count() const { return static_cast<int32_t>(pes_.size()); }

  // Runs body(pe) for all PEs at once, one thread each.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (const auto& pe : pes_) threads.emplace_back([&body, &pe] { body(*pe); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<fake_pe>> pes_;
};

// The symmetric address of `pe` for an address in the heap of `other`.
template <class T>
T* same_place(const fake_pe& pe, const fake_pe& other, T* p) {
  const auto offset = reinterpret_cast<uint64_t>(p) - other.state.heap_base;
  return reinterpret_cast<T*>(pe.state.heap_base + offset);
}

}  // namespace mori::shmem_test
