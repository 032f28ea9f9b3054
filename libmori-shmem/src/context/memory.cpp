// memory.cpp - allocation in the symmetric heap (collective and verified),
// translation of its addresses, and registration of private buffers.
#include "context/agreement.hpp"
#include "context/context.hpp"

#include <algorithm>

namespace mori::shmem_core {
namespace {

// What each PE asks for, and the state it asks in.
struct request {
  uint64_t count;  // collective calls before this one
  uint64_t size_bytes;
  uint64_t alignment_bytes;
  uint64_t fingerprint;
  uint64_t flags;
};

constexpr uint64_t page_bytes = 4096;

uint64_t rounded_to_pages(uint64_t bytes) { return (bytes + page_bytes - 1) & ~(page_bytes - 1); }

// What HIP calls contiguous and signal memory would be promises that this heap does not keep.
base::status check_flags(uint32_t flags) {
  if (flags == MORI_SHMEM_MALLOC_DEFAULT || flags == MORI_SHMEM_MALLOC_FINE_GRAINED ||
      flags == MORI_SHMEM_MALLOC_UNCACHED)
    return {};
  return base::fail(MORI_E_UNSUPPORTED,
                    "malloc: flags {} are none of default (0), fine-grained (1), uncached (3)",
                    flags);
}

base::status compare(const request& first, const request& other, int pe) {
  if (other.count != first.count)
    return base::fail(MORI_E_MISMATCH, "malloc: PE 0 is at its allocation {}, PE {} at {}",
                      first.count, pe, other.count);
  if (other.size_bytes != first.size_bytes)
    return base::fail(MORI_E_MISMATCH, "malloc: {} bytes asked for on PE 0, {} on PE {}",
                      first.size_bytes, other.size_bytes, pe);
  if (other.alignment_bytes != first.alignment_bytes)
    return base::fail(MORI_E_MISMATCH, "malloc: alignment {} asked for on PE 0, {} on PE {}",
                      first.alignment_bytes, other.alignment_bytes, pe);
  if (other.flags != first.flags)
    return base::fail(MORI_E_MISMATCH, "malloc: flags {} asked for on PE 0, {} on PE {}",
                      first.flags, other.flags, pe);
  if (other.fingerprint != first.fingerprint)
    return base::fail(MORI_E_MISMATCH,
                      "malloc: PE 0 and PE {} have freed different allocations before", pe);
  return {};
}

// A heap that lies where a driver has put it may begin at a lesser boundary than was asked for.
base::status check_address(uint64_t heap_base, uint64_t offset, uint64_t alignment_bytes) {
  if ((heap_base + offset) % alignment_bytes == 0) return {};
  return base::fail(MORI_E_UNAVAILABLE,
                    "malloc: alignment {} asked for, but its heap begins at {:#x}, where the "
                    "driver has put it",
                    alignment_bytes, heap_base);
}

}  // namespace

base::status context::verify_same_request(const allocation_request& wanted, base::deadline until) {
  request mine{collective_count_++, wanted.size_bytes, wanted.alignment_bytes, 0, wanted.flags};
  {
    const std::lock_guard guard(heap_lock_);
    mine.fingerprint = heap_.fingerprint();
  }
  auto all = exchange(*group_, mine, until);
  if (!all) return sticky(std::move(all.error()), MORI_SHMEM_OP_NONE);
  for (int pe = 1; pe < settings_.pe_count; ++pe)
    MORI_CHECK(compare(all->front(), (*all)[static_cast<size_t>(pe)], pe));
  return {};
}

// Memory behind a new block, and access to it. A failure leaves what it took behind unallocated
// offsets: give_back_memory.
base::status context::take_memory(uint64_t offset, uint64_t size_bytes) {
  const std::lock_guard guard(heap_lock_);
  for (const backing::range& each : backing_.missing({offset, offset + size_bytes})) {
    MORI_CHECK(memory_->reserve(each.start, each.end - each.start));
    backing_.add(each);
  }
  if (settings_.heap_mode != MORI_SHMEM_HEAP_ISOLATION) return {};
  return memory_->allow(offset, rounded_to_pages(size_bytes), true);
}

// heap_lock_ is held. Not being able to give pages back costs memory, no more.
void context::give_back_memory(const heap::block& freed) {
  if (settings_.heap_mode == MORI_SHMEM_HEAP_ISOLATION)
    (void)!memory_->allow(freed.offset, freed.bytes, false);
  const heap::block unused = heap_.free_block_at(freed.offset);
  for (const backing::range& each : backing_.surplus({freed.offset, freed.offset + freed.bytes},
                                                     {unused.offset, unused.offset + unused.bytes}))
    if (memory_->release(each.start, each.end - each.start)) backing_.remove(each);
}

base::result<void*> context::allocate(const allocation_request& wanted) {
  const std::lock_guard one_at_a_time(collective_lock_);
  MORI_CHECK(check());
  const auto until = base::deadline::after(settings_.wait_timeout_ns);
  MORI_CHECK(verify_same_request(wanted, until));
  MORI_CHECK(heap::check_alignment(wanted.alignment_bytes));
  MORI_CHECK(check_flags(wanted.flags));

  uint64_t offset = 0;
  {
    const std::lock_guard guard(heap_lock_);
    // All PEs have come here, so none reads a freed block any more.
    for (const heap::block& block : freed_) give_back_memory(block);
    freed_.clear();
    if (wanted.size_bytes == 0) return static_cast<void*>(nullptr);
    // The heaps are alike, so this fails on all PEs or on none.
    MORI_TRY(offset, heap_.allocate(wanted.size_bytes, wanted.alignment_bytes));
  }
  auto reserved = check_address(memory_->heap_base(), offset, wanted.alignment_bytes);
  if (reserved) reserved = take_memory(offset, wanted.size_bytes);
  if (auto verdict = agree(*group_, reserved, until); !verdict) {
    const std::lock_guard guard(heap_lock_);
    const auto block = heap_.free(offset);
    if (block) give_back_memory(*block);
    if (group_->fault() || verdict.error().status == MORI_E_TIMEOUT)
      return sticky(std::move(verdict), MORI_SHMEM_OP_NONE).error();
    return std::move(verdict.error());
  }
  return reinterpret_cast<void*>(memory_->heap_base() + offset);
}

mori_shmem_heap_report context::heap_stats() const {
  mori_shmem_heap_report report{};
  report.struct_size = sizeof report;
  report.heap_mode = settings_.heap_mode;
  report.step_bytes = backing_.step_bytes();
  const std::lock_guard guard(heap_lock_);
  const heap_statistics now = heap_.statistics();
  report.size_bytes = now.size_bytes;
  report.used_bytes = now.used_bytes;
  report.peak_bytes = now.peak_bytes;
  report.free_bytes = now.size_bytes - now.used_bytes;
  report.largest_free_bytes = now.largest_free_bytes;
  report.allocation_count = now.allocation_count;
  report.free_block_count = now.free_block_count;
  report.committed_bytes =
      settings_.backend == MORI_BACKEND_HOST ? backing_.bytes() : now.size_bytes;
  return report;
}

base::result<std::vector<int32_t>> context::gather(int32_t mine) {
  const std::lock_guard one_at_a_time(collective_lock_);
  auto all = exchange(*group_, mine, base::deadline::after(settings_.wait_timeout_ns));
  if (all) return all;
  return sticky(std::move(all.error()), MORI_SHMEM_OP_NONE).error();
}

base::status context::verify_same(const char* what, const same_call& mine) {
  const std::lock_guard one_at_a_time(collective_lock_);
  auto all = exchange(*group_, mine, base::deadline::after(settings_.wait_timeout_ns));
  if (!all) return sticky(std::move(all.error()), MORI_SHMEM_OP_NONE);
  for (int pe = 1; pe < settings_.pe_count; ++pe)
    if ((*all)[static_cast<size_t>(pe)] != all->front())
      return base::fail(MORI_E_MISMATCH, "{}: PE 0 and PE {} have asked for different ones", what,
                        pe);
  return {};
}

base::status context::free(void* pointer) {
  if (pointer == nullptr) return {};
  const auto offset = heap_offset(pointer, 0);
  if (!offset)
    return base::fail(MORI_E_NOT_FOUND, "free: {} is not in this PE's symmetric heap",
                      static_cast<const void*>(pointer));
  const std::lock_guard guard(heap_lock_);
  freed_.reserve(freed_.size() + 1);
  MORI_TRY(const heap::block block, heap_.free(*offset));
  // Its contents must last: freeing is local, and a peer that is not as far as this PE may still
  // be reading them (the end of a combine, say). The next allocation gives the pages back.
  freed_.push_back(block);
  return {};
}

base::result<uint64_t> context::heap_offset(const void* pointer, uint64_t size_bytes) const {
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  const uint64_t offset = address - state_.heap_base;
  if (address < state_.heap_base || offset >= state_.heap_bytes ||
      size_bytes > state_.heap_bytes - offset)
    return base::fail(MORI_E_NOT_FOUND, "{:#x} + {} bytes is outside this PE's heap {:#x} + {}",
                      address, size_bytes, state_.heap_base, state_.heap_bytes);
  return offset;
}

base::result<void*> context::peer_pointer(const void* pointer, int pe) const {
  MORI_CHECK(check_pe(pe));
  MORI_TRY(const uint64_t offset, heap_offset(pointer, 0));
  const uint64_t base = memory_->peers()[static_cast<size_t>(pe)].base;
  return base == 0 ? nullptr : reinterpret_cast<void*>(base + offset);
}

base::status context::register_buffer(void* pointer, uint64_t size_bytes) {
  const uint64_t start = reinterpret_cast<uint64_t>(pointer);
  if (pointer == nullptr || size_bytes == 0 || start + size_bytes < start)
    return base::fail(MORI_E_INVALID, "buffer {:#x} + {} bytes is not a range", start, size_bytes);
  const std::lock_guard guard(registered_lock_);
  const auto next = registered_.lower_bound(start);
  const bool hits_next = next != registered_.end() && next->first < start + size_bytes;
  const bool hits_previous =
      next != registered_.begin() && std::prev(next)->first + std::prev(next)->second > start;
  if (hits_next || hits_previous)
    return base::fail(MORI_E_INVALID, "buffer {:#x} + {} bytes overlaps a registered one", start,
                      size_bytes);
  registered_.emplace(start, size_bytes);
  return {};
}

base::status context::deregister_buffer(void* pointer, uint64_t size_bytes) {
  const uint64_t start = reinterpret_cast<uint64_t>(pointer);
  const std::lock_guard guard(registered_lock_);
  const auto found = registered_.find(start);
  if (found == registered_.end() || found->second != size_bytes)
    return base::fail(MORI_E_NOT_FOUND, "buffer {:#x} + {} bytes is not registered", start,
                      size_bytes);
  registered_.erase(found);
  return {};
}

}  // namespace mori::shmem_core
