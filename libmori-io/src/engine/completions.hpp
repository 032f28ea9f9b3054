// completions.hpp - how transfers ended that were submitted with enqueue_completion,
// in that order, until somebody takes them.
#pragma once

#include <mori/io_types.h>

#include <cstdint>
#include <mutex>

#include "protocol/ring.hpp"

namespace mori::io_core {

class completions {
 public:
  void push(const mori_io_completion& what) {
    const std::lock_guard guard(lock_);
    entries_.push_back(what);
  }
  uint64_t take(mori_io_completion* out, uint64_t room) {
    const std::lock_guard guard(lock_);
    uint64_t count = 0;
    while (count < room && !entries_.empty()) out[count++] = entries_.pop_front();
    return count;
  }
  bool empty() const {
    const std::lock_guard guard(lock_);
    return entries_.empty();
  }

 private:
  mutable std::mutex lock_;
  protocol::ring<mori_io_completion> entries_;
};

}  // namespace mori::io_core
