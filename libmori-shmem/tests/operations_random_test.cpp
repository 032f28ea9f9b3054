// Random programs of puts, gets, signals and atomics over 2 to 8 PEs, compared with a model that
// runs them one after the other. A program is a row of phases between barriers. Within a phase a
// place of a PE's memory has one use, such that its outcome does not depend on who comes first;
// reading is a phase of its own. The transport is the environment's (MORI_DISABLE_P2P).
#include "pes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>

using namespace mori_test;

namespace {

constexpr int places = 16;  // of each PE
constexpr uint64_t data_bytes = 4096;
constexpr int phases = 5;

// Words for atomics and for signals, each on a line of its own, and data.
struct place {
  alignas(64) uint64_t word = 0;
  alignas(64) uint64_t signal = 0;
  alignas(64) std::array<uint8_t, data_bytes> data{};
};

enum class use { nothing, put, put_twice, signal, sum, small_sum, bits, count_up, race };

// What happens at one place of one PE in one phase; `from` whom, where that is one PE.
struct action {
  use what = use::nothing;
  int from = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int32_t operation = 0;
  uint64_t seed = 0;
};

std::vector<uint8_t> bytes_of(uint64_t seed, uint64_t count) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> made(count);
  for (uint8_t& each : made) each = static_cast<uint8_t>(random());
  return made;
}

// The operand of one PE.
uint64_t operand(const action& a, int pe) {
  return std::mt19937_64(a.seed + static_cast<uint64_t>(pe))();
}

using memory = std::vector<place>;  // [pe * places + number]

struct program {
  int pe_count = 0;
  std::vector<std::vector<action>> actions;  // of each phase, by place
  std::vector<memory> after;                 // what the model says, after each phase
};

void apply_bits(uint64_t& word, int32_t operation, uint64_t value) {
  if (operation == MORI_SHMEM_AMO_AND) word &= value;
  if (operation == MORI_SHMEM_AMO_OR) word |= value;
  if (operation == MORI_SHMEM_AMO_XOR) word ^= value;
}

void run_model(const action& a, int pe_count, place& at) {
  const auto put = [&](uint64_t seed) {
    const auto data = bytes_of(seed, a.bytes);
    std::ranges::copy(data, at.data.begin() + static_cast<ptrdiff_t>(a.offset));
  };
  switch (a.what) {
    case use::nothing: break;
    case use::put: put(a.seed); break;
    case use::put_twice: put(a.seed), put(a.seed + 1); break;
    case use::signal:
      put(a.seed);
      at.signal = a.operation == MORI_SHMEM_SIGNAL_SET ? a.seed : at.signal + a.seed;
      break;
    case use::sum:
      for (int pe = 0; pe < pe_count; ++pe) at.word += operand(a, pe);
      break;
    case use::small_sum: {
      auto low = static_cast<uint32_t>(at.word);
      for (int pe = 0; pe < pe_count; ++pe) low += static_cast<uint32_t>(operand(a, pe));
      at.word = (at.word & ~uint64_t{UINT32_MAX}) | low;
      break;
    }
    case use::bits:
      for (int pe = 0; pe < pe_count; ++pe) apply_bits(at.word, a.operation, operand(a, pe));
      break;
    case use::count_up: at.word += static_cast<uint64_t>(pe_count); break;
    case use::race: at.word = a.seed; break;  // whoever wins stores the same
  }
}

program make_program(uint64_t seed) {
  std::mt19937_64 random(seed);
  program p;
  p.pe_count = 2 + static_cast<int>(random() % 7);
  memory now(static_cast<size_t>(p.pe_count * places));
  for (int phase = 0; phase < phases; ++phase) {
    std::vector<action> all(now.size());
    for (size_t at = 0; at < all.size(); ++at) {
      action& a = all[at];
      a.what = static_cast<use>(random() % 9);
      a.from = static_cast<int>(random() % static_cast<uint64_t>(p.pe_count));
      a.offset = random() % data_bytes;
      const uint64_t most = data_bytes - a.offset;
      a.bytes =
          random() % 3 == 0 ? random() % std::min<uint64_t>(most + 1, 17) : random() % (most + 1);
      a.seed = random() | 1;
      if (a.what == use::signal)
        a.operation = random() % 2 == 0 ? MORI_SHMEM_SIGNAL_SET : MORI_SHMEM_SIGNAL_ADD;
      if (a.what == use::bits)
        a.operation = MORI_SHMEM_AMO_AND + static_cast<int32_t>(random() % 3);
      run_model(a, p.pe_count, now[at]);
    }
    p.actions.push_back(std::move(all));
    p.after.push_back(now);
  }
  return p;
}

// One PE that runs a program.
class runner {
 public:
  runner(const program& what, mori_shmem* context, int pe)
      : program_(what), context_(context), pe_(pe) {
    void* block = nullptr;
    REQUIRE(failure(mori_shmem_malloc, context, sizeof(place) * places, &block) == "");
    own_ = static_cast<place*>(block);
    REQUIRE(failure(mori_shmem_barrier_all, context) == "");
  }

  void run(uint64_t seed) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(pe_));
    for (size_t phase = 0; phase < program_.actions.size(); ++phase) {
      const auto& all = program_.actions[phase];
      std::vector<size_t> order(all.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::ranges::shuffle(order, random);
      for (const size_t at : order) issue(all[at], at, phase);
      for (int i = 0; i < places; ++i) await(all[index(pe_, i)], index(pe_, i), phase);
      REQUIRE(failure(mori_shmem_barrier_all, context_) == "");
      compare(program_.after[phase], random);
      REQUIRE(failure(mori_shmem_barrier_all, context_) == "");
    }
  }

 private:
  static size_t index(int pe, int number) { return static_cast<size_t>(pe * places + number); }

  void issue(const action& a, size_t at, size_t phase) {
    const int to = static_cast<int>(at) / places;
    place& there = own_[at % places];
    const bool is_mine = a.from == pe_;
    switch (a.what) {
      case use::nothing: break;
      case use::put_twice:
      case use::put:
        if (is_mine) put(a, there, to);
        break;
      case use::signal:
        if (is_mine) put_signal(a, there, to);
        break;
      case use::sum: atomic(MORI_SHMEM_AMO_ADD, operand(a, pe_), 8, there, to); break;
      case use::small_sum: atomic(MORI_SHMEM_AMO_ADD, operand(a, pe_), 4, there, to); break;
      case use::bits: atomic(a.operation, operand(a, pe_), 8, there, to); break;
      case use::count_up: {
        const uint64_t first = before(at, phase).word;
        const uint64_t seen = atomic(MORI_SHMEM_AMO_FETCH_INC, 0, 8, there, to);
        CHECK(seen - first < static_cast<uint64_t>(program_.pe_count));
        break;
      }
      case use::race: {
        const uint64_t first = before(at, phase).word;
        const uint64_t seen = atomic(MORI_SHMEM_AMO_COMPARE_SWAP, a.seed, 8, there, to, first);
        CHECK((seen == first || seen == a.seed));
        break;
      }
    }
  }

  // The data of a signal is there once the signal is.
  void await(const action& a, size_t at, size_t phase) {
    if (a.what != use::signal) return;
    const place& mine = own_[at % places];
    mori_shmem_wait_args wait{};
    wait.struct_size = sizeof wait;
    wait.address = &mine.signal;
    wait.size_bytes = 8;
    wait.value = program_.after[phase][at].signal;
    wait.compare = MORI_SHMEM_CMP_EQ;
    wait.pe = a.from;
    REQUIRE(failure(mori_shmem_wait_until, context_, &wait, static_cast<uint64_t*>(nullptr)) == "");
    const auto expected = bytes_of(a.seed, a.bytes);
    CHECK(std::equal(expected.begin(), expected.end(), mine.data.data() + a.offset));
  }

  void compare(const memory& expected, std::mt19937_64& random) {
    for (int i = 0; i < places; ++i) {
      const place& model = expected[index(pe_, i)];
      CHECK(own_[i].word == model.word);
      CHECK(own_[i].signal == model.signal);
      CHECK(own_[i].data == model.data);
    }
    std::vector<uint8_t> got(data_bytes);
    for (int turn = 0; turn < 8; ++turn) {
      const size_t at = random() % expected.size();
      const uint64_t offset = random() % data_bytes;
      const uint64_t bytes = random() % (data_bytes - offset + 1);
      CHECK(failure(mori_shmem_get, context_, static_cast<void*>(got.data()),
                    static_cast<const void*>(own_[at % places].data.data() + offset), bytes,
                    static_cast<int32_t>(at) / places) == "");
      CHECK(std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(bytes),
                       expected[at].data.data() + offset));
    }
  }

  const place& before(size_t at, size_t phase) const {
    static const place nothing;
    return phase == 0 ? nothing : program_.after[phase - 1][at];
  }

  void put(const action& a, place& there, int to) {
    const std::vector<uint8_t> data[] = {bytes_of(a.seed, a.bytes), bytes_of(a.seed + 1, a.bytes)};
    for (int turn = 0; turn <= (a.what == use::put_twice ? 1 : 0); ++turn) {
      // The fence keeps the second behind the first.
      if (turn == 1) CHECK(failure(mori_shmem_fence, context_) == "");
      CHECK(failure(mori_shmem_put, context_, static_cast<void*>(there.data.data() + a.offset),
                    static_cast<const void*>(data[turn].data()), a.bytes, to) == "");
    }
    // Then the sources are the caller's again.
    CHECK(failure(mori_shmem_quiet, context_) == "");
  }

  void put_signal(const action& a, place& there, int to) {
    const auto data = bytes_of(a.seed, a.bytes);
    mori_shmem_put_signal_args args{};
    args.struct_size = sizeof args;
    args.target = there.data.data() + a.offset;
    args.source = data.data();
    args.size_bytes = a.bytes;
    args.signal = &there.signal;
    args.signal_value = a.seed;
    args.signal_op = a.operation;
    args.pe = to;
    CHECK(failure(mori_shmem_put_signal, context_, &args) == "");
    CHECK(failure(mori_shmem_quiet, context_) == "");
  }

  uint64_t atomic(int32_t operation, uint64_t value, uint64_t bytes, place& there, int to,
                  uint64_t expected = 0) {
    mori_shmem_atomic_args args{};
    args.struct_size = sizeof args;
    args.target = &there.word;
    args.value = value;
    args.compare = expected;
    args.op = operation;
    args.pe = to;
    args.size_bytes = bytes;
    uint64_t seen = 0;
    CHECK(failure(mori_shmem_atomic, context_, &args, &seen) == "");
    return seen;
  }

  const program& program_;
  mori_shmem* context_;
  int pe_;
  place* own_ = nullptr;
};

void run_one(uint64_t seed) {
  INFO("repeat with MORI_TEST_SEED=" << seed << " build/.../shmem_test -tc='random programs*'");
  const program what = make_program(seed);
  run_pes({.pe_count = what.pe_count}, [&](mori_shmem* context, int pe) {
    INFO("MORI_TEST_SEED=" << seed);  // of this thread
    runner(what, context, pe).run(seed);
  });
}

}  // namespace

TEST_CASE("random programs end as a model says that runs them in order") {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return run_one(std::stoull(given));
  const uint64_t first = std::random_device{}();
  for (uint64_t i = 0; i < 12; ++i) run_one(first + i);
}
