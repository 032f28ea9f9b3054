// create.cpp - how an operator comes to be: what a rank makes alone, the
// ranks' agreement, then the symmetric memory. See operator.hpp; operator.cpp has
// the calls.
#include "layout/dtype.hpp"
#include "operator/agreement.hpp"
#include "operator/float_environment.hpp"
#include "operator/kernels.hpp"
#include "operator/operator.hpp"
#include "operator/placement.hpp"
#include "operator/shmem_call.hpp"

#include <mori/base/env.hpp>

#include <vector>

MORI_DEVICE_IMAGES_DECLARE(mori_ep);

namespace mori::ep_core {

using base::fail;
using base::result;
using base::status;

namespace {

status check_peers(mori_shmem* shmem, int32_t pe_count) {
  for (int32_t pe = 0; pe < pe_count; ++pe) {
    mori_shmem_peer_report peer{};
    peer.struct_size = sizeof peer;
    MORI_CHECK(shmem_call(mori_shmem_peer_info, shmem, pe, &peer));
    if (peer.transport != MORI_SHMEM_TRANSPORT_P2P)
      return fail(MORI_E_UNAVAILABLE,
                  "kernel_type IntraNode needs all ranks in mapped memory, rank {} is not: {}", pe,
                  peer.reason);
  }
  return {};
}

// MORI_CHECK: "sync" makes calls on GPUs wait and raise at once.
result<bool> checks_at_once() {
  const auto text = base::env_text("MORI_CHECK");
  if (!text || *text == "sync") return text.has_value();
  return fail(MORI_E_INVALID, "MORI_CHECK is \"{}\", allowed are \"sync\" and nothing", *text);
}

// The context's device, null for the host.
result<std::shared_ptr<device::gpu>> gpu_of(const mori_shmem_report& info) {
  if (info.backend == MORI_BACKEND_HOST) return std::shared_ptr<device::gpu>();
  MORI_TRY(auto gpu, device::gpu::current(info.backend));
  if (gpu->facts().ordinal != info.gpu_ordinal)
    return fail(MORI_E_STATE, "the current device is {}, the context was created on {}",
                gpu->facts().ordinal, info.gpu_ordinal);
  return gpu;
}

result<std::unique_ptr<device::runtime>> make_runtime(const mori_shmem_report& info,
                                                      std::shared_ptr<device::gpu> gpu) {
  const auto kernels = all_kernels();
  const default_float_environment for_the_workers;
  device::runtime_options with;
  with.backend = info.backend;
  with.worker_count = static_cast<uint32_t>(info.worker_count);
  with.name = "mori-ep";
  with.gpu = std::move(gpu);
  with.sharer_count = static_cast<uint32_t>(info.gpu_sharer_count);
  with.images = MORI_DEVICE_IMAGES(mori_ep);
  with.kernels = kernels;
  return device::runtime::create(with);
}

}  // namespace

// What a rank makes alone, before the ranks agree.
struct ep_operator::prepared {
  settings config;
  int32_t rank = 0;
  bool is_synchronous = true;
  kernel_memory memory;
  mishaps record;
  streams calls;
  std::unique_ptr<device::runtime> runtime;
  mori_shmem_device_state_v1 state{};
  lease memory_of_context;
};

auto ep_operator::prepare(mori_shmem* shmem, const result<mori_ep_config>& config)
    -> result<prepared> {
  if (!config) return config.error();
  mori_shmem_report info{};
  info.struct_size = sizeof info;
  MORI_CHECK(shmem_call(mori_shmem_info, shmem, &info));
  prepared made;
  MORI_TRY(made.config, check_config(*config, info.pe_count));
  made.rank = info.pe;
  MORI_TRY(const bool at_once, checks_at_once());
  made.is_synchronous = at_once || info.backend == MORI_BACKEND_HOST;
  mori_shmem_lease* held = nullptr;
  MORI_CHECK(shmem_call(mori_shmem_lease_create, shmem, &held));
  made.memory_of_context.reset(held);
  MORI_CHECK(check_peers(shmem, info.pe_count));
  MORI_CHECK(shmem_call(mori_shmem_device_state, shmem, 1u, &made.state, sizeof made.state));
  MORI_TRY(const std::shared_ptr<device::gpu> gpu, gpu_of(info));
  MORI_TRY(made.memory, kernel_memory::allocate(gpu, lay_out_private(made.config).total_bytes));
  MORI_TRY(made.record, mishaps::create(gpu));
  MORI_TRY(made.calls, streams::create(gpu));
  MORI_TRY(made.runtime, make_runtime(info, gpu));
  return made;
}

result<std::shared_ptr<ep_operator>> ep_operator::create(mori_shmem* shmem,
                                                         const result<mori_ep_config>& config) {
  group_place place;
  MORI_CHECK(shmem_call(mori_shmem_my_pe, shmem, &place.pe));
  MORI_CHECK(shmem_call(mori_shmem_pe_count, shmem, &place.pe_count));
  result<prepared> own = prepare(shmem, config);
  MORI_CHECK(agree_on_settings(
      shmem, place, own ? result<settings>(own->config) : result<settings>(own.error())));
  const int32_t rank = own->rank;
  const mori_shmem_device_state_v1 state = own->state;
  // shared_ptr: owned by the handle table and by each call in progress.
  std::shared_ptr<ep_operator> made(new ep_operator(shmem, std::move(*own)));
  MORI_CHECK(made->attach(rank, state));
  return made;
}

ep_operator::ep_operator(mori_shmem* shmem, prepared&& from)
    : shmem_(shmem),
      settings_(from.config),
      lease_(std::move(from.memory_of_context)),
      symmetric_at_(lay_out_symmetric(settings_)),
      private_at_(lay_out_private(settings_)),
      private_(std::move(from.memory)),
      mishaps_(std::move(from.record)),
      streams_(std::move(from.calls)),
      is_synchronous_(from.is_synchronous),
      runtime_(std::move(from.runtime)),
      source_begin_(settings_.rank_count + 1) {}

ep_operator::~ep_operator() {
  // Answers MORI_E_STATE if the context is gone, and then there is nothing to give back.
  if (symmetric_ != nullptr) (void)shmem_call(mori_shmem_free, shmem_, symmetric_);
  if (registered_ != nullptr) (void)shmem_call(mori_shmem_free, shmem_, registered_);
}

// The symmetric block, and all addresses that kernels need.
status ep_operator::attach(int32_t rank, const mori_shmem_device_state_v1& state) {
  if (auto made = shmem_call(mori_shmem_malloc, shmem_, symmetric_at_.total_bytes, &symmetric_);
      !made) {
    made.error().text = fmt::format("the operator needs {} bytes of the symmetric heap: {}",
                                    symmetric_at_.total_bytes, made.error().text);
    return made;
  }
  places_ = place({settings_, symmetric_at_, private_at_},
                  {device::address_of(symmetric_), private_.address(), mishaps_.address(),
                   static_cast<uint32_t>(rank)},
                  state);
  if (auto cleared = clear_sync_words(); !cleared) {
    // The others are on their way to the barrier.
    (void)shmem_call(mori_shmem_abort, shmem_);
    return cleared;
  }
  return shmem_call(mori_shmem_barrier_all, shmem_);
}

// An earlier owner of the memory may have left words that look like ours; peers write here only
// after the barrier.
status ep_operator::clear_sync_words() {
  const std::vector<std::byte> zeros(symmetric_at_.sync_bytes);
  MORI_CHECK(shmem_call(mori_shmem_put, shmem_, symmetric_, zeros.data(), zeros.size(),
                        static_cast<int32_t>(places_.rank)));
  return shmem_call(mori_shmem_quiet, shmem_);
}

}  // namespace mori::ep_core
