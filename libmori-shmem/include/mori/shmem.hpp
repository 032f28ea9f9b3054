// shmem.hpp - libmori-shmem for C++: the C ABI of mori/shmem.h with owning
// handles, spans and results. Header-only, so it binds to the stable ABI like
// any C program; the same names come from `import mori.shmem;`. Contracts
// (threads, blocking, statuses) are those of the C function named at each call.
#pragma once

#include <mori/shmem_module.h>
#include <mori/cpp/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace mori::shmem {

using unique_id = mori_shmem_unique_id;
using report = mori_shmem_report;
using heap_report = mori_shmem_heap_report;
using peer_report = mori_shmem_peer_report;

// Options with struct_size set; fill pe and pe_count.
inline mori_shmem_options options(int pe, int pe_count) {
  auto made = detail::sized<mori_shmem_options>();
  made.pe = pe;
  made.pe_count = pe_count;
  return made;
}

// mori_shmem_unique_id_create
inline result<unique_id> make_unique_id() {
  unique_id id{};
  auto done = detail::call(mori_shmem_unique_id_create, &id);
  if (!done) return done.error();
  return id;
}

class context;

// Symmetric memory of `size()` elements; freed at the end of its life, which
// must be within its context's. Elements are zero when first handed out.
template <class T>
class array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  array() = default;
  array(array&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        elements_(std::exchange(other.elements_, {})) {}
  array& operator=(array&& other) noexcept {
    if (this != &other) {
      reset();
      owner_ = std::exchange(other.owner_, nullptr);
      elements_ = std::exchange(other.elements_, {});
    }
    return *this;
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array() { reset(); }

  T* data() const noexcept { return elements_.data(); }
  std::size_t size() const noexcept { return elements_.size(); }
  std::span<T> span() const noexcept { return elements_; }
  T& operator[](std::size_t index) const { return elements_[index]; }

  // mori_shmem_free
  void reset() noexcept {
    if (elements_.data() != nullptr) mori_shmem_free(owner_, elements_.data(), nullptr);
    elements_ = {};
  }

 private:
  friend class context;
  array(mori_shmem* owner, std::span<T> elements) : owner_(owner), elements_(elements) {}
  mori_shmem* owner_ = nullptr;
  std::span<T> elements_;
};

// One PE of one group.
class context {
 public:
  // mori_shmem_create
  static result<context> create(const unique_id& id, const mori_shmem_options& with) {
    mori_shmem* handle = nullptr;
    auto done = detail::call(mori_shmem_create, &id, &with, &handle);
    if (!done) return done.error();
    return context(handle);
  }

  context(context&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  context& operator=(context&& other) noexcept {
    if (this != &other) {
      mori_shmem_destroy(handle_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() { mori_shmem_destroy(handle_); }

  // For the C ABI and for other wrappers; still owned by this object.
  mori_shmem* handle() const noexcept { return handle_; }

  // mori_shmem_info
  result<shmem::report> info() const {
    auto filled = detail::sized<shmem::report>();
    auto done = detail::call(mori_shmem_info, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_shmem_heap_stats
  result<shmem::heap_report> heap_stats() const {
    auto filled = detail::sized<shmem::heap_report>();
    auto done = detail::call(mori_shmem_heap_stats, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_shmem_peer_info
  result<shmem::peer_report> peer_info(int pe) const {
    auto filled = detail::sized<shmem::peer_report>();
    auto done = detail::call(mori_shmem_peer_info, handle_, pe, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_shmem_check
  result<void> check() const { return detail::call(mori_shmem_check, handle_); }
  // mori_shmem_abort
  result<void> abort() { return detail::call(mori_shmem_abort, handle_); }

  // mori_shmem_malloc_align: room for `count` elements, the same on all PEs.
  template <class T>
  result<array<T>> allocate(std::size_t count, std::size_t alignment_bytes = 256) {
    if (count > SIZE_MAX / sizeof(T))
      return error_info{MORI_E_INVALID, 0, "element count overflows the address space"};
    void* memory = nullptr;
    auto done =
        detail::call(mori_shmem_malloc_align, handle_, alignment_bytes, count * sizeof(T), &memory);
    if (!done) return done.error();
    return array<T>(handle_, std::span<T>(static_cast<T*>(memory), memory == nullptr ? 0 : count));
  }

  // mori_shmem_ptr_p2p: nullptr when that PE is not mapped here.
  template <class T>
  result<T*> peer_pointer(T* symmetric, int pe) const {
    void* there = nullptr;
    auto done = detail::call(mori_shmem_ptr_p2p, handle_, symmetric, pe, &there);
    if (!done) return done.error();
    return static_cast<T*>(there);
  }

  // mori_shmem_barrier_all, mori_shmem_quiet, mori_shmem_fence
  result<void> barrier_all() { return detail::call(mori_shmem_barrier_all, handle_); }
  result<void> quiet() { return detail::call(mori_shmem_quiet, handle_); }
  result<void> fence() { return detail::call(mori_shmem_fence, handle_); }

  // mori_shmem_put, mori_shmem_get: `source.size()` elements.
  template <class T>
  result<void> put(T* target, std::span<const T> source, int pe) {
    return detail::call(mori_shmem_put, handle_, target, source.data(), source.size_bytes(), pe);
  }
  template <class T>
  result<void> get(std::span<T> target, const T* source, int pe) {
    return detail::call(mori_shmem_get, handle_, target.data(), source, target.size_bytes(), pe);
  }
  // mori_shmem_put_signal, mori_shmem_atomic, mori_shmem_wait_until take the C
  // argument structs: detail::sized leaves only what matters to fill.
  result<void> put_signal(const mori_shmem_put_signal_args& with) {
    return detail::call(mori_shmem_put_signal, handle_, &with);
  }
  result<std::uint64_t> atomic(const mori_shmem_atomic_args& with) {
    std::uint64_t before = 0;
    auto done = detail::call(mori_shmem_atomic, handle_, &with, &before);
    if (!done) return done.error();
    return before;
  }
  result<std::uint64_t> wait_until(const mori_shmem_wait_args& with) {
    std::uint64_t seen = 0;
    auto done = detail::call(mori_shmem_wait_until, handle_, &with, &seen);
    if (!done) return done.error();
    return seen;
  }

  // mori_shmem_device_state; State is the struct of a level: mori_shmem_device_state_v1 or _v2
  template <class State = mori_shmem_device_state_v1>
  result<State> device_state() const {
    constexpr std::uint32_t level = std::is_same_v<State, mori_shmem_device_state_v1> ? 1 : 2;
    static_assert(level == 1 || std::is_same_v<State, mori_shmem_device_state_v2>);
    State state{};
    auto done = detail::call(mori_shmem_device_state, handle_, level, static_cast<void*>(&state),
                             std::uint64_t{sizeof state});
    if (!done) return done.error();
    return state;
  }

  // mori_shmem_module_init, mori_shmem_module_forget
  result<void> init_module(void* module) {
    return detail::call(mori_shmem_module_init, handle_, module);
  }
  result<void> forget_module(void* module) {
    return detail::call(mori_shmem_module_forget, handle_, module);
  }

 private:
  explicit context(mori_shmem* handle) : handle_(handle) {}
  mori_shmem* handle_ = nullptr;
};

// A team as this PE sees it; its context must outlive it.
class team {
 public:
  // mori_shmem_team_by_color, mori_shmem_team_by_node, mori_shmem_team_strided,
  // mori_shmem_team_of_list
  static result<team> by_color(context& owner, int color) {
    return make([&](mori_shmem_team** out) {
      return detail::call(mori_shmem_team_by_color, owner.handle(), color, out);
    });
  }
  static result<team> by_node(context& owner) {
    return make([&](mori_shmem_team** out) {
      return detail::call(mori_shmem_team_by_node, owner.handle(), out);
    });
  }
  static result<team> strided(context& owner, int first_pe, int stride, int pe_count) {
    return make([&](mori_shmem_team** out) {
      return detail::call(mori_shmem_team_strided, owner.handle(), first_pe, stride, pe_count, out);
    });
  }
  static result<team> of_list(context& owner, std::span<const std::int32_t> pes) {
    return make([&](mori_shmem_team** out) {
      return detail::call(mori_shmem_team_of_list, owner.handle(), pes.data(),
                          static_cast<std::int32_t>(pes.size()), out);
    });
  }

  team(team&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  team& operator=(team&& other) noexcept {
    if (this != &other) {
      mori_shmem_team_destroy(handle_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  team(const team&) = delete;
  team& operator=(const team&) = delete;
  ~team() { mori_shmem_team_destroy(handle_); }

  mori_shmem_team* handle() const noexcept { return handle_; }
  // mori_shmem_team_info
  result<mori_shmem_team_report> info() const {
    auto filled = detail::sized<mori_shmem_team_report>();
    auto done = detail::call(mori_shmem_team_info, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_shmem_team_group_pe
  result<int> group_pe(int pe) const {
    std::int32_t found = 0;
    auto done = detail::call(mori_shmem_team_group_pe, handle_, pe, &found);
    if (!done) return done.error();
    return static_cast<int>(found);
  }
  // mori_shmem_team_barrier
  result<void> barrier() { return detail::call(mori_shmem_team_barrier, handle_); }

 private:
  explicit team(mori_shmem_team* handle) : handle_(handle) {}
  template <class Maker>
  static result<team> make(Maker maker) {
    mori_shmem_team* made = nullptr;
    auto done = maker(&made);
    if (!done) return done.error();
    return team(made);
  }
  mori_shmem_team* handle_ = nullptr;
};

// Argument structs with struct_size set.
inline auto put_signal_args() { return detail::sized<mori_shmem_put_signal_args>(); }
inline auto atomic_args() { return detail::sized<mori_shmem_atomic_args>(); }
inline auto wait_args() {
  auto made = detail::sized<mori_shmem_wait_args>();
  made.pe = -1;
  return made;
}

}  // namespace mori::shmem
