// io.cpp - the exports of libmori-io: each is one call of base::guard that pins the
// handle and forwards. Contracts are in mori/io.h; behaviour is in engine/.
#include <mori/io.h>

#include <mori/base/boundary.hpp>
#include <mori/base/handle.hpp>
#include <mori/base/log.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "engine/engine.hpp"
#include "engine/waiting.hpp"
#include "local/segment_pool.hpp"

namespace base = mori::base;
namespace core = mori::io_core;
using core::engine;

namespace {

constexpr unsigned engine_kind = 4;  // 5, 6: sessions and transfers, engine/records.cpp
constexpr uint32_t abi_level = 2;
constexpr uint64_t page_bytes = 4096;

// Never destroyed: calls may come during static destruction.
base::handle_table<engine, mori_io>& engines() {
  static auto* const table = [] {
    base::log_set_name("mori-io");
    return new base::handle_table<engine, mori_io>(engine_kind, "mori_io");
  }();
  return *table;
}

// Made while the library is loaded, before there are threads: a child that is forked while another
// thread makes one for the first time would wait for that thread for ever.
[[maybe_unused]] const auto& engines_at_load = engines();
[[maybe_unused]] const auto& sessions_at_load = core::sessions();
[[maybe_unused]] const auto& transfers_at_load = core::transfers();

// Pins the handle and runs body(engine&).
template <class Body>
mori_status on(const mori_io* handle, mori_error* error, Body&& body) noexcept {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<engine> pinned, engines().pin(handle));
    return body(*pinned);
  });
}

// For callers who poll and do not ask for a text: nothing is formatted.
base::failure nothing_there() { return {MORI_E_AGAIN, 0, {}}; }

// Bytes or text that the caller makes room for: size only, or all of it.
base::status hand_out(const void* from, uint64_t size, void* out, uint64_t* inout_bytes) {
  if (inout_bytes == nullptr) return base::fail(MORI_E_INVALID, "inout_bytes is NULL");
  if (out != nullptr && *inout_bytes < size)
    return base::fail(MORI_E_INVALID, "*inout_bytes is {}, {} are needed", *inout_bytes, size);
  if (out != nullptr) std::memcpy(out, from, size);
  *inout_bytes = size;
  return {};
}

base::result<mori::link::byte_span> given(const void* in_desc, uint64_t bytes) {
  if (in_desc == nullptr) return base::fail(MORI_E_INVALID, "in_desc is NULL");
  if (bytes > core::wire::max_desc_bytes)
    return base::fail(MORI_E_INVALID, "bytes {} is more than {}, the largest descriptor", bytes,
                      core::wire::max_desc_bytes);
  return mori::link::byte_span(static_cast<const std::byte*>(in_desc), bytes);
}

template <size_t Size>
void copy_text(char (&to)[Size], const std::string& from) {
  std::snprintf(to, Size, "%s", from.c_str());
}

base::failure outcome_of(core::transfer_record& of) {
  const std::lock_guard guard(of.text_lock);
  return {of.status.load(std::memory_order_relaxed), 0, of.text};
}

}  // namespace

extern "C" {

uint32_t mori_io_version(void) {
  return MORI_VERSION_PACK(MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR, MORI_IO_VERSION_PATCH);
}

uint32_t mori_io_abi_level(void) { return abi_level; }

const char* mori_io_status_name(mori_status status) { return base::status_name(status); }

mori_status mori_io_log_set_level(int32_t level, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    if (!base::log_set_level(level))
      return base::fail(MORI_E_INVALID, "log level {} is outside {} .. {}", level,
                        static_cast<int>(MORI_LOG_OFF), static_cast<int>(MORI_LOG_TRACE));
    return {};
  });
}

mori_status mori_io_log_next(mori_log_record* out_record, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_record, "mori_log_record"));
    mori_log_record record{};
    if (!base::log_next(record)) return base::fail(MORI_E_AGAIN, "the log queue is empty");
    return base::write_struct(out_record, "mori_log_record", record);
  });
}

// --- Engines and backends.

mori_status mori_io_create(const mori_io_options* in_options, mori_io** out_io, mori_error* error) {
  if (out_io != nullptr) *out_io = nullptr;
  return base::guard(error, [&]() -> base::status {
    engines();
    MORI_CHECK(base::check_out(out_io, "out_io"));
    MORI_TRY(const core::settings with, core::read_settings(in_options));
    MORI_TRY(std::shared_ptr<engine> made, engine::create(with));
    *out_io = engines().insert(std::move(made));
    return {};
  });
}

void mori_io_destroy(mori_io* take_io) {
  if (take_io == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<engine> taken, engines().remove(take_io));
    taken->shut_down();
    return {};
  });
}

mori_status mori_io_desc(const mori_io* in_io, void* out_desc, uint64_t* inout_bytes,
                         mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_TRY(const mori::link::byte_vector packed, e.describe());
    return hand_out(packed.data(), packed.size(), out_desc, inout_bytes);
  });
}

mori_status mori_io_desc_inspect(const void* in_desc, uint64_t bytes,
                                 mori_io_engine_report* out_report, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_report, "mori_io_engine_report"));
    MORI_TRY(const mori::link::byte_span packed, given(in_desc, bytes));
    MORI_TRY(const core::wire::engine_desc of, core::wire::unpack_engine(packed));
    mori_io_engine_report report{};
    copy_text(report.key, of.key);
    copy_text(report.node_id, of.node_id);
    copy_text(report.hostname, of.hostname);
    std::string hosts;
    for (mori::link::tcp::address each : of.addresses) {
      const std::string text = each.text();
      const std::string host = text.substr(0, text.rfind(':'));
      if (!hosts.empty()) hosts += ',';
      hosts += host.front() == '[' ? host.substr(1, host.size() - 2) : host;
    }
    copy_text(report.host, hosts);
    report.port = of.port;
    report.os_process_id = of.os_process_id;
    std::ranges::copy(of.public_key, report.public_key);
    return base::write_struct(out_report, "mori_io_engine_report", report);
  });
}

mori_status mori_io_backend_create(mori_io* in_io, int32_t backend,
                                   const mori_io_backend_options* in_options, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_TRY(const core::backend_settings with, core::read_backend_settings(backend, in_options));
    return e.create_backend(backend, with);
  });
}

mori_status mori_io_backend_remove(mori_io* in_io, int32_t backend, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status { return e.remove_backend(backend); });
}

mori_status mori_io_backend_stats(const mori_io* in_io, int32_t backend, mori_io_stats* out_stats,
                                  mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_struct(out_stats, "mori_io_stats"));
    MORI_TRY(const mori_io_stats stats, e.backend_stats(backend));
    return base::write_struct(out_stats, "mori_io_stats", stats);
  });
}

mori_status mori_io_metrics(const mori_io* in_io, char* out_text, uint64_t* inout_bytes,
                            mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    const std::string text = e.metrics();
    return hand_out(text.c_str(), text.size() + 1, out_text, inout_bytes);
  });
}

// --- Peers.

mori_status mori_io_remote_register(mori_io* in_io, const void* in_desc, uint64_t bytes,
                                    mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_TRY(const mori::link::byte_span packed, given(in_desc, bytes));
    MORI_TRY(const core::wire::engine_desc desc, core::wire::unpack_engine(packed));
    return e.register_peer(desc);
  });
}

mori_status mori_io_remote_deregister(mori_io* in_io, const char* in_key, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(in_key, "in_key"));
    return e.deregister_peer(in_key);
  });
}

// --- Memory.

mori_status mori_io_memory_register(mori_io* in_io, void* in_memory, uint64_t size_bytes,
                                    int32_t location, int32_t device, int32_t access,
                                    uint32_t* out_id, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(out_id, "out_id"));
    MORI_TRY(*out_id, e.register_memory(in_memory, size_bytes, location, device, access));
    return {};
  });
}

mori_status mori_io_memory_deregister(mori_io* in_io, uint32_t id, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status { return e.deregister_memory(id); });
}

mori_status mori_io_memory_desc(const mori_io* in_io, uint32_t id, void* out_desc,
                                uint64_t* inout_bytes, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_TRY(const mori::link::byte_vector packed, e.describe_memory(id));
    return hand_out(packed.data(), packed.size(), out_desc, inout_bytes);
  });
}

mori_status mori_io_memory_inspect(const void* in_desc, uint64_t bytes,
                                   mori_io_memory_report* out_report, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_report, "mori_io_memory_report"));
    MORI_TRY(const mori::link::byte_span packed, given(in_desc, bytes));
    MORI_TRY(const core::wire::memory_desc of, core::wire::unpack_memory(packed));
    mori_io_memory_report report{};
    copy_text(report.engine_key, of.engine_key);
    report.address = of.address;
    report.size_bytes = of.size_bytes;
    report.id = of.region;
    report.location = of.location;
    report.device = of.device;
    report.access = of.access;
    copy_text(report.device_bus_id, of.device_bus_id);
    report.numa_node = of.numa_node;
    return base::write_struct(out_report, "mori_io_memory_report", report);
  });
}

mori_status mori_io_alloc(mori_io* in_io, uint64_t size_bytes, void** out_memory,
                          mori_error* error) {
  if (out_memory != nullptr) *out_memory = nullptr;
  return on(in_io, error, [&](engine&) -> base::status {
    MORI_CHECK(base::check_out(out_memory, "out_memory"));
    MORI_TRY(*out_memory, core::local::segment_pool::of_process().allocate(size_bytes));
    return {};
  });
}

mori_status mori_io_free(mori_io* in_io, void* take_memory, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    auto& pool = core::local::segment_pool::of_process();
    // The file has a page beyond what was asked for.
    const auto at = pool.find(take_memory, 1);
    if (at && at->offset == 0)
      MORI_CHECK(e.check_unregistered(take_memory, at->file_bytes - page_bytes));
    return pool.free(take_memory);
  });
}

// --- Sessions.

mori_status mori_io_session_create(mori_io* in_io, uint32_t local_id, const void* in_remote_desc,
                                   uint64_t bytes, const mori_io_session_options* in_options,
                                   mori_io_session** out_session, mori_error* error) {
  if (out_session != nullptr) *out_session = nullptr;
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(out_session, "out_session"));
    mori_io_session_options options{};
    if (in_options != nullptr) {
      MORI_TRY(options, base::read_struct(in_options, "mori_io_session_options"));
    }
    MORI_TRY(const mori::link::byte_span packed, given(in_remote_desc, bytes));
    MORI_TRY(core::wire::memory_desc remote, core::wire::unpack_memory(packed));
    MORI_TRY(*out_session, e.create_session(local_id, std::move(remote), options));
    return {};
  });
}

void mori_io_session_destroy(mori_io_session* take_session) {
  if (take_session == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const core::session_table::ref taken, core::sessions().remove(take_session));
    return {};
  });
}

mori_status mori_io_session_stats(const mori_io_session* in_session, mori_io_stats* out_stats,
                                  mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const core::session_table::ref of, core::sessions().pin(in_session));
    MORI_CHECK(base::check_struct(out_stats, "mori_io_stats"));
    const std::shared_ptr<engine> owner = of->owner;
    if (owner->is_ended())
      return base::fail(MORI_E_STATE, "the session's engine has been destroyed");
    return base::write_struct(out_stats, "mori_io_stats", owner->session_stats(*of));
  });
}

uint64_t mori_io_allocate_uid(mori_io*) {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// --- Transfers.

mori_status mori_io_submit(mori_io_session* in_session, const mori_io_request* in_request,
                           mori_io_transfer** out_transfer, mori_error* error) {
  if (out_transfer != nullptr) *out_transfer = nullptr;
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const core::session_table::ref of, core::sessions().pin(in_session));
    MORI_TRY(const mori_io_request request, base::read_struct(in_request, "mori_io_request"));
    MORI_TRY(const core::transfer_table::ref made, of->owner->submit(of, request));
    if (out_transfer != nullptr) *out_transfer = core::transfers().publish(made);
    return {};
  });
}

mori_status mori_io_transfer_info(const mori_io_transfer* in_transfer,
                                  mori_io_transfer_report* out_report, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const core::transfer_table::ref of, core::transfers().pin(in_transfer));
    MORI_CHECK(base::check_struct(out_report, "mori_io_transfer_report"));
    mori_io_transfer_report report{};
    report.is_done = of->is_done.load(std::memory_order_acquire) ? 1 : 0;
    if (report.is_done != 0) report.status = of->status.load(std::memory_order_relaxed);
    report.backend = of->backend.load(std::memory_order_relaxed);
    report.retry_count = of->retries.load(std::memory_order_relaxed);
    report.uid = of->asked_uid.load(std::memory_order_relaxed);
    report.size_bytes = of->asked_bytes.load(std::memory_order_relaxed);
    const uint64_t end =
        report.is_done != 0 ? of->end_ns.load(std::memory_order_relaxed) : base::now_ns();
    report.duration_ns = end - of->begin_ns.load(std::memory_order_relaxed);
    if (report.status != MORI_OK) copy_text(report.message, outcome_of(*of).text);
    return base::write_struct(out_report, "mori_io_transfer_report", report);
  });
}

mori_status mori_io_transfer_wait(const mori_io_transfer* const* in_transfers, uint64_t count,
                                  uint64_t timeout_ns, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    if (count > 0 && in_transfers == nullptr)
      return base::fail(MORI_E_INVALID, "in_transfers is NULL for {} transfers", count);
    return core::wait_for_transfers({in_transfers, count}, timeout_ns);
  });
}

mori_status mori_io_transfer_cancel(mori_io_transfer* in_transfer, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const core::transfer_table::ref of, core::transfers().pin(in_transfer));
    core::cancel_transfer(of);
    return {};
  });
}

void mori_io_transfer_release(mori_io_transfer* take_transfer) {
  if (take_transfer == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const core::transfer_table::ref taken, core::transfers().remove(take_transfer));
    return {};
  });
}

// --- Completions and notifications.

mori_status mori_io_event_fd(mori_io* in_io, int32_t* out_fd, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(out_fd, "out_fd"));
    MORI_TRY(*out_fd, e.event_fd());
    return {};
  });
}

mori_status mori_io_completion_next(mori_io* in_io, mori_io_completion* out_entries, uint64_t room,
                                    uint64_t* out_count, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(out_count, "out_count"));
    if (room > 0) MORI_CHECK(base::check_out(out_entries, "out_entries"));
    *out_count = e.take_completions(out_entries, room);
    return {};
  });
}

mori_status mori_io_inbound_pop(mori_io* in_io, const char* in_peer, uint64_t uid,
                                mori_io_inbound* out_inbound, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_out(in_peer, "in_peer"));
    MORI_CHECK(base::check_struct(out_inbound, "mori_io_inbound"));
    mori_io_inbound taken{};
    if (!e.pop_inbound(in_peer, uid, taken))
      return error == nullptr ? nothing_there()
                              : base::fail(MORI_E_AGAIN,
                                           "no notification of transfer {} of engine '{}' is there",
                                           uid, in_peer);
    return base::write_struct(out_inbound, "mori_io_inbound", taken);
  });
}

mori_status mori_io_inbound_next(mori_io* in_io, mori_io_inbound* out_inbound, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status {
    MORI_CHECK(base::check_struct(out_inbound, "mori_io_inbound"));
    mori_io_inbound taken{};
    if (!e.next_inbound(taken))
      return error == nullptr ? nothing_there()
                              : base::fail(MORI_E_AGAIN, "no notification is there");
    return base::write_struct(out_inbound, "mori_io_inbound", taken);
  });
}

mori_status mori_io_progress(mori_io* in_io, uint64_t timeout_ns, mori_error* error) {
  return on(in_io, error, [&](engine& e) -> base::status { return e.progress(timeout_ns); });
}

}  // extern "C"
