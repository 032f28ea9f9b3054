// Tests of contexts through the C ABI, PEs as threads: life and death of
// handles, collective allocation and its refusals, translation, registration,
// faults that end every wait, several groups at once.
#include "pes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

using namespace mori_test;

TEST_CASE("a group of one: info, allocation, free, statistics") {
  run_pes({.pe_count = 1}, [](mori_shmem* context, int) {
    mori_shmem_report info{};
    info.struct_size = sizeof info;
    REQUIRE(failure(mori_shmem_info, context, &info) == "");
    CHECK(info.pe == 0);
    CHECK(info.pe_count == 1);
    CHECK(info.local_pe_count == 1);
    CHECK(info.backend == MORI_BACKEND_HOST);
    CHECK(info.heap_bytes == 4 << 20);
    CHECK(info.used_bytes == 0);
    CHECK(info.worker_count >= 1);
    const uint64_t room = info.largest_free_bytes;

    void* all = nullptr;
    REQUIRE(failure(mori_shmem_malloc, context, room, &all) == "");
    void* more = &info;
    const std::string full = failure(mori_shmem_malloc, context, uint64_t{1}, &more);
    CHECK(contains(full, "MORI_E_NO_MEMORY: heap exhausted: 1 bytes asked for"));
    CHECK(more == nullptr);
    static_cast<char*>(all)[room - 1] = 1;
    CHECK(failure(mori_shmem_free, context, all) == "");
    CHECK(contains(failure(mori_shmem_free, context, all), "MORI_E_NOT_FOUND"));
    // Pages went back and read as zero again.
    REQUIRE(failure(mori_shmem_malloc, context, room, &all) == "");
    CHECK(static_cast<char*>(all)[room - 1] == 0);
    CHECK(failure(mori_shmem_free, context, all) == "");

    void* nothing = &info;
    CHECK(failure(mori_shmem_malloc, context, uint64_t{0}, &nothing) == "");
    CHECK(nothing == nullptr);
    CHECK(failure(mori_shmem_free, context, static_cast<void*>(nullptr)) == "");
    int local = 0;
    CHECK(contains(failure(mori_shmem_free, context, static_cast<void*>(&local)),
                   "is not in this PE's symmetric heap"));
    void* aligned = nullptr;
    REQUIRE(failure(mori_shmem_malloc_align, context, uint64_t{1} << 16, uint64_t{100}, &aligned) ==
            "");
    mori_shmem_device_state_v1 state{};
    REQUIRE(failure(mori_shmem_device_state, context, 1u, static_cast<void*>(&state),
                    uint64_t{sizeof state}) == "");
    CHECK((reinterpret_cast<uint64_t>(aligned) - state.heap_base) % (1 << 16) == 0);
    CHECK(reinterpret_cast<uint64_t>(aligned) % (1 << 16) == 0);
    CHECK(contains(failure(mori_shmem_malloc_align, context, uint64_t{3}, uint64_t{100}, &aligned),
                   "alignment 3 is not a power of two"));
    CHECK(contains(failure(mori_shmem_malloc_align, context, uint64_t{3}, uint64_t{0}, &aligned),
                   "alignment 3 is not a power of two"));
    CHECK(contains(failure(mori_shmem_device_state, context, 3u, static_cast<void*>(&state),
                           uint64_t{sizeof state}),
                   "device level 3 is outside 1 .. 2"));
    CHECK(contains(failure(mori_shmem_device_state, context, 2u, static_cast<void*>(&state),
                           uint64_t{sizeof state}),
                   "state_bytes is 96, level 2 has 128"));
    mori_shmem_device_state_v2 newer{};
    REQUIRE(failure(mori_shmem_device_state, context, 2u, static_cast<void*>(&newer),
                    uint64_t{sizeof newer}) == "");
    CHECK(newer.struct_size == sizeof newer);
    CHECK(newer.level == 2);
    CHECK(state.struct_size == sizeof state);
    CHECK(state.level == 1);
    CHECK(newer.heap_base == state.heap_base);
    CHECK(newer.peer_left == state.peer_left);
    CHECK(newer.all_mapped == 1);
    CHECK(newer.ring_count == 0);
    CHECK(failure(mori_shmem_barrier_all, context) == "");
  });
}

TEST_CASE("options out of range name value and limit") {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  const auto refused = [&](auto&& change) {
    mori_shmem_options with = options(0, 1);
    change(with);
    mori_shmem* context = reinterpret_cast<mori_shmem*>(&id);
    const std::string text = failure(mori_shmem_create, &id, &with, &context);
    CHECK(context == nullptr);
    return text;
  };
  using o = mori_shmem_options;
  CHECK(contains(refused([](o& x) { x.pe = 1; }), "pe 1 is outside 0 .. 0"));
  CHECK(contains(refused([](o& x) { x.pe = -1; }), "pe -1 is outside 0 .. 0"));
  CHECK(contains(refused([](o& x) { x.pe_count = 0; }), "pe_count 0 is outside 1 .. 4096"));
  CHECK(contains(refused([](o& x) { x.pe_count = 4097; }), "pe_count 4097"));
  CHECK(contains(refused([](o& x) { x.backend = 4; }), "backend 4"));
  CHECK(contains(refused([](o& x) { x.backend = MORI_BACKEND_AMD; }), "MORI_E_UNAVAILABLE"));
  CHECK(contains(refused([](o& x) { x.heap_mode = 9; }), "heap_mode 9"));
  CHECK(contains(refused([](o& x) {
                   x.heap_mode = MORI_SHMEM_HEAP_ISOLATION;
                   x.backend = MORI_BACKEND_AMD;
                 }),
                 "MORI_E_UNSUPPORTED: heap mode isolation on a GPU"));
  CHECK(contains(refused([](o& x) { x.heap_bytes = 65'535; }), "heap size of 65535 bytes"));
  CHECK(contains(refused([](o& x) { x.heap_bytes = UINT64_MAX; }), "heap size of"));
  CHECK(contains(refused([](o& x) { x.heartbeat_timeout_ns = 1; }), "heartbeat timeout of 1 ns"));
  CHECK(contains(refused([](o& x) { x.disable_p2p = 2; }), "disable_p2p 2"));
  CHECK(contains(refused([](o& x) { x.worker_count = -1; }), "worker_count -1"));
  CHECK(contains(refused([](o& x) { x.struct_size = 8; }), "struct_size is 8"));
  setenv("MORI_SHMEM_MODE", "bogus", 1);
  CHECK(contains(refused([](o&) {}), "MORI_SHMEM_MODE='bogus'"));
  unsetenv("MORI_SHMEM_MODE");
  setenv("MORI_SHMEM_HEAP_SIZE", "6 apples", 1);
  CHECK(contains(refused([](o& x) { x.heap_bytes = 0; }), "MORI_SHMEM_HEAP_SIZE"));
  unsetenv("MORI_SHMEM_HEAP_SIZE");
}

TEST_CASE("handles: NULL, foreign and destroyed ones are a status, destroy is idempotent") {
  int32_t pe = 7;
  CHECK(contains(failure(mori_shmem_my_pe, static_cast<const mori_shmem*>(nullptr), &pe),
                 "MORI_E_STATE"));
  CHECK(contains(failure(mori_shmem_my_pe, reinterpret_cast<const mori_shmem*>(&pe), &pe),
                 "MORI_E_STATE"));
  mori_shmem* kept = nullptr;
  run_pes({.pe_count = 1}, [&](mori_shmem* context, int) { kept = context; });
  CHECK(contains(failure(mori_shmem_my_pe, static_cast<const mori_shmem*>(kept), &pe),
                 "has been destroyed"));
  CHECK(contains(failure(mori_shmem_barrier_all, kept), "MORI_E_STATE"));
  CHECK(pe == 7);
  mori_shmem_destroy(kept);
  mori_shmem_destroy(nullptr);
}

TEST_CASE("a forked child may not use the context, the parent goes on" *
          doctest::skip(under_tsan)) {
  run_pes({.pe_count = 1}, [](mori_shmem* context, int) {
    const pid_t child = fork();
    if (child == 0) {
      int32_t pe = 0;
      const std::string text =
          failure(mori_shmem_my_pe, static_cast<const mori_shmem*>(context), &pe);
      mori_shmem_destroy(context);
      _exit(contains(text, "made before fork()") ? 0 : 1);
    }
    int state = 1;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(state == 0);
    CHECK(failure(mori_shmem_barrier_all, context) == "");
  });
}

TEST_CASE("allocation is the same on all PEs, or refused on all") {
  for (const int pe_count : {2, 3, 5})
    run_pes({.pe_count = pe_count}, [pe_count](mori_shmem* context, int pe) {
      const bool odd_one = pe == pe_count - 1;
      void* memory = nullptr;
      std::string text =
          failure(mori_shmem_malloc, context, uint64_t{odd_one ? 512u : 1024u}, &memory);
      CHECK(contains(text, "MORI_E_MISMATCH: malloc: 1024 bytes asked for on PE 0, 512 on PE " +
                               std::to_string(pe_count - 1)));
      CHECK(memory == nullptr);
      text = failure(mori_shmem_malloc_align, context, uint64_t{odd_one ? 512u : 1024u},
                     uint64_t{64}, &memory);
      CHECK(contains(text, "MORI_E_MISMATCH: malloc: alignment 1024"));

      // Nothing was taken, and the next one works.
      void* first = nullptr;
      REQUIRE(failure(mori_shmem_malloc, context, uint64_t{100}, &first) == "");
      void* second = nullptr;
      REQUIRE(failure(mori_shmem_malloc, context, uint64_t{100}, &second) == "");
      // One PE frees another block than the rest: seen at the next malloc.
      CHECK(failure(mori_shmem_free, context, odd_one ? first : second) == "");
      text = failure(mori_shmem_malloc, context, uint64_t{100}, &memory);
      CHECK(contains(text, "have freed different allocations"));
      CHECK(failure(mori_shmem_free, context, odd_one ? second : first) == "");
      CHECK(failure(mori_shmem_malloc, context, uint64_t{100}, &memory) == "");
      CHECK(memory == first);
    });
}

TEST_CASE("PEs that disagree on the heap's size all fail to create") {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 3; ++pe)
    threads.emplace_back([&id, pe] {
      mori_shmem_options mine = options(pe, 3);
      if (pe == 2) mine.heap_bytes *= 2;
      mori_shmem* context = nullptr;
      CHECK(contains(failure(mori_shmem_create, &id, &mine, &context),
                     "MORI_E_MISMATCH: heap size differs: 4194304 bytes on PE 0, 8388608 on PE 2"));
      CHECK(context == nullptr);
    });
  for (auto& thread : threads) thread.join();
}

TEST_CASE("PEs that disagree on P2P all fail to create, and say so") {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 2; ++pe)
    threads.emplace_back([&id, pe] {
      mori_shmem_options mine = options(pe, 2);
      mine.disable_p2p = pe;
      mori_shmem* context = nullptr;
      CHECK(failure(mori_shmem_create, &id, &mine, &context) ==
            "MORI_E_MISMATCH: disable_p2p differs: 0 on PE 0, 1 on PE 1");
    });
  for (auto& thread : threads) thread.join();
}

TEST_CASE("stores through ptr_p2p arrive; bounds of pe and pointer") {
  run_pes({.pe_count = 3}, [](mori_shmem* context, int pe) {
    void* memory = nullptr;
    REQUIRE(failure(mori_shmem_malloc, context, uint64_t{256}, &memory) == "");
    auto* words = static_cast<int*>(memory);
    for (int to = 0; to < 3; ++to) {
      void* there = nullptr;
      REQUIRE(failure(mori_shmem_ptr_p2p, static_cast<const mori_shmem*>(context),
                      static_cast<const void*>(words + pe), to, &there) == "");
      CHECK((to == pe) == (there == words + pe));
      *static_cast<int*>(there) = 100 * to + pe;
    }
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    for (int from = 0; from < 3; ++from) CHECK(words[from] == 100 * pe + from);
    const auto refused = [&](const void* pointer, int to) {
      void* there = nullptr;
      return failure(mori_shmem_ptr_p2p, static_cast<const mori_shmem*>(context), pointer, to,
                     &there);
    };
    CHECK(contains(refused(memory, 3), "pe 3 is outside 0 .. 2"));
    CHECK(contains(refused(memory, -1), "pe -1 is outside 0 .. 2"));
    CHECK(contains(refused(&pe, 1), "outside this PE's heap"));
    mori_shmem_peer_report peer{};
    peer.struct_size = sizeof peer;
    REQUIRE(failure(mori_shmem_peer_info, static_cast<const mori_shmem*>(context), 1, &peer) == "");
    CHECK(peer.transport == MORI_SHMEM_TRANSPORT_P2P);
    CHECK(peer.os_process_id == getpid());
  });
}

TEST_CASE("with P2P disabled no peer is mapped, and the network reaches all") {
  run_pes({.pe_count = 2, .adjust = [](mori_shmem_options& o) { o.disable_p2p = 1; }},
          [](mori_shmem* context, int pe) {
            void* memory = nullptr;
            REQUIRE(failure(mori_shmem_malloc, context, uint64_t{64}, &memory) == "");
            void* there = &memory;
            CHECK(failure(mori_shmem_ptr_p2p, static_cast<const mori_shmem*>(context),
                          static_cast<const void*>(memory), 1 - pe, &there) == "");
            CHECK(there == nullptr);
            CHECK(failure(mori_shmem_put, context, memory, static_cast<const void*>(&pe),
                          uint64_t{4}, 1 - pe) == "");
            CHECK(failure(mori_shmem_barrier_all, context) == "");
            CHECK(*static_cast<int*>(memory) == 1 - pe);
            mori_shmem_peer_report peer{};
            peer.struct_size = sizeof peer;
            CHECK(failure(mori_shmem_peer_info, static_cast<const mori_shmem*>(context), 1 - pe,
                          &peer) == "");
            CHECK(peer.transport == MORI_SHMEM_TRANSPORT_TCP);
            CHECK(std::string(peer.reason) == "TCP: 1 data connection; P2P: P2P is disabled");
          });
}

TEST_CASE("registration: overlap, unknown and empty ranges are refused") {
  run_pes({.pe_count = 1}, [](mori_shmem* context, int) {
    char buffer[100];
    const auto add = [&](char* at, uint64_t bytes) {
      return failure(mori_shmem_buffer_register, context, static_cast<void*>(at), bytes);
    };
    CHECK(add(buffer + 10, 10) == "");
    CHECK(contains(add(buffer + 19, 1), "overlaps a registered one"));
    CHECK(contains(add(buffer, 11), "overlaps a registered one"));
    CHECK(add(buffer, 10) == "");
    CHECK(add(buffer + 20, 10) == "");
    CHECK(contains(add(buffer, 0), "is not a range"));
    CHECK(contains(add(nullptr, 1), "is not a range"));
    CHECK(contains(add(buffer, UINT64_MAX), "is not a range"));
    CHECK(contains(failure(mori_shmem_buffer_deregister, context, static_cast<void*>(buffer + 10),
                           uint64_t{9}),
                   "is not registered"));
    CHECK(failure(mori_shmem_buffer_deregister, context, static_cast<void*>(buffer + 10),
                  uint64_t{10}) == "");
    CHECK(add(buffer + 10, 10) == "");
  });
}

TEST_CASE("two groups side by side, and a second life with another size") {
  for (const uint64_t heap : {uint64_t{1} << 20, uint64_t{8} << 20})
    run_pes({.pe_count = 2, .adjust = [heap](mori_shmem_options& o) { o.heap_bytes = heap; }},
            [heap](mori_shmem* outer, int) {
              mori_shmem_report info{};
              info.struct_size = sizeof info;
              CHECK(failure(mori_shmem_info, static_cast<const mori_shmem*>(outer), &info) == "");
              CHECK(info.heap_bytes == heap);
              run_pes({.pe_count = 3}, [](mori_shmem* inner, int) {
                void* memory = nullptr;
                CHECK(failure(mori_shmem_malloc, inner, uint64_t{10}, &memory) == "");
              });
              CHECK(failure(mori_shmem_barrier_all, outer) == "");
            });
}

TEST_CASE("abort ends the waits of all PEs and is final") {
  run_pes({.pe_count = 3}, [](mori_shmem* context, int pe) {
    if (pe == 1) {
      CHECK(failure(mori_shmem_abort, context) == "");
      CHECK(contains(failure(mori_shmem_check, static_cast<const mori_shmem*>(context)),
                     "MORI_E_ABORTED: PE 1 aborted the context"));
    } else {
      const std::string text = failure(mori_shmem_barrier_all, context);
      CHECK(contains(text, "MORI_E_ABORTED"));
      CHECK(contains(text, "PE 1"));
    }
    void* memory = nullptr;
    CHECK(contains(failure(mori_shmem_malloc, context, uint64_t{8}, &memory), "MORI_E_ABORTED"));
    CHECK(contains(failure(mori_shmem_quiet, context), "MORI_E_ABORTED"));
  });
}

TEST_CASE("an abort as soon as create returns: create has succeeded on all PEs") {
  for (int round = 0; round < 30; ++round)
    run_pes({.pe_count = 6}, [round](mori_shmem* context, int pe) {
      if (pe == round % 6) CHECK(failure(mori_shmem_abort, context) == "");
      CHECK(contains(failure(mori_shmem_barrier_all, context), "MORI_E_ABORTED"));
    });
}

TEST_CASE("64 PEs as threads of one process, heaps of the smallest size") {
  run_pes({.pe_count = 64, .adjust = [](mori_shmem_options& o) { o.heap_bytes = 64 << 10; }},
          [](mori_shmem* context, int pe) {
            void* memory = nullptr;
            REQUIRE(failure(mori_shmem_malloc, context, uint64_t{64} * 4, &memory) == "");
            const int next = (pe + 1) % 64;
            CHECK(failure(mori_shmem_put, context, static_cast<int*>(memory) + pe,
                          static_cast<const void*>(&pe), uint64_t{4}, next) == "");
            CHECK(failure(mori_shmem_barrier_all, context) == "");
            const int previous = (pe + 63) % 64;
            CHECK(static_cast<int*>(memory)[previous] == previous);
          });
}

TEST_CASE("a PE that never comes to the barrier is named when the deadline passes") {
  run_pes(
      {.pe_count = 2, .adjust = [](mori_shmem_options& o) { o.wait_timeout_ns = second_ns / 5; }},
      [](mori_shmem* context, int pe) {
        if (pe == 0) {
          const std::string text = failure(mori_shmem_barrier_all, context);
          CHECK(contains(text, "MORI_E_TIMEOUT"));
          CHECK(contains(text, "PE 1"));
          CHECK(failure(mori_shmem_barrier_all, context) == text);  // sticky
        } else {
          // Told by the one that gave up.
          mori_shmem_wait_args wait{};
          wait.struct_size = sizeof wait;
          void* word = nullptr;
          mori_shmem_device_state_v1 state{};
          REQUIRE(failure(mori_shmem_device_state, static_cast<const mori_shmem*>(context), 1u,
                          static_cast<void*>(&state), uint64_t{sizeof state}) == "");
          word = reinterpret_cast<void*>(state.heap_base + sizeof(mori_shmem_sync_v1));
          wait.address = word;
          wait.size_bytes = 8;
          wait.value = 1;
          wait.compare = MORI_SHMEM_CMP_EQ;
          wait.pe = 0;
          wait.timeout_ns = 10 * second_ns;
          const std::string text =
              failure(mori_shmem_wait_until, context, &wait, static_cast<uint64_t*>(nullptr));
          CHECK(contains(text, "MORI_E_ABORTED"));
          CHECK(contains(text, "waiting for PE 1"));
        }
      });
}

TEST_CASE("a PE that left is named at once by a wait for it, and harms nobody else") {
  std::atomic<bool> gone{false};
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 2; ++pe)
    threads.emplace_back([&, pe] {
      mori_shmem_options mine = options(pe, 2);
      mori_shmem* context = nullptr;
      CHECK(failure(mori_shmem_create, &id, &mine, &context) == "");
      if (pe == 1) {
        mori_shmem_destroy(context);
        gone = true;
        return;
      }
      while (!gone) std::this_thread::yield();
      const std::string text = failure(mori_shmem_barrier_all, context);
      CHECK(contains(text, "MORI_E_PEER_DEAD"));
      CHECK(contains(text, "PE 1 has left"));
      mori_shmem_destroy(context);
    });
  for (auto& thread : threads) thread.join();
}

TEST_CASE("a lease keeps the memory of a destroyed context readable") {
  mori_shmem_lease* lease = nullptr;
  uint64_t* word = nullptr;
  run_pes({.pe_count = 1}, [&](mori_shmem* context, int) {
    void* memory = nullptr;
    REQUIRE(failure(mori_shmem_malloc, context, uint64_t{8}, &memory) == "");
    word = static_cast<uint64_t*>(memory);
    *word = 42;
    CHECK(failure(mori_shmem_lease_create, static_cast<const mori_shmem*>(context), &lease) == "");
  });
  REQUIRE(lease != nullptr);
  CHECK(*word == 42);
  mori_shmem_lease_destroy(lease);
  mori_shmem_lease_destroy(lease);
  mori_shmem_lease_destroy(nullptr);
  CHECK(contains(failure(mori_shmem_lease_create, static_cast<const mori_shmem*>(nullptr), &lease),
                 "MORI_E_STATE"));
  CHECK(lease == nullptr);
}

TEST_CASE("destroying a context ends the waits of its other threads") {
  run_pes({.pe_count = 2}, [](mori_shmem* context, int pe) {
    if (pe != 0) return;
    mori_shmem_device_state_v1 state{};
    REQUIRE(failure(mori_shmem_device_state, static_cast<const mori_shmem*>(context), 1u,
                    static_cast<void*>(&state), uint64_t{sizeof state}) == "");
    const auto* sync = reinterpret_cast<const mori_shmem_sync_v1*>(state.heap_base);
    std::string text;
    std::thread waiter([&] { text = failure(mori_shmem_barrier_all, context); });
    // It has begun once its epoch has moved; PE 1 never comes.
    while (__atomic_load_n(&sync->host_epoch, __ATOMIC_RELAXED) == 0) std::this_thread::yield();
    mori_shmem_destroy(context);
    waiter.join();
    CHECK(contains(text, "MORI_E_ABORTED"));
    CHECK(contains(text, "destroyed while in use"));
  });
}
