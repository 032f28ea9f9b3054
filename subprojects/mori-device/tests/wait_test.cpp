// Tests of the atomics and of the bounded wait on the host.
#include <mori/base/clock.hpp>
#include <mori/device/grid.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <thread>

namespace base = mori::base;
using namespace mori::device;

namespace {

struct fixture {
  uint64_t word = 0;
  uint64_t abort_word = 0;
  mori_shmem_fault fault{};
  uint32_t left[3] = {0, 0, 0};
  uint32_t bell_word = 0;
  uint32_t waiter_count = 0;
  wait_limits limits{};
  wait_subject subject{MORI_SHMEM_OP_EP_COUNT, 2, 77};

  fixture() {
    limits.abort_word = address(&abort_word);
    limits.fault = address(&fault);
    limits.budget_ns = 5 * base::ns_per_ms;
    limits.spin_count = 10;
    limits.peer_left = address(left);
  }
  doorbell bell() { return {&bell_word, &waiter_count}; }
  auto wait(uint64_t awaited) {
    return wait_until(
        &word, [awaited](uint64_t seen) { return seen >= awaited; }, limits, subject, bell());
  }
};

// Every operation once, with the value before and after.
template <class T>
void check_atomics() {
  constexpr scope S = scope::system;
  constexpr order O = order::seq_cst;
  T word = 12;
  CHECK(load<S, order::acquire>(&word) == 12);
  store<S, order::release>(&word, T{5});
  CHECK(exchange<S, O>(&word, T{6}) == 5);
  CHECK(fetch_add<S, O>(&word, T{4}) == 6);
  CHECK(fetch_and<S, O>(&word, T{8}) == 10);
  CHECK(fetch_or<S, O>(&word, T{3}) == 8);
  CHECK(fetch_xor<S, O>(&word, T{1}) == 11);
  T expected = 9;
  CHECK(!compare_exchange<S, O>(&word, expected, T{1}));
  CHECK(expected == 10);
  CHECK(compare_exchange<S, O>(&word, expected, static_cast<T>(-1)));
  CHECK(word == static_cast<T>(-1));
  CHECK(fetch_add<S, O>(&word, T{1}) == static_cast<T>(-1));
  CHECK(word == 0);
}

}  // namespace

TEST_CASE("atomics on all word types") {
  check_atomics<uint32_t>();
  check_atomics<uint64_t>();
  check_atomics<int32_t>();
  check_atomics<int64_t>();
}

TEST_CASE("fence then relaxed flag carries data to another thread") {
  uint64_t data = 0;
  uint64_t flag = 0;
  std::thread writer([&] {
    data = 42;
    fence<scope::system, order::release>();
    store<scope::system, order::relaxed, uint64_t>(&flag, 1);
  });
  while (load<scope::system, order::relaxed>(&flag) == 0) std::this_thread::yield();
  fence<scope::system, order::acquire>();
  CHECK(data == 42);
  writer.join();
}

TEST_CASE("a wait that is already met touches nothing else") {
  fixture f;
  f.word = 9;
  f.abort_word = 1;
  const auto result = f.wait(9);
  CHECK(result.met);
  CHECK(result.seen == 9);
  CHECK(f.fault.claimed == 0);
}

TEST_CASE("when the budget passes the first fault says what was awaited and seen") {
  fixture f;
  f.word = 3;
  const auto result = f.wait(77);
  CHECK(!result.met);
  CHECK(result.seen == 3);
  CHECK(f.fault.claimed == 2);
  CHECK(f.fault.status == MORI_E_TIMEOUT);
  CHECK(f.fault.operation == MORI_SHMEM_OP_EP_COUNT);
  CHECK(f.fault.pe == 2);
  CHECK(f.fault.awaited == 77);
  CHECK(f.fault.seen == 3);
  CHECK(f.waiter_count == 0);

  record_fault(f.limits, {MORI_E_INVALID, MORI_SHMEM_OP_PUT, 1, 2, 3});
  CHECK(f.fault.status == MORI_E_TIMEOUT);
}

TEST_CASE("a wait with a budget of its own leaves no fault") {
  fixture f;
  f.limits.timeout_is_fault = false;
  CHECK(!f.wait(1).met);
  CHECK(f.fault.claimed == 0);
}

TEST_CASE("abort word and fault end a wait at once") {
  fixture f;
  f.limits.budget_ns = std::numeric_limits<uint64_t>::max();
  f.abort_word = 1;
  CHECK(!f.wait(1).met);
  CHECK(f.fault.claimed == 0);
  f.abort_word = 0;
  f.fault.claimed = 2;
  CHECK(!f.wait(1).met);
}

TEST_CASE("a sleeping wait is ended by an abort that rings nothing") {
  fixture f;
  f.limits.budget_ns = 600 * base::ns_per_s;
  f.limits.spin_count = 0;
  const base::deadline limit = base::deadline::after(60 * base::ns_per_s);
  std::thread aborter([&] {
    while (load<scope::system, order::acquire>(&f.waiter_count) == 0) std::this_thread::yield();
    store<scope::system, order::release, uint64_t>(&f.abort_word, 1);
  });
  CHECK(!f.wait(1).met);
  CHECK(!limit.passed());
  aborter.join();
  CHECK(f.waiter_count == 0);
}

TEST_CASE("a wait without a doorbell sleeps too, and sees the word in time") {
  fixture f;
  f.limits.budget_ns = 60 * base::ns_per_s;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    store<scope::system, order::release, uint64_t>(&f.word, 7);
  });
  const auto result = wait_until(
      &f.word, [](uint64_t seen) { return seen == 7; }, f.limits, f.subject,
      doorbell{nullptr, nullptr});
  CHECK(result.met);
  CHECK(result.seen == 7);
  writer.join();
}

TEST_CASE("a PE that has left ends the wait, but its last store still counts") {
  fixture f;
  f.limits.budget_ns = 600 * base::ns_per_s;
  f.left[1] = 1;  // not the one that is waited for
  f.left[2] = 1;
  f.word = 4;
  CHECK(f.wait(4).met);
  const auto result = f.wait(5);
  CHECK(!result.met);
  CHECK(f.fault.status == MORI_E_PEER_DEAD);
  CHECK(f.fault.pe == 2);
  CHECK(f.fault.awaited == 77);
  CHECK(f.fault.seen == 4);
}

TEST_CASE("doorbells: many hand-overs between two threads, sleeping in between") {
  fixture there, back;
  for (fixture* f : {&there, &back}) {
    f->limits.budget_ns = 60 * base::ns_per_s;
    f->limits.spin_count = 0;
  }
  constexpr uint64_t rounds = 2000;
  std::thread answerer([&] {
    for (uint64_t i = 1; i <= rounds; ++i) {
      if (!there.wait(i).met) return;
      fetch_add<scope::system, order::seq_cst, uint64_t>(&back.word, 1);
      ring_doorbell(back.bell());
    }
  });
  uint64_t met = 0;
  for (uint64_t i = 1; i <= rounds; ++i) {
    fetch_add<scope::system, order::seq_cst, uint64_t>(&there.word, 1);
    ring_doorbell(there.bell());
    met += back.wait(i).met ? 1 : 0;
  }
  answerer.join();
  CHECK(met == rounds);
  CHECK(there.waiter_count == 0);
  CHECK(back.waiter_count == 0);
}
