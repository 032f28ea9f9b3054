// identity.hpp - what is inside a unique_id, and the sockets that wait in this
// process for ids that it made.
//
//   0  magic "MORI-ID" and format version     48  port            u16
//   8  secret                 32 bytes        50  address count   u8, 0
//  40  job number             u64             52  4 addresses: family u8, 16 bytes
// 120  checksum of all that   8 bytes
#pragma once

#include <mori/base/unique_fd.hpp>
#include <mori/link/tcp/address.hpp>
#include <mori/link/unique_id.hpp>

#include <vector>

namespace mori::link {

struct identity {
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  std::vector<tcp::address> addresses;  // each with the port
};

unique_id encode_identity(const identity& what);
// MORI_E_INVALID says what is wrong; MORI_E_VERSION: made by a newer library.
base::result<identity> decode_identity(const unique_id& id);

inline constexpr size_t max_waiting_listeners = 64;

// Takes the listening socket of this id out of the process; empty when it
// waits elsewhere or another join has taken it.
base::unique_fd take_listener(const unique_id& id);

}  // namespace mori::link
