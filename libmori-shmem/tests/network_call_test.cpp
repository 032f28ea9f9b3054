// What kernels on the host do to PEs that are not mapped: real contexts, PEs as threads of one
// process, each with several threads that call the device API as the blocks of a kernel do.
#include "context/context.hpp"

#include <mori/device_api/shmem.hpp>
#include <mori/link/unique_id.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace core = mori::shmem_core;
namespace api = mori::device_api;
namespace base = mori::base;
namespace device = mori::device;

namespace {

constexpr device::one_lane lane{};

uint64_t seed() {
  const char* given = std::getenv("MORI_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 29;
}

struct group_of {
  int pe_count = 2;
  int queues = 1;
  uint64_t wait_ns = 30 * base::ns_per_s;
  bool authenticates_bulk = true;
};

// body(context, pe) on every PE; contexts end after all bodies.
void run_group(const group_of& with, const std::function<void(core::context&, int)>& body) {
  const auto id = mori::link::make_unique_id();
  REQUIRE(static_cast<bool>(id));
  std::vector<std::shared_ptr<core::context>> contexts(static_cast<size_t>(with.pe_count));
  std::vector<std::thread> threads;
  for (int pe = 0; pe < with.pe_count; ++pe)
    threads.emplace_back([&, pe] {
      core::settings mine;
      mine.pe = pe;
      mine.pe_count = with.pe_count;
      mine.heap_bytes = 8 << 20;
      mine.bootstrap_timeout_ns = 30 * base::ns_per_s;
      mine.wait_timeout_ns = with.wait_ns;
      mine.heartbeat_timeout_ns = 20 * base::ns_per_s;
      mine.disable_p2p = true;
      mine.queue_pair_per_pe_count = with.queues;
      mine.authenticates_bulk = with.authenticates_bulk;
      auto made = core::context::create(*id, mine);
      CHECK_MESSAGE(static_cast<bool>(made), (made ? "" : made.error().text));
      if (!made) return;
      contexts[static_cast<size_t>(pe)] = *made;
      body(**made, pe);
    });
  for (auto& thread : threads) thread.join();
  for (auto& each : contexts)
    if (each) each->shut_down();
}

void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

template <class T>
T* allocate(core::context& context, uint64_t count) {
  auto memory = context.allocate({.size_bytes = count * sizeof(T)});
  REQUIRE(static_cast<bool>(memory));
  return static_cast<T*>(*memory);
}

constexpr int thread_count = 3;
constexpr uint64_t column_words = 64;

// One thread's work: its column on every PE, and counters that all add to.
struct worker {
  const api::state& s;
  uint64_t* columns;
  uint64_t* counters;  // [0] by fetch-add, [1] by signals, [2] by 4-byte atomics
  int number;
  std::mt19937_64 random;
  std::vector<std::vector<uint64_t>> model;
  uint64_t seen_sum = 0;
  uint64_t wrong = 0;

  uint64_t pick(uint64_t bound) { return random() % bound; }

  void run(int operations) {
    uint64_t* mine = columns + column_words * static_cast<uint64_t>(number);
    uint64_t buffer[column_words];
    for (int i = 0; i < operations; ++i) {
      const auto to = static_cast<int32_t>(pick(static_cast<uint64_t>(s.pe_count)));
      const auto queue = static_cast<int32_t>(number);  // one, so that puts keep their order
      auto& words = model[static_cast<size_t>(to)];
      const uint64_t at = pick(column_words), count = pick(column_words - at + 1);
      switch (pick(5)) {
        case 0:
          for (uint64_t w = 0; w < count; ++w) buffer[w] = words[at + w] = random();
          wrong += api::putmem_nbi(lane, s, {mine + at, buffer, count * 8, to, queue}) != MORI_OK;
          wrong += api::quiet_pe(lane, s, to, queue) != MORI_OK;  // the buffer is free again
          break;
        case 1:
          wrong += api::getmem(lane, s, {buffer, mine + at, count * 8, to, queue}) != MORI_OK;
          for (uint64_t w = 0; w < count; ++w) wrong += buffer[w] != words[at + w];
          break;
        case 2:
          words[at] = random();
          wrong += api::p(lane, s, mine + at, words[at], to, queue) != MORI_OK;
          break;
        case 3:
          seen_sum += api::atomic_fetch(lane, s,
                                        api::atomic_request<uint64_t>{
                                            counters, 1, MORI_SHMEM_AMO_FETCH_ADD, 0, 0, queue})
                          .before;
          wrong += api::atomic_nonfetch(
                       lane, s,
                       api::atomic_request<uint32_t>{reinterpret_cast<uint32_t*>(counters + 2), 1,
                                                     MORI_SHMEM_AMO_INC, 0, 0, queue}) != MORI_OK;
          break;
        default:
          wrong += api::putmem_signal_nbi(lane, s, {nullptr, nullptr, 0, 0, queue},
                                          {counters + 1, 5, MORI_SHMEM_SIGNAL_ADD}) != MORI_OK;
      }
    }
    wrong += api::quiet(lane, s) != MORI_OK;
    for (int32_t to = 0; to < s.pe_count; ++to) {
      wrong += api::getmem(lane, s, {buffer, mine, column_words * 8, to, 0}) != MORI_OK;
      wrong += !std::equal(buffer, buffer + column_words, model[static_cast<size_t>(to)].begin());
    }
  }
};

}  // namespace

TEST_CASE("network calls: threads of several PEs agree with a model, over one queue and three") {
  for (const int queues : {1, 3}) {
    std::atomic<uint64_t> wrong{0}, seen{0}, fetches{0};
    run_group({.pe_count = 3, .queues = queues}, [&](core::context& context, int pe) {
      const api::state& s = context.state();
      CHECK(s.ring_count == static_cast<uint32_t>(queues));
      CHECK(s.all_mapped == 0);
      auto* columns = allocate<uint64_t>(context, column_words * 3 * thread_count);
      auto* counters = allocate<uint64_t>(context, 4);
      run_threads(thread_count, [&](int i) {
        worker mine{s, columns, counters, pe * thread_count + i, std::mt19937_64(), {}};
        mine.random.seed(seed() + static_cast<uint64_t>(mine.number));
        mine.model.assign(3, std::vector<uint64_t>(column_words, 0));
        mine.run(400);
        wrong += mine.wrong;
        seen += mine.seen_sum;
      });
      wrong += api::barrier_all(lane, s) != MORI_OK;
      if (pe == 0) {
        const uint64_t total = counters[0];
        fetches = total;
        wrong += counters[2] != total;
        wrong += counters[1] % 5 != 0;
      }
      wrong += api::barrier_all(lane, s) != MORI_OK;
    });
    CHECK_MESSAGE(wrong == 0, "repeat with MORI_TEST_SEED=", seed());
    // Each fetch-add saw another value.
    CHECK(seen == fetches * (fetches - 1) / 2);
  }
}

TEST_CASE("network calls: more commands than the ring holds, fetches among them") {
  run_group({.pe_count = 2}, [](core::context& context, int pe) {
    const api::state& s = context.state();
    constexpr uint64_t each = 4000;
    auto* words = allocate<uint64_t>(context, thread_count + 1);
    std::atomic<uint64_t> wrong{0};
    run_threads(thread_count, [&](int i) {
      for (uint64_t n = 1; n <= each; ++n) {
        wrong += api::p(lane, s, words + i, n, 1 - pe) != MORI_OK;
        if (n % 50 == 0)
          (void)api::atomic_fetch_add(lane, s, words + thread_count, uint64_t{1}, 1 - pe);
      }
    });
    CHECK(wrong == 0);
    CHECK(api::barrier_all(lane, s) == MORI_OK);
    for (int i = 0; i < thread_count; ++i) CHECK(words[i] == each);
    CHECK(words[thread_count] == thread_count * each / 50);
    CHECK(api::barrier_all(lane, s) == MORI_OK);
  });
}

TEST_CASE("network calls: kernels and host calls meet in barriers of their own") {
  run_group({.pe_count = 5}, [](core::context& context, int) {
    std::atomic<uint64_t> wrong{0};
    run_threads(2, [&](int i) {
      for (int n = 0; n < 50; ++n)
        if (i == 0)
          wrong += api::barrier_all(lane, context.state()) != MORI_OK;
        else
          wrong += !context.barrier_all();
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("network calls: a wait that is not answered ends with its budget and names the PE") {
  run_group({.pe_count = 2, .wait_ns = 300 * base::ns_per_ms}, [](core::context& context, int pe) {
    if (pe != 0) {
      // Told by the one that gave up.
      mori_shmem_wait_args wait{};
      wait.address = reinterpret_cast<void*>(context.state().heap_base + 65536);
      wait.size_bytes = 8;
      wait.value = 1;
      wait.compare = MORI_SHMEM_CMP_EQ;
      wait.timeout_ns = 10 * base::ns_per_s;
      CHECK_FALSE(static_cast<bool>(context.wait_until(wait)));
      const auto told = context.check();
      REQUIRE_FALSE(static_cast<bool>(told));
      CHECK(told.error().status == MORI_E_ABORTED);
      return;
    }
    CHECK(api::barrier_all(lane, context.state()) == MORI_E_TIMEOUT);
    const auto outcome = context.check();
    REQUIRE_FALSE(static_cast<bool>(outcome));
    CHECK(outcome.error().text.find("waiting for PE 1") != std::string::npos);
    uint64_t word = 0;
    CHECK(api::quiet(lane, context.state()) == MORI_E_TIMEOUT);
    CHECK(api::putmem_nbi(lane, context.state(),
                          {reinterpret_cast<void*>(context.state().heap_base + 65536), &word, 8,
                           1}) == MORI_E_TIMEOUT);
  });
}

TEST_CASE("network calls: bulk of all sizes and alignments, with and without a MAC") {
  constexpr uint64_t most = 3 << 20;
  for (const bool authenticates : {true, false}) {
    group_of with;
    with.authenticates_bulk = authenticates;
    run_group(with, [&](core::context& context, int pe) {
      const api::state& state = context.state();
      auto* target = allocate<unsigned char>(context, most + 64);
      auto* signals = allocate<uint64_t>(context, 8);
      std::vector<unsigned char> source(most + 64), back(most + 64);
      std::mt19937_64 random(seed() + static_cast<uint64_t>(pe));
      for (unsigned char& byte : source) byte = static_cast<unsigned char>(random());
      uint64_t round = 0;
      for (const uint64_t bytes : {uint64_t{2048}, uint64_t{2049}, uint64_t{262'144},
                                   uint64_t{262'145}, uint64_t{786'433}, most})
        for (const uint64_t skew : {0, 1, 8}) {
          CAPTURE(bytes);
          CAPTURE(skew);
          ++round;
          // The signal follows the data, so the target has all of it.
          REQUIRE(api::putmem_signal_nbi(lane, state,
                                         {target + skew, source.data() + skew, bytes, 1 - pe},
                                         {signals, round, MORI_SHMEM_SIGNAL_SET}) == MORI_OK);
          REQUIRE(api::quiet(lane, state) == MORI_OK);
          std::fill(back.begin(), back.end(), static_cast<unsigned char>(0));
          REQUIRE(api::getmem(lane, state, {back.data() + skew, target + skew, bytes, 1 - pe}) ==
                  MORI_OK);
          const auto at = static_cast<ptrdiff_t>(skew), end = static_cast<ptrdiff_t>(skew + bytes);
          CHECK(std::equal(back.begin() + at, back.begin() + end, source.begin() + at));
          CHECK(back[skew + bytes] == 0);
          const auto seen = api::wait_until(
              lane, state, api::wait_request<uint64_t>{signals, MORI_SHMEM_CMP_GE, round, 1 - pe});
          REQUIRE(seen.met != 0);
        }
      CHECK(static_cast<bool>(context.barrier_all()));
    });
  }
}

TEST_CASE("network calls: PEs that do not agree on the MAC are told who differs") {
  const auto id = mori::link::make_unique_id();
  REQUIRE(static_cast<bool>(id));
  std::vector<std::string> texts(3);
  run_threads(3, [&](int pe) {
    core::settings mine;
    mine.pe = pe;
    mine.pe_count = 3;
    mine.heap_bytes = 1 << 20;
    mine.bootstrap_timeout_ns = 30 * base::ns_per_s;
    mine.heartbeat_timeout_ns = 20 * base::ns_per_s;
    mine.disable_p2p = true;
    mine.authenticates_bulk = pe != 2;
    const auto made = core::context::create(*id, mine);
    REQUIRE_FALSE(static_cast<bool>(made));
    CHECK(made.error().status == MORI_E_INVALID);
    texts[static_cast<size_t>(pe)] = made.error().text;
  });
  for (const std::string& text : texts)
    CHECK(text == "MORI_SHMEM_SECURITY is mac on PE 0 and trusted on PE 2");
}
