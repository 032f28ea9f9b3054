// shmem_gpu_test.cpp - symmetric memory on a GPU through host calls: allocation, copies,
// signals, atomics, barriers on streams, and what happens when somebody does not come.
#include "world.hpp"

#include <doctest/doctest.h>
#include <mori/device/gpu_memory.hpp>

#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

using namespace gpu_test;
namespace device = mori::device;

namespace {

using words = std::vector<uint64_t>;

std::string put_to_all(mori_shmem* shmem, int pe) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  mori_shmem_report info{};
  info.struct_size = sizeof info;
  EXPECT_OK(mori_shmem_info, shmem, &info);
  EXPECT(info.backend == backend_here().backend);
  EXPECT(info.gpu_ordinal >= 0);
  EXPECT(info.gpu_sharer_count >= 1);
  void* memory = nullptr;
  constexpr uint64_t each = 1000;
  EXPECT_OK(mori_shmem_malloc_align, shmem, 65536, each * 8 * static_cast<uint64_t>(count),
            &memory);
  EXPECT(reinterpret_cast<uintptr_t>(memory) % 65536 == 0);
  auto* rows = static_cast<uint64_t*>(memory);
  words zero(each * static_cast<size_t>(count), 1);
  EXPECT_OK(mori_shmem_get, shmem, zero.data(), rows, zero.size() * 8, pe);
  EXPECT(zero == words(zero.size(), 0));
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  words mine(each);
  std::iota(mine.begin(), mine.end(), static_cast<uint64_t>(pe) << 32);
  for (int peer = 0; peer < count; ++peer)
    EXPECT_OK(mori_shmem_put, shmem, rows + each * static_cast<uint64_t>(pe), mine.data(), each * 8,
              peer);
  EXPECT_OK(mori_shmem_quiet, shmem);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  for (int peer = 0; peer < count; ++peer)
    for (int from = 0; from < count; ++from) {
      words seen(each), should(each);
      EXPECT_OK(mori_shmem_get, shmem, seen.data(), rows + each * static_cast<uint64_t>(from),
                each * 8, peer);
      std::iota(should.begin(), should.end(), static_cast<uint64_t>(from) << 32);
      EXPECT(seen == should);
    }
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  EXPECT_OK(mori_shmem_free, shmem, memory);
  return "";
}

std::string signals_and_atomics(mori_shmem* shmem, int pe) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  void* memory = nullptr;
  EXPECT_OK(mori_shmem_malloc, shmem, 4096, &memory);
  auto* word = static_cast<uint64_t*>(memory);
  const int next = (pe + 1) % count, previous = (pe + count - 1) % count;
  uint64_t data = 1000 + static_cast<uint64_t>(pe);
  mori_shmem_put_signal_args send{};
  send.struct_size = sizeof send;
  send.target = word + 1;
  send.source = &data;
  send.size_bytes = 8;
  send.signal = word;
  send.signal_value = 77;
  send.signal_op = MORI_SHMEM_SIGNAL_SET;
  send.pe = next;
  EXPECT_OK(mori_shmem_put_signal, shmem, &send);
  mori_shmem_wait_args wait{};
  wait.struct_size = sizeof wait;
  wait.address = word;
  wait.size_bytes = 8;
  wait.value = 77;
  wait.compare = MORI_SHMEM_CMP_EQ;
  wait.pe = previous;
  uint64_t seen = 0;
  EXPECT_OK(mori_shmem_wait_until, shmem, &wait, &seen);
  EXPECT(seen == 77);
  EXPECT_OK(mori_shmem_get, shmem, &seen, word + 1, 8, pe);
  EXPECT(seen == 1000 + static_cast<uint64_t>(previous));
  // Everybody adds to one word of PE 0.
  mori_shmem_atomic_args add{};
  add.struct_size = sizeof add;
  add.target = word + 2;
  add.value = 3;
  add.op = MORI_SHMEM_AMO_FETCH_ADD;
  add.size_bytes = 8;
  for (int i = 0; i < 20; ++i) EXPECT_OK(mori_shmem_atomic, shmem, &add, &seen);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  EXPECT_OK(mori_shmem_get, shmem, &seen, word + 2, 8, 0);
  EXPECT(seen == static_cast<uint64_t>(count) * 60);
  add.op = MORI_SHMEM_AMO_COMPARE_SWAP;
  add.target = word + 3;
  add.compare = 0;
  add.value = 5;
  add.pe = pe;
  EXPECT_OK(mori_shmem_atomic, shmem, &add, &seen);
  EXPECT(seen == 0);
  EXPECT_OK(mori_shmem_atomic, shmem, &add, &seen);
  EXPECT(seen == 5);
  wait.value = 78;
  wait.timeout_ns = 50'000'000;
  EXPECT_FAILS("MORI_E_TIMEOUT", mori_shmem_wait_until, shmem, &wait, &seen);
  EXPECT_OK(mori_shmem_check, shmem);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  return "";
}

// A stream of the body's own, when all PEs have one: a driver may hold up the making of a stream
// until the device is idle, and with PEs as threads a kernel that waits for a PE which is making
// its stream would never see it.
std::string make_stream(mori_shmem* shmem, std::shared_ptr<device::gpu>& gpu,
                        device::own_stream& stream) {
  auto here = device::gpu::current(backend_here().backend);
  EXPECT(here);
  auto made = device::own_stream::create(*here);
  EXPECT(made);
  gpu = std::move(*here);
  stream = std::move(*made);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  return "";
}

// Barriers on a stream: enqueued, in step, thousands of them. Never more than a driver queues for
// all threads together: a launch that has to wait for room holds up the launches of the process's
// other threads, for which the kernels before it wait.
std::string barriers_on_a_stream(mori_shmem* shmem, int) {
  std::shared_ptr<device::gpu> gpu;
  device::own_stream stream;
  if (std::string failed = make_stream(shmem, gpu, stream); !failed.empty()) return failed;
  for (int round = 0; round < (is_sanitized() ? 1 : 40); ++round) {
    for (int i = 0; i < 50; ++i) EXPECT_OK(mori_shmem_barrier_on_stream, shmem, stream.get());
    EXPECT(gpu->synchronize_stream(stream.get()));
  }
  EXPECT_OK(mori_shmem_check, shmem);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  return "";
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Waits until an own word has the value; `failure_part`: what the wait must end with instead.
std::string wait_for_word(mori_shmem* shmem, const void* word, uint64_t value,
                          const char* failure_part) {
  mori_shmem_wait_args wait{};
  wait.struct_size = sizeof wait;
  wait.address = word;
  wait.size_bytes = 8;
  wait.value = value;
  wait.compare = MORI_SHMEM_CMP_EQ;
  wait.pe = -1;
  wait.timeout_ns = 20'000'000'000;
  uint64_t seen = 0;
  const std::string failed = failure(mori_shmem_wait_until, shmem, &wait, &seen);
  EXPECT(*failure_part == 0 ? failed.empty() : failed.find(failure_part) == 0);
  return "";
}

// The last PE never enters: the kernel gives up after the context's budget and names it.
std::string somebody_does_not_come(mori_shmem* shmem, int pe) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  void* word = nullptr;
  EXPECT_OK(mori_shmem_malloc, shmem, 8, &word);
  std::shared_ptr<device::gpu> gpu;
  device::own_stream stream;
  if (std::string failed = make_stream(shmem, gpu, stream); !failed.empty()) return failed;
  if (pe == count - 1) return wait_for_word(shmem, word, 1, "MORI_E_");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_OK(mori_shmem_barrier_on_stream, shmem, stream.get());
  EXPECT(gpu->synchronize_stream(stream.get()));
  EXPECT(seconds_since(start) < 3.5);
  const std::string failed = failure(mori_shmem_check, shmem);
  EXPECT(failed.find("MORI_E_") == 0);
  EXPECT(failed.find("PE " + std::to_string(count - 1)) != std::string::npos ||
         failed.find("barrier") != std::string::npos);
  return "";
}

// An abort reaches a kernel that waits.
std::string abort_ends_a_kernel(mori_shmem* shmem, int pe) {
  void* word = nullptr;
  EXPECT_OK(mori_shmem_malloc, shmem, 8, &word);
  std::shared_ptr<device::gpu> gpu;
  device::own_stream stream;
  if (std::string failed = make_stream(shmem, gpu, stream); !failed.empty()) return failed;
  if (pe == 1) {
    if (std::string failed = wait_for_word(shmem, word, 1, ""); !failed.empty()) return failed;
    EXPECT_OK(mori_shmem_abort, shmem);
    return "";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_OK(mori_shmem_barrier_on_stream, shmem, stream.get());
  const uint64_t waits_now = 1;
  EXPECT_OK(mori_shmem_put, shmem, word, &waits_now, 8, 1);
  EXPECT(gpu->synchronize_stream(stream.get()));
  EXPECT(seconds_since(start) < 5);
  EXPECT_FAILS("PE 1 aborted", mori_shmem_check, shmem);
  return "";
}

}  // namespace

TEST_CASE("puts and gets reach every PE") {
  for (const as kind : {as::threads, as::processes})
    for (const int count : {1, 2, 4, 8}) {
      CAPTURE(count);
      CHECK(run({.pe_count = count, .kind = kind}, put_to_all) == "");
    }
}
TEST_CASE("signals and atomics of host calls") {
  for (const as kind : {as::threads, as::processes})
    for (const int count : {2, 8}) {
      CAPTURE(count);
      CHECK(run({.pe_count = count, .kind = kind}, signals_and_atomics) == "");
    }
}
TEST_CASE("barriers on streams") {
  for (const as kind : {as::threads, as::processes})
    for (const int count : {1, 2, 3, 8}) {
      CAPTURE(count);
      CHECK(run({.pe_count = count, .kind = kind}, barriers_on_a_stream) == "");
    }
}
TEST_CASE("a PE that does not come is a status within the budget") {
  const auto brief = [](mori_shmem_options& o) { o.wait_timeout_ns = 1'000'000'000; };
  for (const as kind : {as::threads, as::processes})
    CHECK(run({.pe_count = 3, .kind = kind, .adjust = brief}, somebody_does_not_come) == "");
}
TEST_CASE("an abort ends a kernel that waits") {
  for (const as kind : {as::threads, as::processes})
    CHECK(run({.pe_count = 2, .kind = kind}, abort_ends_a_kernel) == "");
}
