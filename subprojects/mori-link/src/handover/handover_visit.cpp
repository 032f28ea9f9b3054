// handover_visit.cpp - the asking side of handover.hpp.
#include <mori/link/handover.hpp>

#include <mori/link/tcp/channel.hpp>

#include "handover/question.hpp"
#include "tcp/local_socket.hpp"
#include "tcp/poll_list.hpp"

#include <algorithm>

namespace mori::link {
namespace {

constexpr uint64_t full_queue_pause_ns = 5 * base::ns_per_ms;

base::failure late() {
  return base::fail(MORI_E_TIMEOUT, "the owner of the memory did not answer in time");
}
base::failure cancelled() { return base::fail(MORI_E_CANCELLED, "the wait was cancelled"); }

base::result<base::unique_fd> connect(const tcp::local_name& name, int wake_fd,
                                      base::deadline until) {
  tcp::poll_list list;
  for (;;) {
    auto connected = tcp::connect_locally(name);
    if (connected || connected.error().status != MORI_E_AGAIN) return connected;
    if (until.passed()) return late();
    list.clear();
    list.add(wake_fd, false);
    list.wait(std::min(base::now_ns() + full_queue_pause_ns, until.when_ns()));
    if (list.readable(0)) return cancelled();
  }
}

class visit final : public handover_visit {
 public:
  visit(base::unique_fd fd, const handshake_options& how, int wake_fd)
      : channel_(std::move(fd), how, {max_handover_bytes, 2 * max_handover_bytes}),
        wake_fd_(wake_fd) {
    channel_.expect_descriptor();
    channel_.on_writable();
  }

  base::status establish(base::deadline until) {
    while (!channel_.established()) MORI_CHECK(wait(until));
    return {};
  }

  base::result<handed> ask(byte_span question, base::deadline until) override {
    MORI_CHECK(channel_.send(question_kind::asked, {question}));
    for (;;) {
      MORI_TRY(const auto reply, channel_.next());
      if (reply && reply->kind == question_kind::granted)
        return handed{byte_vector(reply->payload.begin(), reply->payload.end()),
                      channel_.take_descriptor()};
      if (reply && reply->kind == question_kind::refused) return decode_refusal(reply->payload);
      if (reply) return base::fail(MORI_E_PROTOCOL, "an answer of kind {}", reply->kind);
      MORI_CHECK(wait(until));
    }
  }

 private:
  // Until something came. The end of the connection is a failure once nothing is left to read.
  base::status wait(base::deadline until) {
    if (channel_.ended())
      return base::fail(MORI_E_PEER_DEAD, "the owner of the memory {}", channel_.end_reason());
    if (until.passed()) return late();
    list_.clear();
    list_.add(wake_fd_, false);
    const size_t slot = list_.add(channel_.fd(), channel_.wants_write());
    list_.wait(until.when_ns());
    if (list_.readable(0)) return cancelled();
    if (list_.writable(slot)) channel_.on_writable();
    if (list_.readable(slot)) return channel_.on_readable();
    return {};
  }

  tcp::channel channel_;
  tcp::poll_list list_;
  const int wake_fd_;
};

}  // namespace

base::result<std::unique_ptr<handover_visit>> handover_visit::start(const desk_address& at,
                                                                    int wake_fd,
                                                                    base::deadline until) {
  MORI_TRY(base::unique_fd fd, connect(at.name, wake_fd, until));
  handshake_options how;
  how.connecting = true;
  how.secret = at.secret;
  how.self = {connection_purpose::descriptor, -1, -1};
  how.nonce = fresh_nonce();
  auto made = std::make_unique<visit>(std::move(fd), how, wake_fd);
  MORI_CHECK(made->establish(until));
  return std::unique_ptr<handover_visit>(std::move(made));
}

}  // namespace mori::link
