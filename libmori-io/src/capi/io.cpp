// io.cpp - what libmori-io exports. So far that is its identity: version, ABI level and the names
// of statuses. Engines, sessions and transfers will sit in layers below this folder. The contract
// of each function is in mori/io.h.
#include <mori/io.h>

#include <mori/base/boundary.hpp>
#include <mori/base/log.hpp>

namespace base = mori::base;

namespace {
mori_status later(mori_error* error) {
  return base::report(base::fail(MORI_E_UNSUPPORTED, "in the next commit"), error);
}
}  // namespace

uint32_t mori_io_version(void) {
  return MORI_VERSION_PACK(MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR, MORI_IO_VERSION_PATCH);
}

uint32_t mori_io_abi_level(void) { return 2; }

const char* mori_io_status_name(mori_status status) { return mori::base::status_name(status); }

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

mori_status mori_io_create(const mori_io_options*, mori_io**, mori_error* error) {
  return later(error);
}
void mori_io_destroy(mori_io*) {}
mori_status mori_io_desc(const mori_io*, void*, uint64_t*, mori_error* error) {
  return later(error);
}
mori_status mori_io_desc_inspect(const void*, uint64_t, mori_io_engine_report*, mori_error* error) {
  return later(error);
}
mori_status mori_io_backend_create(mori_io*, int32_t, const mori_io_backend_options*,
                                   mori_error* error) {
  return later(error);
}
mori_status mori_io_backend_remove(mori_io*, int32_t, mori_error* error) { return later(error); }
mori_status mori_io_backend_stats(const mori_io*, int32_t, mori_io_stats*, mori_error* error) {
  return later(error);
}
mori_status mori_io_remote_register(mori_io*, const void*, uint64_t, mori_error* error) {
  return later(error);
}
mori_status mori_io_remote_deregister(mori_io*, const char*, mori_error* error) {
  return later(error);
}
mori_status mori_io_memory_register(mori_io*, void*, uint64_t, int32_t, int32_t, int32_t, uint32_t*,
                                    mori_error* error) {
  return later(error);
}
mori_status mori_io_memory_deregister(mori_io*, uint32_t, mori_error* error) {
  return later(error);
}
mori_status mori_io_memory_desc(const mori_io*, uint32_t, void*, uint64_t*, mori_error* error) {
  return later(error);
}
mori_status mori_io_memory_inspect(const void*, uint64_t, mori_io_memory_report*,
                                   mori_error* error) {
  return later(error);
}
mori_status mori_io_alloc(mori_io*, uint64_t, void**, mori_error* error) { return later(error); }
mori_status mori_io_free(mori_io*, void*, mori_error* error) { return later(error); }
mori_status mori_io_session_create(mori_io*, uint32_t, const void*, uint64_t,
                                   const mori_io_session_options*, mori_io_session**,
                                   mori_error* error) {
  return later(error);
}
void mori_io_session_destroy(mori_io_session*) {}
mori_status mori_io_session_stats(const mori_io_session*, mori_io_stats*, mori_error* error) {
  return later(error);
}
uint64_t mori_io_allocate_uid(mori_io*) { return 0; }
mori_status mori_io_submit(mori_io_session*, const mori_io_request*, mori_io_transfer**,
                           mori_error* error) {
  return later(error);
}
mori_status mori_io_transfer_info(const mori_io_transfer*, mori_io_transfer_report*,
                                  mori_error* error) {
  return later(error);
}
mori_status mori_io_transfer_wait(const mori_io_transfer* const*, uint64_t, uint64_t,
                                  mori_error* error) {
  return later(error);
}
mori_status mori_io_transfer_cancel(mori_io_transfer*, mori_error* error) { return later(error); }
void mori_io_transfer_release(mori_io_transfer*) {}
mori_status mori_io_event_fd(mori_io*, int32_t*, mori_error* error) { return later(error); }
mori_status mori_io_completion_next(mori_io*, mori_io_completion*, uint64_t, uint64_t*,
                                    mori_error* error) {
  return later(error);
}
mori_status mori_io_inbound_pop(mori_io*, const char*, uint64_t, mori_io_inbound*,
                                mori_error* error) {
  return later(error);
}
mori_status mori_io_inbound_next(mori_io*, mori_io_inbound*, mori_error* error) {
  return later(error);
}
mori_status mori_io_progress(mori_io*, uint64_t, mori_error* error) { return later(error); }
mori_status mori_io_metrics(const mori_io*, char*, uint64_t*, mori_error* error) {
  return later(error);
}
