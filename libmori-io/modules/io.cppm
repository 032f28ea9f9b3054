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
  using ::mori_io_abi_level;
  using ::mori_io_status_name;
  using ::mori_io_version;
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
export namespace mori::io {
using mori::io::abi_level;
using mori::io::compiled_version;
using mori::io::status_name;
using mori::io::version;
using mori::io::version_number;
}  // namespace mori::io
