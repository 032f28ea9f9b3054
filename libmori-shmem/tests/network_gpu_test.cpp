// network_gpu_test.cpp - contexts on GPUs whose PEs are not mapped, on a driver whose devices are
// host memory (fake_driver.hpp of mori-device): host calls, and kernels, which are the host's here.
#include "context/context.hpp"
#include "fake_driver.hpp"
#include "pes.hpp"

#include <mori/device/runtime.hpp>
#include <mori/device_api/shmem.hpp>
#include <mori/link/unique_id.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

using namespace mori_test;
namespace api = mori::device_api;
namespace core = mori::shmem_core;
namespace fake = mori::fake;

MORI_KERNEL_DECLARE(mori_shmem_apply);
MORI_KERNEL_DECLARE(mori_shmem_barrier);
MORI_KERNEL_DECLARE(mori_shmem_host_call);

// In place of the embedded ones.
extern "C" {
extern const mori::device::device_image mori_shmem_images[];
extern const uint64_t mori_shmem_image_count;
const mori::device::device_image mori_shmem_images[] = {{"sm_90", "fake code", 10}};
const uint64_t mori_shmem_image_count = 1;
}

namespace {

constexpr mori::device::one_lane lane;

fake::driver& driver() {
  static fake::driver opened(FAKE_NVIDIA);
  return opened;
}

fake::kernel_body host_variant(const mori_device_host_kernel& kernel) {
  return [&kernel](const fake::launched&, void** arguments) {
    kernel.run(arguments[0], static_cast<const mori_device_launch*>(arguments[1]), 0);
  };
}

void open_session() {
  REQUIRE(driver().is_open());
  auto& world = driver().world();
  world.set = {};
  world.seen = {};
  world.set.fail_with = 999;
  world.set.kernels = {{"mori_shmem_apply", host_variant(mori_shmem_apply_base)},
                       {"mori_shmem_barrier", host_variant(mori_shmem_barrier_base)},
                       {"mori_shmem_host_call", host_variant(mori_shmem_host_call_base)}};
}

void expect_nothing_left() {
  for (const auto& [kind, handle] : driver().world().alive) CHECK(kind == "stream");
}

struct group_of {
  int pe_count = 2;
  int queues = 1;
  bool mixed = false;  // every other PE on another node; else no PE is mapped
};

// body(context, pe) on every PE; contexts end after all bodies.
void run_group(const group_of& with, const std::function<void(core::context&, int)>& body) {
  const auto id = mori::link::make_unique_id();
  REQUIRE(static_cast<bool>(id));
  std::vector<std::shared_ptr<core::context>> contexts(static_cast<size_t>(with.pe_count));
  std::vector<std::thread> threads;
  for (int pe = 0; pe < with.pe_count; ++pe)
    threads.emplace_back([&, pe] {
      mori_shmem_options given = options(pe, with.pe_count);
      given.backend = MORI_BACKEND_NVIDIA;
      auto mine = core::read_settings(&given);
      CHECK(static_cast<bool>(mine));
      mine->queue_pair_per_pe_count = with.queues;
      mine->disable_p2p = !with.mixed;
      if (with.mixed) mine->node_id = "node " + std::to_string(pe % 2);
      auto made = core::context::create(*id, *mine);
      CHECK_MESSAGE(static_cast<bool>(made), (made ? "" : made.error().text));
      if (!made) return;
      contexts[static_cast<size_t>(pe)] = *made;
      body(**made, pe);
    });
  for (auto& thread : threads) thread.join();
  for (auto& each : contexts)
    if (each) each->shut_down();
}

template <class T>
T* allocate(core::context& context, uint64_t count) {
  auto memory = context.allocate({.size_bytes = count * sizeof(T)});
  CHECK(static_cast<bool>(memory));
  return memory ? static_cast<T*>(*memory) : nullptr;
}

mori_shmem_atomic_args add_to(uint64_t* word, int pe) {
  mori_shmem_atomic_args with{};
  with.target = word;
  with.value = 1;
  with.op = MORI_SHMEM_AMO_FETCH_ADD;
  with.pe = pe;
  with.size_bytes = 8;
  return with;
}

}  // namespace

TEST_CASE("GPU network: host calls of 2 and 3 PEs that are not mapped") {
  for (const int pe_count : {2, 3}) {
    open_session();
    run_group({.pe_count = pe_count}, [&](core::context& context, int pe) {
      constexpr uint64_t bytes = 700'001;
      auto* inbox = allocate<uint8_t>(context, bytes);
      auto* words = allocate<uint64_t>(context, 4);
      const int right = (pe + 1) % pe_count, left = (pe + pe_count - 1) % pe_count;
      std::vector<uint8_t> source(bytes), back(bytes);
      for (uint64_t i = 0; i < bytes; ++i) source[i] = static_cast<uint8_t>(i * 7 + pe);
      for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{16}, uint64_t{4097}, bytes}) {
        CHECK(static_cast<bool>(context.put(inbox, source.data(), size, right)));
        CHECK(static_cast<bool>(context.get(back.data(), inbox, size, right)));
        CHECK(std::equal(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(size),
                         source.begin()));
      }
      mori_shmem_put_signal_args signal{};
      signal.target = inbox + 8;
      signal.source = source.data();
      signal.size_bytes = 5000;
      signal.signal = words;
      signal.signal_value = 3;
      signal.signal_op = MORI_SHMEM_SIGNAL_SET;
      signal.pe = right;
      CHECK(static_cast<bool>(context.put_signal(signal)));
      signal.size_bytes = 0;
      signal.signal_op = MORI_SHMEM_SIGNAL_ADD;
      CHECK(static_cast<bool>(context.put_signal(signal)));
      mori_shmem_wait_args wait{};
      wait.address = words;
      wait.size_bytes = 8;
      wait.value = 6;
      wait.compare = MORI_SHMEM_CMP_EQ;
      wait.pe = left;
      CHECK(static_cast<bool>(context.wait_until(wait)));
      CHECK(static_cast<bool>(context.get(back.data(), inbox + 8, 5000, pe)));
      CHECK(back[4999] == static_cast<uint8_t>(4999 * 7 + left));
      // All add to one word, by network and on their own.
      for (int i = 0; i < 10; ++i) CHECK(static_cast<bool>(context.atomic(add_to(words + 1, 0))));
      CHECK(static_cast<bool>(context.barrier_all()));
      uint64_t sum = 0;
      CHECK(static_cast<bool>(context.get(&sum, words + 1, 8, 0)));
      CHECK(sum == static_cast<uint64_t>(pe_count) * 10);
      CHECK(static_cast<bool>(context.barrier_all()));
    });
    expect_nothing_left();
  }
}

TEST_CASE("GPU network: kernels of mapped and network peers change one word; barriers of kernels") {
  for (const int queues : {1, 2}) {
    open_session();
    std::atomic<uint64_t> seen{0};
    constexpr int pe_count = 4, each = 40;
    run_group({.pe_count = pe_count, .queues = queues, .mixed = true},
              [&](core::context& context, int pe) {
                const api::state& s = context.state();
                CHECK(s.ring_count == static_cast<uint32_t>(queues));
                CHECK(s.all_mapped == 0);
                auto* words = allocate<uint64_t>(context, 2 + pe_count);
                CHECK((api::ptr(s, words, pe ^ 2) != nullptr));
                CHECK((api::ptr(s, words, pe ^ 1) == nullptr));
                for (int i = 1; i <= each; ++i) {
                  seen += api::atomic_fetch_add(lane, s, words, uint64_t{1}, 0);
                  CHECK(api::putmem_signal_nbi(lane, s, {nullptr, nullptr, 0, 1},
                                               {words + 1, 2, MORI_SHMEM_SIGNAL_ADD}) == MORI_OK);
                  for (int to = 0; to < pe_count; ++to)
                    CHECK(api::p(lane, s, words + 2 + pe, static_cast<uint64_t>(i), to) == MORI_OK);
                  if (i % 8 == 0) CHECK(api::barrier_all(lane, s) == MORI_OK);
                }
                // What kernels put is complete after the host's barrier.
                CHECK(static_cast<bool>(context.barrier_all()));
                std::array<uint64_t, 2 + pe_count> here{};
                CHECK(static_cast<bool>(context.get(here.data(), words, sizeof here, pe)));
                if (pe == 0) CHECK(here[0] == pe_count * each);
                if (pe == 1) CHECK(here[1] == 2 * pe_count * each);
                for (int from = 0; from < pe_count; ++from)
                  CHECK(here[static_cast<size_t>(2 + from)] == each);
                CHECK(static_cast<bool>(context.barrier_on_stream(nullptr)));
                CHECK(static_cast<bool>(context.barrier_all()));
              });
    constexpr uint64_t total = pe_count * each;
    CHECK(seen == total * (total - 1) / 2);
    expect_nothing_left();
  }
}

TEST_CASE("GPU network: whichever driver call fails, all PEs are told, at once, nothing is left") {
  int failed = 0;
  for (int step = 1;; ++step) {
    CAPTURE(step);
    open_session();
    driver().world().set.fail_at = step;
    const auto id = mori::link::make_unique_id();
    REQUIRE(static_cast<bool>(id));
    std::array<bool, 2> made{};
    std::array<std::shared_ptr<core::context>, 2> contexts;
    const auto begun = mori::base::now_ns();
    std::vector<std::thread> threads;
    for (int pe = 0; pe < 2; ++pe)
      threads.emplace_back([&, pe] {
        mori_shmem_options given = options(pe, 2);
        given.backend = MORI_BACKEND_NVIDIA;
        given.disable_p2p = 1;
        auto mine = core::read_settings(&given);
        auto one = core::context::create(*id, *mine);
        made[static_cast<size_t>(pe)] = static_cast<bool>(one);
        if (one) contexts[static_cast<size_t>(pe)] = *one;
      });
    for (auto& thread : threads) thread.join();
    CHECK(mori::base::now_ns() - begun < 10 * second_ns);
    CHECK(made[0] == made[1]);
    for (auto& each : contexts)
      if (each) each->shut_down();
    contexts = {};
    const bool hit = !driver().world().seen.failed.empty();
    failed += hit ? 1 : 0;
    driver().world().set.fail_at = 0;
    expect_nothing_left();
    if (!hit) break;
    REQUIRE(step < 1000);
  }
  CHECK(failed > 20);
}
