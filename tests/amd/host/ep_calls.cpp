// ep_calls.cpp - see ep_calls.hpp. What the operator does around a launch (checks,
// streams, words for results) is left out; addresses come from its placement.
#include "ep_calls.hpp"

#include "kernels/plan.hpp"
#include "layout/buffers.hpp"
#include "layout/settings.hpp"
#include "moe_case.hpp"
#include "operator/placement.hpp"
#include "operator/verdict.hpp"

#include <mori/shmem_device.h>
#include <mori/base/boundary.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace core = mori::ep_core;
namespace ref = mori::ep_reference;

namespace {

constexpr uint64_t alignment = core::region_alignment;
uint64_t up(uint64_t address) { return (address + alignment - 1) / alignment * alignment; }

mori_ep_config config_of(const mori_amd_ep_options& o) {
  mori_ep_config c{};
  c.struct_size = sizeof c;
  c.hidden_dim = o.hidden_dim;
  c.scale_dim = o.scale_dim;
  c.scale_elem_bytes = o.scale_elem_bytes;
  c.max_input_token_count = o.max_input_token_count;
  c.max_total_recv_token_count = o.max_total_recv_token_count;
  c.expert_per_rank_count = o.expert_per_rank_count;
  c.expert_per_token_count = o.expert_per_token_count;
  c.registered_input = static_cast<int32_t>(o.registered_input);
  c.drop_invalid_experts = static_cast<int32_t>(o.drop_invalid_experts);
  return c;
}

template <class T>
std::vector<T> copy_of(uint64_t address, uint64_t count) {
  const auto* from = reinterpret_cast<const T*>(address);
  return std::vector<T>(from, from + count);
}

// Places arrays behind each other in private memory.
class shelf {
 public:
  explicit shelf(uint64_t begin) : begin_(begin), next_(begin) {}
  void clear() { next_ = begin_; }
  template <class T>
  uint64_t put(const std::vector<T>& array) {
    const uint64_t place = next_;
    if (!array.empty())
      std::memcpy(reinterpret_cast<void*>(place), array.data(), array.size() * sizeof(T));
    next_ = up(place + array.size() * sizeof(T));
    return place;
  }

 private:
  uint64_t begin_, next_;
};

// One rank's memory, and where the input of its next call goes.
struct rank {
  core::places at{};
  shelf inputs{0};
};

// One call on all ranks: what is given, what must come back, and what came.
struct call {
  bool is_combine = false;
  ep_test::dispatch_case dispatched;  // of a combine: the dispatch before
  ep_test::combine_case combined;
  std::vector<core::dispatch_args> dispatch_of;
  std::vector<core::combine_args> combine_of;
  std::vector<ep_test::dispatched> received;
  std::vector<ep_test::combined> gathered;
};

const char* combine_kernel_of(int32_t dtype) {
  switch (dtype) {
    case MORI_EP_BF16: return "mori_ep_intra_node_combine_bf16";
    case MORI_EP_F16: return "mori_ep_intra_node_combine_f16";
    case MORI_EP_F8_E4M3FN: return "mori_ep_intra_node_combine_e4m3fn";
    case MORI_EP_F8_E4M3FNUZ: return "mori_ep_intra_node_combine_e4m3fnuz";
    default: return "mori_ep_intra_node_combine_f32";
  }
}

core::presence presence_of(bool is_given) {
  return is_given ? core::presence::given : core::presence::none;
}

}  // namespace

struct mori_amd_ep {
  mori_amd_ep(const core::settings& checked, const mori_amd_ep_options& options, int32_t pe_count)
      : config(checked), given(config_of(options)), random(options.seed) {
    ranks.resize(static_cast<size_t>(pe_count));
  }
  int rank_count() const { return static_cast<int>(ranks.size()); }
  const core::plan& plan_of(size_t index) const {
    return *reinterpret_cast<const core::plan*>(ranks[index].at.plan);
  }

  core::settings config;
  mori_ep_config given;
  ep_test::engine random;
  std::vector<rank> ranks;
  std::vector<call> calls;
  std::string said;
};

namespace {

mori::base::result<core::settings> checked(const mori_amd_ep_options* options, int32_t pe_count) {
  return core::check_config(config_of(*options), pe_count);
}

// The largest input of a call: rows, scales, weights and ids of tokens, or rows and weights of what
// was received.
uint64_t input_bytes(const core::settings& s) {
  const uint64_t rows = std::max(s.max_input_token_count, s.recv_token_capacity_count);
  return rows * (s.row_bytes() + s.scale_row_bytes() + 8 * s.expert_per_token_count) +
         8 * alignment;
}

// The operator's memory of one PE: the mishap record, the private block, then inputs.
void place_rank(mori_amd_ep& ep, mori_amd_world* world, int32_t index) {
  mori_amd_pe pe;
  mori_amd_world_pe(world, index, &pe);
  mori_shmem_device_state_v1 state;
  std::memcpy(&state, reinterpret_cast<const void*>(pe.state), sizeof state);
  const core::symmetric_layout symmetric = core::lay_out_symmetric(ep.config);
  const core::private_layout own = core::lay_out_private(ep.config);
  const uint64_t own_block = up(pe.private_memory + sizeof(core::mishap_record));
  rank& made = ep.ranks[static_cast<size_t>(index)];
  made.at =
      core::place({ep.config, symmetric, own},
                  {up(pe.user), own_block, pe.private_memory, static_cast<uint32_t>(index)}, state);
  made.inputs = shelf(up(own_block + own.total_bytes));
}

ref::received received_at(const mori_amd_ep& ep, const call& of, size_t index) {
  const core::places& at = ep.ranks[index].at;
  const ref::shape& shape = of.dispatched.shape;
  const uint64_t K = shape.expert_per_token_count;
  ref::received got;
  got.row_count = static_cast<uint64_t>(ep.plan_of(index).recv_count);
  const uint64_t rows = got.row_count;
  got.rows = copy_of<std::byte>(at.tokens, rows * shape.row_bytes);
  got.indices = copy_of<int32_t>(at.indices, rows * K);
  if (shape.has_weights) got.weights = copy_of<float>(at.weights, rows * K);
  got.scales = copy_of<std::byte>(at.scales, rows * shape.scale_row_bytes);
  const auto begin = copy_of<uint32_t>(at.source_begin, shape.rank_count + 1);
  const auto tokens = copy_of<int32_t>(at.source_tokens, rows);
  for (uint64_t source = 0; source < shape.rank_count; ++source)
    for (uint64_t row = begin[source]; row < begin[source + 1]; ++row)
      got.positions.push_back(
          static_cast<int32_t>(source * shape.rank_count * shape.max_input_token_count) +
          tokens[row]);
  if (of.dispatched.with.count_experts)
    got.local_expert_count = copy_of<int32_t>(at.local_expert_count, shape.expert_per_rank_count);
  return got;
}

ref::combined combined_at(const call& of, size_t index) {
  const core::combine_args& args = of.combine_of[index];
  ref::combined got;
  got.rows = copy_of<std::byte>(args.at.out, args.token_count * args.row_bytes);
  if (of.combined.with.has_weights)
    got.weights = copy_of<float>(args.at.out_weights, args.token_count * uint64_t{args.at.top_k});
  return got;
}

// "", or how the launch ended otherwise than well.
std::string unfinished(const core::plan& p, bool is_combine) {
  const bool finished =
      is_combine ? p.finished_combine == p.combine_epoch : p.finished_dispatch == p.dispatch_epoch;
  if (finished && p.verdict == MORI_OK) return "";
  return "did not finish, verdict " + std::to_string(p.verdict);
}

}  // namespace

uint64_t mori_amd_ep_heap_bytes(const mori_amd_ep_options* options, int32_t pe_count) {
  const auto config = checked(options, pe_count);
  if (!config) return 0;
  return up(sizeof(mori_shmem_sync_v1)) + core::lay_out_symmetric(*config).total_bytes + alignment;
}

uint64_t mori_amd_ep_private_bytes(const mori_amd_ep_options* options, int32_t pe_count) {
  const auto config = checked(options, pe_count);
  if (!config) return 0;
  return sizeof(core::mishap_record) + core::lay_out_private(*config).total_bytes +
         (1 + options->call_count) * input_bytes(*config) + 4 * alignment;
}

mori_amd_ep* mori_amd_ep_create(mori_amd_world* world, const mori_amd_ep_options* options,
                                int32_t pe_count) {
  const auto config = checked(options, pe_count);
  if (!config) return nullptr;
  auto* made = new mori_amd_ep(*config, *options, pe_count);
  for (int32_t i = 0; i < pe_count; ++i) place_rank(*made, world, i);
  return made;
}

void mori_amd_ep_destroy(mori_amd_ep* ep) { delete ep; }

namespace {

core::dispatch_args dispatch_arguments(const mori_amd_ep& ep, rank& here, const ref::source& from,
                                       const ep_test::call_shape& with) {
  const bool has_tokens = from.token_count != 0;
  core::dispatch_args args{};
  args.at = here.at;
  args.input = here.inputs.put(from.rows);
  args.indices = here.inputs.put(from.indices);
  if (with.has_weights) args.weights = here.inputs.put(from.weights);
  if (with.has_scales) args.scales = here.inputs.put(from.scales);
  args.row_bytes = with.hidden_dim * ep_test::elem_bytes(with.dtype);
  args.scale_row_bytes = ep.config.scale_row_bytes();
  args.token_count = static_cast<uint32_t>(from.token_count);
  args.fingerprint =
      core::pack({with.dtype, static_cast<uint32_t>(with.hidden_dim),
                  has_tokens ? presence_of(with.has_weights) : core::presence::no_rows,
                  has_tokens ? presence_of(with.has_scales) : core::presence::no_rows, false});
  args.count_local_experts = with.count_experts ? 1 : 0;
  return args;
}

struct combine_input {
  const ref::expert_output& out;
  std::vector<int32_t> indices;
  uint64_t received_count;
  bool in_registered, copies;
};

core::combine_args combine_arguments(rank& here, const combine_input& input,
                                     const ep_test::call_shape& with) {
  core::combine_args args{};
  args.at = here.at;
  if (input.copies)
    args.input = here.inputs.put(input.out.rows);
  else if (!input.out.rows.empty())
    std::memcpy(reinterpret_cast<void*>(input.in_registered ? here.at.registered : here.at.tokens),
                input.out.rows.data(), input.out.rows.size());
  args.indices = here.inputs.put(input.indices);
  if (with.has_weights) args.input_weights = here.inputs.put(input.out.weights);
  args.input_row_count = input.received_count;
  args.row_bytes = with.hidden_dim * ep_test::elem_bytes(with.dtype);
  args.token_count = static_cast<uint32_t>(input.indices.size() / here.at.top_k);
  args.fingerprint =
      core::pack({with.dtype, static_cast<uint32_t>(with.hidden_dim), presence_of(with.has_weights),
                  core::presence::no_rows, input.in_registered});
  args.needs_rows = input.copies || with.has_weights ? 1 : 0;
  args.releases_at_end = input.copies ? 0 : 1;
  return args;
}

uint64_t add(mori_amd_ep& ep, call&& made) {
  made.received.resize(ep.ranks.size());
  made.gathered.resize(ep.ranks.size());
  ep.calls.push_back(std::move(made));
  return ep.calls.size() - 1;
}

}  // namespace

uint64_t mori_amd_ep_prepare_dispatch(mori_amd_ep* ep, int32_t dtype, uint32_t flags) {
  const ep_test::call_shape with{dtype, ep->given.hidden_dim, (flags & MORI_AMD_EP_WEIGHTS) != 0,
                                 (flags & MORI_AMD_EP_SCALES) != 0,
                                 (flags & MORI_AMD_EP_COUNT_EXPERTS) != 0};
  call made;
  made.dispatched = ep_test::random_dispatch(ep->random, ep->given, ep->rank_count(), with);
  const auto beyond = static_cast<int32_t>(ep->config.expert_count());
  for (size_t i = 0; i < ep->ranks.size(); ++i) {
    ref::source& from = made.dispatched.ranks[i];
    if ((flags & MORI_AMD_EP_BAD_IDS) != 0)
      for (int32_t& id : from.indices)
        if (ep_test::chance(ep->random, 4)) id = beyond + id % 2;
    made.dispatch_of.push_back(dispatch_arguments(*ep, ep->ranks[i], from, with));
  }
  ep_test::expect_again(made.dispatched);
  return add(*ep, std::move(made));
}

uint64_t mori_amd_ep_prepare_combine(mori_amd_ep* ep, int32_t dtype, uint32_t flags) {
  const bool in_registered = (flags & MORI_AMD_EP_REGISTERED) != 0;
  const bool copies = !in_registered && (flags & MORI_AMD_EP_IN_PLACE) == 0;
  const ep_test::call_shape with{dtype, ep->given.hidden_dim, (flags & MORI_AMD_EP_WEIGHTS) != 0,
                                 false, false};
  call made;
  made.is_combine = true;
  made.dispatched = ep->calls.back().dispatched;
  made.combined = ep_test::random_combine(ep->random, made.dispatched, with);
  for (size_t i = 0; i < ep->ranks.size(); ++i) {
    combine_input input{made.combined.outputs[i], made.dispatched.ranks[i].indices,
                        made.dispatched.expected[i].row_count, in_registered, copies};
    if ((flags & MORI_AMD_EP_FOREIGN) != 0 && i == 0 && !input.indices.empty())
      input.indices[0] ^= 1;
    made.combine_of.push_back(combine_arguments(ep->ranks[i], input, with));
  }
  return add(*ep, std::move(made));
}

void mori_amd_ep_launch_of(mori_amd_ep* ep, uint64_t number, int32_t pe, mori_amd_ep_launch* out) {
  const call& of = ep->calls[number];
  const auto at = static_cast<size_t>(pe);
  const core::places& here = ep->ranks[at].at;
  const uint64_t numbers_bytes = here.out_weights - here.out;
  if (of.is_combine)
    *out = {combine_kernel_of(of.combined.with.dtype), &of.combine_of[at], sizeof of.combine_of[at],
            here.out, numbers_bytes};
  else
    *out = {"mori_ep_intra_node_dispatch", &of.dispatch_of[at], sizeof of.dispatch_of[at], here.out,
            numbers_bytes};
}

void mori_amd_ep_clear(mori_amd_ep* ep) {
  for (rank& each : ep->ranks) each.inputs.clear();
}

void mori_amd_ep_keep(mori_amd_ep* ep, uint64_t number, int32_t pe) {
  call& of = ep->calls[number];
  const auto at = static_cast<size_t>(pe);
  const std::string failed = unfinished(ep->plan_of(at), of.is_combine);
  (of.is_combine ? of.gathered[at].failed : of.received[at].failed) = failed;
  if (!failed.empty()) return;
  if (of.is_combine)
    of.gathered[at].got = combined_at(of, at);
  else
    of.received[at].got = received_at(*ep, of, at);
}

const char* mori_amd_ep_check(mori_amd_ep* ep, uint64_t number) {
  const call& of = ep->calls[number];
  ep->said = of.is_combine ? ep_test::difference(of.combined, of.gathered)
                           : ep_test::difference(of.dispatched, of.received);
  return ep->said.c_str();
}

const char* mori_amd_ep_mishap(mori_amd_ep* ep, int32_t pe) {
  auto* record =
      reinterpret_cast<core::mishap_record*>(ep->ranks[static_cast<size_t>(pe)].at.mishap);
  ep->said.clear();
  if (record->claimed != 2) return ep->said.c_str();
  const mori::base::status status = core::explain(ep->config, *record);
  record->claimed = 0;
  ep->said = std::string(mori::base::status_name(status.error().status)) + ": " +
             std::string(status.error().text);
  return ep->said.c_str();
}
