// io.hpp - libmori-io for C++: the C ABI of mori/io.h. Header-only, so it binds to the stable ABI
// like any C program; the same names come from `import mori.io;`. This release of the library
// carries its identity only, so that is what there is to wrap. Contracts (threads, blocking) are
// those of the C function named at each call.
#pragma once

#include <mori/io.h>

#include <cstdint>
#include <string_view>

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

}  // namespace mori::io
