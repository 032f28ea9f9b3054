// unique_id.hpp - 128 bytes that name a rendezvous: format version, addresses
// and port of the process that made it, a job number and a 256-bit secret. Who
// does not know the secret cannot join (handshake.hpp).
#pragma once

#include <mori/base/result.hpp>

#include <array>
#include <cstdint>

namespace mori::link {

struct unique_id {
  std::array<uint8_t, 128> bytes{};
};

// Opens a listening socket (kept in this process until a group::join with this
// id in this process takes it over; at most 64 wait, then the oldest is closed)
// and describes it. Addresses: those of interface MORI_SOCKET_IFNAME, else all
// of this host, loopback last.
base::result<unique_id> make_unique_id();

}  // namespace mori::link
