// mesh.hpp - direct connections between ranks of a complete group: each rank
// dials those below it and accepts those above, with the handshake of the
// group's other connections. On the caller's thread; bounded by a deadline.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/link/group.hpp>
#include <mori/link/tcp/address.hpp>

#include <array>
#include <functional>
#include <span>
#include <vector>

namespace mori::link {

struct mesh_options {
  int own_rank = 0;
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  base::unique_fd listener;
  std::vector<int> peers;                            // ranks that name this one too
  std::vector<std::vector<tcp::address>> addresses;  // by place in peers, with their ports
  int lane_count = 1;
  uint64_t unanswered_limit_ns = 0;  // sent and not acknowledged: the connection is lost
  // Asked now and then: why to give up early.
  std::function<base::status()> still_sound;
};

base::result<std::vector<peer_link>> connect_mesh(mesh_options options, base::deadline until);

}  // namespace mori::link
