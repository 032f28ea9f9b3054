// device_functions_test.cpp - random sequences of shmem's device functions, run by a lane,
// a wave and a block on a GPU's heap and by the host back end on the host's: every byte of
// the heaps, of the private memory and of the outcomes is the same. The kernel that runs a
// sequence is that of the AMD tests (tests/amd/shmem/program.hpp).
#include "../amd/shmem/program.hpp"
#include "world.hpp"

#include <doctest/doctest.h>
#include <mori/device/gpu_memory.hpp>
#include <mori/device/runtime.hpp>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

MORI_KERNEL_DECLARE(mori_amd_lane_programs);
MORI_KERNEL_DECLARE(mori_amd_wave_programs);
MORI_KERNEL_DECLARE(mori_amd_block_programs);
MORI_DEVICE_IMAGES_DECLARE(mori_gpu_test);

using namespace gpu_test;
namespace device = mori::device;
namespace amd = mori::amd_test;

namespace {

// The user part of each heap, per source PE: a place for puts, one for words, one for signals.
constexpr uint64_t slot_bytes = 4096, word_at = 2048, signal_at = 3072;
// Private memory: sources, then what gets bring.
constexpr uint64_t sources_bytes = 8192, sink_bytes = 8192;
constexpr int steps_of_program = 120;

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

using engine = std::mt19937_64;
uint64_t pick(engine& random, uint64_t least, uint64_t most) {
  return least + random() % (most - least + 1);
}

struct place {
  uint64_t heap = 0;  // the user part of the own heap
  uint64_t own = 0;   // private memory
  int pe = 0, count = 0;
};

amd::step random_put(engine& random, const place& at) {
  amd::step todo{};
  todo.pe = static_cast<int32_t>(pick(random, 0, static_cast<uint64_t>(at.count) - 1));
  const uint64_t slot = at.heap + static_cast<uint64_t>(at.pe) * slot_bytes;
  todo.what = static_cast<amd::operation>(pick(random, 0, 4));
  todo.type = amd::element::u64;
  const uint64_t offset = 8 * pick(random, 0, 64);
  todo.to = slot + offset;
  todo.from = at.own + 8 * pick(random, 0, 500) + (pick(random, 0, 3) == 0 ? 3 : 0);
  todo.value = random();
  todo.count = pick(random, 0, 1200);
  switch (todo.what) {
    case amd::operation::put_nbi:
      todo.from &= ~uint64_t{7};
      todo.count /= 8;
      break;
    case amd::operation::put_size_imm_nbi: todo.count = uint64_t{1} << pick(random, 0, 4); break;
    case amd::operation::putmem_signal_nbi:
      todo.compare = slot + signal_at + 8 * pick(random, 0, 16);
      todo.code = pick(random, 0, 1) == 0 ? MORI_SHMEM_SIGNAL_SET : MORI_SHMEM_SIGNAL_ADD;
      break;
    default: break;
  }
  return todo;
}

// Words that this PE alone changes, so that what was there before is known.
amd::step random_atomic(engine& random, const place& at) {
  constexpr int32_t codes[] = {2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19};
  amd::step todo{};
  todo.what =
      static_cast<amd::operation>(pick(random, static_cast<uint64_t>(amd::operation::atomic_fetch),
                                       static_cast<uint64_t>(amd::operation::atomic_add)));
  todo.type = amd::element::u64;
  todo.pe = static_cast<int32_t>(pick(random, 0, static_cast<uint64_t>(at.count) - 1));
  todo.code = codes[pick(random, 0, std::size(codes) - 1)];
  todo.to = at.heap + static_cast<uint64_t>(at.pe) * slot_bytes + word_at + 8 * pick(random, 0, 32);
  todo.value = pick(random, 0, 3);
  todo.compare = pick(random, 0, 3);
  return todo;
}

amd::step simple(amd::operation what) {
  amd::step todo{};
  todo.what = what;
  return todo;
}

amd::step random_get(engine& random, const place& at) {
  amd::step todo{};
  todo.what = pick(random, 0, 1) == 0 ? amd::operation::getmem_nbi : amd::operation::getmem;
  todo.pe = static_cast<int32_t>(pick(random, 0, static_cast<uint64_t>(at.count) - 1));
  todo.from = at.heap + pick(random, 0, static_cast<uint64_t>(at.count) * slot_bytes - 1024);
  todo.to = at.own + sources_bytes + pick(random, 0, sink_bytes - 1024);
  todo.count = pick(random, 0, 1000);
  return todo;
}

// Puts and atomics, a barrier, gets and waits for what is there, a barrier; again.
std::vector<amd::step> random_program(uint64_t number, const place& at) {
  engine random(seed() + number * 1000 + static_cast<uint64_t>(at.pe));
  std::vector<amd::step> all;
  while (all.size() < steps_of_program) {
    for (int i = 0; i < 8; ++i) {
      all.push_back(pick(random, 0, 2) == 0 ? random_atomic(random, at) : random_put(random, at));
      // Puts of one PE overlap, and only a quiet orders them.
      all.push_back(simple(amd::operation::quiet));
    }
    all.push_back(simple(amd::operation::barrier_all));
    for (int i = 0; i < 4; ++i) {
      all.push_back(random_get(random, at));
      all.push_back(simple(amd::operation::fence));
    }
    all.push_back(simple(amd::operation::my_pe));
    all.push_back(simple(amd::operation::n_pes));
    all.push_back(simple(amd::operation::barrier_all));
  }
  return all;
}

struct ran {
  std::vector<std::byte> heap, own;
  std::vector<amd::outcome> outcomes;
  bool operator==(const ran& other) const {
    return heap == other.heap && own == other.own && outcomes.size() == other.outcomes.size() &&
           std::memcmp(outcomes.data(), other.outcomes.data(),
                       outcomes.size() * sizeof(amd::outcome)) == 0;
  }
};

// Memory that kernels of the back end reach, and copies to and from it.
class reach {
 public:
  explicit reach(std::shared_ptr<device::gpu> gpu) : gpu_(std::move(gpu)) {}

  uint64_t upload(const void* from, uint64_t bytes) {
    if (gpu_ == nullptr) {
      host_.emplace_back(bytes);
      std::memcpy(host_.back().data(), from, bytes);
      return device::address_of(host_.back().data());
    }
    auto made = device::device_buffer::allocate(gpu_, bytes);
    if (!made || !gpu_->copy_now(made->address(), device::address_of(from), bytes)) std::abort();
    device_.push_back(std::move(*made));
    return device_.back().address();
  }
  void download(void* to, uint64_t from, uint64_t bytes) const {
    if (gpu_ == nullptr)
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    else if (!gpu_->copy_now(device::address_of(to), from, bytes))
      std::abort();
  }

 private:
  std::shared_ptr<device::gpu> gpu_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<device::device_buffer> device_;
};

// Everything that loads or allocates, before any kernel waits for another PE.
struct prepared {
  std::unique_ptr<device::runtime> runtime;
  std::shared_ptr<device::gpu> gpu;
  device::own_stream stream;
};

std::string prepare(const device::kernel& kernel, int32_t backend, prepared& out) {
  device::runtime_options options;
  options.backend = backend;
  options.images = MORI_DEVICE_IMAGES(mori_gpu_test);
  options.kernels = {&kernel, 1};
  auto runtime = device::runtime::create(options);
  if (!runtime) return runtime.error().text;
  out.runtime = std::move(*runtime);
  if (backend == MORI_BACKEND_HOST) return "";
  out.gpu = *device::gpu::current(backend);
  auto stream = device::own_stream::create(out.gpu);
  if (!stream) return stream.error().text;
  out.stream = std::move(*stream);
  return "";
}

std::string launch(const device::kernel& kernel, const prepared& on,
                   const amd::program_args& args) {
  device::launch_options how;
  how.wave_count = 4;
  how.abort_word = args.s.abort_word;
  how.fault = args.s.fault;
  how.stream = on.stream.get();
  if (auto blocks = on.runtime->launch(kernel, how, args); !blocks) return blocks.error().text;
  if (on.gpu == nullptr) return "";
  const auto done = on.gpu->synchronize_stream(on.stream.get());
  return done ? "" : done.error().text;
}

std::string run_program(const device::kernel& kernel, int32_t backend, mori_shmem* shmem,
                        uint64_t number, ran& out) {
  place at;
  EXPECT_OK(mori_shmem_my_pe, shmem, &at.pe);
  EXPECT_OK(mori_shmem_pe_count, shmem, &at.count);
  reach memory(backend == MORI_BACKEND_HOST ? nullptr : *device::gpu::current(backend));
  void* user = nullptr;
  const uint64_t heap_bytes = static_cast<uint64_t>(at.count) * slot_bytes;
  EXPECT_OK(mori_shmem_malloc, shmem, heap_bytes, &user);
  at.heap = device::address_of(user);
  // What an earlier program has left in a block is still there when it is handed out again.
  const std::vector<std::byte> zero(heap_bytes);
  EXPECT_OK(mori_shmem_put, shmem, user, zero.data(), heap_bytes, at.pe);
  std::vector<std::byte> own(sources_bytes + sink_bytes);
  engine random(seed() + static_cast<uint64_t>(at.pe));
  for (std::byte& each : own) each = static_cast<std::byte>(random());
  at.own = memory.upload(own.data(), own.size());
  const std::vector<amd::step> steps = random_program(number, at);
  out.outcomes.resize(steps.size());
  std::memset(out.outcomes.data(), 0, steps.size() * sizeof(amd::outcome));
  amd::program_args args{};
  EXPECT_OK(mori_shmem_device_state, shmem, 2u, static_cast<void*>(&args.s), sizeof args.s);
  args.steps = memory.upload(steps.data(), steps.size() * sizeof(amd::step));
  args.outcomes = memory.upload(out.outcomes.data(), out.outcomes.size() * sizeof(amd::outcome));
  const amd::program one{0, steps.size()};
  args.programs = memory.upload(&one, sizeof one);
  args.program_count = 1;
  prepared on;
  if (std::string failed = prepare(kernel, backend, on); !failed.empty()) return failed;
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  if (std::string failed = launch(kernel, on, args); !failed.empty()) return failed;
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  out.heap.resize(heap_bytes);
  memory.download(out.heap.data(), at.heap, heap_bytes);
  out.own.resize(own.size());
  memory.download(out.own.data(), at.own, own.size());
  memory.download(out.outcomes.data(), args.outcomes, out.outcomes.size() * sizeof(amd::outcome));
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  EXPECT_OK(mori_shmem_free, shmem, user);
  return "";
}

// A second context of the same PEs, on the host. The id travels over the first.
std::string join_on_host(mori_shmem* shmem, mori_shmem** out) {
  int32_t pe = 0, count = 0;
  EXPECT_OK(mori_shmem_my_pe, shmem, &pe);
  EXPECT_OK(mori_shmem_pe_count, shmem, &count);
  void* place = nullptr;
  mori_shmem_unique_id id{};
  EXPECT_OK(mori_shmem_malloc, shmem, sizeof id, &place);
  if (pe == 0) {
    EXPECT_OK(mori_shmem_unique_id_create, &id);
    for (int peer = 0; peer < count; ++peer)
      EXPECT_OK(mori_shmem_put, shmem, place, &id, sizeof id, peer);
  }
  EXPECT_OK(mori_shmem_barrier_all, shmem);
  EXPECT_OK(mori_shmem_get, shmem, &id, place, sizeof id, pe);
  mori_shmem_options options{};
  options.struct_size = sizeof options;
  options.pe = pe;
  options.pe_count = count;
  options.backend = MORI_BACKEND_HOST;
  options.heap_bytes = 8 << 20;
  EXPECT_OK(mori_shmem_create, &id, &options, out);
  return "";
}

std::string compare_with_host(mori_shmem* shmem, int) {
  mori_shmem* on_host = nullptr;
  std::string failed = join_on_host(shmem, &on_host);
  const device::kernel kernels[] = {MORI_KERNEL_HANDLE(mori_amd_lane_programs),
                                    MORI_KERNEL_HANDLE(mori_amd_wave_programs),
                                    MORI_KERNEL_HANDLE(mori_amd_block_programs)};
  for (uint64_t number = 0; failed.empty() && number < (is_sanitized() ? 3 : 9); ++number) {
    const device::kernel& kernel = kernels[number % 3];
    ran here, there;
    failed = run_program(kernel, backend_here().backend, shmem, number, here);
    if (failed.empty()) failed = run_program(kernel, MORI_BACKEND_HOST, on_host, number, there);
    if (failed.empty() && !(here == there))
      failed =
          std::string(kernel.name) + ", program " + std::to_string(number) +
          ": the GPU and the host differ; repeat with MORI_TEST_SEED=" + std::to_string(seed());
  }
  mori_shmem_destroy(on_host);
  return failed;
}

}  // namespace

TEST_CASE("device functions give what they give on the host") {
  seed();
  for (const as kind : {as::threads, as::processes})
    for (const int count : {1, 2, 4, 8}) {
      CAPTURE(count);
      CHECK(run({.pe_count = count, .kind = kind}, compare_with_host) == "");
    }
}
