// Tests of the host runtime: launch, grid barrier, instruction-set variants, probes.
#include "runtime_kernels.hpp"

#include <mori/base/clock.hpp>
#include <mori/base/sanitizer.hpp>
#include <mori/device/runtime.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

namespace base = mori::base;
namespace device = mori::device;
namespace device_test = mori::device_test;

MORI_KERNEL_DECLARE(mori_test_lockstep);
MORI_KERNEL_DECLARE(mori_test_deserter);
MORI_KERNEL_DECLARE(mori_test_rows);
MORI_KERNEL_DECLARE(mori_test_collectives);

namespace {

std::unique_ptr<device::runtime> make_pool(uint32_t workers) {
  auto pool = device::runtime::create({.worker_count = workers});
  REQUIRE(pool);
  return std::move(*pool);
}

size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

uint64_t cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * base::ns_per_s +
           static_cast<uint64_t>(t.tv_usec) * base::ns_per_us;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace

TEST_CASE("blocks run in lockstep over the grid barrier") {
  for (const uint32_t workers : {1u, 2u, 3u, 8u}) {
    const auto pool = make_pool(workers);
    std::vector<uint64_t> cells(workers);
    uint64_t wrong = 0;
    auto blocks = pool->launch(MORI_KERNEL_HANDLE(mori_test_lockstep), {.block_count = workers},
                               device_test::lockstep_args{cells.data(), 500, &wrong});
    REQUIRE(blocks);
    CHECK(*blocks == workers);
    CHECK(wrong == 0);
    CHECK(cells == std::vector<uint64_t>(workers, 500));
  }
}

TEST_CASE("a request for more blocks than workers is clamped and reported") {
  const auto pool = make_pool(3);
  CHECK(pool->worker_count() == 3);
  CHECK(pool->backend() == MORI_BACKEND_HOST);
  std::vector<uint64_t> cells(4, 7);
  uint64_t wrong = 0;
  const device_test::lockstep_args args{cells.data(), 1, &wrong};
  const device::kernel kernel = MORI_KERNEL_HANDLE(mori_test_lockstep);
  CHECK(*pool->launch(kernel, {.block_count = UINT32_MAX}, args) == 3);
  CHECK(cells == std::vector<uint64_t>{1, 1, 1, 7});
  CHECK(*pool->launch(kernel, {.block_count = 1}, args) == 1);
  CHECK(*pool->launch(kernel, {.block_count = 2}, args) == 2);
}

TEST_CASE("bad requests are refused with value and limit") {
  const auto none = device::runtime::create({.worker_count = 0});
  REQUIRE(!none);
  CHECK(none.error().status == MORI_E_INVALID);
  CHECK(none.error().text == "worker_count 0 is outside 1 .. 1024");
  CHECK(!device::runtime::create({.worker_count = 1025}));
  const auto unknown = device::runtime::create({.backend = 9});
  REQUIRE(!unknown);
  CHECK(unknown.error().status == MORI_E_INVALID);
  CHECK(unknown.error().text.find("backend 9") != std::string::npos);

  const auto pool = make_pool(1);
  const device::kernel kernel = MORI_KERNEL_HANDLE(mori_test_lockstep);
  const auto no_blocks =
      pool->launch(kernel, {.block_count = 0}, device_test::lockstep_args{nullptr, 0, nullptr});
  REQUIRE(!no_blocks);
  CHECK(no_blocks.error().status == MORI_E_INVALID);
  const auto wrong_args = pool->launch(kernel, {}, uint32_t{5});
  REQUIRE(!wrong_args);
  CHECK(wrong_args.error().text == "kernel mori_test_lockstep: arguments of 4 bytes, it takes 24");
  const auto absent = pool->launch(device::kernel{"mori_test_absent", {}}, {}, 0);
  REQUIRE(!absent);
  CHECK(absent.error().status == MORI_E_UNSUPPORTED);
}

TEST_CASE("a pool of one makes no thread; others make one less than they have workers") {
  const size_t before = thread_count();
  {
    const auto one = make_pool(1);
    CHECK(thread_count() == before);
    const auto four = make_pool(4);
    CHECK(thread_count() == before + 3);
  }
  CHECK(thread_count() == before);
}

TEST_CASE("idle workers burn no processor time") {
  const auto pool = make_pool(8);
  uint32_t met = 0;
  REQUIRE(pool->launch(MORI_KERNEL_HANDLE(mori_test_collectives), {.block_count = 8},
                       device_test::collectives_args{&met}));
  const uint64_t before = cpu_ns();
  usleep(100'000);  // lets time pass: idleness is what is measured
  CHECK(cpu_ns() - before < 20 * base::ns_per_ms);
}

TEST_CASE("a block that does not come is a fault after the budget, and the next launch works") {
  const auto pool = make_pool(2);
  mori_shmem_fault fault{};
  uint32_t met = 0;
  const device_test::deserter_args args{&met};
  const auto blocks = pool->launch(MORI_KERNEL_HANDLE(mori_test_deserter),
                                   {.block_count = 2,
                                    .pe = 5,
                                    .fault = address_of(&fault),
                                    .wait_budget_ns = 20 * base::ns_per_ms},
                                   args);
  REQUIRE(blocks);
  CHECK(met == 0);
  CHECK(fault.claimed == 2);
  CHECK(fault.status == MORI_E_TIMEOUT);
  CHECK(fault.operation == MORI_SHMEM_OP_BARRIER);
  CHECK(fault.pe == 5);

  std::vector<uint64_t> cells(2);
  uint64_t wrong = 0;
  const device_test::lockstep_args again{cells.data(), 3, &wrong};
  REQUIRE(pool->launch(MORI_KERNEL_HANDLE(mori_test_lockstep), {.block_count = 2}, again));
  CHECK(cells == std::vector<uint64_t>{3, 3});
  // With the fault still there every meeting ends at once.
  REQUIRE(pool->launch(MORI_KERNEL_HANDLE(mori_test_lockstep),
                       {.block_count = 2, .fault = address_of(&fault)}, again));
  CHECK(cells == std::vector<uint64_t>{1, 1});
}

TEST_CASE("an abort ends a meeting long before its budget") {
  const auto pool = make_pool(2);
  uint64_t abort_word = 0;
  mori_shmem_fault fault{};
  uint32_t met = 0;
  std::thread aborter([&] {
    device::store<device::scope::system, device::order::release, uint64_t>(&abort_word, 1);
  });
  const base::deadline limit = base::deadline::after(60 * base::ns_per_s);
  REQUIRE(pool->launch(MORI_KERNEL_HANDLE(mori_test_deserter),
                       {.block_count = 2,
                        .abort_word = address_of(&abort_word),
                        .fault = address_of(&fault),
                        .wait_budget_ns = 600 * base::ns_per_s},
                       device_test::deserter_args{&met}));
  CHECK(!limit.passed());
  CHECK(met == 0);
  CHECK(fault.claimed == 0);
  aborter.join();
}

TEST_CASE("launches of several threads take turns") {
  const auto pool = make_pool(2);
  std::atomic<int> wrong_launches = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        std::vector<uint64_t> cells(2);
        uint64_t wrong = 0;
        const auto blocks = pool->launch(MORI_KERNEL_HANDLE(mori_test_lockstep), {.block_count = 2},
                                         device_test::lockstep_args{cells.data(), 5, &wrong});
        if (!blocks || wrong != 0 || cells[1] != 5) ++wrong_launches;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong_launches == 0);
}

TEST_CASE("a pool made before fork refuses to run in the child" * doctest::skip(base::under_tsan)) {
  const auto pool = make_pool(2);
  const pid_t child = fork();
  if (child == 0) {
    uint32_t met = 0;
    const auto refused =
        pool->launch(MORI_KERNEL_HANDLE(mori_test_deserter), {}, device_test::deserter_args{&met});
    _exit(!refused && refused.error().status == MORI_E_STATE ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("collectives agree with arithmetic") {
  const auto pool = make_pool(2);
  uint32_t wrong = 0;
  REQUIRE(pool->launch(MORI_KERNEL_HANDLE(mori_test_collectives), {.block_count = 2},
                       device_test::collectives_args{&wrong}));
  CHECK(wrong == 0);
}

TEST_CASE("all instruction sets give the same bits; unknown and impossible ones are refused") {
  constexpr uint64_t row_count = 5, row_elements = 1037;
  constexpr uint64_t count = row_count * row_elements;
  std::vector<float> x(count), expected_y;
  for (uint64_t i = 0; i < count; ++i)
    x[i] = std::ldexp(1.0f + static_cast<float>(i % 97) / 97, static_cast<int>(i % 61) - 30) *
           (i % 2 == 0 ? 1.0f : -1.0f);
  x[7] = std::numeric_limits<float>::infinity();
  std::vector<device::float16> expected_out;
  int ran = 0;
  for (const char* isa : {"x86-64", "x86-64-v3", "x86-64-v4"}) {
    CAPTURE(isa);
    setenv("MORI_HOST_ISA", isa, 1);
    auto pool = device::runtime::create({.worker_count = 2});
    unsetenv("MORI_HOST_ISA");
    if (!pool) {
      CHECK(pool.error().status == MORI_E_UNAVAILABLE);
      CHECK(pool.error().text.find(isa) != std::string::npos);
      continue;
    }
    ++ran;
    std::vector<float> y(count, 0.125f);
    std::vector<device::float16> out(count), streamed(count);
    REQUIRE((*pool)->launch(MORI_KERNEL_HANDLE(mori_test_rows), {.block_count = 2},
                            device_test::rows_args{x.data(), y.data(), out.data(), streamed.data(),
                                                   row_count, row_elements, 1.7f}));
    CHECK(std::memcmp(out.data(), streamed.data(), count * sizeof out[0]) == 0);
    if (expected_y.empty()) {
      expected_y = y;
      expected_out = out;
    }
    CHECK(std::memcmp(y.data(), expected_y.data(), count * sizeof y[0]) == 0);
    CHECK(std::memcmp(out.data(), expected_out.data(), count * sizeof out[0]) == 0);
  }
  CHECK(ran >= 1);
  setenv("MORI_HOST_ISA", "sse9", 1);
  const auto unknown = device::runtime::create({});
  unsetenv("MORI_HOST_ISA");
  REQUIRE(!unknown);
  CHECK(unknown.error().status == MORI_E_INVALID);
  CHECK(unknown.error().text.find("MORI_HOST_ISA=sse9") != std::string::npos);
}

TEST_CASE("every back end says whether it is viable and why") {
  const device::viability host = device::probe(MORI_BACKEND_HOST);
  CHECK(host.viable);
  CHECK(host.reason.find("compiled for") != std::string::npos);
  for (const int32_t backend : {MORI_BACKEND_AMD, MORI_BACKEND_NVIDIA}) {
    const device::viability answer = device::probe(backend);
    CHECK(answer.reason.find(backend == MORI_BACKEND_AMD ? "libamdhip64.so." : "libcuda.so.1") !=
          std::string::npos);
    const auto refused = device::runtime::create({.backend = backend});
    REQUIRE(!refused);
    CHECK(refused.error().status == MORI_E_UNAVAILABLE);
    const std::string why = answer.viable ? "no code for" : answer.reason;
    CHECK(refused.error().text.find(why) != std::string::npos);
  }
  CHECK(!device::probe(7).viable);
}
