// descriptor.hpp - passing one open file between ranks of a host, over unix
// sockets and with the group's handshake, so that nobody else on the host gets
// it. The owner's side lives in the group's loop (`descriptor_desk`); the
// asking side is a bounded wait on the caller's thread.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/link/tcp/channel.hpp>

#include <memory>
#include <set>
#include <vector>

#include "bootstrap/acceptor.hpp"
#include "tcp/local_socket.hpp"

namespace mori::link {

class descriptor_desk {
 public:
  descriptor_desk(base::unique_fd listener, const acceptor_options& options);

  void watch(tcp::poll_list& list);
  // True when the offer has been taken by everyone who should.
  bool step(const tcp::poll_list& list, uint64_t now_ns);
  uint64_t next_due_ns() const { return entrance_.next_due_ns(); }

  // One at a time. Callers that came early are served at once.
  bool offer(uint64_t sequence, base::unique_fd fd, std::set<int> takers);
  void withdraw() { offered_.reset(); }
  const std::set<int>& takers_left() const { return takers_; }

 private:
  struct visitor {
    std::unique_ptr<tcp::channel> channel;
    uint64_t sequence = 0;
    size_t slot = SIZE_MAX;
  };
  bool serve();

  acceptor entrance_;
  std::vector<visitor> visitors_;
  base::unique_fd offered_;
  uint64_t sequence_ = 0;
  std::set<int> takers_;
};

struct descriptor_request {
  tcp::local_name owner_socket{};
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  int own_rank = 0;
  int owner_rank = 0;
  uint64_t sequence = 0;
  int wake_fd = -1;  // readable: stop waiting (MORI_E_CANCELLED)
};

base::result<base::unique_fd> fetch_descriptor(const descriptor_request& wanted,
                                               base::deadline until);

}  // namespace mori::link
