// gpu_engine.cpp - see gpu_engine.hpp.
#include "context/gpu_engine.hpp"

#include "../kernels/barrier.hpp"
#include "../kernels/host_call.hpp"

#include <mori/base/log.hpp>
#include <mori/device_api/wait.hpp>

#include <array>
#include <cstring>
#include <thread>

MORI_KERNEL_DECLARE(mori_shmem_apply);
MORI_KERNEL_DECLARE(mori_shmem_barrier);
MORI_KERNEL_DECLARE(mori_shmem_host_call);
MORI_DEVICE_IMAGES_DECLARE(mori_shmem);

namespace mori::shmem_core {
namespace {

constexpr uint64_t line_bytes = 64;
constexpr uint64_t shortest_nap_ns = 10'000;
constexpr uint64_t longest_nap_ns = 1'000'000;

std::array<device::kernel, 3> all_kernels() {
  return {MORI_KERNEL_HANDLE(mori_shmem_apply), MORI_KERNEL_HANDLE(mori_shmem_barrier),
          MORI_KERNEL_HANDLE(mori_shmem_host_call)};
}

}  // namespace

// Device memory: the abort word on a line of its own, then the tables.
struct gpu_engine::words {
  static constexpr uint64_t abort = 0;
  uint64_t bases, transports, total;

  explicit words(uint64_t pe_count)
      : bases(line_bytes),
        transports(bases + pe_count * sizeof(uint64_t)),
        total(transports + pe_count * sizeof(int32_t)) {}
};

// Host memory that the device reads and writes. After it: uint32_t left[pe_count], which kernels
// look at in long waits alone.
struct gpu_engine::pinned {
  mori_shmem_fault fault;
  alignas(64) host_call_result result;
  alignas(64) uint64_t word;  // a polled word
  alignas(64) uint64_t one;   // 1: what alarms are copied from
};

struct gpu_engine::call {
  const void* target;
  uint64_t value;
  uint64_t compare;
  uint32_t word_bytes;
  bool is_signal;
  int32_t operation;
  int32_t pe;
};

gpu_engine::gpu_engine(const settings& with, gpu_heap& memory, health& faults)
    : memory_(memory), faults_(faults), settings_(with), modules_(memory.gpu(), with.pe) {}

base::result<std::unique_ptr<gpu_engine>> gpu_engine::create(const settings& with, gpu_heap& memory,
                                                             health& faults) {
  std::unique_ptr<gpu_engine> made(new gpu_engine(with, memory, faults));
  MORI_CHECK(made->make(with));
  return made;
}

// An alarm may be on its way still, from memory that is about to be freed.
gpu_engine::~gpu_engine() {
  if (alarm_ != nullptr) (void)!memory_.gpu()->synchronize_stream(alarm_);
}

base::status gpu_engine::make(const settings& with) {
  const auto& gpu = memory_.gpu();
  const auto kernels = all_kernels();
  device::runtime_options options;
  options.backend = with.backend;
  options.gpu = gpu;
  options.sharer_count = static_cast<uint32_t>(memory_.sharer_count());
  options.images = MORI_DEVICE_IMAGES(mori_shmem);
  options.kernels = kernels;
  MORI_TRY(kernels_, device::runtime::create(options));
  MORI_TRY(stream_, gpu->helper_stream(device::gpu::helper::work));
  MORI_TRY(alarm_, gpu->helper_stream(device::gpu::helper::alarm));
  const uint64_t pe_count = memory_.peers().size();
  MORI_TRY(host_words_,
           device::pinned_buffer::allocate(gpu, sizeof(pinned) + pe_count * sizeof(uint32_t)));
  reinterpret_cast<pinned*>(host_words_.data())->one = 1;

  MORI_TRY(device_words_, device::device_buffer::allocate(gpu, words(pe_count).total));
  return {};
}

base::result<network_site> gpu_engine::open_network(const network::plan& what) {
  MORI_TRY(network_, gpu_network::create(memory_.gpu(), *kernels_, what));
  return network_->take_site();
}

base::status gpu_engine::place(mori_shmem_device_state_v2& state) {
  const auto& gpu = memory_.gpu();
  const words at(memory_.peers().size());
  std::vector<uint64_t> bases;
  std::vector<int32_t> transports;
  for (const peer_access& peer : memory_.peers()) {
    bases.push_back(peer.base);
    transports.push_back(peer.transport);
  }
  MORI_CHECK(gpu->copy_now(device_words_.address() + at.bases, device::address_of(bases.data()),
                           bases.size() * sizeof(uint64_t)));
  MORI_CHECK(gpu->copy_now(device_words_.address() + at.transports,
                           device::address_of(transports.data()),
                           transports.size() * sizeof(int32_t)));
  state.peer_bases = device_words_.address() + at.bases;
  state.transports = device_words_.address() + at.transports;
  state.peer_left = device::address_of(left_words());
  state.abort_word = device_words_.address() + words::abort;
  state.fault = device::address_of(kernel_record());
  if (network_) network_->place(state, memory_, faults_);
  state_ = &state;
  return {};
}

const mori_shmem_fault* gpu_engine::kernel_record() const {
  return &reinterpret_cast<const pinned*>(host_words_.data())->fault;
}

// No driver call: this runs on the group's thread, and a device whose queues are full of kernels
// that wait would hold it up.
void gpu_engine::mark_left(int pe) { __atomic_store_n(left_words() + pe, 1u, __ATOMIC_RELEASE); }

bool gpu_engine::has_left(int pe) const {
  return __atomic_load_n(left_words() + pe, __ATOMIC_ACQUIRE) != 0;
}

uint32_t* gpu_engine::left_words() const {
  return reinterpret_cast<uint32_t*>(host_words_.data() + sizeof(pinned));
}

// Waits look at the record; the abort word, which is in the device's memory, makes later kernels
// end at once, and may follow when the device gets to it.
void gpu_engine::end_waits() {
  auto& own = *reinterpret_cast<pinned*>(host_words_.data());
  if (__atomic_load_n(&own.fault.claimed, __ATOMIC_ACQUIRE) == 0) {
    own.fault.status = MORI_E_ABORTED;
    own.fault.pe = -1;
    __atomic_store_n(&own.fault.claimed, 2, __ATOMIC_RELEASE);
  }
  const auto begun = memory_.gpu()->copy(device_words_.address() + words::abort,
                                         device::address_of(&own.one), sizeof own.one, alarm_);
  if (!begun)
    base::log(MORI_LOG_ERROR, "PE {}: kernels could not be told to end: {}", settings_.pe,
              begun.error().text);
}

uint64_t gpu_engine::at_peer(const void* symmetric, int pe) const {
  return memory_.peers()[static_cast<size_t>(pe)].base + device::address_of(symmetric) -
         memory_.heap_base();
}

base::result<int32_t> gpu_engine::put(void* target, const void* source, uint64_t bytes, int pe) {
  if (!is_mapped(pe)) return network_->put(target, source, bytes, pe);
  MORI_CHECK(memory_.gpu()->copy_now(at_peer(target, pe), device::address_of(source), bytes));
  return static_cast<int32_t>(MORI_OK);
}

base::result<int32_t> gpu_engine::get(void* target, const void* source, uint64_t bytes, int pe) {
  if (!is_mapped(pe)) return network_->get(target, source, bytes, pe);
  MORI_CHECK(memory_.gpu()->copy_now(device::address_of(target), at_peer(source, pe), bytes));
  return static_cast<int32_t>(MORI_OK);
}

base::result<int32_t> gpu_engine::run(const call& what, uint64_t& before) {
  const std::lock_guard alone(one_call_);
  auto& result = reinterpret_cast<pinned*>(host_words_.data())->result;
  host_call_args args{};
  args.state = *state_;
  args.target = device::address_of(what.target);
  args.value = what.value;
  args.compare = what.compare;
  args.result = device::address_of(&result);
  args.word_bytes = what.word_bytes;
  args.is_signal = what.is_signal ? 1 : 0;
  args.operation = what.operation;
  args.pe = what.pe;
  device::launch_options with;
  with.wave_count = 1;
  with.stream = stream_;
  MORI_TRY([[maybe_unused]] const uint32_t blocks,
           kernels_->launch(MORI_KERNEL_HANDLE(mori_shmem_host_call), with, args));
  MORI_CHECK(memory_.gpu()->synchronize_stream(stream_));
  before = result.before;
  return result.status;
}

base::result<int32_t> gpu_engine::put_signal(const mori_shmem_put_signal_args& with) {
  if (!is_mapped(with.pe)) return network_->put_signal(with);
  if (with.size_bytes != 0) MORI_CHECK(put(with.target, with.source, with.size_bytes, with.pe));
  uint64_t before = 0;
  return run({with.signal, with.signal_value, 0, 8, true, with.signal_op, with.pe}, before);
}

base::result<int32_t> gpu_engine::atomic(const mori_shmem_atomic_args& with, uint64_t& before) {
  if (!is_mapped(with.pe)) return network_->atomic(with, before);
  return run({with.target, with.value, with.compare, static_cast<uint32_t>(with.size_bytes), false,
              with.op, with.pe},
             before);
}

base::result<int32_t> gpu_engine::quiet() {
  if (network_) return network_->quiet();
  return static_cast<int32_t>(MORI_OK);
}

base::result<uint64_t> gpu_engine::read_word(uint64_t address, uint64_t bytes) {
  const std::lock_guard alone(one_call_);
  auto& word = reinterpret_cast<pinned*>(host_words_.data())->word;
  word = 0;
  MORI_CHECK(memory_.gpu()->copy_now(device::address_of(&word), address, bytes));
  return word;
}

base::result<engine::waited> gpu_engine::wait_until(
    const mori_shmem_wait_args& with, const std::function<base::status()>& still_sound) {
  const auto until =
      base::deadline::after(with.timeout_ns == 0 ? settings_.wait_timeout_ns : with.timeout_ns);
  uint64_t nap_ns = shortest_nap_ns;
  for (;;) {
    // Read before the word: what a PE stored before it left still counts.
    const bool has_left =
        with.pe >= 0 && __atomic_load_n(left_words() + with.pe, __ATOMIC_ACQUIRE) != 0;
    MORI_TRY(const uint64_t seen, read_word(device::address_of(with.address), with.size_bytes));
    const uint64_t wanted = with.size_bytes == 4 ? static_cast<uint32_t>(with.value) : with.value;
    if (device_api::compares(seen, with.compare, wanted)) return waited{seen, true, false};
    MORI_CHECK(still_sound());
    if (has_left || until.left_ns() == 0) return waited{seen, false, has_left};
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(nap_ns, until.left_ns())));
    nap_ns = std::min(nap_ns * 2, longest_nap_ns);
  }
}

base::status gpu_engine::barrier_on_stream(void* stream) {
  device::launch_options with;
  with.wave_count = 1;
  with.stream = stream;
  MORI_TRY([[maybe_unused]] const uint32_t blocks,
           kernels_->launch(MORI_KERNEL_HANDLE(mori_shmem_barrier), with, barrier_args{*state_}));
  return {};
}

}  // namespace mori::shmem_core
