// context.cpp - see context.hpp: joining, the device state, faults, the end.
#include "context/context.hpp"

#include "context/agreement.hpp"
#include "context/gpu_engine.hpp"
#include "context/host_engine.hpp"

#include <mori/base/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace mori::shmem_core {
namespace {

// For commands that are on their way when a context is destroyed.
constexpr uint64_t drain_ns = 500 * base::ns_per_ms;

// What must be the same on all PEs before memory is set up.
struct terms {
  uint64_t heap_bytes;
  uint32_t device_level;
  int32_t heap_mode;
  int32_t disable_p2p;
  int32_t backend;
};

base::status verify_terms(link::group& group, const settings& with, base::deadline until) {
  const terms mine{with.heap_bytes, MORI_SHMEM_DEVICE_LEVEL, with.heap_mode, with.disable_p2p,
                   with.backend};
  MORI_TRY(const auto all, exchange(group, mine, until));
  for (int pe = 1; pe < group.size(); ++pe) {
    const terms& first = all[0];
    const terms& other = all[static_cast<size_t>(pe)];
    if (other.heap_bytes != first.heap_bytes)
      return base::fail(MORI_E_MISMATCH, "heap size differs: {} bytes on PE 0, {} on PE {}",
                        first.heap_bytes, other.heap_bytes, pe);
    if (other.heap_mode != first.heap_mode)
      return base::fail(MORI_E_MISMATCH, "heap mode differs: {} on PE 0, {} on PE {}",
                        first.heap_mode, other.heap_mode, pe);
    if (other.disable_p2p != first.disable_p2p)
      return base::fail(MORI_E_MISMATCH, "disable_p2p differs: {} on PE 0, {} on PE {}",
                        first.disable_p2p, other.disable_p2p, pe);
    if (other.backend != first.backend)
      return base::fail(MORI_E_MISMATCH, "backend differs: {} on PE 0, {} on PE {}",
                        device::backend_name(first.backend), device::backend_name(other.backend),
                        pe);
    if (other.device_level != first.device_level)
      return base::fail(MORI_E_MISMATCH, "device protocol level differs: {} on PE 0, {} on PE {}",
                        first.device_level, other.device_level, pe);
  }
  return {};
}

// Cores that the PEs of this node may run on, all together: a launcher may have
// bound each PE to cores of its own.
base::result<int> node_core_count(link::group& group, base::deadline until) {
  MORI_TRY(const auto sets, exchange(group, usable_cores(), until));
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int pe : group.local_ranks()) CPU_OR(&all, &all, &sets[static_cast<size_t>(pe)]);
  return std::max(1, CPU_COUNT(&all));
}

}  // namespace

base::result<std::shared_ptr<context>> context::create(const link::unique_id& id,
                                                       const settings& with) {
  const auto until = base::deadline::after(with.bootstrap_timeout_ns);
  link::group_options options;
  options.id = id;
  options.rank = with.pe;
  options.size = with.pe_count;
  options.join_timeout_ns = with.bootstrap_timeout_ns;
  options.heartbeat_timeout_ns = with.heartbeat_timeout_ns;
  options.node_id = with.node_id;
  MORI_TRY(std::unique_ptr<link::group> group, link::group::join(options));
  const auto leave_on_failure = [&](base::failure why) {
    group->leave();
    return why;
  };
  if (auto same = verify_terms(*group, with, until); !same) return leave_on_failure(same.error());
  const auto cores = node_core_count(*group, until);
  if (!cores) return leave_on_failure(cores.error());
  std::shared_ptr<context> made(new context(with, *cores, std::move(group)));
  auto ready = made->attach(until);
  // Nobody may touch a heap before its owner is done with it.
  if (ready) ready = made->group_->barrier(until);
  if (!ready) {
    made->shut_down();
    return std::move(ready.error());
  }
  return made;
}

context::context(const settings& with, int node_core_count, std::unique_ptr<link::group> group)
    : settings_(with),
      core_for_each_pe_(node_core_count >= static_cast<int>(group->local_ranks().size())),
      group_(std::move(group)),
      heap_(heap_header_bytes, with.heap_bytes, layout_of(with).shape),
      backing_(heap_header_bytes, with.heap_bytes, layout_of(with).step_bytes) {
  const int local = static_cast<int>(group_->local_ranks().size());
  const cpu_set_t own = usable_cores();
  if (settings_.worker_count == 0)
    settings_.worker_count = std::clamp(node_core_count / local, 1, std::max(1, CPU_COUNT(&own)));
}

// The heap and what works on it. Collective.
base::status context::attach(base::deadline until) {
  if (settings_.backend == MORI_BACKEND_HOST) {
    MORI_TRY(auto memory, node_memory::create(*group_, settings_, until));
    engine_ = std::make_unique<host_engine>(*memory, health_, core_for_each_pe_);
    memory_ = std::move(memory);
  } else {
    MORI_TRY(auto memory, gpu_heap::create(*group_, settings_, until));
    auto made = gpu_engine::create(settings_, *memory, health_);
    MORI_CHECK(agree(*group_, made ? base::status() : base::status(made.error()), until));
    engine_ = std::move(*made);
    memory_ = std::move(memory);
    health_.watch(engine_->kernel_record(), [this] { engine_->end_waits(); });
  }
  watch_group();
  MORI_CHECK(connect(until));
  return fill_state();
}

// Peers that are not mapped.
base::status context::connect(base::deadline until) {
  network::hooks use;
  use.open_site = [this](const network::plan& what) { return engine_->open_network(what); };
  use.is_ended = [this] { return __atomic_load_n(health_.abort_word(), __ATOMIC_ACQUIRE) != 0; };
  use.has_left = [this](int pe) { return engine_->has_left(pe); };
  use.raise = [this](base::failure why, int32_t operation, int pe) {
    health_.raise(why, operation, pe);
    (void)!check();  // tells the others
  };
  MORI_TRY(network_, network::create(*group_, settings_, *memory_, use, until));
  return {};
}

base::status context::fill_state() {
  state_.struct_size = sizeof state_;
  state_.level = MORI_SHMEM_DEVICE_LEVEL;
  state_.backend = settings_.backend;
  state_.my_pe = settings_.pe;
  state_.pe_count = settings_.pe_count;
  state_.heap_base = memory_->heap_base();
  state_.heap_bytes = settings_.heap_bytes;
  state_.wait_budget_ns = settings_.wait_timeout_ns;
  // A poll is some nanoseconds. With a core for each PE the answer comes in
  // microseconds; with fewer, the peer needs ours, so give it up soon.
  state_.spin_count = core_for_each_pe_ ? 4000 : 100;
  const auto& strided = memory_->strided();
  state_.peer_stride = strided.stride_bytes;
  state_.strided_first = strided.first;
  state_.strided_count = static_cast<uint32_t>(strided.count);
  state_.all_mapped = memory_->all_mapped() ? 1 : 0;
  return engine_->place(state_);
}

// The structs agree in the fields of level 1.
mori_shmem_device_state_v1 context::state_of_level_1() const {
  mori_shmem_device_state_v1 state{};
  static_assert(offsetof(mori_shmem_device_state_v1, peer_left) ==
                offsetof(mori_shmem_device_state_v2, peer_left));
  std::memcpy(&state, &state_, sizeof state);
  state.struct_size = sizeof state;
  state.level = 1;
  return state;
}

void context::watch_group() {
  group_->on_leave([this](int rank) { engine_->mark_left(rank); });
  group_->on_fault([this](const link::group_fault& fault) {
    // The group has told everybody already.
    health_.take_announcement();
    health_.raise({fault.status, 0, fault.text}, MORI_SHMEM_OP_NONE, fault.rank);
  });
}

context::~context() { shut_down(); }

void context::shut_down() {
  if (network_ && health_.check()) network_->stop(drain_ns);
  health_.take_announcement();
  health_.raise({MORI_E_ABORTED, 0, "the context was destroyed while in use"}, MORI_SHMEM_OP_NONE,
                settings_.pe);
  if (network_) network_->stop(0);
  if (engine_ != nullptr) engine_->end_modules();
  group_->leave();
}

base::status context::check() {
  auto outcome = health_.check();
  if (!outcome && health_.take_announcement()) {
    base::log(MORI_LOG_ERROR, "PE {}: {}", settings_.pe, outcome.error().text);
    group_->abort(outcome.error().text);
  }
  return outcome;
}

void context::abort() {
  const auto text = fmt::format("PE {} aborted the context", settings_.pe);
  health_.raise({MORI_E_ABORTED, 0, text}, MORI_SHMEM_OP_NONE, settings_.pe);
  if (health_.take_announcement()) group_->abort(text);
}

base::status context::sticky(base::status outcome, int32_t operation) {
  if (outcome) return outcome;
  health_.raise(outcome.error(), operation, -1);
  return check();
}

mori_shmem_report context::info() const {
  mori_shmem_report report{};
  report.struct_size = sizeof report;
  report.pe = settings_.pe;
  report.pe_count = settings_.pe_count;
  report.node = group_->node_of(settings_.pe);
  report.node_count = group_->node_count();
  const auto local = group_->local_ranks();
  report.local_pe = static_cast<int32_t>(std::ranges::find(local, settings_.pe) - local.begin());
  report.local_pe_count = static_cast<int32_t>(local.size());
  report.backend = settings_.backend;
  report.heap_mode = settings_.heap_mode;
  report.heap_bytes = settings_.heap_bytes;
  const std::lock_guard guard(heap_lock_);
  const heap_statistics now = heap_.statistics();
  report.used_bytes = now.used_bytes;
  report.peak_bytes = now.peak_bytes;
  report.largest_free_bytes = now.largest_free_bytes;
  report.queue_pair_per_pe_count = settings_.queue_pair_per_pe_count;
  report.worker_count = settings_.worker_count;
  report.wait_timeout_ns = settings_.wait_timeout_ns;
  report.gpu_ordinal = engine_->gpu_ordinal();
  report.gpu_sharer_count = engine_->gpu_sharer_count();
  return report;
}

base::result<mori_shmem_peer_report> context::peer_info(int pe) const {
  MORI_CHECK(check_pe(pe));
  const peer_access& peer = memory_->peers()[static_cast<size_t>(pe)];
  mori_shmem_peer_report report{};
  report.struct_size = sizeof report;
  report.pe = pe;
  report.node = group_->node_of(pe);
  report.transport = peer.transport;
  report.os_process_id = group_->process_id_of(pe);
  const size_t size = std::min(peer.reason.size(), sizeof report.reason - 1);
  std::memcpy(report.reason, peer.reason.data(), size);
  return report;
}

base::status context::check_pe(int pe) const {
  if (pe < 0 || pe >= settings_.pe_count)
    return base::fail(MORI_E_INVALID, "pe {} is outside 0 .. {}", pe, settings_.pe_count - 1);
  return {};
}

}  // namespace mori::shmem_core
