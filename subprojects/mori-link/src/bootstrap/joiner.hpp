// joiner.hpp - the whole way from a unique id to a complete set of neighbour
// connections, on the caller's thread: enrol at the rendezvous (or be it), get
// the table, connect, be let go. group/group.cpp hands the outcome to the
// group's thread.
#pragma once

#include <mori/link/group.hpp>
#include <mori/link/tcp/channel.hpp>

#include <memory>
#include <vector>

#include "bootstrap/identity.hpp"
#include "bootstrap/roster.hpp"
#include "protocol/topology.hpp"

namespace mori::link {

struct joined_group {
  topology shape{0, 1};
  std::vector<enrolment> table;                      // by rank
  std::vector<std::unique_ptr<tcp::channel>> links;  // by link
  base::unique_fd local_listener;                    // descriptor.hpp
  uint64_t heartbeat_timeout_ns = 0;                 // the longest that any rank asked for
  uint64_t job = 0;
  std::array<uint8_t, 32> secret{};
};

base::result<joined_group> join_by_id(const group_options& options);

}  // namespace mori::link
