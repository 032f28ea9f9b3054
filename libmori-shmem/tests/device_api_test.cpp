// Tests of the device API on the host: what each operation does to memory, and
// that refused ones do nothing. Concurrency is in device_api_stress_test.cpp.
#include "../kernels/all_operations.hpp"
#include "device_api_pes.hpp"

#include <array>
#include <cstring>
#include <limits>

namespace api = mori::device_api;
namespace base = mori::base;
namespace device = mori::device;
using mori::shmem_test::check_fault;
using mori::shmem_test::fake_group;
using mori::shmem_test::fake_pe;
using mori::shmem_test::same_place;

namespace {

constexpr device::one_lane lane{};
constexpr uint64_t huge = std::numeric_limits<uint64_t>::max();

template <class T>
T* user(const fake_pe& pe, size_t index = 0) {
  return reinterpret_cast<T*>(pe.user()) + index;
}

}  // namespace

TEST_CASE("device api: every operation runs for every group on one PE without a fault") {
  fake_group group(1);
  fake_pe& pe = group[0];
  std::array<uint8_t, 64> source{}, sink{};
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i + 1);
  mori_device_grid_barrier barrier{};
  const mori_device_launch launch{.struct_size = sizeof launch,
                                  .block_count = 1,
                                  .pe = 0,
                                  .barrier = reinterpret_cast<uint64_t>(&barrier),
                                  .abort_word = 0,
                                  .fault = 0,
                                  .wait_budget_ns = base::ns_per_s,
                                  .spin_count = 1};
  const mori::shmem_core::all_operations_args args{pe.state,
                                                   pe.user(),
                                                   source.data(),
                                                   sink.data(),
                                                   0,
                                                   MORI_SHMEM_AMO_COMPARE_SWAP + 1,
                                                   MORI_SHMEM_CMP_LE + 1};
  mori::shmem_core::all_operations(device::grid(launch, 0), args);
  CHECK(pe.fault.claimed == 0);
  CHECK(std::memcmp(sink.data(), source.data(), sink.size()) == 0);
  CHECK(*user<uint64_t>(pe, 16) == 2);  // signal: set to 1, then 1 added
  CHECK(pe.sync().device_epoch == 3);   // one barrier per group type
}

TEST_CASE("device api: puts and gets of 0, 1 and all bytes reach the peer and nothing else") {
  fake_group group(2);
  fake_pe& me = group[0];
  fake_pe& peer = group[1];
  CHECK(api::my_pe(me.state) == 0);
  CHECK(api::n_pes(me.state) == 2);
  const std::vector<uint8_t> ones(me.user_bytes(), 1);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{1000}, me.user_bytes()}) {
    std::memset(peer.user(), 0xcc, peer.user_bytes());
    CHECK(api::putmem_nbi(lane, me.state, {me.user(), ones.data(), bytes, 1}) == MORI_OK);
    CHECK(api::quiet(lane, me.state) == MORI_OK);
    size_t changed = 0;
    for (size_t i = 0; i < peer.user_bytes(); ++i)
      changed += peer.user()[i] == (i < bytes ? 1 : 0xcc) ? 0 : 1;
    CHECK(changed == 0);
    std::vector<uint8_t> back(me.user_bytes(), 9);
    CHECK(api::getmem(lane, me.state, {back.data(), me.user(), bytes, 1}) == MORI_OK);
    CHECK(std::memcmp(back.data(), peer.user(), bytes) == 0);
    CHECK((bytes == back.size() || back[bytes] == 9));
  }
  // The end of the heap is a legal place for nothing.
  CHECK(api::putmem_nbi(lane, me.state, {me.end(), ones.data(), 0, 1}) == MORI_OK);
  CHECK(me.fault.claimed == 0);
}

TEST_CASE("device api: typed puts and gets count elements") {
  fake_group group(2);
  fake_pe& me = group[0];
  const std::array<double, 3> values{1.5, -2.5, 3.5};
  CHECK(api::put_nbi(device::block{}, me.state,
                     api::typed_put_request<double>{user<double>(me, 2), values.data(), 3, 1}) ==
        MORI_OK);
  CHECK(std::memcmp(user<double>(group[1], 2), values.data(), sizeof values) == 0);
  std::array<float, 2> floats{};
  user<float>(group[1])[0] = 7.0f;
  user<float>(group[1])[1] = 8.0f;
  CHECK(api::get(device::wave{}, me.state,
                 api::typed_get_request<float>{floats.data(), user<float>(me), 2, 1}) == MORI_OK);
  CHECK(floats == std::array<float, 2>{7.0f, 8.0f});
  // 2^61 doubles are 2^64 bytes. Volatile: the compiler warns of a copy that it sees to be absurd.
  const volatile uint64_t too_many = 1ull << 61;
  CHECK(api::put_nbi(lane, me.state,
                     api::typed_put_request<double>{user<double>(me), values.data(), too_many,
                                                    1}) == MORI_E_INVALID);
  check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_PUT, 1);
}

TEST_CASE("device api: scalar puts, immediate sizes") {
  fake_group group(2);
  fake_pe& me = group[0];
  CHECK(api::p(lane, me.state, user<int32_t>(me), -7, 1) == MORI_OK);
  CHECK(*user<int32_t>(group[1]) == -7);
  CHECK(api::p(lane, me.state, user<double>(me, 1), 2.25, 1) == MORI_OK);
  CHECK(*user<double>(group[1], 1) == 2.25);
  const std::array<uint8_t, 16> bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  for (const uint64_t size : {1, 2, 4, 8, 16}) {
    std::memset(group[1].user(), 0, 64);
    CHECK(api::put_size_imm_nbi(lane, me.state, {me.user(), bytes.data(), size, 1}) == MORI_OK);
    CHECK(std::memcmp(group[1].user(), bytes.data(), size) == 0);
    CHECK(group[1].user()[size] == 0);
  }
  for (const uint64_t size : {0, 3, 15, 17, 32}) {
    me.fault = {};
    CHECK(api::put_size_imm_nbi(lane, me.state, {me.user(), bytes.data(), size, 1}) ==
          MORI_E_INVALID);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_PUT, 1);
    CHECK(me.fault.awaited == size);
    CHECK(me.fault.seen == 16);
  }
  me.fault = {};
  CHECK(api::p(lane, me.state, reinterpret_cast<uint64_t*>(me.user() + 4), uint64_t{1}, 1) ==
        MORI_E_INVALID);
  CHECK(me.fault.awaited == reinterpret_cast<uint64_t>(me.user() + 4));
}

TEST_CASE("device api: put with signal, with and without data, set and add") {
  fake_group group(2);
  fake_pe& me = group[0];
  const uint64_t data = 99;
  uint64_t* word = user<uint64_t>(me, 4);
  uint64_t& there = *user<uint64_t>(group[1], 4);
  CHECK(api::putmem_signal_nbi(lane, me.state, {me.user(), &data, 8, 1},
                               {word, 5, MORI_SHMEM_SIGNAL_SET}) == MORI_OK);
  CHECK(there == 5);
  CHECK(*user<uint64_t>(group[1]) == 99);
  CHECK(api::putmem_signal_nbi(device::block{}, me.state, {nullptr, nullptr, 0, 1},
                               {word, 3, MORI_SHMEM_SIGNAL_ADD}) == MORI_OK);
  CHECK(there == 8);
  CHECK(group[1].sync().doorbell == 0);  // nobody sleeps, so nobody was woken

  const auto refused = [&](const api::put_request& put, const api::signal_request& signal) {
    me.fault = {};
    const int32_t status = api::putmem_signal_nbi(lane, me.state, put, signal);
    CHECK(there == 8);
    CHECK(*user<uint64_t>(group[1]) == 99);
    check_fault(me, status, MORI_SHMEM_OP_PUT_SIGNAL, put.pe);
    return status;
  };
  const uint64_t other = 1;
  CHECK(refused({me.user(), &other, 8, 1}, {word, 1, 8}) == MORI_E_INVALID);
  CHECK(me.fault.awaited == 8);
  CHECK(refused({me.user(), &other, 8, 1}, {reinterpret_cast<uint64_t*>(me.user() + 33), 1,
                                            MORI_SHMEM_SIGNAL_SET}) == MORI_E_INVALID);
  CHECK(refused({me.end() - 4, &other, 8, 1}, {word, 1, MORI_SHMEM_SIGNAL_SET}) == MORI_E_INVALID);
  CHECK(me.fault.awaited == 8);  // the length, of which
  CHECK(me.fault.seen == 4);     // this much would fit
  CHECK(refused({me.user(), &other, 8, 1}, {reinterpret_cast<uint64_t*>(me.end()), 1,
                                            MORI_SHMEM_SIGNAL_SET}) == MORI_E_INVALID);
}

namespace {

// Each operation code against its definition, then codes that do not exist.
template <class T>
void check_atomics() {
  fake_group group(2);
  fake_pe& me = group[0];
  T* word = user<T>(me, 3);
  T& there = *user<T>(group[1], 3);
  struct expectation {
    int32_t operation;
    T value, compare, after;
  };
  const T start = static_cast<T>(0x5a5a5a5a);
  const std::array<expectation, 15> all{{
      {MORI_SHMEM_AMO_INC, 77, 0, static_cast<T>(start + 1)},
      {MORI_SHMEM_AMO_SET, 77, 0, 77},
      {MORI_SHMEM_AMO_ADD, static_cast<T>(-3), 0, static_cast<T>(start - 3)},
      {MORI_SHMEM_AMO_AND, 0xff, 0, static_cast<T>(start & 0xff)},
      {MORI_SHMEM_AMO_OR, 0xff, 0, static_cast<T>(start | 0xff)},
      {MORI_SHMEM_AMO_XOR, 0xff, 0, static_cast<T>(start ^ 0xff)},
      {MORI_SHMEM_AMO_FETCH, 77, 0, start},
      {MORI_SHMEM_AMO_FETCH_INC, 77, 0, static_cast<T>(start + 1)},
      {MORI_SHMEM_AMO_FETCH_ADD, 77, 0, static_cast<T>(start + 77)},
      {MORI_SHMEM_AMO_FETCH_AND, 0xff, 0, static_cast<T>(start & 0xff)},
      {MORI_SHMEM_AMO_FETCH_OR, 0xff, 0, static_cast<T>(start | 0xff)},
      {MORI_SHMEM_AMO_FETCH_XOR, 0xff, 0, static_cast<T>(start ^ 0xff)},
      {MORI_SHMEM_AMO_SWAP, 77, 0, 77},
      {MORI_SHMEM_AMO_COMPARE_SWAP, 77, start, 77},
      {MORI_SHMEM_AMO_COMPARE_SWAP, 77, static_cast<T>(start + 1), start},
  }};
  for (const expectation& e : all) {
    CAPTURE(e.operation);
    there = start;
    const api::atomic_request<T> request{word, e.value, e.operation, 1, e.compare};
    const auto result = api::atomic_fetch(lane, me.state, request);
    CHECK(result.status == MORI_OK);
    CHECK(result.before == start);
    CHECK(there == e.after);
    there = start;
    CHECK(api::atomic_nonfetch(device::block{}, me.state, request) == MORI_OK);
    CHECK(there == e.after);
  }
  there = 40;
  CHECK(api::atomic_fetch_add(lane, me.state, word, T{2}, 1) == 40);
  CHECK(api::atomic_add(lane, me.state, word, static_cast<T>(-1), 1) == MORI_OK);
  CHECK(there == 41);
  for (const int32_t operation : {-1, 0, 1, 8, 9, 10, 11, 20, 1000}) {
    CAPTURE(operation);
    me.fault = {};
    const auto result =
        api::atomic_fetch(lane, me.state, api::atomic_request<T>{word, 1, operation, 1});
    CHECK(result.status == MORI_E_INVALID);
    CHECK(result.before == 0);
    CHECK(there == 41);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_ATOMIC, 1);
    CHECK(me.fault.awaited == static_cast<uint64_t>(int64_t{operation}));
  }
  me.fault = {};
  T* odd = reinterpret_cast<T*>(me.user() + 2);
  CHECK(api::atomic_add(lane, me.state, odd, T{1}, 1) == MORI_E_INVALID);
  CHECK(me.fault.awaited == reinterpret_cast<uint64_t>(odd));
  CHECK(me.fault.seen == sizeof(T));
}

}  // namespace

TEST_CASE("device api: atomics of all codes and word types") {
  check_atomics<uint32_t>();
  check_atomics<uint64_t>();
  check_atomics<int32_t>();
  check_atomics<int64_t>();
}

TEST_CASE("device api: what lies outside the heap is refused and not touched") {
  fake_group group(2);
  fake_pe& me = group[0];
  uint64_t value = 1;
  const auto address = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
  struct bad {
    void* symmetric;
    uint64_t bytes;
    uint64_t awaited, seen;
  };
  uint8_t* base_address = me.heap.data();
  const uint64_t limit = address(me.end());
  const uint64_t size = me.heap.size();
  for (const bad& b :
       {bad{base_address - 1, 1, address(base_address - 1), limit},
        bad{base_address - 8, 16, address(base_address - 8), limit},
        bad{me.end() + 1, 0, limit + 1, limit}, bad{me.end(), 1, 1, 0}, bad{me.end() - 8, 9, 9, 8},
        bad{base_address, size + 1, size + 1, size}, bad{base_address + 8, huge, huge, size - 8},
        bad{base_address + 8, huge - 7, huge - 7, size - 8}, bad{nullptr, 8, 0, limit},
        bad{&value, 8, address(&value), limit}}) {
    CAPTURE(b.bytes);
    me.fault = {};
    CHECK(api::putmem_nbi(lane, me.state, {b.symmetric, &value, b.bytes, 1}) == MORI_E_INVALID);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_PUT, 1);
    CHECK(me.fault.awaited == b.awaited);
    CHECK(me.fault.seen == b.seen);
    me.fault = {};
    CHECK(api::getmem(device::block{}, me.state, {&value, b.symmetric, b.bytes, 1}) ==
          MORI_E_INVALID);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_GET, 1);
    CHECK(value == 1);
  }
  me.fault = {};
  CHECK(api::wait_until_equals(lane, me.state, &value, uint64_t{2}) == MORI_E_INVALID);
  check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_WAIT, 0);
}

TEST_CASE("device api: PEs that do not exist or are not mapped") {
  fake_group group(3);
  fake_pe& me = group[1];
  uint64_t value = 1;
  for (const int32_t pe :
       {-1, 3, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    CAPTURE(pe);
    me.fault = {};
    CHECK(api::putmem_nbi(lane, me.state, {me.user(), &value, 8, pe}) == MORI_E_INVALID);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_PUT, pe);
    CHECK(me.fault.awaited == static_cast<uint64_t>(int64_t{pe}));
    CHECK(me.fault.seen == 3);
    me.fault = {};
    CHECK(api::quiet_pe(lane, me.state, pe) == MORI_E_INVALID);
    me.fault = {};
    CHECK(api::fence_pe(lane, me.state, pe) == MORI_E_INVALID);
    check_fault(me, MORI_E_INVALID, MORI_SHMEM_OP_QUIET, pe);
    CHECK(api::ptr(me.state, me.user(), pe) == nullptr);
    CHECK(api::ptr_p2p(me.state, me.user(), pe, 0) == nullptr);
  }
  for (const int32_t transport :
       {MORI_SHMEM_TRANSPORT_NONE, MORI_SHMEM_TRANSPORT_RDMA, MORI_SHMEM_TRANSPORT_TCP}) {
    CAPTURE(transport);
    me.transports[2] = transport;
    me.peer_bases[2] = 0;  // an address means P2P
    me.fault = {};
    CHECK(api::atomic_add(lane, me.state, user<uint64_t>(me), uint64_t{1}, 2) ==
          MORI_E_UNAVAILABLE);
    check_fault(me, MORI_E_UNAVAILABLE, MORI_SHMEM_OP_ATOMIC, 2);
    CHECK(me.fault.seen == static_cast<uint64_t>(transport));
    CHECK(*user<uint64_t>(group[2]) == 0);
    CHECK(api::ptr(me.state, me.user(), 2) == nullptr);
  }
}

TEST_CASE("device api: peer addresses") {
  fake_group group(3);
  fake_pe& me = group[1];
  CHECK(api::ptr(me.state, me.user(), 2) == group[2].user());
  CHECK(api::ptr(me.state, me.user(), 1) == me.user());
  CHECK(api::ptr(me.state, me.heap.data() - 1, 2) == nullptr);
  CHECK(api::ptr(me.state, me.end(), 2) == nullptr);
  CHECK(api::ptr(me.state, me.end() - 1, 2) == group[2].end() - 1);
  CHECK(api::ptr_p2p(me.state, me.user(), 1, 0) == group[0].user());
  CHECK(api::ptr_p2p(me.state, group[0].user(), 0, 2) == group[2].user());
  CHECK(same_place(me, group[2], group[2].user()) == me.user());
  CHECK(me.fault.claimed == 0);
}

TEST_CASE("device api: after an abort or a fault operations do nothing") {
  fake_group group(2);
  fake_pe& me = group[0];
  const uint64_t value = 1;
  const auto check_dead = [&](int32_t status) {
    uint64_t back = 7;
    CHECK(api::putmem_nbi(lane, me.state, {me.user(), &value, 8, 1}) == status);
    CHECK(api::p(lane, me.state, user<uint64_t>(me), value, 1) == status);
    CHECK(api::putmem_signal_nbi(lane, me.state, {me.user(), &value, 8, 1},
                                 {user<uint64_t>(me, 1), 1, MORI_SHMEM_SIGNAL_ADD}) == status);
    CHECK(api::getmem(lane, me.state, {&back, me.user(), 8, 1}) == status);
    CHECK(api::atomic_add(lane, me.state, user<uint64_t>(me), value, 1) == status);
    CHECK(api::wait_until_equals(lane, me.state, user<uint64_t>(me), value) == status);
    CHECK(api::quiet(lane, me.state) == status);
    CHECK(api::fence(lane, me.state) == status);
    CHECK(api::barrier_all(device::block{}, me.state) == status);
    CHECK(back == 7);
    CHECK(*user<uint64_t>(group[1]) == 0);
    CHECK(*user<uint64_t>(group[1], 1) == 0);
    CHECK(group[1].sync().device_barrier[0][0] == 0);
  };
  me.abort_word = 1;
  check_dead(MORI_E_ABORTED);
  CHECK(me.fault.claimed == 0);
  me.abort_word = 0;
  CHECK(api::quiet_pe(lane, me.state, 5) == MORI_E_INVALID);
  check_dead(MORI_E_INVALID);
}

TEST_CASE("device api: a wait that times out says for whom, for what and what it saw") {
  fake_group group(2);
  fake_pe& me = group[0];
  me.state.wait_budget_ns = 5 * base::ns_per_ms;
  *user<int32_t>(me) = -4;
  const auto result = api::wait_until(
      lane, me.state, api::wait_request<int32_t>{user<int32_t>(me), MORI_SHMEM_CMP_GT, -3, 1});
  CHECK(!result.met);
  CHECK(result.seen == -4);
  check_fault(me, MORI_E_TIMEOUT, MORI_SHMEM_OP_WAIT, 1);
  CHECK(me.fault.awaited == static_cast<uint64_t>(int64_t{-3}));
  CHECK(me.fault.seen == static_cast<uint64_t>(int64_t{-4}));
  CHECK(api::wait_until_equals(lane, me.state, user<int32_t>(me), -3) == MORI_E_TIMEOUT);
  CHECK(me.sync().waiter_count == 0);

  // A budget of the call's own: the context stays whole.
  me.fault = {};
  CHECK(
      !api::wait_until(lane, me.state,
                       api::wait_request<int32_t>{user<int32_t>(me), MORI_SHMEM_CMP_EQ, 0, 1, 1000})
           .met);
  CHECK(me.fault.claimed == 0);
}

TEST_CASE("device api: a wait for a PE that has left ends, naming it") {
  fake_group group(2);
  fake_pe& me = group[0];
  me.left[1] = 1;
  CHECK(!api::wait_until(lane, me.state,
                         api::wait_request<uint64_t>{user<uint64_t>(me), MORI_SHMEM_CMP_NE, 0, 1})
             .met);
  check_fault(me, MORI_E_PEER_DEAD, MORI_SHMEM_OP_WAIT, 1);
}

namespace {

template <class T>
bool holds(T seen, int32_t compare, T value) {
  fake_group group(1);
  *user<T>(group[0]) = seen;
  return api::wait_until(lane, group[0].state,
                         api::wait_request<T>{user<T>(group[0]), compare, value, -1, 1})
      .met;
}

}  // namespace

TEST_CASE("device api: the six comparisons have the signedness of the word") {
  struct row {
    int32_t compare;
    bool below, equal, above;
  };
  for (const row& r :
       {row{MORI_SHMEM_CMP_EQ, false, true, false}, row{MORI_SHMEM_CMP_NE, true, false, true},
        row{MORI_SHMEM_CMP_GT, false, false, true}, row{MORI_SHMEM_CMP_GE, false, true, true},
        row{MORI_SHMEM_CMP_LT, true, false, false}, row{MORI_SHMEM_CMP_LE, true, true, false}}) {
    CAPTURE(r.compare);
    CHECK(holds<uint64_t>(4, r.compare, 5) == r.below);
    CHECK(holds<uint64_t>(5, r.compare, 5) == r.equal);
    CHECK(holds<uint64_t>(huge, r.compare, 5) == r.above);
    CHECK(holds<int64_t>(-1, r.compare, 5) == r.below);
    CHECK(holds<int32_t>(-1, r.compare, -1) == r.equal);
    CHECK(holds<int32_t>(-1, r.compare, -2) == r.above);
    CHECK(holds<uint32_t>(0x8000'0000u, r.compare, 1) == r.above);
  }
  fake_group group(1);
  for (const int32_t compare : {0, 7, -1}) {
    group[0].fault = {};
    CHECK(!api::wait_until(lane, group[0].state,
                           api::wait_request<uint64_t>{user<uint64_t>(group[0]), compare, 0})
               .met);
    check_fault(group[0], MORI_E_INVALID, MORI_SHMEM_OP_WAIT, -1);
  }
  *user<uint64_t>(group[0]) = 12;
  group[0].fault = {};
  CHECK(api::wait_until_greater_than(lane, group[0].state, user<uint64_t>(group[0]),
                                     uint64_t{11}) == 12);
}
