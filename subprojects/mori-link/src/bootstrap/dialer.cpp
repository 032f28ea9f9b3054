// dialer.cpp - see dialer.hpp.
#include "bootstrap/dialer.hpp"

#include <algorithm>
#include <cerrno>

namespace mori::link {
namespace {

constexpr uint64_t stagger_ns = 200 * base::ns_per_ms;
constexpr uint64_t first_pause_ns = 20 * base::ns_per_ms;
constexpr uint64_t longest_pause_ns = 500 * base::ns_per_ms;
// A process that is about to listen, or a network that is about to come up.
constexpr uint64_t refused_grace_ns = 2 * base::ns_per_s;
// A listener under attack may drop an honest caller now and then.
constexpr uint64_t dropped_grace_ns = 10 * base::ns_per_s;

// Which of several failures says most.
int telling(mori_status status) {
  switch (status) {
    case MORI_E_AUTH: return 4;
    case MORI_E_VERSION: return 3;
    case MORI_E_PROTOCOL: return 2;
    case MORI_E_NOT_FOUND: return 1;
    default: return 0;
  }
}

}  // namespace

dialer::dialer(const dialer_options& options, uint64_t now_ns) : options_(options) {
  for (const tcp::address& to : options.addresses) {
    attempt a;
    a.to = to;
    a.next_try_ns = now_ns + attempts_.size() * stagger_ns;
    attempts_.push_back(std::move(a));
  }
  if (attempts_.empty()) failure_ = base::fail(MORI_E_NOT_FOUND, "no address to connect to");
}

void dialer::watch(tcp::poll_list& list) {
  for (attempt& a : attempts_) {
    a.slot = SIZE_MAX;
    if (over_) continue;
    if (a.connecting) a.slot = list.add(a.connecting.get(), true);
    if (a.channel) a.slot = list.add(a.channel->fd(), a.channel->wants_write());
  }
}

uint64_t dialer::next_due_ns() const {
  uint64_t due = UINT64_MAX;
  if (over_ || failure_) return due;
  for (const attempt& a : attempts_)
    if (!a.connecting && !a.channel && !a.final_problem) due = std::min(due, a.next_try_ns);
  return due;
}

void dialer::retry(attempt& a, uint64_t now_ns, uint64_t grace_ns, base::failure why) {
  a.connecting.reset();
  a.channel.reset();
  a.last_problem = why.text;
  if (a.failing_since_ns == 0) a.failing_since_ns = now_ns;
  if (now_ns - a.failing_since_ns >= grace_ns) a.final_problem = std::move(why);
  a.pause_ns = std::clamp(a.pause_ns * 2, first_pause_ns, longest_pause_ns);
  a.next_try_ns = now_ns + a.pause_ns;
}

void dialer::begin(attempt& a, uint64_t now_ns) {
  auto fd = tcp::start_connecting(a.to);
  if (!fd) {
    const bool refused = fd.error().os_errno == ECONNREFUSED;
    if (refused) fd.error().status = MORI_E_NOT_FOUND;
    return retry(a, now_ns, refused_grace_ns, std::move(fd.error()));
  }
  a.connecting = std::move(*fd);
  a.last_problem = "no answer to the connection request";
}

void dialer::advance_connect(attempt& a, uint64_t now_ns) {
  const int outcome = tcp::connect_outcome(a.connecting.get());
  if (outcome == EINPROGRESS) return;
  if (outcome != 0) {
    auto why = base::fail_os(outcome, "cannot connect to {}", a.to.text());
    if (outcome == ECONNREFUSED) why.status = MORI_E_NOT_FOUND;
    return retry(a, now_ns, refused_grace_ns, std::move(why));
  }
  handshake_options how;
  how.connecting = true;
  how.secret = options_.secret;
  how.job = options_.job;
  how.self = options_.self;
  how.nonce = fresh_nonce();
  a.channel = std::make_unique<tcp::channel>(
      std::move(a.connecting), how,
      tcp::channel_limits{options_.max_payload_bytes, size_t{options_.max_payload_bytes} + 65536});
  a.channel->on_writable();
  a.last_problem = "connected, but it says nothing (its process has not joined yet?)";
}

void dialer::advance_handshake(attempt& a, uint64_t now_ns) {
  a.channel->on_writable();
  auto outcome = a.channel->on_readable();
  if (!outcome) {  // a stranger, or one of another run: trying again does not help
    a.final_problem = base::failure{outcome.error().status, 0,
                                    fmt::format("{}: {}", a.to.text(), outcome.error().text)};
    a.last_problem = a.final_problem->text;
    a.channel.reset();
    return;
  }
  if (a.channel->established()) {
    found_ = std::move(a.channel);
    over_ = true;
    return;
  }
  if (a.channel->ended())
    retry(a, now_ns, dropped_grace_ns,
          base::fail(MORI_E_PROTOCOL, "{} {} before it proved that it knows the secret",
                     a.to.text(), a.channel->end_reason()));
}

void dialer::advance(attempt& a, const tcp::poll_list& list, uint64_t now_ns) {
  if (a.final_problem) return;
  if (!a.connecting && !a.channel) {
    if (now_ns >= a.next_try_ns) begin(a, now_ns);
  } else if (a.connecting) {
    if (list.writable(a.slot)) advance_connect(a, now_ns);
  } else if (list.readable(a.slot) || list.writable(a.slot)) {
    advance_handshake(a, now_ns);
  }
}

void dialer::conclude() {
  for (attempt& a : attempts_) {
    a.connecting.reset();
    a.channel.reset();
  }
}

void dialer::step(const tcp::poll_list& list, uint64_t now_ns) {
  if (over_ || failure_) return;
  for (attempt& a : attempts_) {
    advance(a, list, now_ns);
    if (over_) return conclude();
  }
  const base::failure* best = nullptr;
  for (const attempt& a : attempts_) {
    if (!a.final_problem) return;
    if (best == nullptr || telling(a.final_problem->status) > telling(best->status))
      best = &*a.final_problem;
  }
  failure_ = *best;
  if (best->status == MORI_E_NOT_FOUND)
    failure_->text = fmt::format("nobody listens at {}: an id of another run?", describe());
  conclude();
}

std::string dialer::describe() const {
  std::string text;
  const bool all_refused = failure_ && failure_->status == MORI_E_NOT_FOUND;
  for (const attempt& a : attempts_) {
    if (!text.empty()) text += ", ";
    text += all_refused ? a.to.text() : fmt::format("{} ({})", a.to.text(), a.last_problem);
  }
  return text;
}

}  // namespace mori::link
