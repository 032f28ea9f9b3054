// operator.cpp - the calls of an operator. See operator.hpp; create.cpp makes one.
#include "operator/operator.hpp"

#include "operator/float_environment.hpp"
#include "operator/kernels.hpp"
#include "operator/shmem_call.hpp"

#include <mori/base/clock.hpp>

#include <algorithm>
#include <cstddef>

namespace mori::ep_core {

using base::fail;
using base::result;
using base::status;
using device::address_of;

namespace {

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

presence presence_of(const void* array) {
  return array != nullptr ? presence::given : presence::none;
}

}  // namespace

// --- What every call begins and ends with --------------------------------------------------------

status ep_operator::check_context() const { return shmem_call(mori_shmem_check, shmem_); }

status ep_operator::check() const {
  MORI_CHECK(check_context());
  // A synchronous call in progress raises its own.
  return is_synchronous_ ? status() : mishaps_.raise(settings_);
}

status ep_operator::begin_call(void* stream) const {
  MORI_CHECK(check());
  if (!is_synchronous_) return {};
  MORI_TRY(const bool capturing, streams_.is_capturing(stream));
  if (capturing)
    return fail(MORI_E_STATE,
                "MORI_CHECK=sync waits in each call, which a stream that is being captured cannot");
  return {};
}

result<plan> ep_operator::read_plan() const {
  plan now{};
  MORI_CHECK(private_.read(&now, places_.plan, sizeof now));
  return now;
}

// Of a call that is to begin; known and needed in synchronous calls alone.
result<uint64_t> ep_operator::next_epoch(epoch_in_plan begun) const {
  if (!is_synchronous_) return uint64_t{0};
  MORI_TRY(const plan now, read_plan());
  return now.*begun + 1;
}

auto ep_operator::end_call(void* stream, epoch_in_plan finished, uint64_t epoch)
    -> result<finished_call> {
  finished_call end{true, {}, {}};
  if (!is_synchronous_) return end;
  MORI_CHECK(streams_.wait_for(stream));
  MORI_TRY(end.seen, read_plan());
  end.finished = end.seen.*finished == epoch;
  end.outcome = mishaps_.raise(settings_);
  if (end.finished || !end.outcome) return end;
  end.outcome = check_context();
  if (end.outcome)
    end.outcome = fail(MORI_E_INTERNAL, "a kernel ended early, but the context has no fault");
  return end;
}

template <class Args>
result<uint32_t> ep_operator::launch(const device::kernel& kernel, const launch_request& how,
                                     const Args& args) {
  device::launch_options with;
  with.block_count = std::min(how.block_count, static_cast<uint32_t>(grid_limit));
  with.wave_count = how.wave_count;
  with.stream = how.stream;
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

// --- Dispatch ------------------------------------------------------------------------------------

extent ep_operator::receive_buffers() const {
  return {places_.tokens, places_.combine_weights - places_.tokens};
}

dispatch_args ep_operator::kernel_arguments(const mori_ep_dispatch_args& args,
                                            const dispatch_request& request) const {
  const bool has_rows = request.token_count != 0;
  dispatch_args to_kernel{};
  to_kernel.at = places_;
  to_kernel.input = address_of(args.input);
  to_kernel.weights = address_of(args.weights);
  to_kernel.scales = address_of(args.scales);
  to_kernel.indices = address_of(args.indices);
  to_kernel.token_count = static_cast<u32>(request.token_count);
  to_kernel.row_bytes = request.row_bytes;
  to_kernel.scale_row_bytes = settings_.scale_row_bytes();
  to_kernel.fingerprint = pack({args.dtype, static_cast<u32>(request.hidden_dim),
                                has_rows ? presence_of(args.weights) : presence::no_rows,
                                has_rows ? presence_of(args.scales) : presence::no_rows, false});
  to_kernel.count_local_experts = static_cast<u32>(args.count_local_experts);
  return to_kernel;
}

status ep_operator::dispatch(const mori_ep_dispatch_args& args, mori_ep_dispatch_result& result) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(begin_call(args.stream));
  MORI_TRY(const dispatch_request request,
           check_dispatch(settings_, {receive_buffers(), streams_.exist()}, args));
  MORI_TRY(const uint64_t epoch, next_epoch(&plan::dispatch_epoch));
  dispatched_ = false;
  MORI_TRY(const uint32_t blocks,
           launch(dispatch_kernel_handle(), request.how, kernel_arguments(args, request)));
  token_count_ = request.token_count;
  MORI_CHECK(streams_.mark(args.stream));
  MORI_TRY(finished_call end, end_call(args.stream, &plan::finished_dispatch, epoch));
  // Also when an own id was bad: the peers have their rows and expect a combine.
  dispatched_ = end.finished;
  MORI_CHECK(std::move(end.outcome));

  // Without tokens of its own, a rank that only enqueues cannot know what the others give.
  const u32 flows = is_synchronous_            ? end.seen.flows
                    : request.token_count == 0 ? flows_weights | flows_scales
                                               : 0;
  const bool weights = args.weights != nullptr || (flows & flows_weights) != 0;
  const bool scales =
      args.scales != nullptr || ((flows & flows_scales) != 0 && settings_.scale_dim != 0);
  result.out = device::pointer<void>(places_.tokens);
  result.weights = weights ? device::pointer<float>(places_.weights) : nullptr;
  result.scales = scales ? device::pointer<void>(places_.scales) : nullptr;
  result.indices = device::pointer<int32_t>(places_.indices);
  result.recv_count = device::pointer<int32_t>(places_.plan + offsetof(plan, recv_count));
  result.local_expert_count = args.count_local_experts != 0
                                  ? device::pointer<int32_t>(places_.local_expert_count)
                                  : nullptr;
  result.capacity_count = settings_.recv_token_capacity_count;
  result.recv_token_count =
      streams_.exist() ? UINT64_MAX : static_cast<uint64_t>(end.seen.recv_count);
  result.effective_block_count = static_cast<int32_t>(blocks);
  return {};
}

// --- Combine -------------------------------------------------------------------------------------

result<combine_facts> ep_operator::facts() const {
  combine_facts known;
  known.dispatched = dispatched_;
  known.has_streams = streams_.exist();
  known.token_count = token_count_;
  if (!known.has_streams) {
    MORI_TRY(const plan now, read_plan());
    known.recv_count = static_cast<uint64_t>(now.recv_count);
  }
  known.tokens = {places_.tokens, symmetric_at_.token_bytes};
  known.combine_weights = {places_.combine_weights,
                           symmetric_at_.registered - symmetric_at_.combine_weights};
  known.has_registered = places_.registered != 0;
  return known;
}

combine_args ep_operator::kernel_arguments(const mori_ep_combine_args& args,
                                           const combine_request& request) const {
  const bool copies = request.place == input_place::copied;
  combine_args to_kernel{};
  to_kernel.at = places_;
  to_kernel.input = copies ? address_of(args.input) : 0;
  to_kernel.input_weights = address_of(args.weights);
  to_kernel.indices = address_of(args.indices);
  to_kernel.token_count = static_cast<u32>(args.token_count);
  to_kernel.input_row_count = args.input_row_count;
  to_kernel.row_bytes = request.row_bytes;
  to_kernel.fingerprint =
      pack({args.dtype, static_cast<u32>(request.hidden_dim), presence_of(args.weights),
            presence::no_rows, request.place == input_place::in_registered});
  to_kernel.needs_rows = copies || args.weights != nullptr ? 1 : 0;
  to_kernel.releases_at_end = copies ? 0 : 1;
  return to_kernel;
}

status ep_operator::combine(const mori_ep_combine_args& args, mori_ep_combine_result& result) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(begin_call(args.stream));
  MORI_TRY(const combine_facts known, facts());
  MORI_TRY(const combine_request request, check_combine(settings_, known, args));
  MORI_TRY(const uint64_t epoch, next_epoch(&plan::combine_epoch));
  MORI_TRY(const uint32_t blocks,
           launch(combine_kernel_handle(args.dtype), request.how, kernel_arguments(args, request)));
  MORI_TRY(finished_call end, end_call(args.stream, &plan::finished_combine, epoch));
  MORI_CHECK(std::move(end.outcome));

  const u32 flows = is_synchronous_             ? end.seen.flows
                    : args.input_row_count == 0 ? flows_weights
                                                : 0;
  const bool weights = args.weights != nullptr || (flows & flows_weights) != 0;
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
    places_.registered = address_of(registered_);
  }
  return extent{places_.registered, settings_.recv_token_capacity_count * settings_.row_bytes()};
}

// --- Queries -------------------------------------------------------------------------------------

result<uint64_t> ep_operator::source_positions(int32_t* positions, uint64_t capacity_count) {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  if (dispatched_) {
    MORI_CHECK(streams_.wait_for_mark());
    MORI_CHECK(check());
  }
  MORI_TRY(const plan now, read_plan());
  if (!dispatched_ || now.dispatch_verdict != MORI_OK)
    return fail(MORI_E_STATE, "there is no dispatch whose rows have positions");
  const uint64_t stride = settings_.rank_count * settings_.max_input_token_count;
  if (settings_.rank_count * stride > int32_limit + 1)
    return fail(
        MORI_E_INVALID, "positions up to {} ({} ranks squared * {} tokens) do not fit in int32",
        settings_.rank_count * stride - 1, settings_.rank_count, settings_.max_input_token_count);
  const auto count = static_cast<uint64_t>(now.recv_count);
  const uint64_t written = std::min(count, capacity_count);
  if (written == 0) return count;
  MORI_CHECK(private_.read(source_begin_.data(), places_.source_begin,
                           source_begin_.size() * sizeof(uint32_t)));
  MORI_CHECK(shmem_call(mori_shmem_get, shmem_, static_cast<void*>(positions),
                        device::pointer<const void>(places_.source_tokens),
                        written * sizeof(int32_t), static_cast<int32_t>(places_.rank)));
  for (uint64_t source = 0; source < settings_.rank_count; ++source) {
    const uint64_t end = std::min<uint64_t>(source_begin_[source + 1], written);
    for (uint64_t row = source_begin_[source]; row < end; ++row)
      positions[row] += static_cast<int32_t>(source * stride);
  }
  return count;
}

status ep_operator::reset() {
  const turn mine(busy_);
  MORI_CHECK(mine.granted());
  MORI_CHECK(check());
  dispatched_ = false;
  return {};
}

}  // namespace mori::ep_core
