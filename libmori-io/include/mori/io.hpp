// io.hpp - libmori-io for C++: the C ABI of mori/io.h with owning handles, spans
// and results. Header-only, so it binds to the stable ABI like any C program; the
// same names come from `import mori.io;`. Contracts (threads, blocking, statuses)
// are those of the C function named at each call.
#pragma once

#include <mori/io.h>
#include <mori/cpp/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace mori::io {

// A version in its three parts.
struct version_number {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t patch = 0;
  friend bool operator==(const version_number&, const version_number&) = default;
};

// What the program was compiled with.
inline constexpr version_number compiled_version{MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR,
                                                 MORI_IO_VERSION_PATCH};

// mori_io_version: what the program runs with.
inline version_number version() noexcept {
  const std::uint32_t packed = mori_io_version();
  return {packed >> 22, packed >> 12 & 0x3FFu, packed & 0xFFFu};
}

// mori_io_abi_level
inline std::uint32_t abi_level() noexcept { return mori_io_abi_level(); }

// mori_io_status_name: a static string, also for an unknown value.
inline std::string_view status_name(mori_status status) noexcept {
  return mori_io_status_name(status);
}

// A packed descriptor, of an engine or of a region: bytes to store and send.
using descriptor = std::vector<std::byte>;

namespace detail {

// Asks `pack(out, &bytes, &error)` for its size, then for the bytes.
template <class Pack>
result<descriptor> packed(Pack&& pack) {
  std::uint64_t bytes = 0;
  mori_error record = MORI_ERROR_INIT;
  mori_status status = pack(nullptr, &bytes, &record);
  descriptor made(status == MORI_OK ? bytes : 0);
  if (status == MORI_OK) status = pack(made.data(), &bytes, &record);
  if (status != MORI_OK) return error_info{status, record.os_errno, record.message};
  return made;
}

}  // namespace detail

// Options with struct_size set. The key is borrowed until the engine is made.
inline mori_io_options options(const char* key) {
  auto made = mori::detail::sized<mori_io_options>();
  made.in_key = key;
  return made;
}

// One transfer. Destroying the object gives the handle back; the transfer goes on.
class transfer {
 public:
  transfer() = default;
  explicit transfer(mori_io_transfer* handle) : handle_(handle) {}
  transfer(transfer&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  transfer& operator=(transfer&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  transfer(const transfer&) = delete;
  transfer& operator=(const transfer&) = delete;
  ~transfer() { mori_io_transfer_release(handle_); }

  // For the C ABI; still owned by this object.
  mori_io_transfer* handle() const noexcept { return handle_; }

  // mori_io_transfer_wait
  result<void> wait(std::uint64_t timeout_ns = UINT64_MAX) const {
    const mori_io_transfer* const one = handle_;
    return mori::detail::call(mori_io_transfer_wait, &one, std::uint64_t{1}, timeout_ns);
  }
  // mori_io_transfer_info
  result<mori_io_transfer_report> info() const {
    auto filled = mori::detail::sized<mori_io_transfer_report>();
    auto done = mori::detail::call(mori_io_transfer_info, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_io_transfer_cancel
  result<void> cancel() { return mori::detail::call(mori_io_transfer_cancel, handle_); }

 private:
  mori_io_transfer* handle_ = nullptr;
};

// One piece of a transfer, offsets within the regions.
struct piece {
  std::uint64_t local_offset = 0;
  std::uint64_t remote_offset = 0;
  std::uint64_t size_bytes = 0;
};

// A pair of regions. Destroying the object ends the session; its transfers go on.
class session {
 public:
  session() = default;
  explicit session(mori_io_session* handle) : handle_(handle) {}
  session(session&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  session& operator=(session&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() { mori_io_session_destroy(handle_); }

  mori_io_session* handle() const noexcept { return handle_; }

  // mori_io_submit: the general form; struct_size is set here.
  result<transfer> submit(mori_io_request request) {
    request.struct_size = sizeof request;
    mori_io_transfer* made = nullptr;
    auto done = mori::detail::call(mori_io_submit, handle_, &request, &made);
    if (!done) return done.error();
    return transfer(made);
  }
  // mori_io_submit of one piece.
  result<transfer> write(const piece& what, std::uint64_t uid) {
    return one(MORI_IO_WRITE, what, uid);
  }
  result<transfer> read(const piece& what, std::uint64_t uid) {
    return one(MORI_IO_READ, what, uid);
  }
  // mori_io_session_stats
  result<mori_io_stats> stats() const {
    auto filled = mori::detail::sized<mori_io_stats>();
    auto done = mori::detail::call(mori_io_session_stats, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }

 private:
  result<transfer> one(std::int32_t operation, const piece& what, std::uint64_t uid) {
    auto request = mori::detail::sized<mori_io_request>();
    request.operation = operation;
    request.piece_count = 1;
    request.in_local_offsets = &what.local_offset;
    request.in_remote_offsets = &what.remote_offset;
    request.in_sizes_bytes = &what.size_bytes;
    request.uid = uid;
    return submit(request);
  }
  mori_io_session* handle_ = nullptr;
};

// An engine.
class engine {
 public:
  // mori_io_create
  static result<engine> create(const mori_io_options& with) {
    mori_io* handle = nullptr;
    auto done = mori::detail::call(mori_io_create, &with, &handle);
    if (!done) return done.error();
    return engine(handle);
  }

  engine(engine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  engine& operator=(engine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine() { mori_io_destroy(handle_); }

  mori_io* handle() const noexcept { return handle_; }

  // mori_io_desc
  result<descriptor> desc() const {
    return detail::packed([this](void* out, std::uint64_t* bytes, mori_error* error) {
      return mori_io_desc(handle_, out, bytes, error);
    });
  }
  // mori_io_backend_create, mori_io_backend_remove
  result<void> create_backend(std::int32_t backend, const mori_io_backend_options* with = nullptr) {
    return mori::detail::call(mori_io_backend_create, handle_, backend, with);
  }
  result<void> remove_backend(std::int32_t backend) {
    return mori::detail::call(mori_io_backend_remove, handle_, backend);
  }
  // mori_io_remote_register, mori_io_remote_deregister
  result<void> register_remote(std::span<const std::byte> desc) {
    return mori::detail::call(mori_io_remote_register, handle_, desc.data(),
                              static_cast<std::uint64_t>(desc.size()));
  }
  result<void> deregister_remote(const char* key) {
    return mori::detail::call(mori_io_remote_deregister, handle_, key);
  }
  // mori_io_memory_register of host memory: the region's id.
  result<std::uint32_t> register_memory(std::span<std::byte> memory, std::int32_t access = 0) {
    std::uint32_t id = 0;
    auto done = mori::detail::call(
        mori_io_memory_register, handle_, memory.data(), static_cast<std::uint64_t>(memory.size()),
        static_cast<std::int32_t>(MORI_IO_LOCATION_CPU), std::int32_t{-1}, access, &id);
    if (!done) return done.error();
    return id;
  }
  // mori_io_memory_deregister, mori_io_memory_desc
  result<void> deregister_memory(std::uint32_t id) {
    return mori::detail::call(mori_io_memory_deregister, handle_, id);
  }
  result<descriptor> memory_desc(std::uint32_t id) const {
    return detail::packed([this, id](void* out, std::uint64_t* bytes, mori_error* error) {
      return mori_io_memory_desc(handle_, id, out, bytes, error);
    });
  }
  // mori_io_session_create
  result<session> create_session(std::uint32_t local_id, std::span<const std::byte> remote,
                                 const mori_io_session_options* with = nullptr) {
    mori_io_session* made = nullptr;
    auto done = mori::detail::call(mori_io_session_create, handle_, local_id, remote.data(),
                                   static_cast<std::uint64_t>(remote.size()), with, &made);
    if (!done) return done.error();
    return session(made);
  }
  // mori_io_allocate_uid
  std::uint64_t allocate_uid() noexcept { return mori_io_allocate_uid(handle_); }
  // mori_io_inbound_pop, mori_io_inbound_next: MORI_E_AGAIN when it is not there.
  result<mori_io_inbound> pop_inbound(const char* peer, std::uint64_t uid) {
    auto filled = mori::detail::sized<mori_io_inbound>();
    auto done = mori::detail::call(mori_io_inbound_pop, handle_, peer, uid, &filled);
    if (!done) return done.error();
    return filled;
  }
  result<mori_io_inbound> next_inbound() {
    auto filled = mori::detail::sized<mori_io_inbound>();
    auto done = mori::detail::call(mori_io_inbound_next, handle_, &filled);
    if (!done) return done.error();
    return filled;
  }
  // mori_io_progress
  result<void> progress(std::uint64_t timeout_ns) {
    return mori::detail::call(mori_io_progress, handle_, timeout_ns);
  }

 private:
  explicit engine(mori_io* handle) : handle_(handle) {}
  mori_io* handle_ = nullptr;
};

}  // namespace mori::io
