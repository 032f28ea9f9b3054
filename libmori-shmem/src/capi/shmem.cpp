// shmem.cpp - the exports of libmori-shmem: each is one call of base::guard
// that pins the handle and forwards. Contracts are in mori/shmem.h; behaviour
// is in context/.
#include "capi/handles.hpp"

#include <mori/shmem_module.h>
#include <mori/base/log.hpp>
#include <mori/link/unique_id.hpp>

#include <cstring>

using namespace mori::shmem_capi;

namespace {

constexpr unsigned handle_kind = 1;
constexpr unsigned lease_kind = 3;  // 2: mori_ep
constexpr uint32_t abi_level = 3;

}  // namespace

// Never destroyed: calls may come during static destruction.
base::handle_table<context, mori_shmem>& mori::shmem_capi::contexts() {
  static auto* const table = [] {
    base::log_set_name("mori-shmem");
    return new base::handle_table<context, mori_shmem>(handle_kind, "mori_shmem");
  }();
  return *table;
}

namespace {

base::handle_table<context, mori_shmem_lease>& leases() {
  static auto* const table =
      new base::handle_table<context, mori_shmem_lease>(lease_kind, "mori_shmem_lease");
  return *table;
}

// Made while the library is loaded, before there are threads: a child that is forked while another
// thread makes one for the first time would wait for that thread for ever.
[[maybe_unused]] const auto& contexts_at_load = contexts();
[[maybe_unused]] const auto& leases_at_load = leases();

}  // namespace

extern "C" {

uint32_t mori_shmem_version(void) {
  return MORI_VERSION_PACK(MORI_SHMEM_VERSION_MAJOR, MORI_SHMEM_VERSION_MINOR,
                           MORI_SHMEM_VERSION_PATCH);
}

uint32_t mori_shmem_abi_level(void) { return abi_level; }

const char* mori_shmem_status_name(mori_status status) { return base::status_name(status); }

mori_status mori_shmem_log_set_level(int32_t level, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    if (!base::log_set_level(level))
      return base::fail(MORI_E_INVALID, "log level {} is outside {} .. {}", level,
                        static_cast<int>(MORI_LOG_OFF), static_cast<int>(MORI_LOG_TRACE));
    return {};
  });
}

mori_status mori_shmem_log_next(mori_log_record* out_record, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_struct(out_record, "mori_log_record"));
    mori_log_record record{};
    if (!base::log_next(record)) return base::fail(MORI_E_AGAIN, "the log queue is empty");
    return base::write_struct(out_record, "mori_log_record", record);
  });
}

mori_status mori_shmem_unique_id_create(mori_shmem_unique_id* out_id, mori_error* error) {
  return base::guard(error, [&]() -> base::status {
    contexts();
    MORI_CHECK(base::check_out(out_id, "out_id"));
    MORI_TRY(const mori::link::unique_id id, mori::link::make_unique_id());
    static_assert(sizeof out_id->bytes == sizeof id.bytes);
    std::memcpy(out_id->bytes, id.bytes.data(), sizeof out_id->bytes);
    return {};
  });
}

mori_status mori_shmem_create(const mori_shmem_unique_id* in_id,
                              const mori_shmem_options* in_options, mori_shmem** out_shmem,
                              mori_error* error) {
  if (out_shmem != nullptr) *out_shmem = nullptr;
  return base::guard(error, [&]() -> base::status {
    contexts();
    MORI_CHECK(base::check_out(in_id, "in_id"));
    MORI_CHECK(base::check_out(out_shmem, "out_shmem"));
    MORI_TRY(const mori::shmem_core::settings with, mori::shmem_core::read_settings(in_options));
    mori::link::unique_id id;
    std::memcpy(id.bytes.data(), in_id->bytes, sizeof in_id->bytes);
    MORI_TRY(std::shared_ptr<context> made, context::create(id, with));
    *out_shmem = contexts().insert(std::move(made));
    return {};
  });
}

void mori_shmem_destroy(mori_shmem* take_shmem) {
  if (take_shmem == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<context> taken, contexts().remove(take_shmem));
    taken->shut_down();
    return {};
  });
}

mori_status mori_shmem_lease_create(const mori_shmem* in_shmem, mori_shmem_lease** out_lease,
                                    mori_error* error) {
  if (out_lease != nullptr) *out_lease = nullptr;
  return base::guard(error, [&]() -> base::status {
    MORI_CHECK(base::check_out(out_lease, "out_lease"));
    MORI_TRY(std::shared_ptr<context> pinned, contexts().pin(in_shmem));
    *out_lease = leases().insert(std::move(pinned));
    return {};
  });
}

void mori_shmem_lease_destroy(mori_shmem_lease* take_lease) {
  if (take_lease == nullptr) return;
  base::guard(nullptr, [&]() -> base::status {
    MORI_TRY(const std::shared_ptr<context> taken, leases().remove(take_lease));
    return {};
  });
}

mori_status mori_shmem_my_pe(const mori_shmem* in_shmem, int32_t* out_pe, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pe, "out_pe"));
    *out_pe = c.pe();
    return {};
  });
}

mori_status mori_shmem_pe_count(const mori_shmem* in_shmem, int32_t* out_pe_count,
                                mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pe_count, "out_pe_count"));
    *out_pe_count = c.pe_count();
    return {};
  });
}

mori_status mori_shmem_info(const mori_shmem* in_shmem, mori_shmem_report* out_report,
                            mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    return base::write_struct(out_report, "mori_shmem_report", c.info(),
                              offsetof(mori_shmem_report, gpu_ordinal));
  });
}

mori_status mori_shmem_peer_info(const mori_shmem* in_shmem, int32_t pe,
                                 mori_shmem_peer_report* out_report, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_TRY(const mori_shmem_peer_report report, c.peer_info(pe));
    return base::write_struct(out_report, "mori_shmem_peer_report", report);
  });
}

mori_status mori_shmem_check(const mori_shmem* in_shmem, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status { return c.check(); });
}

mori_status mori_shmem_abort(mori_shmem* in_shmem, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    c.abort();
    return {};
  });
}

mori_status mori_shmem_malloc(mori_shmem* in_shmem, uint64_t size_bytes, void** out_pointer,
                              mori_error* error) {
  return mori_shmem_malloc_align(in_shmem, mori::shmem_core::heap::granule_bytes, size_bytes,
                                 out_pointer, error);
}

mori_status mori_shmem_malloc_align(mori_shmem* in_shmem, uint64_t alignment_bytes,
                                    uint64_t size_bytes, void** out_pointer, mori_error* error) {
  if (out_pointer != nullptr) *out_pointer = nullptr;
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pointer, "out_pointer"));
    MORI_TRY(*out_pointer, c.allocate({size_bytes, alignment_bytes, 0}));
    return {};
  });
}

mori_status mori_shmem_free(mori_shmem* in_shmem, void* take_pointer, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status { return c.free(take_pointer); });
}

mori_status mori_shmem_ptr_p2p(const mori_shmem* in_shmem, const void* in_pointer, int32_t pe,
                               void** out_pointer, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_pointer, "out_pointer"));
    MORI_TRY(*out_pointer, c.peer_pointer(in_pointer, pe));
    return {};
  });
}

mori_status mori_shmem_buffer_register(mori_shmem* in_shmem, void* in_pointer, uint64_t size_bytes,
                                       mori_error* error) {
  return on(in_shmem, error,
            [&](context& c) -> base::status { return c.register_buffer(in_pointer, size_bytes); });
}

mori_status mori_shmem_buffer_deregister(mori_shmem* in_shmem, void* in_pointer,
                                         uint64_t size_bytes, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    return c.deregister_buffer(in_pointer, size_bytes);
  });
}

mori_status mori_shmem_barrier_all(mori_shmem* in_shmem, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status { return c.barrier_all(); });
}

mori_status mori_shmem_barrier_on_stream(mori_shmem* in_shmem, void* in_stream, mori_error* error) {
  return on_sound(in_shmem, error,
                  [&](context& c) -> base::status { return c.barrier_on_stream(in_stream); });
}

mori_status mori_shmem_put(mori_shmem* in_shmem, void* in_target, const void* in_source,
                           uint64_t size_bytes, int32_t pe, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status {
    return c.put(in_target, in_source, size_bytes, pe);
  });
}

mori_status mori_shmem_get(mori_shmem* in_shmem, void* out_target, const void* in_source,
                           uint64_t size_bytes, int32_t pe, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status {
    return c.get(out_target, in_source, size_bytes, pe);
  });
}

mori_status mori_shmem_put_signal(mori_shmem* in_shmem, const mori_shmem_put_signal_args* in_args,
                                  mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status {
    MORI_TRY(const mori_shmem_put_signal_args with,
             base::read_struct(in_args, "mori_shmem_put_signal_args"));
    return c.put_signal(with);
  });
}

mori_status mori_shmem_atomic(mori_shmem* in_shmem, const mori_shmem_atomic_args* in_args,
                              uint64_t* out_before, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status {
    MORI_TRY(const mori_shmem_atomic_args with,
             base::read_struct(in_args, "mori_shmem_atomic_args"));
    MORI_TRY(const uint64_t before, c.atomic(with));
    if (out_before != nullptr) *out_before = before;
    return {};
  });
}

mori_status mori_shmem_wait_until(mori_shmem* in_shmem, const mori_shmem_wait_args* in_args,
                                  uint64_t* out_seen, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status {
    MORI_TRY(const mori_shmem_wait_args with, base::read_struct(in_args, "mori_shmem_wait_args"));
    MORI_TRY(const uint64_t seen, c.wait_until(with));
    if (out_seen != nullptr) *out_seen = seen;
    return {};
  });
}

mori_status mori_shmem_quiet(mori_shmem* in_shmem, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status { return c.quiet(); });
}

mori_status mori_shmem_fence(mori_shmem* in_shmem, mori_error* error) {
  return on_sound(in_shmem, error, [&](context& c) -> base::status { return c.quiet(); });
}

mori_status mori_shmem_device_state(const mori_shmem* in_shmem, uint32_t level, void* out_state,
                                    uint64_t state_bytes, mori_error* error) {
  return on(in_shmem, error, [&](context& c) -> base::status {
    MORI_CHECK(base::check_out(out_state, "out_state"));
    if (level < 1 || level > MORI_SHMEM_DEVICE_LEVEL)
      return base::fail(MORI_E_VERSION, "device level {} is outside 1 .. {}", level,
                        MORI_SHMEM_DEVICE_LEVEL);
    const uint64_t bytes =
        level == 1 ? sizeof(mori_shmem_device_state_v1) : sizeof(mori_shmem_device_state_v2);
    if (state_bytes != bytes)
      return base::fail(MORI_E_INVALID, "state_bytes is {}, level {} has {}", state_bytes, level,
                        bytes);
    if (level == 1) {
      const mori_shmem_device_state_v1 state = c.state_of_level_1();
      std::memcpy(out_state, &state, sizeof state);
    } else {
      std::memcpy(out_state, &c.state(), sizeof c.state());
    }
    return {};
  });
}

mori_status mori_shmem_module_init(mori_shmem* in_shmem, void* in_module, mori_error* error) {
  return on_sound(in_shmem, error,
                  [&](context& c) -> base::status { return c.init_module(in_module); });
}

mori_status mori_shmem_module_forget(mori_shmem* in_shmem, void* in_module, mori_error* error) {
  return on(in_shmem, error,
            [&](context& c) -> base::status { return c.forget_module(in_module); });
}

}  // extern "C"
