// address.hpp - addresses and listening sockets of this host, IPv4 and IPv6.
// The group's rendezvous and its neighbour connections use them.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/bytes.hpp>

#include <array>
#include <string>
#include <vector>

namespace mori::link::tcp {

struct address {
  uint8_t family = 4;  // 4 or 6
  std::array<uint8_t, 16> bytes{};
  uint16_t port = 0;

  std::string text() const;  // "192.0.2.1:7000", "[2001:db8::1]:7000"
  bool operator==(const address&) const = default;
};

inline constexpr size_t max_addresses = 4;

// Addresses of this host that others may use, best first, loopback last; at
// most max_addresses. MORI_SOCKET_IFNAME selects one interface.
base::result<std::vector<address>> host_addresses();

struct listener {
  base::unique_fd fd;  // non-blocking, close-on-exec
  uint16_t port = 0;
};

// On any address and a port that the kernel chooses.
base::result<listener> listen_anywhere();

// Starts to connect; TCP_NODELAY, non-blocking, close-on-exec.
base::result<base::unique_fd> start_connecting(const address& to);
// 0 once connected, else an errno (EINPROGRESS: not yet).
int connect_outcome(int fd);

// Next waiting connection, prepared like those of start_connecting; empty when
// none waits.
base::result<base::unique_fd> accept_one(int listening_fd);

// Data that was sent and stays unacknowledged for so long breaks the connection.
void limit_unanswered(int fd, uint64_t limit_ns);

void write_address(byte_writer& out, const address& where);
address read_address(byte_reader& in);

}  // namespace mori::link::tcp
