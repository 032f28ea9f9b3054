// Tests of the host calls that move data: put, get, put-with-signal, atomics,
// waits, barrier; their bounds; and what they do between PEs as threads.
#include "pes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

using namespace mori_test;

namespace {

template <class T>
T* allocate(mori_shmem* context, uint64_t count) {
  void* memory = nullptr;
  REQUIRE(failure(mori_shmem_malloc, context, count * sizeof(T), &memory) == "");
  return static_cast<T*>(memory);
}

std::string put(mori_shmem* c, void* target, const void* source, uint64_t bytes, int pe) {
  return failure(mori_shmem_put, c, target, source, bytes, pe);
}
std::string get(mori_shmem* c, void* target, const void* source, uint64_t bytes, int pe) {
  return failure(mori_shmem_get, c, target, source, bytes, pe);
}

std::string wait_for(mori_shmem* c, const void* word, int32_t compare, uint64_t value, int from,
                     uint64_t* seen = nullptr) {
  mori_shmem_wait_args args{};
  args.struct_size = sizeof args;
  args.address = word;
  args.size_bytes = 8;
  args.compare = compare;
  args.value = value;
  args.pe = from;
  return failure(mori_shmem_wait_until, c, &args, seen);
}

}  // namespace

TEST_CASE("put and get of every size around the boundaries, to every PE") {
  run_pes({.pe_count = 3}, [](mori_shmem* c, int pe) {
    constexpr uint64_t room = 70'000;
    auto* inbox = allocate<unsigned char>(c, 3 * room);  // one part for each sender
    std::vector<unsigned char> source(room);
    std::vector<unsigned char> back(room);
    for (const uint64_t bytes :
         {0u, 1u, 7u, 8u, 15u, 16u, 17u, 255u, 4096u, 4097u, 69'999u, 70'000u}) {
      for (uint64_t i = 0; i < bytes; ++i)
        source[i] = static_cast<unsigned char>(i * 7 + static_cast<uint64_t>(pe) + bytes);
      for (int to = 0; to < 3; ++to)
        CHECK(put(c, inbox + static_cast<uint64_t>(pe) * room, source.data(), bytes, to) == "");
      CHECK(failure(mori_shmem_quiet, c) == "");
      CHECK(failure(mori_shmem_barrier_all, c) == "");
      for (int from = 0; from < 3; ++from)
        for (uint64_t i = 0; i < bytes; ++i)
          REQUIRE(inbox[static_cast<uint64_t>(from) * room + i] ==
                  static_cast<unsigned char>(i * 7 + static_cast<uint64_t>(from) + bytes));
      std::ranges::fill(back, 0);
      CHECK(get(c, back.data(), inbox + static_cast<uint64_t>(pe) * room, bytes, (pe + 1) % 3) ==
            "");
      CHECK(std::equal(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(bytes),
                       source.begin()));
      CHECK(failure(mori_shmem_barrier_all, c) == "");
    }
  });
}

TEST_CASE("ranges outside the heap and bad PEs are refused and touch nothing") {
  run_pes({.pe_count = 2}, [](mori_shmem* c, int pe) {
    auto* words = allocate<uint64_t>(c, 4);
    mori_shmem_device_state_v1 state{};
    REQUIRE(failure(mori_shmem_device_state, static_cast<const mori_shmem*>(c), 1u,
                    static_cast<void*>(&state), uint64_t{sizeof state}) == "");
    auto* end = reinterpret_cast<char*>(state.heap_base + state.heap_bytes);
    uint64_t value = 5;
    const int to = 1 - pe;
    CHECK(contains(put(c, &value, words, 8, to), "MORI_E_NOT_FOUND"));
    CHECK(contains(put(c, end - 8, words, 9, to), "outside this PE's heap"));
    CHECK(contains(put(c, words, words, UINT64_MAX, to), "outside this PE's heap"));
    CHECK(contains(put(c, end, words, 0, to), "MORI_E_NOT_FOUND"));
    CHECK(contains(put(c, words, &value, 8, 2), "pe 2 is outside 0 .. 1"));
    CHECK(contains(put(c, words, &value, 8, -1), "pe -1 is outside 0 .. 1"));
    CHECK(contains(put(c, words, nullptr, 8, to), "source is NULL"));
    CHECK(contains(get(c, &value, &value, 8, to), "MORI_E_NOT_FOUND"));
    CHECK(contains(get(c, nullptr, words, 8, to), "target is NULL"));
    CHECK(words[0] == 0);
    CHECK(failure(mori_shmem_check, static_cast<const mori_shmem*>(c)) == "");  // not sticky
  });
}

TEST_CASE("put with signal: data before signal, SET and ADD, zero bytes, bad arguments") {
  run_pes({.pe_count = 2}, [](mori_shmem* c, int pe) {
    constexpr int rounds = 500;
    auto* data = allocate<uint64_t>(c, 512);
    auto* signal = allocate<uint64_t>(c, 1);
    const int to = 1 - pe;
    std::array<uint64_t, 512> source{};
    mori_shmem_put_signal_args args{};
    args.struct_size = sizeof args;
    args.target = data;
    args.source = source.data();
    args.size_bytes = sizeof source;
    args.signal = signal;
    args.signal_op = MORI_SHMEM_SIGNAL_SET;
    args.pe = to;
    for (uint64_t round = 1; round <= rounds; ++round) {
      if (pe == 1) {
        REQUIRE(wait_for(c, signal, MORI_SHMEM_CMP_GE, round, to) == "");
        for (const uint64_t word : std::span(data, 512)) REQUIRE(word == round);
      }
      source.fill(round);
      args.signal_value = round;
      REQUIRE(failure(mori_shmem_put_signal, c,
                      static_cast<const mori_shmem_put_signal_args*>(&args)) == "");
      if (pe == 0) {
        REQUIRE(wait_for(c, signal, MORI_SHMEM_CMP_GE, round, to) == "");
        for (const uint64_t word : std::span(data, 512)) REQUIRE(word == round);
      }
    }
    args.size_bytes = 0;
    args.source = nullptr;
    args.signal_op = MORI_SHMEM_SIGNAL_ADD;
    args.signal_value = 1000;
    const auto send = [&] {
      return failure(mori_shmem_put_signal, c,
                     static_cast<const mori_shmem_put_signal_args*>(&args));
    };
    CHECK(send() == "");
    uint64_t seen = 0;
    CHECK(wait_for(c, signal, MORI_SHMEM_CMP_EQ, rounds + 1000, to, &seen) == "");
    CHECK(seen == rounds + 1000);
    args.signal_op = 3;
    CHECK(contains(send(), "signal_op 3 is neither MORI_SHMEM_SIGNAL_SET (9) nor"));
    args.signal_op = MORI_SHMEM_SIGNAL_SET;
    args.signal = reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(signal) + 4);
    CHECK(contains(send(), "not aligned to 8"));
    args.signal = &seen;
    CHECK(contains(send(), "MORI_E_NOT_FOUND"));
  });
}

TEST_CASE("atomics: every operation on both widths, before-values, unknown operations") {
  run_pes({.pe_count = 2}, [](mori_shmem* c, int pe) {
    auto* words = allocate<uint64_t>(c, 4);
    mori_shmem_atomic_args args{};
    args.struct_size = sizeof args;
    args.target = words + pe;  // on the peer: nobody else's word
    args.pe = 1 - pe;
    const auto run = [&](uint64_t bytes, int32_t op, uint64_t value, uint64_t compare,
                         uint64_t expect_before, uint64_t expect_after) {
      args.size_bytes = bytes;
      args.op = op;
      args.value = value;
      args.compare = compare;
      uint64_t before = 0;
      CHECK(failure(mori_shmem_atomic, c, static_cast<const mori_shmem_atomic_args*>(&args),
                    &before) == "");
      if (op >= MORI_SHMEM_AMO_FETCH) CHECK(before == expect_before);
      uint64_t now = 0;
      CHECK(get(c, &now, args.target, 8, args.pe) == "");
      CHECK(now == expect_after);
    };
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{4}}) {
      run(bytes, MORI_SHMEM_AMO_SET, 5, 0, 0, 5);
      run(bytes, MORI_SHMEM_AMO_INC, 99, 0, 0, 6);
      run(bytes, MORI_SHMEM_AMO_ADD, 10, 0, 0, 16);
      run(bytes, MORI_SHMEM_AMO_OR, 3, 0, 0, 19);
      run(bytes, MORI_SHMEM_AMO_AND, 0x1E, 0, 0, 18);
      run(bytes, MORI_SHMEM_AMO_XOR, 1, 0, 0, 19);
      run(bytes, MORI_SHMEM_AMO_FETCH, 0, 0, 19, 19);
      run(bytes, MORI_SHMEM_AMO_FETCH_INC, 0, 0, 19, 20);
      run(bytes, MORI_SHMEM_AMO_FETCH_ADD, 5, 0, 20, 25);
      run(bytes, MORI_SHMEM_AMO_FETCH_AND, 24, 0, 25, 24);
      run(bytes, MORI_SHMEM_AMO_FETCH_OR, 7, 0, 24, 31);
      run(bytes, MORI_SHMEM_AMO_FETCH_XOR, 15, 0, 31, 16);
      run(bytes, MORI_SHMEM_AMO_SWAP, 77, 0, 16, 77);
      run(bytes, MORI_SHMEM_AMO_COMPARE_SWAP, 1, 76, 77, 77);
      run(bytes, MORI_SHMEM_AMO_COMPARE_SWAP, 0, 77, 77, 0);
    }
    // A 4-byte operation leaves the neighbour alone, and wraps within its word.
    run(8, MORI_SHMEM_AMO_SET, 0xFFFFFFFF'FFFFFFFF, 0, 0, UINT64_MAX);
    run(4, MORI_SHMEM_AMO_FETCH_ADD, 2, 0, 0xFFFFFFFF, 0xFFFFFFFF'00000001);
    const auto refused = [&] {
      return failure(mori_shmem_atomic, c, static_cast<const mori_shmem_atomic_args*>(&args),
                     static_cast<uint64_t*>(nullptr));
    };
    args.op = 8;
    CHECK(contains(refused(), "op 8 is none of MORI_SHMEM_AMO_*"));
    args.op = MORI_SHMEM_AMO_ADD;
    args.size_bytes = 2;
    CHECK(contains(refused(), "size_bytes 2 is neither 4 nor 8"));
    args.size_bytes = 8;
    args.target = reinterpret_cast<char*>(words) + 4;
    CHECK(contains(refused(), "not aligned to 8"));
  });
}

TEST_CASE("atomics from all PEs on one word lose nothing") {
  run_pes({.pe_count = 4}, [](mori_shmem* c, int) {
    constexpr uint64_t rounds = 2000;
    auto* word = allocate<uint64_t>(c, 1);
    mori_shmem_atomic_args args{};
    args.struct_size = sizeof args;
    args.target = word;
    args.value = 1;
    args.op = MORI_SHMEM_AMO_FETCH_ADD;
    args.size_bytes = 8;
    args.pe = 2;
    uint64_t last = 0;
    for (uint64_t i = 0; i < rounds; ++i) {
      uint64_t before = 0;
      REQUIRE(failure(mori_shmem_atomic, c, static_cast<const mori_shmem_atomic_args*>(&args),
                      &before) == "");
      REQUIRE((i == 0 || before > last));
      last = before;
    }
    CHECK(failure(mori_shmem_barrier_all, c) == "");
    uint64_t total = 0;
    CHECK(get(c, &total, word, 8, 2) == "");
    CHECK(total == 4 * rounds);
  });
}

TEST_CASE("wait_until: each comparison, its own deadline is not sticky, bad arguments") {
  run_pes({.pe_count = 1}, [](mori_shmem* c, int) {
    auto* word = allocate<uint64_t>(c, 1);
    *word = 5;
    mori_shmem_wait_args args{};
    args.struct_size = sizeof args;
    args.address = word;
    args.size_bytes = 8;
    args.pe = -1;
    args.timeout_ns = second_ns / 50;
    const auto run = [&](int32_t compare, uint64_t value) {
      args.compare = compare;
      args.value = value;
      return failure(mori_shmem_wait_until, c, static_cast<const mori_shmem_wait_args*>(&args),
                     static_cast<uint64_t*>(nullptr));
    };
    struct expectation {
      int32_t compare;
      bool at_4, at_5, at_6;  // 5 <compare> value
    };
    for (const auto& [compare, at_4, at_5, at_6] : {
             expectation{MORI_SHMEM_CMP_EQ, false, true, false},
             expectation{MORI_SHMEM_CMP_NE, true, false, true},
             expectation{MORI_SHMEM_CMP_GT, true, false, false},
             expectation{MORI_SHMEM_CMP_GE, true, true, false},
             expectation{MORI_SHMEM_CMP_LT, false, false, true},
             expectation{MORI_SHMEM_CMP_LE, false, true, true},
         }) {
      CHECK((run(compare, 4) == "") == at_4);
      CHECK((run(compare, 5) == "") == at_5);
      CHECK((run(compare, 6) == "") == at_6);
    }
    CHECK(contains(run(MORI_SHMEM_CMP_EQ, 9),
                   "MORI_E_TIMEOUT: wait: deadline passed while waiting for a value: expected 9, "
                   "last saw 5"));
    CHECK(failure(mori_shmem_check, static_cast<const mori_shmem*>(c)) == "");
    CHECK(contains(run(7, 5), "compare 7 is none of MORI_SHMEM_CMP_*"));
    args.pe = 1;
    CHECK(contains(run(MORI_SHMEM_CMP_EQ, 5), "pe 1 is outside -1 .. 0"));
    args.pe = -1;
    args.size_bytes = 4;
    CHECK(run(MORI_SHMEM_CMP_EQ, 5) == "");
    args.size_bytes = 3;
    CHECK(contains(run(MORI_SHMEM_CMP_EQ, 5), "size_bytes 3 is neither 4 nor 8"));
    args.size_bytes = 8;
    args.address = &args;
    CHECK(contains(run(MORI_SHMEM_CMP_EQ, 5), "MORI_E_NOT_FOUND"));
  });
}

TEST_CASE("barrier: nobody passes before all have come, for thousands of rounds") {
  for (const int pe_count : {2, 3, 5, 8})
    run_pes({.pe_count = pe_count}, [pe_count](mori_shmem* c, int pe) {
      auto* arrived = allocate<uint64_t>(c, 8);
      for (uint64_t round = 1; round <= 400; ++round) {
        for (int to = 0; to < pe_count; ++to) REQUIRE(put(c, arrived + pe, &round, 8, to) == "");
        REQUIRE(failure(mori_shmem_barrier_all, c) == "");
        for (int from = 0; from < pe_count; ++from) {
          // Others may already be a round ahead, never behind.
          const uint64_t seen = __atomic_load_n(arrived + from, __ATOMIC_RELAXED);
          REQUIRE((seen == round || seen == round + 1));
        }
      }
    });
}
