// functions_test.cpp - the functions of the device bitcode as the host compiles them, on PEs that
// are threads: every kind of function between two PEs, both ways of calling, and what they say
// without a context. On the host a block has one lane, and each thread has a module state of its
// own.
#include "../functions/exports.hpp"
#include "pes.hpp"

#define MORI_DEVICE_CALL
#define MORI_DEVICE_NAME(name) mori_shmem_host_##name
#include <mori/shmem_functions.h>

#include <array>
#include <cstring>

using namespace mori_test;

namespace {

using u64 = mori::device::u64;

u64 address(const void* pointer) { return reinterpret_cast<u64>(pointer); }

// The calling thread's module belongs to the context.
void adopt(mori_shmem* context) {
  REQUIRE(failure(mori_shmem_device_state, context, 2u,
                  static_cast<void*>(&mori_shmem_module_state_v2),
                  uint64_t{sizeof mori_shmem_module_state_v2}) == "");
}

template <class T>
T* symmetric(mori_shmem* context, uint64_t count) {
  void* made = nullptr;
  CHECK(failure(mori_shmem_malloc, context, count * sizeof(T), &made) == "");
  return static_cast<T*>(made);
}

constexpr int set = MORI_SHMEM_SIGNAL_SET, add = MORI_SHMEM_SIGNAL_ADD;

}  // namespace

TEST_CASE("functions: without a context nothing is done, and the results say so") {
  mori_shmem_module_state_v2 = {};
  uint64_t word = 7;
  const u64 at = address(&word);
  CHECK(mori_shmem_host_my_pe() == -1);
  CHECK(mori_shmem_host_n_pes() == 0);
  CHECK(mori_shmem_host_ptr(at, 0) == 0);
  CHECK(mori_shmem_host_ptr_p2p(at, 0, 0) == 0);
  CHECK(mori_shmem_host_quiet_thread() == MORI_E_STATE);
  CHECK(mori_shmem_host_barrier_all_block() == MORI_E_STATE);
  CHECK(mori_shmem_host_program_barrier_all_thread() == MORI_E_STATE);
  CHECK(mori_shmem_host_putmem_nbi_block(at, at, 8, 0, 0) == MORI_E_STATE);
  CHECK(mori_shmem_host_program_uint64_p(at, 8, 0, 0) == MORI_E_STATE);
  CHECK(mori_shmem_host_uint64_atomic_fetch_add_thread(at, 1, 0, 0) == 0);
  CHECK(mori_shmem_host_uint64_wait_until_equals(at, 9) == MORI_E_STATE);
  CHECK(mori_shmem_host_uint64_wait_until_greater_than(at, 9) == 9);
  CHECK(mori_shmem_host_program_int32_wait_until_greater_than(at, -3) == -3);
  CHECK(word == 7);
}

TEST_CASE("functions: puts, gets and signals between two PEs, both ways of calling") {
  run_pes({.pe_count = 2}, [](mori_shmem* context, int pe) {
    adopt(context);
    CHECK(mori_shmem_host_my_pe() == pe);
    CHECK(mori_shmem_host_n_pes() == 2);
    const int other = 1 - pe;
    auto* const box = symmetric<uint32_t>(context, 64);
    auto* const signals = symmetric<uint64_t>(context, 2);
    std::array<uint32_t, 64> mine{}, seen{};
    for (uint32_t i = 0; i < 64; ++i) mine[i] = 100u * static_cast<uint32_t>(pe) + i;
    const uint32_t first = 100u * static_cast<uint32_t>(other);

    CHECK(mori_shmem_host_putmem_nbi_thread(address(box), address(mine.data()), 16, other, 0) == 0);
    CHECK(mori_shmem_host_put_uint32_nbi_warp(address(box + 4), address(mine.data() + 4), 4, other,
                                              0) == 0);
    CHECK(mori_shmem_host_put_uint64_nbi_block(address(box + 8), address(mine.data() + 8), 4, other,
                                               0) == 0);
    CHECK(mori_shmem_host_program_put_float_nbi_thread(address(box + 16), address(mine.data() + 16),
                                                       8, other, 0) == 0);
    CHECK(mori_shmem_host_program_put_double_nbi_block(address(box + 24), address(mine.data() + 24),
                                                       4, other, 0) == 0);
    CHECK(mori_shmem_host_program_putmem_nbi_signal_warp(address(box + 32),
                                                         address(mine.data() + 32), 128,
                                                         address(signals), 5, add, other, 0) == 0);
    CHECK(mori_shmem_host_uint64_wait_until_greater_than(address(signals), 4) == 5);
    CHECK(box[0] == first);
    CHECK(box[63] == first + 63);
    CHECK(mori_shmem_host_program_barrier_all_block() == 0);

    CHECK(mori_shmem_host_getmem_thread(address(seen.data()), address(box), 256, other, 0) == 0);
    CHECK(seen == mine);
    seen = {};
    CHECK(mori_shmem_host_program_get_uint32_block(address(seen.data()), address(box), 64, other,
                                                   0) == 0);
    CHECK(mori_shmem_host_program_quiet_thread_pe(other) == 0);
    CHECK(seen == mine);
    // The signal alone.
    CHECK(mori_shmem_host_putmem_nbi_signal_thread(0, 0, 0, address(signals + 1), 8, set, other,
                                                   0) == 0);
    CHECK(mori_shmem_host_program_uint64_wait_until_equals(address(signals + 1), 8) == 0);
    CHECK(mori_shmem_host_ptr(address(box), other) ==
          mori_shmem_host_ptr_p2p(address(box), pe, other));
    CHECK(*reinterpret_cast<uint32_t*>(mori_shmem_host_ptr(address(box), other)) == mine[0]);
    CHECK(mori_shmem_host_barrier_all_thread() == 0);
  });
}

TEST_CASE("functions: values and atomics of every type") {
  run_pes({.pe_count = 1}, [](mori_shmem* context, int) {
    adopt(context);
    auto* const words = symmetric<uint64_t>(context, 4);
    const auto bytes = reinterpret_cast<const unsigned char*>(words);
    const auto low = reinterpret_cast<const uint32_t*>(words);
    const u64 at = address(words);
    CHECK(mori_shmem_host_char_p(at, -2, 0, 0) == 0);
    CHECK(mori_shmem_host_uchar_p(at + 1, 250, 0, 0) == 0);
    CHECK(mori_shmem_host_short_p(at + 2, -300, 0, 0) == 0);
    CHECK(mori_shmem_host_program_ushort_p(at + 4, 65000, 0, 0) == 0);
    CHECK(bytes[0] == 254);
    CHECK(bytes[1] == 250);
    CHECK((bytes[2] | bytes[3] << 8) == 65236);
    CHECK((bytes[4] | bytes[5] << 8) == 65000);
    CHECK(mori_shmem_host_float_p(at + 8, 1.5f, 0, 0) == 0);
    CHECK(low[2] == 0x3fc00000u);
    CHECK(mori_shmem_host_double_p(at + 16, 2.5, 0, 0) == 0);
    CHECK(words[2] == 0x4004000000000000u);
    CHECK(mori_shmem_host_int64_p(at, -9, 0, 0) == 0);
    CHECK(mori_shmem_host_int64_atomic_fetch_add_thread(at, 4, 0, 0) == -9);
    CHECK(mori_shmem_host_atomic_int64_fetch_thread(at, 7, -5, MORI_SHMEM_AMO_COMPARE_SWAP, 0, 0) ==
          -5);
    CHECK(words[0] == 7);
    CHECK(mori_shmem_host_program_uint32_atomic_add_thread(at, 3, 0, 0) == 0);
    CHECK(mori_shmem_host_atomic_uint32_fetch_thread(at, 6, 0, MORI_SHMEM_AMO_FETCH_AND, 0, 0) ==
          10);
    CHECK(words[0] == 2);
    const uint32_t four = 40;
    const uint64_t eight = 80;
    CHECK(mori_shmem_host_atomic_size_nonfetch_thread(at, address(&four), 4, MORI_SHMEM_AMO_ADD, 0,
                                                      0) == 0);
    CHECK(mori_shmem_host_atomic_size_nonfetch_thread(at, address(&eight), 8, MORI_SHMEM_AMO_OR, 0,
                                                      0) == 0);
    CHECK(words[0] == (42u | 80u));
    CHECK(mori_shmem_host_put_size_imm_nbi_thread(at, address(&eight), 2, 0, 0) == 0);
    CHECK(words[0] == 80);
  });
}

TEST_CASE("functions: a bad argument is a status, a fault of the context, and touches nothing") {
  const auto refused = [](const char* part, auto call) {
    run_pes({.pe_count = 1}, [&](mori_shmem* context, int) {
      adopt(context);
      auto* const words = symmetric<uint64_t>(context, 2);
      CHECK(call(address(words)) == MORI_E_INVALID);
      CHECK(words[0] == 0);
      CHECK(words[1] == 0);
      const std::string fault = failure(mori_shmem_check, context);
      CHECK_MESSAGE(contains(fault, part), fault);
    });
  };
  refused("PE 3", [](u64 at) { return mori_shmem_host_uint64_p(at, 1, 3, 0); });
  refused("outside the limit 0x2",
          [](u64 at) { return mori_shmem_host_program_short_p(at + 1, 1, 0, 0) != 0 ? 1 : 0; });
  refused("argument 0x3", [](u64 at) {
    return mori_shmem_host_atomic_size_nonfetch_thread(at, at, 3, MORI_SHMEM_AMO_ADD, 0, 0);
  });
  refused("argument 0x3",
          [](u64 at) { return mori_shmem_host_put_size_imm_nbi_thread(at, at, 3, 0, 0); });
  refused("argument 0x63", [](u64 at) {
    return mori_shmem_host_putmem_nbi_signal_block(at, at, 8, at + 8, 1, 99, 0, 0);
  });
}

TEST_CASE("functions: a failed wait gives no value that would pass for success") {
  run_pes({.pe_count = 1,
           .adjust = [](mori_shmem_options& with) { with.wait_timeout_ns = 20'000'000; }},
          [](mori_shmem* context, int) {
            adopt(context);
            auto* const word = symmetric<int64_t>(context, 1);
            *word = -8;
            CHECK(mori_shmem_host_int64_wait_until_greater_than(address(word), -5) == -8);
            CHECK(contains(failure(mori_shmem_check, context), "MORI_E_TIMEOUT"));
            CHECK(mori_shmem_host_int64_wait_until_equals(address(word), -5) == MORI_E_TIMEOUT);
          });
  run_pes({.pe_count = 1}, [](mori_shmem* context, int) {
    adopt(context);
    int64_t outside = 0;
    // Refused: nothing was seen, and 0 would be greater than -5.
    CHECK(mori_shmem_host_int64_wait_until_greater_than(address(&outside), -5) == -5);
    CHECK(contains(failure(mori_shmem_check, context), "MORI_E_INVALID"));
  });
}
