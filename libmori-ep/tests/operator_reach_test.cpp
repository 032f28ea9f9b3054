// operator_reach_test.cpp - create when one rank's calls of the symmetric memory fail, which on a
// GPU can happen to one rank alone: the others are told, and do not wait for it. A program of its
// own, since it takes the place of two calls of libmori-shmem.
#include "rank_group.hpp"

#include <mori/base/clock.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

using namespace ep_test;

namespace {

// What fails on the calling thread, a rank.
struct faults {
  int calls_left = -1;  // puts and gets before the one that fails; -1: none fails
  int far_pe = -1;      // not mapped; -1: all are
};
thread_local faults mine;

bool fails_now() { return mine.calls_left >= 0 && mine.calls_left-- == 0; }

mori_status refuse(mori_error* error, mori_status status) {
  error->status = status;
  std::strncpy(error->message, "made to fail", sizeof error->message - 1);
  return status;
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

mori_ep_config small_config() {
  mori_ep_config made{};
  made.struct_size = sizeof made;
  made.hidden_dim = 64;
  made.max_token_elem_bytes = 4;
  made.max_input_token_count = 8;
  made.expert_per_rank_count = 2;
  made.expert_per_token_count = 2;
  return made;
}

// All ranks create an operator at once; the text of each failure, "" for success.
std::vector<std::string> create_all(rank_group& ranks, int rank_count) {
  std::vector<std::string> outcomes(static_cast<size_t>(rank_count));
  const uint64_t begun = mori::base::now_ns();
  ranks.each([&](int rank) {
    const mori_ep_config config = small_config();
    mori_ep* ep = nullptr;
    outcomes[static_cast<size_t>(rank)] =
        failure(mori_ep_create, ranks.context(rank), &config, &ep);
    mori_ep_destroy(ep);
  });
  CHECK(mori::base::now_ns() - begun < uint64_t{20} * 1'000'000'000);
  return outcomes;
}

}  // namespace

extern "C" {

mori_status mori_shmem_put(mori_shmem* in_shmem, void* in_target, const void* in_source,
                           uint64_t size_bytes, int32_t pe, mori_error* error) {
  if (fails_now()) return refuse(error, MORI_E_OS);
  if (pe == mine.far_pe) return refuse(error, MORI_E_UNAVAILABLE);
  return original<decltype(mori_shmem_put)>("mori_shmem_put")(in_shmem, in_target, in_source,
                                                              size_bytes, pe, error);
}

mori_status mori_shmem_get(mori_shmem* in_shmem, void* out_target, const void* in_source,
                           uint64_t size_bytes, int32_t pe, mori_error* error) {
  if (fails_now()) return refuse(error, MORI_E_OS);
  return original<decltype(mori_shmem_get)>("mori_shmem_get")(in_shmem, out_target, in_source,
                                                              size_bytes, pe, error);
}

mori_status mori_shmem_peer_info(const mori_shmem* in_shmem, int32_t pe,
                                 mori_shmem_peer_report* out_report, mori_error* error) {
  const mori_status status = original<decltype(mori_shmem_peer_info)>("mori_shmem_peer_info")(
      in_shmem, pe, out_report, error);
  if (status == MORI_OK && pe == mine.far_pe) out_report->transport = MORI_SHMEM_TRANSPORT_NONE;
  return status;
}

}  // extern "C"

TEST_CASE("create: a rank that cannot reach one of three fails all, who go on as before") {
  rank_group ranks({.rank_count = 3});
  // The memory of the second attempt holds what the first has left there.
  CHECK(create_all(ranks, 3) == std::vector<std::string>(3));
  ranks.each([](int rank) {
    if (rank == 0) mine.far_pe = 2;
  });
  const std::vector<std::string> outcomes = create_all(ranks, 3);
  CHECK(begins_with(outcomes[0],
                    "MORI_E_UNAVAILABLE: kernel_type IntraNode needs all ranks in "
                    "mapped memory, rank 2 is not"));
  CHECK(outcomes[1] == "MORI_E_UNAVAILABLE: rank 0 could not create its part of the operator");
  CHECK(outcomes[2] == outcomes[1]);
  ranks.each([](int) { mine = {}; });
  CHECK(create_all(ranks, 3) == std::vector<std::string>(3));
}

TEST_CASE("create: a copy that fails on one rank ends the others' waits") {
  int failed_count = 0;
  for (int call = 0;; ++call) {
    CAPTURE(call);
    rank_group ranks({.rank_count = 2});
    int left = 0;
    ranks.each([&](int rank) {
      if (rank == 0) mine.calls_left = call;
    });
    const std::vector<std::string> outcomes = create_all(ranks, 2);
    ranks.each([&](int rank) {
      if (rank == 0) left = mine.calls_left;
      mine = {};
    });
    if (left >= 0) {
      CHECK(outcomes == std::vector<std::string>(2));
      break;
    }
    ++failed_count;
    CHECK(outcomes[0] == "MORI_E_OS: made to fail");
    // The card that was not shown is missed by itself.
    const bool is_told =
        begins_with(outcomes[1], "MORI_E_ABORTED: ") ||
        outcomes[1] == "MORI_E_UNAVAILABLE: rank 0 could not create its part of the operator";
    CHECK_MESSAGE(is_told, outcomes[1]);
  }
  CHECK(failed_count >= 4);  // two cards, a look at them, and the words of the operator
}
