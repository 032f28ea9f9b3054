// io.cpp - what libmori-io exports. So far that is its identity: version, ABI level and the names
// of statuses. Engines, sessions and transfers will sit in layers below this folder. The contract
// of each function is in mori/io.h.
#include <mori/io.h>

#include <mori/base/boundary.hpp>

uint32_t mori_io_version(void) {
  return MORI_VERSION_PACK(MORI_IO_VERSION_MAJOR, MORI_IO_VERSION_MINOR, MORI_IO_VERSION_PATCH);
}

uint32_t mori_io_abi_level(void) { return 1; }

const char* mori_io_status_name(mori_status status) { return mori::base::status_name(status); }
