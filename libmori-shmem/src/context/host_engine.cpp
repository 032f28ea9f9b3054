// host_engine.cpp - see host_engine.hpp.
#include "context/host_engine.hpp"

#include "network/host_memory.hpp"

#include <mori/device_api/shmem.hpp>

#include <algorithm>

namespace mori::shmem_core {

namespace api = mori::device_api;

namespace {

constexpr mori::device::one_lane lane;
constexpr uint64_t network_spin_ns = 20'000;

int32_t refuse_seat(uint64_t, int32_t) noexcept { return 0; }

}  // namespace

host_engine::host_engine(node_memory& memory, health& faults, bool spins)
    : memory_(memory), faults_(faults), spins_(spins), peer_left_(memory.peers().size(), 0) {}

base::result<network_site> host_engine::open_network(const network::plan& what) {
  rings_ = std::make_unique<host_rings>(what.shape, what.wake_fd);
  rings_->set_driver(driver_);
  driver_.call = reinterpret_cast<uint64_t>(refuse_seat);  // until the proxy is there
  const auto is_mapped = [](const peer_access& peer) { return peer.base != 0; };
  driver_.hears_all = std::ranges::count_if(memory_.peers(), is_mapped) == 1 ? 1 : 0;  // itself
  network_site site;
  site.rings = rings_->all();
  site.memory = std::make_unique<host_memory>(memory_.sync());
  site.spin_ns = spins_ ? network_spin_ns : 0;
  site.driver = &driver_;
  return site;
}

base::status host_engine::place(mori_shmem_device_state_v2& state) {
  for (const peer_access& peer : memory_.peers()) {
    peer_bases_.push_back(peer.base);
    transports_.push_back(peer.transport);
  }
  if (rings_) {
    state.rings = reinterpret_cast<uint64_t>(rings_->all().data());
    state.ring_count = static_cast<uint32_t>(rings_->all().size());
  }
  state.peer_bases = reinterpret_cast<uint64_t>(peer_bases_.data());
  state.transports = reinterpret_cast<uint64_t>(transports_.data());
  state.fault = reinterpret_cast<uint64_t>(faults_.record());
  state.abort_word = reinterpret_cast<uint64_t>(faults_.abort_word());
  state.peer_left = reinterpret_cast<uint64_t>(peer_left_.data());
  state_ = &state;
  return {};
}

void host_engine::mark_left(int pe) {
  __atomic_store_n(&peer_left_[static_cast<size_t>(pe)], 1u, __ATOMIC_RELEASE);
}

bool host_engine::has_left(int pe) const {
  return __atomic_load_n(&peer_left_[static_cast<size_t>(pe)], __ATOMIC_ACQUIRE) != 0;
}

// Callers may use their source again when the call returns; a command takes only few bytes along.
int32_t host_engine::release_source(int32_t status, uint64_t bytes, int pe) {
  if (status != MORI_OK || bytes <= api::largest_inline_bytes || !api::is_networked(*state_, pe))
    return status;
  return api::quiet_pe(lane, *state_, pe, 0);
}

base::result<int32_t> host_engine::put(void* target, const void* source, uint64_t bytes, int pe) {
  return release_source(api::putmem_nbi(lane, *state_, {target, source, bytes, pe}), bytes, pe);
}

base::result<int32_t> host_engine::get(void* target, const void* source, uint64_t bytes, int pe) {
  return api::getmem(lane, *state_, {target, source, bytes, pe});
}

base::result<int32_t> host_engine::put_signal(const mori_shmem_put_signal_args& with) {
  const int32_t status =
      api::putmem_signal_nbi(lane, *state_, {with.target, with.source, with.size_bytes, with.pe},
                             {with.signal, with.signal_value, with.signal_op});
  return release_source(status, with.size_bytes, with.pe);
}

base::result<int32_t> host_engine::atomic(const mori_shmem_atomic_args& with, uint64_t& before) {
  const auto run = [&]<class T>(T) {
    const auto done = api::atomic_fetch(
        lane, *state_,
        api::atomic_request<T>{static_cast<T*>(with.target), static_cast<T>(with.value), with.op,
                               with.pe, static_cast<T>(with.compare)});
    before = static_cast<uint64_t>(done.before);
    return done.status;
  };
  return with.size_bytes == 4 ? run(uint32_t{}) : run(uint64_t{});
}

base::result<engine::waited> host_engine::wait_until(const mori_shmem_wait_args& with,
                                                     const std::function<base::status()>&) {
  const auto run = [&]<class T>(T) {
    const auto result =
        api::wait_until(lane, *state_,
                        api::wait_request<T>{static_cast<const T*>(with.address), with.compare,
                                             static_cast<T>(with.value), with.pe, with.timeout_ns});
    return waited{static_cast<uint64_t>(result.seen), result.met != 0, false};
  };
  return with.size_bytes == 4 ? run(uint32_t{}) : run(uint64_t{});
}

base::result<int32_t> host_engine::quiet() { return api::quiet(lane, *state_); }

base::result<int32_t> host_engine::barrier() {
  mori_shmem_sync_v1& own = memory_.sync();
  return api::disseminate(*state_, {own.host_barrier, &own.host_epoch});
}

base::status host_engine::barrier_on_stream(void* stream) {
  return base::fail(MORI_E_INVALID, "stream {} given: the host backend has no streams",
                    static_cast<const void*>(stream));
}

}  // namespace mori::shmem_core
