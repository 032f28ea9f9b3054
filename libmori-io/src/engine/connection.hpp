// connection.hpp - one socket of an engine: connecting, then the handshake of either
// side, then a proven stream of some link. Owned by the engine's network; its lock
// covers everything here.
#pragma once

#include <mori/base/unique_fd.hpp>

#include <cstdint>
#include <memory>
#include <optional>

#include "protocol/stream.hpp"
#include "wire/handshake.hpp"

namespace mori::io_core {

class peer;
class guest;

struct connection {
  enum class state : uint8_t {
    dialing,    // connect() has not ended
    greeting,   // handshake, as initiator
    answering,  // handshake, as responder: nobody is proven yet
    open,       // frames
    closing,    // frames are sent until none is left
  };

  base::unique_fd fd;
  uint64_t ticket = 0;  // what epoll gives back; never used again
  state at = state::dialing;
  bool is_control = false;
  bool is_refused = false;  // answering: the refusal is sent, then it closes
  uint16_t stream_index = 0;
  uint32_t interest = 0;  // of epoll, as last set
  uint64_t generation = 0;
  uint64_t give_up_ns = UINT64_MAX;
  std::optional<wire::initiator> greet;
  std::optional<wire::responder> answer;
  std::unique_ptr<protocol::stream> stream;
  peer* to = nullptr;     // outgoing
  guest* from = nullptr;  // incoming, once proven
};

}  // namespace mori::io_core
