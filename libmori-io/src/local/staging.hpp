// staging.hpp - GPU memory for those who need host memory: a pool of pinned slots, and
// two streams of bytes over it. What goes out is copied ahead while earlier slots are
// being sent; what comes in is copied on while later slots are being filled. Nothing here
// waits: who drives it polls, or asks again when its socket is ready.
//
//   staged_source out(pool, pieces);          staged_sink in(pool, pieces);
//   while (!out.is_over()) {                   while (!in.is_filled()) {
//     MORI_TRY(bytes, out.ready());              MORI_TRY(room, in.room());
//     out.consume(send(bytes));                  MORI_CHECK(in.commit(receive(room)));
//   }                                          }
//                                              until in.is_over()
//
// An empty span means "not yet". Slots are given back as soon as they are done, and when
// the stream is destroyed, which waits for copies under way. One thread at a time for one
// stream; a pool serves any number of streams and threads.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "local/gpu_copier.hpp"

namespace mori::io_core::local {

// Addresses of the device.
struct gpu_piece {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

class staging_pool {
 public:
  static constexpr uint64_t largest_slot_bytes = uint64_t{1} << 20;
  static constexpr uint64_t least_bytes = uint64_t{64} << 10;
  static constexpr size_t slots_of_stream = 4;  // at once, so that streams share the pool

  // `bytes` in all, as slots of at most largest_slot_bytes and at least four.
  static base::result<std::shared_ptr<staging_pool>> create(std::shared_ptr<gpu_copier> by,
                                                            uint64_t bytes);

  uint64_t slot_bytes() const { return slot_bytes_; }
  size_t slot_count() const { return slot_count_; }
  size_t free_count() const;
  gpu_copier& copier() const { return *by_; }

  std::byte* take();  // null: none is free
  void give(std::byte* slot);

 private:
  explicit staging_pool(std::shared_ptr<gpu_copier> by) : by_(std::move(by)) {}
  std::shared_ptr<gpu_copier> by_;  // shared with other users of the device
  uint64_t slot_bytes_ = 0;
  size_t slot_count_ = 0;
  device::pinned_buffer memory_;
  mutable std::mutex lock_;
  std::vector<std::byte*> free_;
};

// What both directions have: slots on their way, in the order of the bytes.
class staged_stream {
 public:
  staged_stream(const staged_stream&) = delete;
  staged_stream& operator=(const staged_stream&) = delete;
  uint64_t total_bytes() const { return total_bytes_; }

 protected:
  struct stage {
    std::byte* slot = nullptr;
    uint64_t bytes = 0;
    uint64_t used = 0;               // consumed, or filled
    std::vector<copy_entry> copies;  // not started yet, from `started` on
    size_t started = 0;
    gpu_copier::flight flight;
    bool is_copied = false;
  };
  // Pool and pieces outlive the stream.
  staged_stream(std::shared_ptr<staging_pool> pool, std::span<const gpu_piece> pieces);
  ~staged_stream() = default;
  // The next bytes of the pieces as copies with a slot: at most `bytes`.
  std::vector<copy_entry> cut(std::byte* slot, uint64_t bytes, bool to_slot);
  // Starts what can be started and looks whether all is done.
  base::result<bool> step(stage& what) const;
  void abandon();

  std::shared_ptr<staging_pool> pool_;  // shared with other streams
  std::span<const gpu_piece> pieces_;
  size_t piece_ = 0;
  uint64_t piece_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  uint64_t cut_bytes_ = 0;
  std::deque<stage> stages_;
};

// From the device.
class staged_source : public staged_stream {
 public:
  staged_source(std::shared_ptr<staging_pool> pool, std::span<const gpu_piece> pieces)
      : staged_stream(std::move(pool), pieces) {}
  ~staged_source() { abandon(); }

  // The next bytes that are in host memory; empty: not yet, or none are left. Keeps copies going.
  base::result<std::span<const std::byte>> ready();
  // At most as many as ready() gave.
  void consume(uint64_t bytes);
  bool is_over() const { return consumed_bytes_ == total_bytes_; }

 private:
  uint64_t consumed_bytes_ = 0;
};

// To the device.
class staged_sink : public staged_stream {
 public:
  staged_sink(std::shared_ptr<staging_pool> pool, std::span<const gpu_piece> pieces)
      : staged_stream(std::move(pool), pieces) {}
  ~staged_sink() { abandon(); }

  // Where the next bytes go; empty: no slot is free yet, or all have come.
  base::result<std::span<std::byte>> room();
  // So many bytes of room() are there now. A full slot, and the last, goes on its way.
  base::status commit(uint64_t bytes);
  bool is_filled() const { return filled_bytes_ == total_bytes_; }
  // All bytes are in the memory of the device. Keeps copies going.
  base::result<bool> is_over();

 private:
  base::status retire();
  uint64_t filled_bytes_ = 0;
};

}  // namespace mori::io_core::local
