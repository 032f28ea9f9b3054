// settings.cpp - see settings.hpp.
#include "engine/settings.hpp"

#include <mori/base/boundary.hpp>
#include <mori/base/env.hpp>

#include <algorithm>

#include "wire/limits.hpp"

namespace mori::io_core {
namespace {

constexpr uint64_t day_ms = 86'400'000;

base::status check_flag(const char* name, int32_t value) {
  if (value == 0 || value == 1) return {};
  return base::fail(MORI_E_INVALID, "{} {} is neither 0 nor 1", name, value);
}

// The option, else the environment in milliseconds, else the default.
base::status read_timeout(const char* name, uint64_t given_ns, const char* variable, uint64_t& to) {
  if (given_ns > max_timeout_ns)
    return base::fail(MORI_E_INVALID, "{} {} is more than {} (a day)", name, given_ns,
                      max_timeout_ns);
  MORI_TRY(const std::optional<uint64_t> said_ms, base::env_number(variable, 1, day_ms));
  if (given_ns != 0)
    to = given_ns;
  else if (said_ms)
    to = *said_ms * base::ns_per_ms;
  return {};
}

base::result<wire::security_mode> security_of(int32_t given) {
  if (given < MORI_IO_SECURITY_DEFAULT || given > MORI_IO_SECURITY_TRUSTED)
    return base::fail(MORI_E_INVALID, "security {} is none of MORI_IO_SECURITY_*", given);
  if (given != MORI_IO_SECURITY_DEFAULT) return static_cast<wire::security_mode>(given);
  const std::string text = base::env_text("MORI_IO_SECURITY").value_or("mac");
  for (const auto mode :
       {wire::security_mode::mac, wire::security_mode::encrypt, wire::security_mode::trusted})
    if (text == wire::name_of(mode)) return mode;
  return base::fail(MORI_E_INVALID, "MORI_IO_SECURITY='{}' is none of mac, encrypt, trusted", text);
}

base::status read_counts(const mori_io_options& given, settings& to) {
  if (given.transfer_count > max_transfer_count)
    return base::fail(MORI_E_INVALID, "transfer_count {} is more than {}", given.transfer_count,
                      max_transfer_count);
  if (given.inbound_count > max_inbound_count)
    return base::fail(MORI_E_INVALID, "inbound_count {} is more than {}", given.inbound_count,
                      max_inbound_count);
  if (given.transfer_count != 0) to.transfer_count = given.transfer_count;
  if (given.inbound_count != 0) to.inbound_count = given.inbound_count;
  MORI_TRY(const std::optional<uint64_t> guests,
           base::env_number("MORI_IO_GUEST_COUNT", 1, max_guest_count));
  if (guests) to.guest_count = *guests;
  return {};
}

}  // namespace

base::result<settings> read_settings(const mori_io_options* from) {
  MORI_TRY(const mori_io_options given, base::read_struct(from, "mori_io_options"));
  settings to;
  MORI_CHECK(base::check_out(given.in_key, "in_key"));
  to.key = given.in_key;
  if (to.key.empty() || to.key.size() > wire::max_key_bytes)
    return base::fail(MORI_E_INVALID, "in_key has {} bytes, 1 .. {} are allowed", to.key.size(),
                      wire::max_key_bytes);
  if (given.in_host != nullptr) to.host = given.in_host;
  if (to.host.size() > wire::max_host_bytes)
    return base::fail(MORI_E_INVALID, "in_host has {} bytes, {} are allowed", to.host.size(),
                      wire::max_host_bytes);
  if (given.port < 0 || given.port > 65535)
    return base::fail(MORI_E_INVALID, "port {} is outside 0 .. 65535", given.port);
  to.port = static_cast<uint16_t>(given.port);
  if (given.progress != MORI_IO_PROGRESS_THREAD && given.progress != MORI_IO_PROGRESS_CALLER)
    return base::fail(MORI_E_INVALID, "progress {} is none of MORI_IO_PROGRESS_*", given.progress);
  to.caller_progresses = given.progress == MORI_IO_PROGRESS_CALLER;
  MORI_TRY(to.security, security_of(given.security));
  MORI_CHECK(check_flag("require_known_peers", given.require_known_peers));
  to.require_known_peers = given.require_known_peers == 1;
  MORI_CHECK(read_timeout("control_timeout_ns", given.control_timeout_ns, "MORI_IO_CP_TIMEOUT_MS",
                          to.control_timeout_ns));
  MORI_CHECK(read_timeout("peer_timeout_ns", given.peer_timeout_ns, "MORI_IO_PEER_TIMEOUT_MS",
                          to.peer_timeout_ns));
  if (given.spin_ns > base::ns_per_s)
    return base::fail(MORI_E_INVALID, "spin_ns {} is more than {} (a second)", given.spin_ns,
                      base::ns_per_s);
  to.spin_ns = given.spin_ns;
  MORI_CHECK(read_counts(given, to));
  return to;
}

const char* backend_name(int32_t backend) {
  switch (backend) {
    case MORI_IO_BACKEND_AUTO: return "AUTO";
    case MORI_IO_BACKEND_XGMI: return "XGMI";
    case MORI_IO_BACKEND_RDMA: return "RDMA";
    case MORI_IO_BACKEND_TCP: return "TCP";
    case MORI_IO_BACKEND_FABRIC: return "FABRIC";
    default: return "?";
  }
}

base::result<backend_settings> read_backend_settings(int32_t backend,
                                                     const mori_io_backend_options* from) {
  mori_io_backend_options given{};
  if (from != nullptr) {
    MORI_TRY(given, base::read_struct(from, "mori_io_backend_options"));
  }
  backend_settings to;
  if (given.stream_count < 0 || given.stream_count > max_stream_count)
    return base::fail(MORI_E_INVALID, "stream_count {} is outside 0 .. {}", given.stream_count,
                      max_stream_count);
  if (given.event_count < 0 || given.event_count > 4096)
    return base::fail(MORI_E_INVALID, "event_count {} is outside 0 .. 4096", given.event_count);
  MORI_CHECK(check_flag("disable_notification", given.disable_notification));
  to.stream_count = given.stream_count;
  to.event_count = given.event_count;
  to.disable_notification = given.disable_notification == 1;
  MORI_TRY(const std::optional<bool> notifies, base::env_flag("MORI_IO_ENABLE_NOTIFICATION"));
  if (notifies) to.disable_notification = !*notifies;
  if (given.staging_bytes > uint64_t{16} << 30)
    return base::fail(MORI_E_INVALID, "staging_bytes {} is more than {}", given.staging_bytes,
                      uint64_t{16} << 30);
  if (given.staging_bytes != 0) to.staging_bytes = std::max<uint64_t>(given.staging_bytes, 1 << 20);
  if (backend != MORI_IO_BACKEND_TCP) return to;
  if (given.chunk_bytes != 0) to.chunk_bytes = given.chunk_bytes;
  MORI_TRY(const std::optional<uint64_t> said, base::env_bytes("MORI_IO_CHUNK_BYTES"));
  if (said) to.chunk_bytes = *said;
  if (to.chunk_bytes < min_chunk_bytes || to.chunk_bytes > max_chunk_bytes)
    return base::fail(MORI_E_INVALID, "chunk_bytes {} is outside {} .. {}", to.chunk_bytes,
                      min_chunk_bytes, max_chunk_bytes);
  return to;
}

}  // namespace mori::io_core
