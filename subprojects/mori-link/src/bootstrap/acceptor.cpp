// acceptor.cpp - see acceptor.hpp.
#include "bootstrap/acceptor.hpp"

#include <mori/base/log.hpp>
#include <mori/link/tcp/address.hpp>

#include <algorithm>

namespace mori::link {
namespace {

constexpr int accepts_per_step = 64;
constexpr uint64_t pause_ns = 50 * base::ns_per_ms;

}  // namespace

acceptor::acceptor(base::unique_fd listening_fd, const acceptor_options& options)
    : fd_(std::move(listening_fd)), options_(options) {}

void acceptor::watch(tcp::poll_list& list) {
  slot_ = SIZE_MAX;
  if (fd_ && base::now_ns() >= pause_until_ns_) slot_ = list.add(fd_.get(), false);
  for (caller& c : pending_) c.slot = list.add(c.channel->fd(), c.channel->wants_write());
}

uint64_t acceptor::next_due_ns() const {
  uint64_t due = pause_until_ns_ > base::now_ns() ? pause_until_ns_ : UINT64_MAX;
  if (!pending_.empty()) due = std::min(due, pending_.front().give_up_at_ns);
  return due;
}

void acceptor::accept_some(uint64_t now_ns) {
  for (int i = 0; i < accepts_per_step; ++i) {
    auto fd = tcp::accept_one(fd_.get());
    if (!fd) {
      base::log(MORI_LOG_WARN, "{}; trying again", fd.error().text);
      pause_until_ns_ = now_ns + pause_ns;
      return;
    }
    if (!*fd) return;
    handshake_options how;
    how.secret = options_.secret;
    how.job = options_.job;
    how.nonce = fresh_nonce();
    if (pending_.size() >= options_.max_pending) pending_.pop_front();
    caller fresh;
    fresh.channel = std::make_unique<tcp::channel>(
        std::move(*fd), how,
        tcp::channel_limits{options_.max_payload_bytes, 2 * size_t{options_.max_payload_bytes}});
    fresh.give_up_at_ns = now_ns + options_.patience_ns;
    pending_.push_back(std::move(fresh));
  }
}

// False: done with this caller, one way or the other.
bool acceptor::advance(caller& c, const tcp::poll_list& list, uint64_t now_ns) {
  if (now_ns >= c.give_up_at_ns) {
    base::log(MORI_LOG_INFO, "dropped a connection that did not prove itself in time");
    return false;
  }
  if (list.writable(c.slot)) c.channel->on_writable();
  if (!list.readable(c.slot)) return true;
  if (const auto outcome = c.channel->on_readable(); !outcome) {
    base::log(MORI_LOG_INFO, "dropped a connection: {}", outcome.error().text);
    return false;
  }
  auto first = c.channel->next();
  if (!first) {
    base::log(MORI_LOG_INFO, "dropped a connection: {}", first.error().text);
    return false;
  }
  if (!first->has_value()) return !c.channel->ended();
  const tcp::frame& said = **first;
  arrivals_.push_back({nullptr, said.kind, byte_vector(said.payload.begin(), said.payload.end())});
  arrivals_.back().channel = std::move(c.channel);
  return false;
}

void acceptor::step(const tcp::poll_list& list, uint64_t now_ns) {
  std::erase_if(pending_, [&](caller& c) { return !advance(c, list, now_ns); });
  if (list.readable(slot_)) accept_some(now_ns);
}

}  // namespace mori::link
