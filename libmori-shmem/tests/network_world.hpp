// network_world.hpp - PEs that reach each other by rings and conversations alone, in one thread:
// a seed decides which producer, proxy or frame moves next. What producers do is the
// device API's own single steps, so that every interleaving of them can come up.
#pragma once

#include "network/conversation.hpp"
#include "network/host_memory.hpp"
#include "network/ring_memory.hpp"
#include "network/ring_reader.hpp"

#include <mori/device_api/shmem.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace mori::shmem_test {

namespace core = mori::shmem_core;
namespace api = mori::device_api;

inline uint64_t first_seed() {
  const char* given = std::getenv("MORI_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 1;
}
inline uint64_t seed_count(uint64_t usual) {
  return std::getenv("MORI_TEST_SEED") != nullptr ? 1 : usual;
}

struct world_options {
  uint64_t seed = 1;
  int pe_count = 3;
  int ring_count = 2;
  int producer_count = 3;  // of each PE
  uint64_t capacity = 4;
  int operations = 60;  // of each producer
};

// A heap: a column per producer of the group, then words that all change.
inline constexpr uint64_t column_words = 64;
inline constexpr uint64_t shared_words = 2;  // a counter by fetch-add, one by signals
inline constexpr uint64_t large_words = 80'000;

class network_world;

// One producer: at any time at one step of one operation.
struct producer {
  enum class step { idle, room, cell, answer, quiet };
  int pe = 0;
  int number = 0;  // among all of the group
  step at = step::idle;
  api::command what{};
  const api::ring* ring = nullptr;
  uint64_t index = 0;
  uint64_t awaited = 0;
  int quiet_pe = -1;
  int left = 0;
  uint64_t epoch = 0;
  std::vector<std::vector<uint64_t>> columns;  // as they are on each PE after a quiet
  std::vector<std::set<uint64_t>> before;      // what fetch-adds saw, by PE
  std::vector<uint64_t> signals;               // added, by PE
  std::deque<std::vector<uint64_t>> sources;   // of puts that may not be complete
};

class network_world {
 public:
  explicit network_world(const world_options& with);

  std::string repeat() const {
    return "repeat with MORI_TEST_SEED=" + std::to_string(options_.seed);
  }
  // Until all producers are through; false: nothing moves any more.
  bool run();
  // From now on nothing passes between this PE and the others.
  void cut(int pe) { cut_ = pe; }
  void check_end();

  uint64_t pick(uint64_t bound) { return random_() % bound; }
  uint64_t turns() const { return turns_; }

 private:
  struct side final : core::completions {
    side(network_world& world, int from, int to) : world(world), from(from), to(to) {}
    void on_answer(const core::origin& of, uint64_t value) override {
      world.pes_[static_cast<size_t>(from)]->readers[of.ring].answer(of.index, value);
    }
    void on_complete(const core::origin& of) override {
      CHECK_MESSAGE(!world.is_cut(from, to), world.repeat());
      world.pes_[static_cast<size_t>(from)]->readers[of.ring].finish(of.index, to);
    }
    network_world& world;
    int from, to;
    std::unique_ptr<core::conversation> talk;
    struct frame {
      std::vector<std::byte> text, bulk;
    };
    std::deque<frame> wire;  // frames that `to` has not read
  };
  struct pe {
    std::vector<uint64_t> heap;
    mori_shmem_sync_v1 sync{};
    std::unique_ptr<core::host_rings> rings;
    std::vector<core::ring_reader> readers;
    std::unique_ptr<core::host_memory> memory;
    std::vector<std::unique_ptr<side>> sides;  // by peer; null for itself
  };

  uint64_t heap_words() const {
    return column_words * static_cast<uint64_t>(producers_.size()) + shared_words + large_words;
  }
  uint64_t counter_word(uint64_t which) const {
    return column_words * static_cast<uint64_t>(producers_.size()) + which;
  }
  bool is_cut(int a, int b) const { return cut_ >= 0 && (a == cut_ || b == cut_); }
  bool is_over(const producer& p) const {
    return p.at == producer::step::idle && (p.left == 0 || p.pe == cut_);
  }

  bool step(producer& p);
  void begin(producer& p);
  void begin_put(producer& p, uint64_t to);
  bool post(producer& p);
  bool await(producer& p);
  void end_quiet(producer& p);
  void check_order(int at);
  bool move_proxy(pe& of);
  bool speak(side& of);
  bool listen(side& of);

  const world_options options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<pe>> pes_;
  std::vector<producer> producers_;
  int cut_ = -1;
  uint64_t turns_ = 0;
};

}  // namespace mori::shmem_test
