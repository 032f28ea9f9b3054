// gpu_copier.hpp - copies that one device makes: on pooled streams, with pooled events to
// know when they are done, small pieces together by a kernel. Any addresses that the device
// reaches will do: its own memory, imported memory, pinned host memory.
#pragma once

#include <mori/device/gpu_memory.hpp>
#include <mori/device/runtime.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "copy_pieces.hpp"

namespace mori::io_core::local {

struct gpu_copier_options {
  uint32_t stream_count = 64;
  uint32_t event_count = 64;  // so many flights at once
};

class gpu_copier {
 public:
  // Pieces of at most this size go by the kernel where there are enough of them.
  static constexpr uint64_t small_bytes = uint64_t{256} << 10;
  static constexpr size_t fewest_for_kernel = 4;
  static constexpr uint64_t entry_bytes = uint64_t{32} << 10;  // what a wave copies at once
  static constexpr size_t table_entries = 4096;
  static constexpr uint32_t most_blocks = 64;  // others compute meanwhile

  static base::result<std::shared_ptr<gpu_copier>> create(
      std::shared_ptr<device::gpu> on, const gpu_copier_options& options,
      std::span<const device::device_image> images);
  gpu_copier(const gpu_copier&) = delete;
  gpu_copier& operator=(const gpu_copier&) = delete;
  ~gpu_copier();

  const std::shared_ptr<device::gpu>& gpu() const { return gpu_; }
  // Empty, or why small pieces are copied one by one.
  const std::string& no_kernel() const { return no_kernel_; }

  // Copies that were started together. Must be ended by is_over() or wait().
  struct flight {
    uint32_t slot = UINT32_MAX;
    bool is_empty() const { return slot == UINT32_MAX; }
  };

  // Starts as many of `pieces` as go in one flight, from the first on, and says how many those
  // were; 0 while all events are in use. Pieces of no bytes are counted and not copied. After a
  // failure none is running.
  base::result<size_t> start(std::span<const copy_entry> pieces, flight& made);
  // Whether all of it is done; then the flight is empty again. A failure ends it too.
  base::result<bool> is_over(flight& which);
  base::status wait(flight& which);

  uint64_t launch_count() const { return launch_count_; }

 private:
  struct slot {
    void* event = nullptr;
    void* stream = nullptr;  // of streams_
    device::pinned_buffer table;
    bool in_use = false;
  };
  struct plan {
    size_t pieces = 0;   // that go along
    size_t small = 0;    // of those, by size
    size_t entries = 0;  // that the small ones make
  };

  gpu_copier(std::shared_ptr<device::gpu> on, const gpu_copier_options& options)
      : options_(options), gpu_(std::move(on)) {}
  base::status make(std::span<const device::device_image> images);
  uint32_t take_slot();
  void give_slot(uint32_t which);
  plan make_plan(std::span<const copy_entry> pieces) const;
  base::status enqueue(slot& on, std::span<const copy_entry> pieces, const plan& how);
  base::status launch(slot& on, std::span<const copy_entry> small, size_t entries);
  base::status end(flight& which, base::status outcome);

  const gpu_copier_options options_;
  std::shared_ptr<device::gpu> gpu_;
  std::unique_ptr<device::runtime> kernels_;  // none: see no_kernel_
  std::string no_kernel_;
  std::vector<void*> streams_;
  std::vector<slot> slots_;
  std::mutex lock_;
  std::vector<uint32_t> free_;
  std::atomic<uint64_t> launch_count_{0};
};

}  // namespace mori::io_core::local
