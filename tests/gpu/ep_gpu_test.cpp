// ep_gpu_test.cpp - dispatch and combine on GPU streams as callers use them: enqueued one after
// the other, PEs as processes and as threads, in graphs, with more blocks than can be
// resident, with a PE that leaves or is stopped. Cases and reference are those of
// libmori-ep/tests.
#include "graph.hpp"
#include "moe_case.hpp"
#include "world.hpp"

#include <doctest/doctest.h>
#include <mori/ep.h>
#include <mori/device/gpu_memory.hpp>

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>

using namespace gpu_test;
namespace device = mori::device;
namespace ep = ep_test;

namespace {

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

size_t at(int pe) { return static_cast<size_t>(pe); }

// One PE's device, stream and uploads.
struct desk {
  std::shared_ptr<device::gpu> gpu;
  device::own_stream stream;
  std::deque<device::device_buffer> uploads;

  std::string open() {
    auto here = device::gpu::current(backend_here().backend);
    EXPECT(here);
    auto made = device::own_stream::create(*here);
    EXPECT(made);
    gpu = std::move(*here);
    stream = std::move(*made);
    return "";
  }
  // Of at least one byte, so that nothing is null.
  void* upload(const void* from, uint64_t bytes) {
    auto made = device::device_buffer::allocate(gpu, bytes + 16);
    if (!made || !gpu->copy_now(made->address(), device::address_of(from), bytes)) std::abort();
    uploads.push_back(std::move(*made));
    return reinterpret_cast<void*>(uploads.back().address());
  }
  template <class T>
  T* upload(const std::vector<T>& from) {
    return static_cast<T*>(upload(from.data(), from.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> download(const void* from, uint64_t count) {
    std::vector<T> made(count);
    if (!gpu->copy_now(device::address_of(made.data()), device::address_of(from),
                       count * sizeof(T)))
      std::abort();
    return made;
  }
  bool finish() const { return static_cast<bool>(gpu->synchronize_stream(stream.get())); }
};

mori_ep_config config_of(ep::engine& random) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = 16 * ep::pick(random, 1, 40);
  c.max_input_token_count = ep::pick(random, 1, 300);
  c.expert_per_rank_count = ep::pick(random, 1, 8);
  c.expert_per_token_count = ep::pick(random, 1, 9);
  c.scale_dim = ep::pick(random, 0, 8);
  c.scale_elem_bytes = c.scale_dim == 0 ? 0 : 4;
  c.block_count = ep::chance(random, 2) ? 1024 : static_cast<int32_t>(ep::pick(random, 1, 60));
  c.warp_per_block_count = static_cast<int32_t>(ep::pick(random, 1, 16));
  return c;
}

// One PE's side of one case.
struct layer {
  desk& on;
  mori_ep* op;
  const ep::dispatch_case& c;
  int pe;
  mori_ep_dispatch_args to_dispatch{};
  mori_ep_dispatch_result received{};
  mori_ep_combine_args to_combine{};
  mori_ep_combine_result combined{};

  void upload() {
    const auto& mine = c.ranks[at(pe)];
    to_dispatch.struct_size = sizeof to_dispatch;
    to_dispatch.input = on.upload(mine.rows);
    to_dispatch.weights = c.with.has_weights ? on.upload(mine.weights) : nullptr;
    to_dispatch.scales = c.with.has_scales ? on.upload(mine.scales) : nullptr;
    to_dispatch.indices = on.upload(mine.indices);
    to_dispatch.token_count = mine.token_count;
    to_dispatch.hidden_dim = c.with.hidden_dim;
    to_dispatch.dtype = c.with.dtype;
    to_dispatch.count_local_experts = c.with.count_experts ? 1 : 0;
    to_dispatch.stream = on.stream.get();
    received.struct_size = sizeof received;
  }
  std::string dispatch() {
    EXPECT_OK(mori_ep_dispatch, op, &to_dispatch, &received);
    EXPECT(received.recv_token_count == UINT64_MAX);
    return "";
  }
  void upload(const ep::combine_case& back) {
    const auto& out = back.outputs[at(pe)];
    to_combine.struct_size = sizeof to_combine;
    to_combine.input = on.upload(out.rows);
    to_combine.weights = back.with.has_weights ? on.upload(out.weights) : nullptr;
    to_combine.indices = to_dispatch.indices;
    to_combine.token_count = to_dispatch.token_count;
    to_combine.input_row_count = c.expected[at(pe)].row_count;
    to_combine.hidden_dim = back.with.hidden_dim;
    to_combine.dtype = back.with.dtype;
    to_combine.stream = on.stream.get();
    combined.struct_size = sizeof combined;
  }
  std::string combine() {
    EXPECT_OK(mori_ep_combine, op, &to_combine, &combined);
    return "";
  }
  // After finish(): other ranks are taken to have what they should.
  std::string compare_dispatch() {
    std::vector<ep::dispatched> all(c.expected.size());
    for (size_t i = 0; i < all.size(); ++i) all[i].got = c.expected[i];
    ep::ref::received& is = all[at(pe)].got;
    const auto count = on.download<int32_t>(received.recv_count, 1).front();
    const auto rows = static_cast<uint64_t>(count), K = c.shape.expert_per_token_count;
    EXPECT(rows == c.expected[at(pe)].row_count);
    is.rows = on.download<std::byte>(received.out, rows * c.shape.row_bytes);
    is.indices = on.download<int32_t>(received.indices, rows * K);
    if (c.with.has_weights) is.weights = on.download<float>(received.weights, rows * K);
    if (c.with.has_scales)
      is.scales = on.download<std::byte>(received.scales, rows * c.shape.scale_row_bytes);
    // Nothing that is expected is there before it was read; what nobody asked for is nowhere.
    if (!c.with.count_experts)
      for (ep::dispatched& each : all) each.got.local_expert_count.clear();
    else
      is.local_expert_count =
          on.download<int32_t>(received.local_expert_count, c.shape.expert_per_rank_count);
    is.positions.assign(rows, -1);
    uint64_t positions = 0;
    EXPECT_OK(mori_ep_src_token_positions, op, is.positions.data(), rows, &positions);
    EXPECT(positions == rows);
    return ep::difference(c, all);
  }
  std::string compare_combine(const ep::combine_case& back) {
    std::vector<ep::combined> all(back.expected.size());
    for (size_t i = 0; i < all.size(); ++i) all[i].got = back.expected[i];
    ep::ref::combined& is = all[at(pe)].got;
    const uint64_t tokens = to_combine.token_count;
    is.rows = on.download<std::byte>(
        combined.out, tokens * back.with.hidden_dim * ep::elem_bytes(back.with.dtype));
    if (back.with.has_weights)
      is.weights = on.download<float>(combined.weights, tokens * c.shape.expert_per_token_count);
    return ep::difference(back, all);
  }
};

ep::call_shape shape_of_call(ep::engine& random, const mori_ep_config& config) {
  constexpr int32_t dtypes[] = {MORI_EP_F32, MORI_EP_BF16, MORI_EP_F16, MORI_EP_F8_E4M3FN,
                                MORI_EP_F8_E4M3FNUZ};
  ep::call_shape with;
  with.dtype = dtypes[ep::pick(random, 0, std::size(dtypes) - 1)];
  with.hidden_dim = config.hidden_dim;
  with.has_weights = ep::chance(random, 2);
  with.has_scales = config.scale_dim != 0 && ep::chance(random, 2);
  with.count_experts = ep::chance(random, 2);
  return with;
}

// Everything is made before kernels wait; then calls follow each other on the stream. Now and then
// the host looks in between.
std::string random_layers(mori_shmem* shmem, int pe) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  for (uint64_t round = 0; round < (is_sanitized() ? 2 : 6); ++round) {
    ep::engine random(seed() + round);
    const mori_ep_config config = config_of(random);
    desk on;
    if (std::string failed = on.open(); !failed.empty()) return failed;
    mori_ep* op = nullptr;
    EXPECT_OK(mori_ep_create, shmem, &config, &op);
    for (int call = 0; call < 3; ++call) {
      const auto c = ep::random_dispatch(random, config, count, shape_of_call(random, config));
      ep::call_shape with = c.with;
      with.has_weights = ep::chance(random, 2);
      const auto back = ep::random_combine(random, c, with);
      const bool looks = ep::chance(random, 2);
      layer mine{on, op, c, pe};
      mine.upload();
      mine.upload(back);
      EXPECT_OK(mori_shmem_barrier_all, shmem);
      std::string failed = mine.dispatch();
      if (failed.empty() && looks) {
        EXPECT(on.finish());
        failed = mine.compare_dispatch();
      }
      if (failed.empty()) failed = mine.combine();
      EXPECT(on.finish());
      EXPECT_OK(mori_ep_check, op);
      if (failed.empty()) failed = mine.compare_combine(back);
      if (!failed.empty()) return failed + "; repeat with MORI_TEST_SEED=" + std::to_string(seed());
    }
    EXPECT_OK(mori_shmem_barrier_all, shmem);
    mori_ep_destroy(op);
  }
  return "";
}

// Captured once, replayed much later and often; the sum of in-place outputs is the token times the
// number of ranks that it went to, every time.
std::string captured(mori_shmem* shmem, int pe) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  ep::engine random(seed());
  mori_ep_config config = config_of(random);
  config.scale_dim = 0;
  config.scale_elem_bytes = 0;
  ep::call_shape with;
  with.dtype = MORI_EP_F32;
  with.hidden_dim = config.hidden_dim;
  const auto c = ep::random_dispatch(random, config, count, with);
  // Experts that give back what they got.
  ep::combine_case back = ep::random_combine(random, c, with);
  for (size_t rank = 0; rank < back.outputs.size(); ++rank)
    back.outputs[rank].rows = c.expected[rank].rows;
  back.expected = ep::ref::combine(c.shape, with.dtype, c.ranks, back.outputs);
  desk on;
  if (std::string failed = on.open(); !failed.empty()) return failed;
  mori_ep* op = nullptr;
  EXPECT_OK(mori_ep_create, shmem, &config, &op);
  layer mine{on, op, c, pe};
  mine.upload();
  graph replayed;
  if (std::string failed = replayed.begin(on.stream.get()); !failed.empty()) return failed;
  std::string failed = mine.dispatch();
  mine.to_combine.struct_size = sizeof mine.to_combine;
  mine.to_combine.input = mine.received.out;
  mine.to_combine.indices = mine.to_dispatch.indices;
  mine.to_combine.token_count = mine.to_dispatch.token_count;
  mine.to_combine.input_row_count = mine.received.capacity_count;
  mine.to_combine.hidden_dim = with.hidden_dim;
  mine.to_combine.dtype = with.dtype;
  mine.to_combine.stream = on.stream.get();
  mine.combined.struct_size = sizeof mine.combined;
  if (failed.empty()) failed = failure(mori_ep_combine, op, &mine.to_combine, &mine.combined);
  if (std::string ended = replayed.end(); failed.empty()) failed = ended;
  if (!failed.empty()) return failed;
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  poll(nullptr, 0, std::getenv("MORI_TEST_LONG") != nullptr ? 60'000 : 2'000);
  for (int i = 0; i < 1000; ++i) {
    if (failed = replayed.launch(); !failed.empty()) return failed;
    if (i % 100 == 99) EXPECT(on.finish());
  }
  EXPECT_OK(mori_ep_check, op);
  failed = mine.compare_combine(back);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  mori_ep_destroy(op);
  return failed;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A dispatch that the last PE does not join: the others hear of it, by its number, in time.
std::string one_is_missing(mori_shmem* shmem, int pe, bool stops) {
  int32_t count = 0;
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  void* place = nullptr;
  EXPECT_OK(mori_shmem_malloc, shmem, 8, &place);
  const auto own_pid = static_cast<int64_t>(getpid());
  EXPECT_OK(mori_shmem_put, shmem, place, &own_pid, sizeof own_pid, pe);
  ep::engine random(seed());
  const mori_ep_config config = config_of(random);
  const auto c = ep::random_dispatch(random, config, count, shape_of_call(random, config));
  desk on;
  if (std::string failed = on.open(); !failed.empty()) return failed;
  mori_ep* op = nullptr;
  EXPECT_OK(mori_ep_create, shmem, &config, &op);
  layer mine{on, op, c, pe};
  mine.upload();
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  const int last = count - 1;
  int64_t last_pid = 0;
  EXPECT_OK(mori_shmem_get, shmem, &last_pid, place, sizeof last_pid, last);
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  if (pe == last) {
    if (stops) raise(SIGSTOP);
    mori_ep_destroy(op);
    return "";
  }
  const auto start = std::chrono::steady_clock::now();
  std::string failed = mine.dispatch();
  EXPECT(on.finish());
  if (failed.empty()) failed = failure(mori_ep_check, op);
  const double took = seconds_since(start);
  if (stops && pe == 0) kill(static_cast<pid_t>(last_pid), SIGKILL);
  mori_ep_destroy(op);
  EXPECT(failed.find("PE " + std::to_string(last)) != std::string::npos);
  EXPECT(took < 8);
  return "";
}

}  // namespace

TEST_CASE("layers enqueued on streams give what the reference says") {
  seed();
  for (const as kind : {as::processes, as::threads})
    for (const int count : {1, 2, 4, 8}) {
      CAPTURE(count);
      CHECK(run({.pe_count = count, .kind = kind}, random_layers) == "");
    }
}
TEST_CASE("a graph captured once is replayed a thousand times") {
  if (backend_here().backend != MORI_BACKEND_NVIDIA) return;
  seed();
  for (const int count : {1, 2, 8}) {
    CAPTURE(count);
    CHECK(run({.pe_count = count}, captured) == "");
  }
}
TEST_CASE("a PE that leaves or is stopped is named") {
  seed();
  const auto brief = [](mori_shmem_options& o) {
    o.heartbeat_timeout_ns = 1'000'000'000;
    o.wait_timeout_ns = 5'000'000'000;
  };
  CHECK(run({.pe_count = 3, .adjust = brief},
            [](mori_shmem* shmem, int pe) { return one_is_missing(shmem, pe, false); }) == "");
  CHECK(run({.pe_count = 3, .adjust = brief}, [](mori_shmem* shmem, int pe) {
          return one_is_missing(shmem, pe, true);
        }) == "PE 2: ended with wait status 9\n");
}
