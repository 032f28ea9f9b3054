// io.cppm - the names of mori/io.hpp and of mori/io.h as the module mori.io. The headers are
// the source of truth; this unit only exports them and attaches nothing to the module, so it adds
// no ABI. Macros do not travel through a module: include mori/io.h for those. A compiled module
// fits one compiler and its flags only, so this source is what is installed.
module;
#include <mori/io.hpp>

export module mori.io;

export {
  using ::MORI_BACKEND_AMD;
  using ::MORI_BACKEND_AUTO;
  using ::MORI_BACKEND_HOST;
  using ::MORI_BACKEND_NVIDIA;
  using ::MORI_E_ABORTED;
  using ::MORI_E_AGAIN;
  using ::MORI_E_AUTH;
  using ::MORI_E_CANCELLED;
  using ::MORI_E_INTERNAL;
  using ::MORI_E_INVALID;
  using ::MORI_E_MISMATCH;
  using ::MORI_E_NO_MEMORY;
  using ::MORI_E_NOT_FOUND;
  using ::MORI_E_OS;
  using ::MORI_E_OVERFLOW;
  using ::MORI_E_PEER_DEAD;
  using ::MORI_E_PROTOCOL;
  using ::MORI_E_STATE;
  using ::MORI_E_TIMEOUT;
  using ::MORI_E_UNAVAILABLE;
  using ::MORI_E_UNSUPPORTED;
  using ::MORI_E_VERSION;
  using ::mori_error;
  using ::mori_io;
  using ::mori_io_abi_level;
  using ::MORI_IO_ACCESS_READ;
  using ::MORI_IO_ACCESS_WRITE;
  using ::mori_io_alloc;
  using ::mori_io_allocate_uid;
  using ::MORI_IO_BACKEND_AUTO;
  using ::mori_io_backend_create;
  using ::MORI_IO_BACKEND_FABRIC;
  using ::mori_io_backend_options;
  using ::MORI_IO_BACKEND_RDMA;
  using ::mori_io_backend_remove;
  using ::mori_io_backend_stats;
  using ::MORI_IO_BACKEND_TCP;
  using ::MORI_IO_BACKEND_XGMI;
  using ::mori_io_completion;
  using ::mori_io_completion_next;
  using ::mori_io_create;
  using ::mori_io_desc;
  using ::mori_io_desc_inspect;
  using ::mori_io_destroy;
  using ::mori_io_engine_report;
  using ::mori_io_event_fd;
  using ::mori_io_free;
  using ::mori_io_inbound;
  using ::mori_io_inbound_next;
  using ::mori_io_inbound_pop;
  using ::MORI_IO_LOCATION_CPU;
  using ::MORI_IO_LOCATION_DETECT;
  using ::MORI_IO_LOCATION_GPU;
  using ::mori_io_log_next;
  using ::mori_io_log_set_level;
  using ::mori_io_memory_deregister;
  using ::mori_io_memory_desc;
  using ::mori_io_memory_inspect;
  using ::mori_io_memory_register;
  using ::mori_io_memory_report;
  using ::mori_io_metrics;
  using ::mori_io_options;
  using ::MORI_IO_PRIORITY_BULK;
  using ::MORI_IO_PRIORITY_LATENCY;
  using ::MORI_IO_PRIORITY_NORMAL;
  using ::mori_io_progress;
  using ::MORI_IO_PROGRESS_CALLER;
  using ::MORI_IO_PROGRESS_THREAD;
  using ::MORI_IO_READ;
  using ::mori_io_remote_deregister;
  using ::mori_io_remote_register;
  using ::mori_io_request;
  using ::MORI_IO_SECURITY_DEFAULT;
  using ::MORI_IO_SECURITY_ENCRYPT;
  using ::MORI_IO_SECURITY_MAC;
  using ::MORI_IO_SECURITY_TRUSTED;
  using ::mori_io_session;
  using ::mori_io_session_create;
  using ::mori_io_session_destroy;
  using ::mori_io_session_options;
  using ::mori_io_session_stats;
  using ::mori_io_stats;
  using ::mori_io_status_name;
  using ::mori_io_submit;
  using ::mori_io_transfer;
  using ::mori_io_transfer_cancel;
  using ::mori_io_transfer_info;
  using ::mori_io_transfer_release;
  using ::mori_io_transfer_report;
  using ::mori_io_transfer_wait;
  using ::mori_io_version;
  using ::MORI_IO_WRITE;
  using ::MORI_LOG_DEBUG;
  using ::MORI_LOG_ERROR;
  using ::MORI_LOG_INFO;
  using ::MORI_LOG_OFF;
  using ::mori_log_record;
  using ::MORI_LOG_TRACE;
  using ::MORI_LOG_WARN;
  using ::MORI_OK;
  using ::mori_status;
}
export namespace mori {
using mori::error_info;
using mori::exception;
using mori::result;
}  // namespace mori
export namespace mori::io {
using mori::io::abi_level;
using mori::io::compiled_version;
using mori::io::descriptor;
using mori::io::engine;
using mori::io::options;
using mori::io::piece;
using mori::io::session;
using mori::io::status_name;
using mori::io::transfer;
using mori::io::version;
using mori::io::version_number;
}  // namespace mori::io
