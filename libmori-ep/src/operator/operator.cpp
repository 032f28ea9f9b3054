// operator.cpp - see operator.hpp. Create first, then the calls.
#include "operator/operator.hpp"

#include "layout/dtype.hpp"
#include "operator/agreement.hpp"
#include "operator/float_environment.hpp"
#include "operator/shmem_call.hpp"
#include "operator/verdict.hpp"

#include <mori/base/clock.hpp>
#include <mori/base/log.hpp>

#include <algorithm>
#include <cstring>

MORI_KERNEL_DECLARE(mori_ep_intra_node_dispatch);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_f32);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_bf16);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_f16);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_e4m3fn);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_e4m3fnuz);

namespace mori::ep_core {

using base::fail;
using base::result;
using base::status;

namespace {

uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

device::kernel combine_kernel_of(int32_t dtype) {
  switch (dtype) {
    case MORI_EP_BF16: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_bf16);
    case MORI_EP_F16: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f16);
    case MORI_EP_F8_E4M3FN: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fn);
    case MORI_EP_F8_E4M3FNUZ: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fnuz);
    default: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f32);
  }
}

// Holds the operator for one call; a second call meanwhile is a caller's mistake.
class turn {
 public:
  explicit turn(std::atomic<bool>& busy) : busy_(busy), taken_(!busy.exchange(true)) {}
  ~turn() {
    if (taken_) busy_.store(false);
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

  status granted() const {
    if (taken_) return {};
    return fail(MORI_E_STATE, "another call on this operator is in progress");
  }

 private:
  std::atomic<bool>& busy_;
  const bool taken_;
};

presence presence_of(const void* array, uint64_t row_count) {
  if (row_count == 0) return presence::no_rows;
  return array != nullptr ? presence::given : presence::none;
}

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

}  // namespace

// What a rank makes alone, before the ranks agree.
struct ep_operator::prepared {
  settings config;
  int32_t rank;
  private_memory memory;
  std::unique_ptr<device::runtime> runtime;
  mori_shmem_device_state_v1 state;
  lease memory_of_context;
};

auto ep_operator::prepare(mori_shmem* shmem, const result<mori_ep_config>& config)
    -> result<prepared> {
  if (!config) return config.error();
  mori_shmem_report info{};
  info.struct_size = sizeof info;
  MORI_CHECK(shmem_call(mori_shmem_info, shmem, &info));
  MORI_TRY(settings checked, check_config(*config, info.pe_count));
  prepared made{checked, info.pe, {}, nullptr, {}, {}};
  mori_shmem_lease* held = nullptr;
  MORI_CHECK(shmem_call(mori_shmem_lease_create, shmem, &held));
  made.memory_of_context.reset(held);
  MORI_CHECK(check_peers(shmem, info.pe_count));
  MORI_CHECK(shmem_call(mori_shmem_device_state, shmem, 1u, &made.state, sizeof made.state));
  MORI_TRY(made.memory, private_memory::allocate(lay_out_private(checked).total_bytes));
  const default_float_environment for_the_workers;
  device::runtime_options with;
  with.backend = info.backend;
  with.worker_count = static_cast<uint32_t>(info.worker_count);
  with.name = "mori-ep";
  MORI_TRY(made.runtime, device::runtime::create(with));
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
      runtime_(std::move(from.runtime)) {}

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
  const uint64_t s = address(symmetric_), p = address(private_.at(0));
  places_.state = state;
  places_.counts = s + symmetric_at_.counts;
  places_.flags = s + symmetric_at_.flags;
  places_.tokens = s + symmetric_at_.tokens;
  places_.indices = s + symmetric_at_.indices;
  places_.weights = s + symmetric_at_.weights;
  places_.scales = s + symmetric_at_.scales;
  places_.source_tokens = s + symmetric_at_.source_tokens;
  places_.combine_weights = s + symmetric_at_.combine_weights;
  places_.registered = settings_.registered_input != 0 ? s + symmetric_at_.registered : 0;
  places_.plan = p + private_at_.plan;
  places_.send_begin = p + private_at_.send_begin;
  places_.source_begin = p + private_at_.source_begin;
  places_.block_counts = p + private_at_.block_counts;
  places_.block_reports = p + private_at_.block_reports;
  places_.routes = p + private_at_.routes;
  places_.local_expert_count = p + private_at_.local_expert_count;
  places_.out = p + private_at_.out;
  places_.out_weights = p + private_at_.out_weights;
  places_.count_row_words = symmetric_at_.count_row_words;
  places_.recv_capacity = settings_.recv_token_capacity_count;
  places_.wait_budget_ns = settings_.timeout_ns != 0 ? settings_.timeout_ns : state.wait_budget_ns;
  places_.rank = static_cast<u32>(rank);
  places_.rank_count = static_cast<u32>(settings_.rank_count);
  places_.experts_per_rank = static_cast<u32>(settings_.expert_per_rank_count);
  places_.by_experts_per_rank = divisor_of(places_.experts_per_rank);
  places_.top_k = static_cast<u32>(settings_.expert_per_token_count);
  places_.fan_out = static_cast<u32>(settings_.fan_out());
  places_.drop_invalid_experts = static_cast<u32>(settings_.drop_invalid_experts);
  // An earlier owner of the memory may have left words that look like ours; peers write here only
  // after the barrier.
  std::memset(symmetric_, 0, symmetric_at_.sync_bytes);
  return shmem_call(mori_shmem_barrier_all, shmem_);
}

extent ep_operator::receive_buffers() const {
  return {places_.tokens, places_.combine_weights - places_.tokens};
}

combine_facts ep_operator::facts() const {
  return {dispatched_,
          token_count_,
          recv_count(),
          {places_.tokens, symmetric_at_.token_bytes},
          {places_.combine_weights, symmetric_at_.registered - symmetric_at_.combine_weights},
          places_.registered != 0};
}

template <class Args>
result<uint32_t> ep_operator::launch(const device::kernel& kernel, uint32_t block_count,
                                     const Args& args) {
  device::launch_options with;
  with.block_count = std::min(block_count, static_cast<uint32_t>(grid_limit));
  with.pe = static_cast<int32_t>(places_.rank);
  with.abort_word = places_.state.abort_word;
  with.fault = places_.state.fault;
  // Blocks wait for the one that waits for peers: its waits must end first, for they name whom.
  with.wait_budget_ns = base::deadline::saturating_add(
      base::deadline::saturating_add(places_.wait_budget_ns, places_.wait_budget_ns),
      base::ns_per_s);
  with.spin_count = places_.state.spin_count;
  const default_float_environment for_this_thread;
  return runtime_->launch(kernel, with, args);
}

status ep_operator::explain_end(const call_end& end) const {
  // A kernel that was ended at once has not even begun its epoch.
  if (end.begun == end.epoch) MORI_CHECK(explain_verdict(the_plan()));
  if (end.finished == end.epoch) return {};
  MORI_CHECK(check());
  return fail(MORI_E_INTERNAL, "a kernel ended early, but the context has no fault");
}

status ep_operator::dispatch(const mori_ep_dispatch_args& args, mori_ep_dispatch_result& result) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  MORI_TRY(const dispatch_request request, check_dispatch(settings_, receive_buffers(), args));

  dispatch_args to_kernel{};
  to_kernel.at = places_;
  to_kernel.input = address(args.input);
  to_kernel.weights = address(args.weights);
  to_kernel.scales = address(args.scales);
  to_kernel.indices = address(args.indices);
  to_kernel.token_count = static_cast<u32>(request.token_count);
  to_kernel.row_bytes = request.row_bytes;
  to_kernel.scale_row_bytes = settings_.scale_row_bytes();
  to_kernel.fingerprint = pack({args.dtype, static_cast<u32>(request.hidden_dim),
                                presence_of(args.weights, request.token_count),
                                presence_of(args.scales, request.token_count), false});
  to_kernel.count_local_experts = static_cast<u32>(args.count_local_experts);

  dispatched_ = false;
  const uint64_t epoch = the_plan().dispatch_epoch + 1;
  MORI_TRY(const uint32_t blocks,
           launch(MORI_KERNEL_HANDLE(mori_ep_intra_node_dispatch), request.block_count, to_kernel));
  const plan& p = the_plan();
  MORI_CHECK(explain_end({epoch, p.dispatch_epoch, p.finished_dispatch}));
  // Also when an own id was bad: the peers have their rows and expect a combine.
  dispatched_ = true;
  token_count_ = request.token_count;
  MORI_CHECK(explain_bad_id(settings_, p));

  const bool weights = args.weights != nullptr || (p.flows & flows_weights) != 0;
  const bool scales = args.scales != nullptr || (p.flows & flows_scales) != 0;
  result.out = device::pointer<void>(places_.tokens);
  result.weights = weights ? device::pointer<float>(places_.weights) : nullptr;
  result.scales = scales ? device::pointer<void>(places_.scales) : nullptr;
  result.indices = device::pointer<int32_t>(places_.indices);
  result.recv_count = &the_plan().recv_count;
  result.local_expert_count = args.count_local_experts != 0
                                  ? device::pointer<int32_t>(places_.local_expert_count)
                                  : nullptr;
  result.capacity_count = settings_.recv_token_capacity_count;
  result.recv_token_count = recv_count();
  result.effective_block_count = static_cast<int32_t>(blocks);
  return {};
}

status ep_operator::combine(const mori_ep_combine_args& args, mori_ep_combine_result& result) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  MORI_TRY(const combine_request request, check_combine(settings_, facts(), args));

  combine_args to_kernel{};
  to_kernel.at = places_;
  to_kernel.input = request.place == input_place::copied ? address(args.input) : 0;
  to_kernel.input_weights = address(args.weights);
  to_kernel.indices = address(args.indices);
  to_kernel.token_count = static_cast<u32>(args.token_count);
  to_kernel.input_row_count = args.input_row_count;
  to_kernel.row_bytes = request.row_bytes;
  to_kernel.fingerprint = pack({args.dtype, static_cast<u32>(request.hidden_dim),
                                args.weights != nullptr ? presence::given : presence::none,
                                presence::no_rows, request.place == input_place::in_registered});
  to_kernel.releases_at_end = request.place == input_place::copied ? 0 : 1;

  const uint64_t epoch = the_plan().combine_epoch + 1;
  MORI_TRY(const uint32_t blocks,
           launch(combine_kernel_of(args.dtype), request.block_count, to_kernel));
  const plan& p = the_plan();
  MORI_CHECK(explain_end({epoch, p.combine_epoch, p.finished_combine}));
  if (p.foreign_hash != 0)
    return fail(MORI_E_INVALID,
                "indices are not the routing of the last dispatch: hash {:#x}, dispatch had {:#x}",
                p.foreign_hash, p.routing_hash);

  const bool weights = args.weights != nullptr || (p.flows & flows_weights) != 0;
  result.out = device::pointer<void>(places_.out);
  result.weights = weights ? device::pointer<float>(places_.out_weights) : nullptr;
  result.effective_block_count = static_cast<int32_t>(blocks);
  return {};
}

result<extent> ep_operator::combine_buffer() {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  if (places_.registered == 0) {
    MORI_CHECK(shmem_call(mori_shmem_malloc, shmem_, symmetric_at_.token_bytes, &registered_));
    places_.registered = address(registered_);
  }
  return extent{places_.registered, settings_.recv_token_capacity_count * settings_.row_bytes()};
}

result<uint64_t> ep_operator::source_positions(int32_t* positions, uint64_t capacity_count) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  if (!dispatched_) return fail(MORI_E_STATE, "there is no dispatch whose rows have positions");
  const uint64_t stride = settings_.rank_count * settings_.max_input_token_count;
  if (settings_.rank_count * stride > int32_limit + 1)
    return fail(
        MORI_E_INVALID, "positions up to {} ({} ranks squared * {} tokens) do not fit in int32",
        settings_.rank_count * stride - 1, settings_.rank_count, settings_.max_input_token_count);
  const auto* begin = device::pointer<const uint32_t>(places_.source_begin);
  const auto* tokens = device::pointer<const int32_t>(places_.source_tokens);
  for (uint64_t source = 0; source < settings_.rank_count; ++source) {
    const uint64_t end = std::min<uint64_t>(begin[source + 1], capacity_count);
    for (uint64_t row = begin[source]; row < end; ++row)
      positions[row] = static_cast<int32_t>(source * stride) + tokens[row];
  }
  return recv_count();
}

status ep_operator::reset() {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  dispatched_ = false;
  return {};
}

status ep_operator::check() const { return shmem_call(mori_shmem_check, shmem_); }

}  // namespace mori::ep_core
