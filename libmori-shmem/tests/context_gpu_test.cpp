// context_gpu_test.cpp - contexts whose heap is in GPU memory, through the C ABI, PEs as threads:
// what context/gpu_heap.cpp and context/gpu_engine.cpp do on a driver whose devices are host memory
// (fake_driver.hpp of mori-device). Kernels are the host's. What only a device shows is in
// tests/gpu of the workspace.
#include "context/context.hpp"
#include "gpu_session.hpp"
#include "pes.hpp"

#include <mori/link/unique_id.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <string>

using namespace mori_test;

// In place of the embedded ones.
extern "C" {
extern const mori::device::device_image mori_shmem_images[];
extern const uint64_t mori_shmem_image_count;
const mori::device::device_image mori_shmem_images[] = {{"sm_90", "fake code", 10}};
const uint64_t mori_shmem_image_count = 1;
}

namespace {

uint64_t* words_of(mori_shmem* context, uint64_t count) {
  void* made = nullptr;
  CHECK(failure(mori_shmem_malloc, context, count * sizeof(uint64_t), &made) == "");
  return static_cast<uint64_t*>(made);
}

struct operand {
  void* target = nullptr;
  uint64_t value = 0;
  int32_t op = MORI_SHMEM_AMO_FETCH_ADD;
  int32_t pe = 0;
  uint64_t size_bytes = 8;
};

std::string atomic(mori_shmem* context, const operand& of, uint64_t& before) {
  mori_shmem_atomic_args with{};
  with.struct_size = sizeof with;
  with.target = of.target;
  with.value = of.value;
  with.op = of.op;
  with.pe = of.pe;
  with.size_bytes = of.size_bytes;
  return failure(mori_shmem_atomic, context, &with, &before);
}

struct awaited {
  const void* address = nullptr;
  uint64_t value = 0;
  int32_t compare = MORI_SHMEM_CMP_EQ;
  int32_t pe = -1;
  uint64_t size_bytes = 8;
  uint64_t timeout_ns = 0;
};

std::string wait(mori_shmem* context, const awaited& word, uint64_t& seen) {
  mori_shmem_wait_args with{};
  with.struct_size = sizeof with;
  with.address = word.address;
  with.size_bytes = word.size_bytes;
  with.value = word.value;
  with.compare = word.compare;
  with.pe = word.pe;
  with.timeout_ns = word.timeout_ns;
  return failure(mori_shmem_wait_until, context, &with, &seen);
}

}  // namespace

TEST_CASE("GPU: no launch of a kernel is its first once create has returned") {
  const gpu_session session;
  idle_launches().clear();
  run_pes({.pe_count = 2, .adjust = on_nvidia}, [](mori_shmem* context, int) {
    REQUIRE(failure(mori_shmem_barrier_all, context) == "");
  });
  // Also of those that nobody has called: a device may hold up the first launch of each.
  CHECK(idle_launches()["mori_shmem_apply"] == 2);
  CHECK(idle_launches()["mori_shmem_barrier"] == 2);
  CHECK(idle_launches()["mori_shmem_host_call"] == 2);
}

TEST_CASE("GPU: puts, gets, signals, atomics, waits and barriers of 1, 2 and 4 PEs") {
  for (const int pe_count : {1, 2, 4}) {
    CAPTURE(pe_count);
    const gpu_session session;
    run_pes({.pe_count = pe_count, .adjust = on_nvidia}, [&](mori_shmem* context, int pe) {
      mori_shmem_report info{};
      info.struct_size = sizeof info;
      REQUIRE(failure(mori_shmem_info, context, &info) == "");
      CHECK(info.backend == MORI_BACKEND_NVIDIA);
      CHECK(info.gpu_ordinal == 0);
      CHECK(info.gpu_sharer_count == pe_count);

      uint64_t* const words = words_of(context, 8);
      std::array<uint64_t, 8> here{};
      REQUIRE(failure(mori_shmem_get, context, static_cast<void*>(here.data()),
                      static_cast<const void*>(words), uint64_t{64}, pe) == "");
      CHECK(here == std::array<uint64_t, 8>{});
      REQUIRE(failure(mori_shmem_barrier_all, context) == "");

      const int right = (pe + 1) % pe_count, left = (pe + pe_count - 1) % pe_count;
      const uint64_t mine = 1000 + static_cast<uint64_t>(pe);
      REQUIRE(failure(mori_shmem_put, context, static_cast<void*>(words),
                      static_cast<const void*>(&mine), uint64_t{8}, right) == "");
      mori_shmem_put_signal_args signal{.struct_size = sizeof signal,
                                        .target = words + 1,
                                        .source = &mine,
                                        .size_bytes = 8,
                                        .signal = words + 2,
                                        .signal_value = 5,
                                        .signal_op = MORI_SHMEM_SIGNAL_ADD,
                                        .pe = right};
      REQUIRE(failure(mori_shmem_put_signal, context, &signal) == "");
      uint64_t seen = 0;
      REQUIRE(wait(context,
                   {.address = words + 2, .value = 5, .compare = MORI_SHMEM_CMP_GE, .pe = left},
                   seen) == "");
      CHECK(seen == 5);
      uint64_t before = 0;
      CHECK(atomic(context, {.target = words + 3, .value = 1}, before) == "");
      CHECK(before < static_cast<uint64_t>(pe_count));
      REQUIRE(failure(mori_shmem_barrier_on_stream, context, static_cast<void*>(nullptr)) == "");
      REQUIRE(failure(mori_shmem_get, context, static_cast<void*>(here.data()),
                      static_cast<const void*>(words), uint64_t{64}, pe) == "");
      const uint64_t from_left = 1000 + static_cast<uint64_t>(left);
      CHECK(here[0] == from_left);
      CHECK(here[1] == from_left);
      CHECK(here[3] == (pe == 0 ? static_cast<uint64_t>(pe_count) : 0));
      REQUIRE(failure(mori_shmem_barrier_all, context) == "");
      CHECK(failure(mori_shmem_free, context, static_cast<void*>(words)) == "");
    });
    CHECK(session.world().seen.misplaced.empty());
    CHECK(session.world().seen.unrelaxed.empty());
  }
}

TEST_CASE("GPU: words of 4 bytes are compared unsigned, without their neighbours") {
  const gpu_session session;
  run_pes({.pe_count = 1, .adjust = on_nvidia}, [](mori_shmem* context, int) {
    auto* const words = reinterpret_cast<uint32_t*>(words_of(context, 1));
    const std::array<uint32_t, 2> both{0x80000001u, 7};
    REQUIRE(failure(mori_shmem_put, context, static_cast<void*>(words),
                    static_cast<const void*>(both.data()), uint64_t{8}, 0) == "");
    const auto met = [&](int32_t compare, uint64_t value) {
      uint64_t seen = 0;
      const std::string outcome = wait(context,
                                       {.address = words,
                                        .value = value,
                                        .compare = compare,
                                        .size_bytes = 4,
                                        .timeout_ns = 1'000'000},
                                       seen);
      CHECK((outcome == "" || contains(outcome, "MORI_E_TIMEOUT")));
      if (outcome == "") CHECK(seen == 0x80000001u);
      return outcome == "";
    };
    CHECK(met(MORI_SHMEM_CMP_EQ, 0x80000001u));
    CHECK(met(MORI_SHMEM_CMP_EQ, 0xff80000001u));  // the low 4 bytes count
    CHECK(met(MORI_SHMEM_CMP_GT, 1));
    CHECK(!met(MORI_SHMEM_CMP_LT, 1));
    CHECK(!met(MORI_SHMEM_CMP_NE, 0x80000001u));
    CHECK(met(MORI_SHMEM_CMP_LE, 0x80000001u));
    CHECK(met(MORI_SHMEM_CMP_GE, 0x80000001u));
    uint64_t before = 0;
    CHECK(atomic(context, {.target = words, .value = 0xff00000001u, .size_bytes = 4}, before) ==
          "");
    CHECK(before == 0x80000001u);
    std::array<uint32_t, 2> now{};
    REQUIRE(failure(mori_shmem_get, context, static_cast<void*>(now.data()),
                    static_cast<const void*>(words), uint64_t{8}, 0) == "");
    CHECK(now == std::array<uint32_t, 2>{0x80000002u, 7});
    // None of the timeouts was a fault of the context.
    CHECK(failure(mori_shmem_check, context) == "");
  });
}

TEST_CASE("GPU: a wait for a PE that has left fails, with what came before still seen") {
  const gpu_session session;
  run_pes({.pe_count = 2, .adjust = on_nvidia}, [](mori_shmem* context, int pe) {
    uint64_t* const words = words_of(context, 2);
    const uint64_t one = 1;
    if (pe == 1) {
      REQUIRE(failure(mori_shmem_put, context, static_cast<void*>(words),
                      static_cast<const void*>(&one), uint64_t{8}, 0) == "");
      mori_shmem_destroy(context);
      return;
    }
    uint64_t seen = 0;
    CHECK(wait(context, {.address = words, .value = 1, .pe = 1}, seen) == "");
    const auto begun = mori::base::now_ns();
    CHECK(contains(wait(context, {.address = words + 1, .value = 3, .pe = 1}, seen),
                   "MORI_E_PEER_DEAD: wait: PE 1 has left the group: expected 3, last saw 0"));
    CHECK(mori::base::now_ns() - begun < 10 * second_ns);
    CHECK(contains(failure(mori_shmem_check, context), "MORI_E_PEER_DEAD: wait: PE 1 has left"));
  });
}

TEST_CASE("GPU: an abort and a destruction end waits of other threads") {
  for (const bool destroys : {false, true}) {
    CAPTURE(destroys);
    const gpu_session session;
    run_pes({.pe_count = 2, .adjust = on_nvidia}, [&](mori_shmem* context, int pe) {
      uint64_t* const words = words_of(context, 1);
      std::thread other([&] {
        if (pe != 0) return;
        if (destroys)
          mori_shmem_destroy(context);
        else
          CHECK(failure(mori_shmem_abort, context) == "");
      });
      uint64_t seen = 0;
      const std::string outcome = wait(context, {.address = words, .value = 3, .pe = 0}, seen);
      other.join();
      CAPTURE(outcome);
      if (destroys && pe == 1)
        CHECK(contains(outcome, "MORI_E_PEER_DEAD"));
      else if (!destroys)
        CHECK(contains(outcome, "PE 0 aborted the context"));
      else
        CHECK((contains(outcome, "MORI_E_ABORTED") || contains(outcome, "MORI_E_STATE")));
    });
  }
}

TEST_CASE("GPU: the words that an alarm is copied from stay until it has been copied") {
  const gpu_session session;
  run_pes({.pe_count = 1, .adjust = on_nvidia}, [&](mori_shmem* context, int) {
    auto& counts = session.world().seen.counts;
    const int copied = counts["cuMemcpyAsync"];
    CHECK(failure(mori_shmem_abort, context) == "");
    CHECK(counts["cuMemcpyAsync"] == copied + 1);
    const int awaited = counts["cuStreamSynchronize"];
    mori_shmem_destroy(context);
    CHECK(counts["cuStreamSynchronize"] == awaited + 1);
  });
}

TEST_CASE("GPU: a peer that cannot be mapped is reached by the network, and says why") {
  const gpu_session session;
  session.world().set.faults["cuMemImportFromShareableHandle"] = 999;
  std::array<std::string, 2> reasons;
  run_pes({.pe_count = 2, .adjust = on_nvidia}, [&](mori_shmem* context, int pe) {
    mori_shmem_peer_report peer{};
    peer.struct_size = sizeof peer;
    REQUIRE(failure(mori_shmem_peer_info, context, 1 - pe, &peer) == "");
    reasons[static_cast<size_t>(pe)] = peer.reason;
    uint64_t* const words = words_of(context, 1);
    const uint64_t mine = 7 + static_cast<uint64_t>(pe);
    REQUIRE(failure(mori_shmem_put, context, static_cast<void*>(words),
                    static_cast<const void*>(&mine), uint64_t{8}, 1 - pe) == "");
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    uint64_t seen = 0;
    REQUIRE(failure(mori_shmem_get, context, static_cast<void*>(&seen),
                    static_cast<const void*>(words), uint64_t{8}, pe) == "");
    CHECK(seen == 8 - static_cast<uint64_t>(pe));
  });
  const std::string proven = "P2P: GPU memory by descriptor, proven by a nonce";
  CHECK((reasons[0] == proven) != (reasons[1] == proven));
  const std::string other = reasons[0] == proven ? reasons[1] : reasons[0];
  CHECK(contains(other,
                 "TCP: 1 data connection; P2P: cuMemImportFromShareableHandle: "
                 "CUDA_ERROR_UNKNOWN (999)"));
}

TEST_CASE("GPU: heaps of a node lie at one stride, as far as they are mapped") {
  for (const bool breaks : {false, true}) {
    const gpu_session session;
    if (breaks) session.world().set.faults["cuMemImportFromShareableHandle"] = 999;
    std::atomic<int> shorter{0};
    run_pes({.pe_count = 3, .adjust = on_nvidia}, [&](mori_shmem* context, int pe) {
      mori_shmem_device_state_v2 state{};
      REQUIRE(failure(mori_shmem_device_state, static_cast<const mori_shmem*>(context), 2u,
                      static_cast<void*>(&state), uint64_t{sizeof state}) == "");
      CHECK(state.strided_first <= pe);
      CHECK(state.strided_first + static_cast<int>(state.strided_count) > pe);
      shorter += state.strided_count != 3 ? 1 : 0;
      auto* const word = words_of(context, 1);
      for (int other = 0; other < 3; ++other) {
        void* there = nullptr;
        REQUIRE(failure(mori_shmem_ptr_p2p, static_cast<const mori_shmem*>(context),
                        static_cast<const void*>(word), other, &there) == "");
        const bool is_strided = other >= state.strided_first &&
                                other < state.strided_first + static_cast<int>(state.strided_count);
        if (is_strided)
          CHECK(reinterpret_cast<uint64_t>(there) ==
                reinterpret_cast<uint64_t>(word) +
                    static_cast<uint64_t>(int64_t{other} - pe) * state.peer_stride);
        else
          CHECK(breaks);
      }
      CHECK(failure(mori_shmem_barrier_all, context) == "");
    });
    CHECK(shorter == (breaks ? 1 : 0));
  }
}

TEST_CASE("GPU: whichever driver call fails, all PEs are told, at once, and nothing is left") {
  for (int step = 1;; ++step) {
    CAPTURE(step);
    const gpu_session session;
    mori_shmem_unique_id id{};
    REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
    session.world().set.fail_at = step;
    std::array<std::string, 2> outcomes;
    std::array<mori_shmem*, 2> contexts{};
    const auto begun = mori::base::now_ns();
    std::vector<std::thread> threads;
    for (size_t pe = 0; pe < 2; ++pe)
      threads.emplace_back([&, pe] {
        mori_shmem_options with = options(static_cast<int>(pe), 2);
        on_nvidia(with);
        outcomes[pe] = failure(mori_shmem_create, &id, &with, &contexts[pe]);
      });
    for (auto& thread : threads) thread.join();
    CHECK(mori::base::now_ns() - begun < 10 * second_ns);
    CHECK((outcomes[0] == "") == (outcomes[1] == ""));
    for (mori_shmem* context : contexts) mori_shmem_destroy(context);
    if (session.world().seen.failed.empty()) break;
    REQUIRE(step < 1000);
  }
}

namespace {

// A context on device `pe` of a node of its own.
mori::base::result<std::shared_ptr<mori::shmem_core::context>> on_own_node(
    const mori::link::unique_id& id, int pe, int ordinal) {
  driver().here().device = ordinal;
  mori_shmem_options with = options(pe, 2);
  on_nvidia(with);
  auto settings = mori::shmem_core::read_settings(&with);
  REQUIRE(settings);
  settings->node_id = "node " + std::to_string(pe);
  return mori::shmem_core::context::create(id, *settings);
}

}  // namespace

TEST_CASE("GPU: nodes of one machine count as sharers of a device") {
  const gpu_session session;
  const auto id = mori::link::make_unique_id();
  REQUIRE(id);
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 2; ++pe)
    threads.emplace_back([&, pe] {
      const auto made = on_own_node(*id, pe, 0);
      REQUIRE_MESSAGE(made, made.error().text);
      CHECK((*made)->info().gpu_sharer_count == 2);
      CHECK((*made)->info().local_pe_count == 1);
      CHECK((*made)->peer_info(1 - pe)->transport == MORI_SHMEM_TRANSPORT_TCP);
      CHECK((*made)->barrier_all());
    });
  for (auto& thread : threads) thread.join();
}

// From here on device 1: it is the first to look at it, and finds no descriptors there.
TEST_CASE("GPU: nodes whose devices share memory in different ways join one group") {
  const gpu_session session;
  const auto id = mori::link::make_unique_id();
  REQUIRE(id);
  session.world().set.has_virtual_memory = false;
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 2; ++pe)
    threads.emplace_back([&, pe] {
      const auto made = on_own_node(*id, pe, pe);
      CHECK_MESSAGE(made, made.error().text);
      if (made) CHECK((*made)->barrier_all());
    });
  for (auto& thread : threads) thread.join();
}

TEST_CASE("GPU: an alignment that a heap does not have where its driver put it is refused") {
  const gpu_session session;
  session.world().set.has_virtual_memory = false;
  std::array<std::vector<std::string>, 2> outcomes;
  const auto on_device_1 = [](mori_shmem_options& with) {
    on_nvidia(with);
    driver().here().device = 1;
  };
  run_pes({.pe_count = 2, .adjust = on_device_1}, [&](mori_shmem* context, int pe) {
    for (uint64_t alignment = 256; alignment <= 2 << 20; alignment *= 2) {
      CAPTURE(alignment);
      void* made = nullptr;
      const std::string outcome =
          failure(mori_shmem_malloc_align, context, alignment, uint64_t{64}, &made);
      if (outcome == "")
        CHECK(reinterpret_cast<uint64_t>(made) % alignment == 0);
      else
        CHECK(contains(outcome, "its heap begins at"));
      CHECK((outcome == "" || contains(outcome, "MORI_E_UNAVAILABLE: ")));
      CHECK(failure(mori_shmem_free, context, made) == "");
      outcomes[static_cast<size_t>(pe)].push_back(outcome == "" ? "" : "refused");
    }
    CHECK(failure(mori_shmem_barrier_all, context) == "");
  });
  CHECK(outcomes[0] == outcomes[1]);
  CHECK(outcomes[0].front() == "");
}
