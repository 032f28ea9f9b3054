// gpu_network.cpp - see gpu_network.hpp.
#include "context/gpu_network.hpp"

#include <mori/device_api/shmem.hpp>

namespace mori::shmem_core {

namespace api = mori::device_api;

namespace {

constexpr mori::device::one_lane lane;
// Kernels cannot wake the proxy: it looks on while there is traffic, then naps.
constexpr uint64_t spin_ns = 200'000;
constexpr uint64_t longest_nap_ns = 500'000;
constexpr uint64_t spin_count = 100;

}  // namespace

base::result<std::unique_ptr<gpu_network>> gpu_network::create(std::shared_ptr<device::gpu> gpu,
                                                               device::runtime& kernels,
                                                               const network::plan& what) {
  std::unique_ptr<gpu_network> made(new gpu_network());
  made->gpu_ = std::move(gpu);
  MORI_TRY(made->port_, gpu_port::create(made->gpu_, kernels));
  ring_shape one = what.shape;
  one.ring_count = 1;
  made->host_ring_ = std::make_unique<host_rings>(one, what.wake_fd);
  MORI_TRY(made->shared_, device::pinned_buffer::allocate(made->gpu_, what.shape.shared_bytes()));
  const uint64_t own_each = what.shape.own_bytes_each();
  MORI_TRY(made->own_,
           device::device_buffer::allocate(made->gpu_, what.shape.ring_count * own_each));
  const mori_shmem_ring_v1& host = made->host_ring_->all().front();
  for (uint64_t at = 0; at < what.shape.ring_count; ++at) {
    auto ring = what.shape.ring(at, device::address_of(made->shared_.data()),
                                made->own_.address() + at * own_each, what.wake_fd);
    // Only host calls sleep or wake anybody.
    ring.doorbell = host.doorbell;
    ring.asleep = host.asleep;
    made->kernel_rings_.push_back(ring);
  }
  const uint64_t table_bytes = made->kernel_rings_.size() * sizeof(mori_shmem_ring_v1);
  MORI_TRY(made->table_, device::device_buffer::allocate(made->gpu_, table_bytes));
  MORI_CHECK(made->gpu_->copy_now(made->table_.address(),
                                  device::address_of(made->kernel_rings_.data()), table_bytes));
  return made;
}

network_site gpu_network::take_site() {
  network_site site;
  site.rings = kernel_rings_;
  site.rings.push_back(host_ring_->all().front());
  site.memory = std::move(port_);
  site.spin_ns = spin_ns;
  site.longest_nap_ns = longest_nap_ns;
  return site;
}

void gpu_network::place(mori_shmem_device_state_v2& state, const heap_memory& memory,
                        health& faults) {
  state.rings = table_.address();
  state.ring_count = static_cast<uint32_t>(kernel_rings_.size());
  faults_ = &faults;
  for (const peer_access& peer : memory.peers()) {
    peer_bases_.push_back(peer.base);
    transports_.push_back(peer.transport);
  }
  state_ = state;
  state_.peer_bases = device::address_of(peer_bases_.data());
  state_.transports = device::address_of(transports_.data());
  state_.fault = device::address_of(&record_);
  state_.abort_word = device::address_of(faults.abort_word());
  state_.spin_count = spin_count;
  state_.strided_count = 0;
  state_.rings = device::address_of(host_ring_->all().data());
  state_.ring_count = 1;
}

int32_t gpu_network::report(int32_t status) {
  if (status != MORI_OK && __atomic_load_n(&record_.claimed, __ATOMIC_ACQUIRE) == 2)
    faults_->raise({record_.status, 0, describe(record_)}, record_.operation, record_.pe);
  return status;
}

int32_t gpu_network::post_and_wait(int32_t operation, const mori_shmem_command_v1& what) {
  uint64_t index = 0;
  int32_t status = api::post(state_, {operation, 0}, what, index);
  if (status == MORI_OK) status = api::quiet_pe(lane, state_, what.pe, 0);
  return report(status);
}

// The source may be the device's memory, which only the proxy can read here.
int32_t gpu_network::put(void* target, const void* source, uint64_t bytes, int pe) {
  if (bytes == 0) return MORI_OK;
  auto what = api::command_for(state_, MORI_SHMEM_COMMAND_PUT, {target, bytes, pe});
  what.local = device::address_of(source);
  return post_and_wait(MORI_SHMEM_OP_PUT, what);
}

int32_t gpu_network::get(void* target, const void* source, uint64_t bytes, int pe) {
  if (bytes == 0) return MORI_OK;
  auto what = api::command_for(state_, MORI_SHMEM_COMMAND_GET, {source, bytes, pe});
  what.local = device::address_of(target);
  return post_and_wait(MORI_SHMEM_OP_GET, what);
}

int32_t gpu_network::put_signal(const mori_shmem_put_signal_args& with) {
  const bool has_data = with.size_bytes != 0;
  auto what = api::command_for(
      state_, has_data ? api::u16{MORI_SHMEM_COMMAND_PUT} : api::u16{MORI_SHMEM_COMMAND_INLINE},
      {has_data ? with.target : with.signal, with.size_bytes, with.pe});
  what.local = device::address_of(with.source);
  what.operation = static_cast<uint16_t>(with.signal_op);
  what.signal = device::address_of(with.signal) - state_.heap_base;
  what.value = with.signal_value;
  return post_and_wait(MORI_SHMEM_OP_PUT_SIGNAL, what);
}

int32_t gpu_network::atomic(const mori_shmem_atomic_args& with, uint64_t& before) {
  const auto run = [&]<class T>(T) {
    const auto done = api::atomic_fetch(
        lane, state_,
        api::atomic_request<T>{static_cast<T*>(with.target), static_cast<T>(with.value), with.op,
                               with.pe, static_cast<T>(with.compare)});
    before = static_cast<uint64_t>(done.before);
    return report(done.status);
  };
  return with.size_bytes == 4 ? run(uint32_t{}) : run(uint64_t{});
}

base::result<int32_t> gpu_network::quiet() {
  int32_t status = api::quiet(lane, state_);
  for (const mori_shmem_ring_v1& kernels : kernel_rings_) {
    if (status != MORI_OK) break;
    // How many commands there are is in the device's memory.
    uint64_t tail = 0;
    uint64_t seen[2] = {0, 0};
    MORI_CHECK(gpu_->copy_now(device::address_of(&tail), kernels.tail, sizeof tail));
    mori_shmem_ring_v1 here = kernels;
    here.tail = device::address_of(&tail);
    here.seen = device::address_of(seen);
    status = api::drain_ring(state_, here, -1);
  }
  return report(status);
}

}  // namespace mori::shmem_core
