// network.hpp - tickets under which epoll reports what is not a connection.
#pragma once

#include <cstdint>

namespace mori::io_core {

inline constexpr uint64_t kick_ticket = 0;
inline constexpr uint64_t listener_ticket = 1;
inline constexpr uint64_t backend_ticket = 2;  // a device has gone on
inline constexpr uint64_t first_connection_ticket = 16;

}  // namespace mori::io_core
