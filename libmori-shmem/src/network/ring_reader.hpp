// ring_reader.hpp - the proxy's side of one ring (mori/shmem_device.h): takes commands in
// order, keeps account of those that are complete, and publishes the counters that
// producers wait on. One thread; never waits.
#pragma once

#include <mori/shmem_device.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace mori::shmem_core {

class ring_reader {
 public:
  ring_reader(const mori_shmem_ring_v1& of, int pe_count);

  // The next command, null when none has been written. It stays until take().
  const mori_shmem_command_v1* peek() const;
  // Its index. The slot is free again at the next publish().
  uint64_t take();

  void answer(uint64_t index, uint64_t value);
  // Once for each command that was taken; for one PE in the order of the indices.
  void finish(uint64_t index, int pe);

  // Makes known what happened since the last call, and wakes who waits.
  void publish();

  uint64_t taken() const { return head_; }
  bool all_done() const { return unfinished_.empty(); }

 private:
  uint64_t mask() const { return ring_.capacity_count - 1; }

  const mori_shmem_ring_v1 ring_;
  uint64_t head_ = 0;
  uint64_t done_ = 0;
  std::deque<bool> unfinished_;      // from index done_ on: false once finished
  std::vector<uint64_t> completed_;  // by PE
  std::vector<int> changed_;         // PEs whose count is to be published
  uint64_t published_head_ = 0;
  uint64_t published_done_ = 0;
  bool answered_ = false;
};

}  // namespace mori::shmem_core
