// Concurrent tests of the device API: PEs are threads on plain memory.
#include "device_api_pes.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>

namespace api = mori::device_api;
namespace base = mori::base;
namespace device = mori::device;
using mori::shmem_test::fake_group;
using mori::shmem_test::fake_pe;

namespace {

constexpr device::one_lane lane{};

uint64_t seed() {
  const char* given = std::getenv("MORI_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 17;
}

// The user part of each heap: a column per writer, then counters that all share.
constexpr size_t column_bytes = 2048;
constexpr size_t column_words = column_bytes / 8;
constexpr size_t counter_count = 4;

uint8_t* column(const fake_pe& pe, int32_t writer) {
  return pe.user() + column_bytes * static_cast<size_t>(writer);
}
uint64_t* counters(const fake_pe& pe) {
  return reinterpret_cast<uint64_t*>(column(pe, pe.state.pe_count));
}

// One writer's view: what its column holds on each PE, and what it added to counters.
struct model {
  std::vector<std::vector<uint64_t>> words;                // [target][column_words]
  std::vector<std::array<uint64_t, counter_count>> added;  // [target]
  uint64_t wrong = 0;
};

void random_operation(const fake_pe& me, std::mt19937_64& random, model& m) {
  const auto pick = [&](uint64_t bound) { return static_cast<size_t>(random() % bound); };
  const int32_t target = static_cast<int32_t>(pick(static_cast<uint64_t>(me.state.pe_count)));
  auto& words = m.words[static_cast<size_t>(target)];
  auto* bytes = reinterpret_cast<uint8_t*>(words.data());
  uint8_t* mine = column(me, me.state.my_pe);
  const size_t at = pick(column_bytes + 1), size = pick(column_bytes - at + 1);
  const size_t word = pick(column_words), counter = pick(counter_count);
  uint8_t buffer[column_bytes];
  for (size_t i = 0; i < size; ++i) buffer[i] = static_cast<uint8_t>(random());
  const uint64_t value = random();
  auto* word_address = reinterpret_cast<uint64_t*>(mine) + word;
  int32_t status = MORI_OK;
  switch (pick(6)) {
    case 0:
      status = api::putmem_nbi(lane, me.state, {mine + at, buffer, size, target});
      std::memcpy(bytes + at, buffer, size);
      break;
    case 1:
      status = api::getmem(lane, me.state, {buffer, mine + at, size, target});
      m.wrong += std::memcmp(buffer, bytes + at, size) != 0;
      break;
    case 2:
      status = api::p(lane, me.state, word_address, value, target);
      words[word] = value;
      break;
    case 3:
      m.wrong += api::atomic_fetch_add(lane, me.state, word_address, value, target) != words[word];
      words[word] += value;
      break;
    case 4:
      status = api::atomic_add(lane, me.state, counters(me) + counter, value, target);
      m.added[static_cast<size_t>(target)][counter] += value;
      break;
    default:
      status = api::putmem_signal_nbi(lane, me.state, {mine + at, buffer, size, target},
                                      {counters(me) + counter, value, MORI_SHMEM_SIGNAL_ADD});
      std::memcpy(bytes + at, buffer, size);
      m.added[static_cast<size_t>(target)][counter] += value;
  }
  m.wrong += status != MORI_OK;
}

}  // namespace

TEST_CASE("device api: random operations of three PEs agree with a model") {
  constexpr int32_t count = 3;
  constexpr int operations = 3000;
  fake_group group(count);
  std::vector<model> models(count);
  for (model& m : models) {
    m.words.assign(count, std::vector<uint64_t>(column_words, 0));
    m.added.assign(count, {});
  }
  std::atomic<uint64_t> wrong = 0;
  group.run([&](fake_pe& me) {
    model& mine = models[static_cast<size_t>(me.state.my_pe)];
    std::mt19937_64 random(seed() + static_cast<uint64_t>(me.state.my_pe));
    for (int i = 0; i < operations; ++i) random_operation(me, random, mine);
    uint64_t bad = mine.wrong + (api::barrier_all(lane, me.state) != MORI_OK);
    const auto self = static_cast<size_t>(me.state.my_pe);
    std::array<uint64_t, counter_count> sums{};
    for (int32_t writer = 0; writer < count; ++writer) {
      const model& theirs = models[static_cast<size_t>(writer)];
      bad += std::memcmp(column(me, writer), theirs.words[self].data(), column_bytes) != 0;
      for (size_t c = 0; c < counter_count; ++c) sums[c] += theirs.added[self][c];
    }
    for (size_t c = 0; c < counter_count; ++c) bad += counters(me)[c] != sums[c];
    wrong += bad;
  });
  CHECK_MESSAGE(wrong == 0, "repeat with MORI_TEST_SEED=", seed(),
                " shmem_device_api_test -tc='*random operations*'");
  for (int32_t i = 0; i < count; ++i) CHECK(group[i].fault.claimed == 0);
}

TEST_CASE("device api: put-with-signal ping-pong carries its data") {
  constexpr uint64_t rounds = 3000;
  constexpr size_t most_words = 512;
  fake_group group(2);
  std::atomic<uint64_t> wrong = 0;
  group.run([&](fake_pe& me) {
    const int32_t other = 1 - me.state.my_pe;
    auto* signal = reinterpret_cast<uint64_t*>(me.user());
    uint64_t* data = signal + 8;
    std::vector<uint64_t> out(most_words);
    uint64_t bad = 0;
    for (uint64_t round = 1; round <= rounds && bad == 0; ++round) {
      const bool sends = round % 2 == static_cast<uint64_t>(me.state.my_pe);
      const size_t words = round * 7 % (most_words + 1);
      if (sends) {
        for (size_t i = 0; i < words; ++i) out[i] = round * 1000 + i;
        bad += api::putmem_signal_nbi(lane, me.state, {data, out.data(), words * 8, other},
                                      {signal, round, MORI_SHMEM_SIGNAL_SET}) != MORI_OK;
      } else {
        const auto result = api::wait_until(
            lane, me.state, api::wait_request<uint64_t>{signal, MORI_SHMEM_CMP_EQ, round, other});
        bad += !result.met;
        for (size_t i = 0; i < words; ++i) bad += data[i] != round * 1000 + i;
      }
    }
    wrong += bad;
  });
  CHECK(wrong == 0);
}

namespace {

// In each round every PE tells every PE its round number, all meet, all check.
template <class Group>
uint64_t wrong_barriers(int32_t count, uint64_t rounds) {
  fake_group group(count);
  std::atomic<uint64_t> wrong = 0;
  group.run([&](fake_pe& me) {
    auto* cells = reinterpret_cast<uint64_t*>(me.user());
    uint64_t bad = 0;
    for (uint64_t round = 1; round <= rounds && bad == 0; ++round) {
      uint64_t* cell = cells + me.state.my_pe;
      for (int32_t pe = 0; pe < count; ++pe)
        bad += api::putmem_nbi(Group{}, me.state, {cell, &round, 8, pe}) != MORI_OK;
      bad += api::barrier_all(Group{}, me.state) != MORI_OK;
      for (int32_t pe = 0; pe < count; ++pe) bad += cells[pe] != round;
      bad += api::barrier_all(Group{}, me.state) != MORI_OK;
    }
    bad += me.sync().device_epoch != 2 * rounds;
    wrong += bad;
  });
  return wrong;
}

}  // namespace

TEST_CASE("device api: thousands of barriers of 1, 2, 3, 5 and 8 PEs") {
  for (const int32_t count : {1, 2, 3, 5, 8}) {
    CAPTURE(count);
    CHECK(wrong_barriers<device::one_lane>(count, 1000) == 0);
  }
  CHECK(wrong_barriers<device::block>(3, 200) == 0);
  CHECK(wrong_barriers<device::one_lane>(130, 3) == 0);
}

TEST_CASE("device api: a barrier that one PE never enters names the PE that was awaited") {
  fake_group group(2);
  group[0].state.wait_budget_ns = 5 * base::ns_per_ms;
  CHECK(api::barrier_all(lane, group[0].state) == MORI_E_TIMEOUT);
  mori::shmem_test::check_fault(group[0], MORI_E_TIMEOUT, MORI_SHMEM_OP_BARRIER, 1);
  CHECK(group[0].fault.awaited == 1);
  CHECK(group[0].fault.seen == 0);
}

TEST_CASE("device api: a signal wakes a sleeping PE through its doorbell") {
  fake_group group(2);
  fake_pe& sleeper = group[0];
  sleeper.state.spin_count = 0;
  std::thread signaller([&] {
    using device::load, device::store, device::order, device::scope;
    const auto* waiting = &sleeper.sync().waiter_count;
    while (load<scope::system, order::acquire>(waiting) == 0) std::this_thread::yield();
    auto* word = reinterpret_cast<uint64_t*>(group[1].user());
    api::putmem_signal_nbi(lane, group[1].state, {nullptr, nullptr, 0, 0},
                           {word, 1, MORI_SHMEM_SIGNAL_SET});
  });
  auto* word = reinterpret_cast<uint64_t*>(sleeper.user());
  CHECK(api::wait_until_equals(lane, sleeper.state, word, uint64_t{1}) == MORI_OK);
  signaller.join();
  CHECK(sleeper.sync().waiter_count == 0);
}

TEST_CASE("device api: an abort ends a barrier and a wait of a sleeping PE") {
  fake_group group(2);
  fake_pe& me = group[0];
  me.state.wait_budget_ns = 600 * base::ns_per_s;
  me.state.spin_count = 0;
  const base::deadline limit = base::deadline::after(60 * base::ns_per_s);
  std::thread aborter([&] {
    using device::load, device::store, device::order, device::scope;
    const auto* waiting = &me.sync().waiter_count;
    while (load<scope::system, order::acquire>(waiting) == 0) std::this_thread::yield();
    store<scope::system, order::release, uint64_t>(&me.abort_word, 1);
  });
  CHECK(api::barrier_all(lane, me.state) == MORI_E_ABORTED);
  CHECK(!limit.passed());
  aborter.join();
  CHECK(me.fault.claimed == 0);
}
