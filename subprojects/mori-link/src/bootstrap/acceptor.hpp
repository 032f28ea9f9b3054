// acceptor.hpp - a listening socket in hostile company: accepts, runs the
// handshake with each caller, and hands over those that have proven themselves
// and said what they want (their first frame). Everyone else is dropped after
// a bounded time, and when too many wait, the oldest is. Never blocks.
#pragma once

#include <mori/base/unique_fd.hpp>
#include <mori/link/tcp/channel.hpp>

#include <deque>
#include <memory>
#include <vector>

#include "tcp/poll_list.hpp"

namespace mori::link {

struct acceptor_options {
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  size_t max_pending = 64;
  uint64_t patience_ns = 5 * base::ns_per_s;  // from accept to the first frame
  uint32_t max_payload_bytes = 4096;
};

class acceptor {
 public:
  struct arrival {
    std::unique_ptr<tcp::channel> channel;
    uint16_t kind = 0;
    byte_vector payload;
  };

  acceptor(base::unique_fd listening_fd, const acceptor_options& options);

  void watch(tcp::poll_list& list);
  void step(const tcp::poll_list& list, uint64_t now_ns);
  uint64_t next_due_ns() const;
  std::vector<arrival> take_arrivals() { return std::exchange(arrivals_, {}); }
  size_t pending_count() const { return pending_.size(); }

 private:
  struct caller {
    std::unique_ptr<tcp::channel> channel;
    uint64_t give_up_at_ns = 0;
    size_t slot = SIZE_MAX;  // in the poll list
  };
  void accept_some(uint64_t now_ns);
  bool advance(caller& c, const tcp::poll_list& list, uint64_t now_ns);

  base::unique_fd fd_;
  acceptor_options options_;
  std::deque<caller> pending_;  // oldest first
  std::vector<arrival> arrivals_;
  size_t slot_ = SIZE_MAX;
  uint64_t pause_until_ns_ = 0;  // out of descriptors: try again then
};

}  // namespace mori::link
