// ring_memory.cpp - see ring_memory.hpp.
#include "network/ring_memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace mori::shmem_core {
namespace {

constexpr uint64_t line_bytes = 128;  // two of a processor's, which fetches them in pairs

constexpr uint64_t lines_of(uint64_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

// Hands out one piece after the other.
struct cursor {
  uint64_t at;
  uint64_t next(uint64_t bytes) {
    const uint64_t begin = at;
    at += lines_of(bytes);
    return begin;
  }
};

mori_shmem_ring_v1 place_shared(const ring_shape& shape, cursor& in) {
  mori_shmem_ring_v1 made{};
  made.capacity_count = shape.capacity;
  made.commands = in.next(shape.capacity * sizeof(mori_shmem_command_v1));
  made.answers = in.next(shape.capacity * sizeof(mori_shmem_answer_v1));
  made.taken = in.next(sizeof(uint64_t));
  made.done = in.next(sizeof(uint64_t));
  made.completed = in.next(shape.pe_count * sizeof(uint64_t));
  made.doorbell = in.next(2 * sizeof(uint32_t));
  return made;
}

void place_own(const ring_shape& shape, cursor& in, mori_shmem_ring_v1& to) {
  to.tail = in.next(sizeof(uint64_t));
  to.posted = in.next(shape.pe_count * sizeof(uint64_t));
  to.busy = in.next(shape.capacity * sizeof(uint64_t));
  to.seen = in.next(2 * sizeof(uint64_t));
}

uint64_t shared_bytes_each(const ring_shape& shape) {
  cursor in{0};
  (void)place_shared(shape, in);
  return in.at;
}

}  // namespace

uint64_t ring_shape::shared_bytes() const {
  return line_bytes + ring_count * shared_bytes_each(*this);
}

uint64_t ring_shape::own_bytes_each() const {
  cursor in{0};
  mori_shmem_ring_v1 ring{};
  place_own(*this, in, ring);
  return in.at;
}

mori_shmem_ring_v1 ring_shape::ring(uint64_t at, uint64_t shared, uint64_t own, int wake_fd) const {
  cursor in_shared{shared + line_bytes + at * shared_bytes_each(*this)};
  cursor in_own{own};
  mori_shmem_ring_v1 made = place_shared(*this, in_shared);
  place_own(*this, in_own, made);
  made.asleep = shared;
  made.wake_fd = wake_fd;
  return made;
}

void host_rings::free_lines::operator()(void* memory) const { std::free(memory); }

host_rings::lines host_rings::zeroed(uint64_t bytes) {
  lines made(std::aligned_alloc(line_bytes, lines_of(bytes)));
  if (made == nullptr) throw std::bad_alloc();
  std::memset(made.get(), 0, lines_of(bytes));
  return made;
}

void host_rings::set_driver(const mori_shmem_driver_v1& driver) {
  for (mori_shmem_ring_v1& ring : rings_) ring.driver = reinterpret_cast<uint64_t>(&driver);
}

host_rings::host_rings(const ring_shape& shape, int wake_fd)
    : shared_(zeroed(shape.shared_bytes())),
      own_(zeroed(shape.ring_count * shape.own_bytes_each())) {
  const uint64_t own = reinterpret_cast<uint64_t>(own_.get());
  for (uint64_t at = 0; at < shape.ring_count; ++at)
    rings_.push_back(shape.ring(at, reinterpret_cast<uint64_t>(shared_.get()),
                                own + at * shape.own_bytes_each(), wake_fd));
}

}  // namespace mori::shmem_core
