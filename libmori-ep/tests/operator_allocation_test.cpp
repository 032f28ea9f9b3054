// Nothing allocates on the data path: this program replaces malloc and its
// relatives for the whole process, libraries included, and counts. A program of
// its own, and not built with sanitizers, which replace them too.
#include "rank_group.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<bool> counts{false};
std::atomic<uint64_t> allocation_count{0};
void note() {
  if (counts.load(std::memory_order_relaxed)) ++allocation_count;
}

}  // namespace

extern "C" {
void* malloc(size_t size) {
  note();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  note();
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  note();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}

using namespace ep_test;

TEST_CASE("the counter sees what libraries allocate") {
  rank_group group({.rank_count = 2});
  mori_ep_memory memory{};
  counts = true;
  // A failure has a text, so this allocates inside the library.
  mori_ep_memory_query(nullptr, 1, &memory, nullptr);
  counts = false;
  CHECK(allocation_count.exchange(0) > 0);
}

TEST_CASE("dispatch, combine and what goes with them allocate nothing after create") {
  constexpr uint64_t tokens = 32, top_k = 4, hidden = 64;
  rank_group group({.rank_count = 3, .worker_count = 2});
  mori_ep_config config{};
  config.struct_size = sizeof config;
  config.hidden_dim = hidden;
  config.max_input_token_count = tokens;
  config.expert_per_rank_count = 2;
  config.expert_per_token_count = top_k;
  config.registered_input = 1;
  operators ops(group, config);
  const std::vector<float> rows(3 * tokens * hidden, 1.f);
  const std::vector<float> weights(3 * tokens * top_k, .5f);
  std::vector<int32_t> indices(tokens * top_k);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i * 7 % 6);
  std::vector<mori_status> worst(3, MORI_OK);

  const auto call = [&](int rank) {
    mori_status& status = worst[static_cast<size_t>(rank)];
    const auto keep = [&](mori_status got) { status = got != MORI_OK ? got : status; };
    mori_ep_dispatch_args send{};
    send.struct_size = sizeof send;
    send.input = rows.data();
    send.weights = weights.data();
    send.indices = indices.data();
    send.token_count = tokens;
    send.dtype = MORI_EP_F32;
    send.count_local_experts = 1;
    mori_ep_dispatch_result received{};
    received.struct_size = sizeof received;
    keep(mori_ep_dispatch(ops[rank], &send, &received, nullptr));
    mori_ep_combine_args back{};
    back.struct_size = sizeof back;
    back.input = rows.data();
    back.weights = weights.data();
    back.indices = indices.data();
    back.token_count = tokens;
    back.input_row_count = 3 * tokens;
    back.dtype = MORI_EP_F32;
    mori_ep_combine_result combined{};
    combined.struct_size = sizeof combined;
    for (const int32_t mode : {MORI_EP_INPUT_EXTERNAL, MORI_EP_INPUT_REGISTERED}) {
      back.input_mode = mode;
      keep(mori_ep_combine(ops[rank], &back, &combined, nullptr));
    }
    void* buffer = nullptr;
    keep(mori_ep_combine_buffer(ops[rank], &buffer, nullptr, nullptr));
    int32_t positions[4];
    uint64_t count = 0;
    keep(mori_ep_src_token_positions(ops[rank], positions, 4, &count, nullptr));
    keep(mori_ep_check(ops[rank], nullptr));
  };
  std::function<void(int)> body = call;
  group.each(body);  // the first time threads may set up what is theirs
  for (int times = 0; times < 5; ++times) {
    // The group's own bookkeeping is outside: each() copies a function before the bodies run.
    std::atomic<int> inside{0};
    group.each([&](int rank) {
      if (++inside == 3) counts = true;
      while (!counts) std::this_thread::yield();
      call(rank);
      if (--inside == 0) counts = false;
    });
  }
  CHECK(worst == std::vector<mori_status>(3, MORI_OK));
  CHECK(allocation_count == 0);
}
