// ep.cpp - the exports of libmori-ep: each is one call of base::guard that pins
// the handle and forwards. Contracts are in mori/ep.h; behaviour is in operator/.
#include "layout/buffers.hpp"
#include "operator/operator.hpp"

#include <mori/base/boundary.hpp>
#include <mori/base/handle.hpp>
#include <mori/base/log.hpp>

namespace base = mori::base;
namespace core = mori::ep_core;

namespace {

constexpr unsigned handle_kind = 2;
constexpr uint32_t abi_level = 1;

// Never destroyed: calls may come during static destruction.
base::handle_table<core::ep_operator, mori_ep>& operators() {
  static auto* const table = [] {
    base::log_set_name("mori-ep");
    return new base::handle_table<core::ep_operator, mori_ep>(handle_kind, "mori_ep");
  }();
  return *table;
}

// Made while the library is loaded, before there are threads: a child that is forked while another
// thread makes one for the first time would wait for that thread for ever.
[[maybe_unused]] const auto& operators_at_load = operators();

// Pins the handle and runs body(ep_operator&).
template <class Body>
mori_status on(const mori_ep* handle, mori_error* error, Body&& body) noexcept {
  return base::guard(error, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<core::ep_operator> pinned, operators().pin(handle));
    return body(*pinned);
  });
}

base::result<mori_ep_config> read_config(const mori_ep_config* in_config) {
  return base::read_struct(in_config, "mori_ep_config");
}

}  // namespace

extern "C" {

uint32_t mori_ep_version(void) {
  return MORI_VERSION_PACK(MORI_EP_VERSION_MAJOR, MORI_EP_VERSION_MINOR, MORI_EP_VERSION_PATCH);
}

uint32_t mori_ep_abi_level(void) { return abi_level; }

const char* mori_ep_status_name(mori_status status) { return base::status_name(status); }

mori_status mori_ep_log_set_level(int32_t level, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    if (!base::log_set_level(level))
      return base::fail(MORI_E_INVALID, "log level {} is outside {} .. {}", level,
                        static_cast<int>(MORI_LOG_OFF), static_cast<int>(MORI_LOG_TRACE));
    return {};
  });
}

mori_status mori_ep_log_next(mori_log_record* out_record, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_record, "mori_log_record"));
    mori_log_record record{};
    if (!base::log_next(record)) return base::fail(MORI_E_AGAIN, "the log queue is empty");
    return base::write_struct(out_record, "mori_log_record", record);
  });
}

mori_status mori_ep_memory_query(const mori_ep_config* in_config, int32_t pe_count,
                                 mori_ep_memory* out_memory, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_memory, "mori_ep_memory"));
    MORI_TRY(const mori_ep_config config, read_config(in_config));
    MORI_TRY(const core::settings checked, core::check_config(config, pe_count));
    mori_ep_memory memory{};
    memory.symmetric_bytes = core::lay_out_symmetric(checked).total_bytes;
    memory.private_bytes = core::lay_out_private(checked).total_bytes;
    memory.recv_token_capacity_count = checked.recv_token_capacity_count;
    return base::write_struct(out_memory, "mori_ep_memory", memory);
  });
}

mori_status mori_ep_create(mori_shmem* in_shmem, const mori_ep_config* in_config, mori_ep** out_ep,
                           mori_error* error) {
  if (out_ep != nullptr) *out_ep = nullptr;
  return base::guard(error, [&]() -> base::status {
    operators();
    MORI_CHECK(base::check_out(out_ep, "out_ep"));
    // A config that cannot be read is shown to the other ranks too, so that they do not wait.
    MORI_TRY(std::shared_ptr<core::ep_operator> made,
             core::ep_operator::create(in_shmem, read_config(in_config)));
    *out_ep = operators().insert(std::move(made));
    return {};
  });
}

void mori_ep_destroy(mori_ep* take_ep) {
  if (take_ep == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<core::ep_operator> taken, operators().remove(take_ep));
    return {};
  });
}

mori_status mori_ep_dispatch(mori_ep* in_ep, const mori_ep_dispatch_args* in_args,
                             mori_ep_dispatch_result* out_result, mori_error* error) {
  return on(in_ep, error, [&](core::ep_operator& ep) -> base::status {
    MORI_TRY(const mori_ep_dispatch_args args, base::read_struct(in_args, "mori_ep_dispatch_args"));
    MORI_CHECK(base::check_struct(out_result, "mori_ep_dispatch_result"));
    mori_ep_dispatch_result result{};
    MORI_CHECK(ep.dispatch(args, result));
    return base::write_struct(out_result, "mori_ep_dispatch_result", result);
  });
}

mori_status mori_ep_combine(mori_ep* in_ep, const mori_ep_combine_args* in_args,
                            mori_ep_combine_result* out_result, mori_error* error) {
  return on(in_ep, error, [&](core::ep_operator& ep) -> base::status {
    MORI_TRY(const mori_ep_combine_args args, base::read_struct(in_args, "mori_ep_combine_args"));
    MORI_CHECK(base::check_struct(out_result, "mori_ep_combine_result"));
    mori_ep_combine_result result{};
    MORI_CHECK(ep.combine(args, result));
    return base::write_struct(out_result, "mori_ep_combine_result", result);
  });
}

mori_status mori_ep_combine_buffer(mori_ep* in_ep, void** out_buffer, uint64_t* out_buffer_bytes,
                                   mori_error* error) {
  return on(in_ep, error, [&](core::ep_operator& ep) -> base::status {
    MORI_CHECK(base::check_out(out_buffer, "out_buffer"));
    MORI_TRY(const core::extent buffer, ep.combine_buffer());
    *out_buffer = reinterpret_cast<void*>(buffer.begin);
    if (out_buffer_bytes != nullptr) *out_buffer_bytes = buffer.bytes;
    return {};
  });
}

mori_status mori_ep_src_token_positions(mori_ep* in_ep, int32_t* out_positions,
                                        uint64_t capacity_count, uint64_t* out_count,
                                        mori_error* error) {
  return on(in_ep, error, [&](core::ep_operator& ep) -> base::status {
    MORI_CHECK(base::check_out(out_count, "out_count"));
    if (capacity_count != 0) MORI_CHECK(base::check_out(out_positions, "out_positions"));
    MORI_TRY(*out_count, ep.source_positions(out_positions, capacity_count));
    return {};
  });
}

mori_status mori_ep_reset(mori_ep* in_ep, mori_error* error) {
  return on(in_ep, error, [](core::ep_operator& ep) { return ep.reset(); });
}

mori_status mori_ep_check(const mori_ep* in_ep, mori_error* error) {
  return on(in_ep, error, [](core::ep_operator& ep) { return ep.check(); });
}

}  // extern "C"
