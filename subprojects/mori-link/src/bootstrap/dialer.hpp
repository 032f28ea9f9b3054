// dialer.hpp - opens one authenticated connection to somebody with several
// addresses: tries them staggered and keeps the first where the other side
// proves that it knows the secret. An address may lead to nobody, to a silent
// stranger or to a listener of another run; none of them delays the others.
// Never blocks.
#pragma once

#include <mori/link/tcp/address.hpp>
#include <mori/link/tcp/channel.hpp>

#include <memory>
#include <vector>

#include "tcp/poll_list.hpp"

namespace mori::link {

struct dialer_options {
  std::vector<tcp::address> addresses;
  std::array<uint8_t, 32> secret{};
  uint64_t job = 0;
  hello self{};
  uint32_t max_payload_bytes = 4096;
};

class dialer {
 public:
  dialer(const dialer_options& options, uint64_t now_ns);

  void watch(tcp::poll_list& list);
  void step(const tcp::poll_list& list, uint64_t now_ns);
  uint64_t next_due_ns() const;

  // An established channel, once.
  std::unique_ptr<tcp::channel> take() { return std::move(found_); }
  // Every address has failed for good; the most telling reason.
  const base::failure* failure() const { return failure_ ? &*failure_ : nullptr; }
  // For a timeout's message: what is known about each address.
  std::string describe() const;

 private:
  struct attempt {
    tcp::address to;
    uint64_t next_try_ns = 0;
    uint64_t failing_since_ns = 0;
    uint64_t pause_ns = 0;
    base::unique_fd connecting;
    std::unique_ptr<tcp::channel> channel;
    std::string last_problem = "not tried yet";
    std::optional<base::failure> final_problem;
    size_t slot = SIZE_MAX;
  };
  void begin(attempt& a, uint64_t now_ns);
  void advance(attempt& a, const tcp::poll_list& list, uint64_t now_ns);
  void advance_connect(attempt& a, uint64_t now_ns);
  void advance_handshake(attempt& a, uint64_t now_ns);
  void retry(attempt& a, uint64_t now_ns, uint64_t grace_ns, base::failure why);
  void conclude();

  dialer_options options_;
  std::vector<attempt> attempts_;
  std::unique_ptr<tcp::channel> found_;
  std::optional<base::failure> failure_;
  bool over_ = false;
};

}  // namespace mori::link
