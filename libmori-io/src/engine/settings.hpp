// settings.hpp - options of engines and of the TCP backend, read strictly: what the
// caller gave, the environment, defaults. Every bound is here.
#pragma once

#include <mori/io_types.h>
#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>

#include <cstdint>
#include <string>

#include "wire/handshake.hpp"

namespace mori::io_core {

inline constexpr uint32_t max_transfer_count = 1u << 20;
inline constexpr uint32_t max_inbound_count = 1u << 26;
inline constexpr size_t max_region_count = 1u << 20;
inline constexpr uint64_t max_timeout_ns = uint64_t{86'400'000} * base::ns_per_ms;
inline constexpr int32_t max_stream_count = 64;
inline constexpr uint64_t max_guest_count = 65536;
inline constexpr uint64_t min_chunk_bytes = 64 * 1024;
inline constexpr uint64_t max_chunk_bytes = uint64_t{64} << 20;

struct settings {
  std::string key;
  std::string host;
  uint16_t port = 0;
  bool caller_progresses = false;
  wire::security_mode security = wire::security_mode::mac;
  bool require_known_peers = false;
  uint64_t control_timeout_ns = 30 * base::ns_per_s;
  uint64_t peer_timeout_ns = 10 * base::ns_per_s;
  uint64_t spin_ns = 0;
  uint32_t transfer_count = 65536;
  uint32_t inbound_count = 1048576;
  uint64_t guest_count = 4096;  // engines that are connected to this one at once
};

base::result<settings> read_settings(const mori_io_options* from);

struct backend_settings {
  int32_t stream_count = 0;  // 0: the backend's default
  int32_t event_count = 0;
  bool disable_notification = false;
  uint64_t chunk_bytes = 1 << 20;
  uint64_t staging_bytes = 16 << 20;
};

base::result<backend_settings> read_backend_settings(int32_t backend,
                                                     const mori_io_backend_options* from);

const char* backend_name(int32_t backend);  // "TCP"; "?" for an unknown one

}  // namespace mori::io_core
