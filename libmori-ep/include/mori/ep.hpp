// ep.hpp - libmori-ep for C++: the C ABI of mori/ep.h with an owning handle,
// spans whose sizes are checked, and results. Header-only, so it binds to the
// stable ABI like any C program; the same names come from `import mori.ep;`.
// Contracts (threads, blocking, statuses) are those of the C function named at
// each call. Read op::create, op::dispatch, op::combine.
#pragma once

#include <mori/ep.h>
#include <mori/cpp/result.hpp>
#include <mori/shmem.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace mori::ep {

// A config with struct_size set; fill at least hidden_dim, max_input_token_count,
// expert_per_rank_count and expert_per_token_count.
inline mori_ep_config config() { return detail::sized<mori_ep_config>(); }

// Bytes of one element; 0 for an unknown dtype.
inline constexpr std::size_t elem_bytes(std::int32_t dtype) {
  switch (dtype) {
    case MORI_EP_F32: return 4;
    case MORI_EP_BF16:
    case MORI_EP_F16: return 2;
    case MORI_EP_F8_E4M3FN:
    case MORI_EP_F8_E4M3FNUZ:
    case MORI_EP_F8_E5M2:
    case MORI_EP_F4_E2M1X2: return 1;
    default: return 0;
  }
}

// mori_ep_memory_query
inline result<mori_ep_memory> memory_query(const mori_ep_config& with, int pe_count) {
  auto filled = detail::sized<mori_ep_memory>();
  auto done = detail::call(mori_ep_memory_query, &with, pe_count, &filled);
  if (!done) return done.error();
  return filled;
}

// This rank's tokens and where they go. T is indices.size() / K.
template <class Element>
struct batch {
  std::int32_t dtype = 0;                 // MORI_EP_F32 ...; of the size of Element
  std::span<const Element> rows;          // [T, H]
  std::span<const std::int32_t> indices;  // [T, K]
  std::span<const float> weights{};       // [T, K] or empty
  std::span<const std::byte> scales{};    // [T] rows of scales or empty
  std::uint64_t hidden_dim = 0;           // H; 0: the config's
  bool count_local_experts = false;
};

// What the experts give back, in receive order.
template <class Element>
struct outputs {
  std::int32_t dtype = 0;
  std::span<const Element> rows;          // [>= received, H]; empty: the registered buffer
  std::span<const std::int32_t> indices;  // [T, K], as given to dispatch
  std::span<const float> weights{};       // [>= received, K] or empty
  std::uint64_t hidden_dim = 0;
};

// Views of the operator's buffers, as long as mori_ep_dispatch_result says.
template <class Element>
struct received {
  std::size_t count = 0;                             // tokens
  std::span<Element> rows;                           // [count, H]
  std::span<const std::int32_t> indices;             // [count, K]
  std::span<const float> weights;                    // [count, K] or empty
  std::span<const std::byte> scales;                 // [count] rows or empty
  std::span<const std::int32_t> local_expert_count;  // [E] or empty
  mori_ep_dispatch_result raw;
};

template <class Element>
struct combined {
  std::span<const Element> rows;   // [T, H]
  std::span<const float> weights;  // [T, K] or empty
  mori_ep_combine_result raw;
};

// One operator of this rank. Its context must outlive it.
class op {
 public:
  // mori_ep_create
  static result<op> create(const shmem::context& on, const mori_ep_config& with) {
    mori_ep* handle = nullptr;
    auto done = detail::call(mori_ep_create, on.handle(), &with, &handle);
    if (!done) return done.error();
    return op(handle, with);
  }

  op(op&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), config_(other.config_) {}
  op& operator=(op&& other) noexcept {
    if (this != &other) {
      mori_ep_destroy(handle_);
      handle_ = std::exchange(other.handle_, nullptr);
      config_ = other.config_;
    }
    return *this;
  }
  op(const op&) = delete;
  op& operator=(const op&) = delete;
  ~op() { mori_ep_destroy(handle_); }

  // For the C ABI and for other wrappers; still owned by this object.
  mori_ep* handle() const noexcept { return handle_; }

  // mori_ep_dispatch; MORI_E_INVALID also for spans that do not fit each other.
  template <class Element>
  result<received<Element>> dispatch(const batch<Element>& from) {
    const std::uint64_t tokens = from.indices.size() / top_k();
    const std::uint64_t hidden = from.hidden_dim == 0 ? config_.hidden_dim : from.hidden_dim;
    const std::size_t scale_bytes = scale_row_bytes();
    if (sizeof(Element) != elem_bytes(from.dtype)) return misfit("the element type");
    if (from.indices.size() != tokens * top_k()) return misfit("indices");
    if (from.rows.size() != tokens * hidden) return misfit("rows");
    if (!fits(from.weights.size(), tokens * top_k())) return misfit("weights");
    if (!fits(from.scales.size(), tokens * scale_bytes)) return misfit("scales");

    auto args = detail::sized<mori_ep_dispatch_args>();
    args.input = from.rows.data();
    args.weights = data_or_null(from.weights);
    args.scales = data_or_null(from.scales);
    args.indices = from.indices.data();
    args.token_count = tokens;
    args.hidden_dim = hidden;
    args.dtype = from.dtype;
    args.count_local_experts = from.count_local_experts ? 1 : 0;
    received<Element> got{};
    got.raw = detail::sized<mori_ep_dispatch_result>();
    auto done = detail::call(mori_ep_dispatch, handle_, &args, &got.raw);
    if (!done) return done.error();

    const auto& raw = got.raw;
    got.count = static_cast<std::size_t>(raw.recv_token_count);
    got.rows = {static_cast<Element*>(raw.out), got.count * hidden};
    got.indices = {raw.indices, got.count * top_k()};
    if (raw.weights != nullptr) got.weights = {raw.weights, got.count * top_k()};
    if (raw.scales != nullptr)
      got.scales = {static_cast<const std::byte*>(raw.scales), got.count * scale_bytes};
    if (raw.local_expert_count != nullptr)
      got.local_expert_count = {raw.local_expert_count, config_.expert_per_rank_count};
    return got;
  }

  // mori_ep_combine; MORI_E_INVALID also for spans that do not fit each other.
  template <class Element>
  result<combined<Element>> combine(const outputs<Element>& from) {
    const std::uint64_t tokens = from.indices.size() / top_k();
    const std::uint64_t hidden = from.hidden_dim == 0 ? config_.hidden_dim : from.hidden_dim;
    if (sizeof(Element) != elem_bytes(from.dtype)) return misfit("the element type");
    if (from.indices.size() != tokens * top_k()) return misfit("indices");
    if (hidden == 0 || from.rows.size() % hidden != 0) return misfit("rows");
    const bool registered = from.rows.data() == nullptr;
    const std::uint64_t row_count =
        registered ? from.weights.size() / top_k() : from.rows.size() / hidden;
    if (!from.weights.empty() && from.weights.size() < row_count * top_k())
      return misfit("weights");

    auto args = detail::sized<mori_ep_combine_args>();
    args.input = from.rows.data();
    args.weights = data_or_null(from.weights);
    args.indices = from.indices.data();
    args.token_count = tokens;
    args.input_row_count = row_count;
    args.hidden_dim = hidden;
    args.dtype = from.dtype;
    args.input_mode = registered ? MORI_EP_INPUT_REGISTERED : MORI_EP_INPUT_EXTERNAL;
    combined<Element> got{};
    got.raw = detail::sized<mori_ep_combine_result>();
    auto done = detail::call(mori_ep_combine, handle_, &args, &got.raw);
    if (!done) return done.error();
    got.rows = {static_cast<const Element*>(got.raw.out), tokens * hidden};
    if (got.raw.weights != nullptr) got.weights = {got.raw.weights, tokens * top_k()};
    return got;
  }

  // mori_ep_combine_buffer: room for all rows that may come, of any element type.
  result<std::span<std::byte>> combine_buffer() {
    void* memory = nullptr;
    std::uint64_t size_bytes = 0;
    auto done = detail::call(mori_ep_combine_buffer, handle_, &memory, &size_bytes);
    if (!done) return done.error();
    return std::span(static_cast<std::byte*>(memory), static_cast<std::size_t>(size_bytes));
  }

  // mori_ep_src_token_positions: fills at most positions.size(), returns how many there are.
  result<std::uint64_t> src_token_positions(std::span<std::int32_t> positions) {
    std::uint64_t count = 0;
    auto done = detail::call(mori_ep_src_token_positions, handle_, positions.data(),
                             std::uint64_t{positions.size()}, &count);
    if (!done) return done.error();
    return count;
  }

  // mori_ep_reset, mori_ep_check
  result<void> reset() { return detail::call(mori_ep_reset, handle_); }
  result<void> check() const { return detail::call(mori_ep_check, handle_); }

 private:
  op(mori_ep* handle, const mori_ep_config& with) : handle_(handle), config_(with) {}

  std::size_t top_k() const { return static_cast<std::size_t>(config_.expert_per_token_count); }
  std::size_t scale_row_bytes() const {
    return static_cast<std::size_t>(config_.scale_dim * config_.scale_elem_bytes);
  }
  static bool fits(std::size_t size, std::size_t expected) { return size == 0 || size == expected; }
  template <class T>
  static const T* data_or_null(std::span<const T> from) {
    return from.empty() ? nullptr : from.data();
  }
  static error_info misfit(const char* what) {
    return {MORI_E_INVALID, 0, std::string(what) + " does not fit the other arguments"};
  }

  mori_ep* handle_ = nullptr;
  mori_ep_config config_{};
};

}  // namespace mori::ep
