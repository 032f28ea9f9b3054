// local_socket.hpp - abstract unix stream sockets: the way by which descriptors
// pass between processes of one host. A name is 16 random bytes and leaves
// nothing behind in the file system; who connects must still prove itself.
#pragma once

#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>

#include <array>
#include <cstdint>

namespace mori::link::tcp {

using local_name = std::array<uint8_t, 16>;

base::result<base::unique_fd> listen_locally(const local_name& name);

// MORI_E_AGAIN: the listener's queue is full. MORI_E_UNAVAILABLE: nobody has
// that name here.
base::result<base::unique_fd> connect_locally(const local_name& name);

}  // namespace mori::link::tcp
