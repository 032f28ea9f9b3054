// connection.hpp - two endpoints of one RDMA device in one process, which tell each other their
// descriptions through memory; and buffers that are registered for everything.
#pragma once

#include <doctest/doctest.h>
#include <mori/link/verbs/endpoint.hpp>

#include <cstring>
#include <vector>

namespace mori::test {

using namespace mori::link::verbs;

// The first usable port, with time-outs that suit a test.
inline std::shared_ptr<device> open_device() {
  settings with;
  with.timeout = 10;  // 4 ms
  with.retry_count = 3;
  const auto ports = judge_ports(read_inventory(), with);
  for (const port_choice& each : ports)
    if (each.is_usable) return device::open(each, with).value();
  FAIL("no RDMA device");
  return nullptr;
}

inline constexpr uint32_t all_access = local_write | remote_write | remote_read | remote_atomic;

struct buffer {
  buffer(const std::shared_ptr<device>& of, size_t size, uint32_t access = all_access)
      : bytes(size), keys(of->register_memory(bytes.data(), size, access).value()) {}
  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uintptr_t>(bytes.data()) + offset;
  }
  void fill(uint32_t seed) {
    for (std::byte& each : bytes) {
      seed = seed * 1664525 + 1013904223;
      each = static_cast<std::byte>(seed >> 24);
    }
  }
  uint64_t word(size_t index = 0) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + 8 * index, 8);
    return value;
  }
  std::vector<std::byte> bytes;
  std::shared_ptr<memory> keys;
};

inline work move(operation what, const buffer& mine, size_t at, const buffer& theirs, size_t there,
                 uint32_t bytes, uint64_t id = 1) {
  work made;
  made.what = what;
  made.id = id;
  made.is_reported = true;
  made.segment_count = 1;
  made.local[0] = {mine.address(at), bytes, mine.keys->local_key()};
  made.remote_address = theirs.address(there);
  made.remote_key = theirs.keys->remote_key();
  return made;
}

class connection {
 public:
  explicit connection(std::shared_ptr<device> of, const endpoint::options& with = {},
                      bool has_events = false)
      : with_(with) {
    for (side& each : sides_) {
      each.queue = completion_queue::create(of, {4096, has_events}).value();
      each.end = endpoint::create(each.queue, with).value();
    }
    REQUIRE(settle());
  }

  endpoint& a() { return *sides_[0].end; }
  endpoint& b() { return *sides_[1].end; }
  completion_queue& a_queue() { return *sides_[0].queue; }
  completion_queue& b_queue() { return *sides_[1].queue; }
  void destroy_b() { sides_[1].end.reset(); }
  void renew_b() { sides_[1].end = endpoint::create(sides_[1].queue, with_).value(); }

  // What both sides have to do now. Completions are kept, by side.
  void turn() {
    for (side& each : sides_) {
      if (each.end == nullptr) continue;
      completion some[16];
      const size_t count = each.queue->poll(some);
      each.done.insert(each.done.end(), some, some + count);
      each.end->step(base::now_ns());
      while (auto failed = each.end->take_failed()) each.done.push_back(*failed);
      side& other = &each == &sides_[0] ? sides_[1] : sides_[0];
      if (other.end == nullptr) continue;
      if (auto news = each.end->take_description()) (void)other.end->on_description(*news);
    }
  }

  template <class Done>
  bool until(Done&& done, uint64_t patience_ms = 20'000) {
    const auto end = base::deadline::after(patience_ms * base::ns_per_ms);
    while (!done()) {
      if (end.passed()) return false;
      turn();
      ::sched_yield();
    }
    return true;
  }
  bool settle() {
    return until([this] {
      return a().at() == endpoint::state::ready && b().at() == endpoint::state::ready;
    });
  }

  // Posts all of it on one queue pair of a, as room comes.
  void post(std::span<const work> what, uint16_t queue_pair = 0) {
    size_t posted = 0;
    const bool all = until([&] {
      const auto taken = a().post(queue_pair, what.subspan(posted));
      REQUIRE(taken);
      posted += *taken;
      return posted == what.size();
    });
    REQUIRE(all);
  }
  void post(const work& what) { post(std::span(&what, 1)); }

  // The next completion of a or b.
  completion next(size_t side = 0) {
    REQUIRE(until([&] { return !sides_[side].done.empty(); }));
    const completion first = sides_[side].done.front();
    sides_[side].done.erase(sides_[side].done.begin());
    return first;
  }
  size_t waiting(size_t side = 0) const { return sides_[side].done.size(); }
  completion run(const work& what) {
    post(what);
    return next();
  }

 private:
  struct side {
    std::shared_ptr<completion_queue> queue;
    std::unique_ptr<endpoint> end;
    std::vector<completion> done;
  };
  endpoint::options with_;
  side sides_[2];
};

}  // namespace mori::test
