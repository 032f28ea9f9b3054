// ring_memory.hpp - where the words of a context's rings lie: those that the proxy reads or
// writes in one piece of memory that it and the producers reach, those of producers in
// another, theirs. Each word that somebody polls has a line of its own.
#pragma once

#include <mori/shmem_device.h>
#include <mori/base/unique_fd.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace mori::shmem_core {

struct ring_shape {
  uint64_t ring_count = 1;
  uint64_t pe_count = 1;
  uint64_t capacity = 1024;  // a power of two

  // Multiples of a line: the shared piece of all rings, the producers' piece of each.
  uint64_t shared_bytes() const;
  uint64_t own_bytes_each() const;
  // Ring `at`. `shared` is the piece of all, `own` that of this ring, both zeroed. asleep is in the
  // shared piece, the same word for all of its rings.
  mori_shmem_ring_v1 ring(uint64_t at, uint64_t shared, uint64_t own, int wake_fd) const;
};

// Rings of host producers.
class host_rings {
 public:
  explicit host_rings(const ring_shape& shape, int wake_fd);
  const std::vector<mori_shmem_ring_v1>& all() const { return rings_; }
  // Before producers know the rings.
  void set_driver(const mori_shmem_driver_v1& driver);

 private:
  struct free_lines {
    void operator()(void* memory) const;
  };
  using lines = std::unique_ptr<void, free_lines>;
  static lines zeroed(uint64_t bytes);

  lines shared_;
  lines own_;
  std::vector<mori_shmem_ring_v1> rings_;
};

}  // namespace mori::shmem_core
