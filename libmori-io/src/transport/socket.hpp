// socket.hpp - the sockets of an engine: where it listens, and moving bytes between a
// socket and a stream without waiting. Which connection is whose is the engine's.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/tcp/address.hpp>

#include <string>
#include <vector>

#include "protocol/stream.hpp"

namespace mori::io_core::transport {

struct listening {
  std::vector<base::unique_fd> sockets;  // non-blocking
  std::vector<link::tcp::address> told;  // to peers, with the port, best first
  uint16_t port = 0;
};

// host empty: on all addresses, telling link::tcp::host_addresses(). Else an address or a name,
// which must be this host's. port 0: one that is free. MORI_E_NOT_FOUND (no such address),
// MORI_E_OS (the port is taken).
base::result<listening> listen_at(const std::string& host, uint16_t port);

// What became of moving bytes: `blocked`: the socket takes or has no more for now.
enum class moved { some, blocked, closed };

struct movement {
  moved went = moved::blocked;
  uint64_t bytes = 0;
  int os_errno = 0;         // closed: 0 when the other side closed in order
  bool is_partial = false;  // less than asked for: the next call would block
};

// One system call each.
movement send_from(int fd, protocol::stream& from);
// Reads into the stream's room; give `bytes` to stream::on_received().
movement receive_into(int fd, protocol::stream& to);

}  // namespace mori::io_core::transport
