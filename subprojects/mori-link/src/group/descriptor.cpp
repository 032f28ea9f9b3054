// descriptor.cpp - see descriptor.hpp.
#include "group/descriptor.hpp"

#include <algorithm>

#include "protocol/message.hpp"

namespace mori::link {
namespace {

constexpr uint64_t full_queue_pause_ns = 5 * base::ns_per_ms;

}  // namespace

descriptor_desk::descriptor_desk(base::unique_fd listener, const acceptor_options& options)
    : entrance_(std::move(listener), options) {}

void descriptor_desk::watch(tcp::poll_list& list) {
  entrance_.watch(list);
  for (visitor& v : visitors_) v.slot = list.add(v.channel->fd(), v.channel->wants_write());
}

bool descriptor_desk::step(const tcp::poll_list& list, uint64_t now_ns) {
  entrance_.step(list, now_ns);
  std::erase_if(visitors_, [&](visitor& v) {
    if (list.writable(v.slot)) v.channel->on_writable();
    if (!list.readable(v.slot)) return false;
    return !v.channel->on_readable() || v.channel->ended();
  });
  for (auto& arrival : entrance_.take_arrivals()) {
    byte_reader in(arrival.payload);
    const uint64_t sequence = in.u64();
    const bool proper = in.complete() &&
                        arrival.channel->peer().purpose == connection_purpose::descriptor &&
                        arrival.kind == static_cast<uint16_t>(message_kind::descriptor_request);
    if (proper) visitors_.push_back({std::move(arrival.channel), sequence, SIZE_MAX});
  }
  return serve();
}

bool descriptor_desk::offer(uint64_t sequence, base::unique_fd fd, std::set<int> takers) {
  offered_ = std::move(fd);
  sequence_ = sequence;
  takers_ = std::move(takers);
  return serve();
}

bool descriptor_desk::serve() {
  if (!offered_) return false;
  for (visitor& v : visitors_) {
    const int rank = v.channel->peer().from_rank;
    if (v.sequence != sequence_ || !takers_.contains(rank)) continue;
    // A full socket here means a visitor that does not read: it may ask again.
    if (v.channel->send_descriptor(static_cast<uint16_t>(message_kind::descriptor_grant), {},
                                   offered_.get()))
      takers_.erase(rank);
  }
  return takers_.empty();
}

base::result<base::unique_fd> fetch_descriptor(const descriptor_request& wanted,
                                               base::deadline until) {
  base::unique_fd fd;
  tcp::poll_list list;
  const auto pause = [&](uint64_t due_ns) {
    list.wait(std::min(due_ns, until.when_ns()));
    return list.readable(0);
  };
  const auto cancelled = [] { return base::fail(MORI_E_CANCELLED, "the wait was cancelled"); };
  const auto late = [&] {
    return base::fail(MORI_E_TIMEOUT, "PE {} did not pass its descriptor in time",
                      wanted.owner_rank);
  };
  while (!fd) {
    auto connected = tcp::connect_locally(wanted.owner_socket);
    if (connected) {
      fd = std::move(*connected);
      break;
    }
    if (connected.error().status != MORI_E_AGAIN)
      return base::failure{connected.error().status, connected.error().os_errno,
                           fmt::format("PE {}: {}", wanted.owner_rank, connected.error().text)};
    if (until.passed()) return late();
    list.clear();
    list.add(wanted.wake_fd, false);
    if (pause(base::now_ns() + full_queue_pause_ns)) return cancelled();
  }
  handshake_options how;
  how.connecting = true;
  how.secret = wanted.secret;
  how.job = wanted.job;
  how.self = {connection_purpose::descriptor, wanted.own_rank, wanted.owner_rank};
  how.nonce = fresh_nonce();
  tcp::channel channel(std::move(fd), how, {});
  channel.expect_descriptor();
  channel.on_writable();
  bool asked = false;
  while (!until.passed()) {
    list.clear();
    list.add(wanted.wake_fd, false);
    const size_t slot = list.add(channel.fd(), channel.wants_write());
    if (pause(UINT64_MAX)) return cancelled();
    if (list.writable(slot)) channel.on_writable();
    if (!list.readable(slot)) continue;
    MORI_CHECK(channel.on_readable());
    if (channel.established() && !asked) {
      byte_writer out;
      out.u64(wanted.sequence);
      MORI_CHECK(
          channel.send(static_cast<uint16_t>(message_kind::descriptor_request), {out.view()}));
      asked = true;
    }
    MORI_TRY(const auto reply, channel.next());
    if (reply && reply->kind == static_cast<uint16_t>(message_kind::descriptor_grant)) {
      base::unique_fd got = channel.take_descriptor();
      if (got) return got;
      return base::fail(MORI_E_OS, "no descriptor came along: out of descriptors?");
    }
    if (channel.ended())
      return base::fail(MORI_E_PEER_DEAD, "PE {} {} instead of passing its descriptor",
                        wanted.owner_rank, channel.end_reason());
  }
  return late();
}

}  // namespace mori::link
