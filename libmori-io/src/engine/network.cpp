// network.cpp - connections of an engine: dialing, accepting, handshakes, and moving
// bytes between sockets and streams. Strangers cost little until they have proven
// who they are: few at once, for a short time, a few handshakes a turn.
#include "engine/network.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

constexpr size_t most_strangers = 256;
constexpr uint64_t stranger_patience_ns = 5 * base::ns_per_s;
// Out of descriptors or memory: what comes waits in the kernel's queue until it is tried again.
constexpr uint64_t accept_pause_ns = 100 * base::ns_per_ms;
constexpr uint64_t accept_silence_ns = 60 * base::ns_per_s;  // between two words about it
constexpr uint64_t dial_patience_ns = 3 * base::ns_per_s;    // for each address
// Moved on one connection before others have their turn.
constexpr uint64_t turn_bytes = 256 << 10;
constexpr int rounds_per_turn = 4;

std::string reason_of(int os_errno) {
  if (os_errno == 0) return "the connection was closed";
  char buffer[128] = {};
  return strerror_r(os_errno, buffer, sizeof buffer);
}

// The kernel notices a host that is gone, for connections on which we send nothing.
void keep_alive(int fd) {
  const int on = 1, idle_s = 30, every_s = 10, count = 3;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

}  // namespace

// --- The table of connections.

base::status engine::watch(connection& what, uint32_t interest) {
  if (what.interest == interest) return {};
  epoll_event event{};
  event.events = interest;
  event.data.u64 = what.ticket;
  const int how = what.interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), how, what.fd.get(), &event) != 0)
    return base::fail_os(errno, "cannot watch a connection");
  what.interest = interest;
  return {};
}

connection& engine::add_connection(base::unique_fd fd, connection::state at) {
  auto made = std::make_unique<connection>();
  connection& what = *made;
  what.fd = std::move(fd);
  what.ticket = ++last_ticket_ + first_connection_ticket;
  what.at = at;
  connections_.emplace(what.ticket, std::move(made));
  return what;
}

// Its memory goes when the lock is let go: callers up the stack may still look at it.
void engine::drop_connection(connection& what) {
  const auto found = connections_.find(what.ticket);
  if (found == connections_.end()) return;
  std::erase(strangers_, &what);
  what.fd.reset();  // leaves epoll too
  dropped_.push_back(std::move(found->second));
  connections_.erase(found);
}

// --- Dialing.

void engine::dial(peer& to, bool is_control, uint16_t index) {
  const auto& addresses = to.desc->addresses;
  if (addresses.empty()) {
    fail_peer(to, MORI_E_UNAVAILABLE, fmt::format("engine '{}' has no address", to.key()));
    return;
  }
  // A data stream goes where the control stream went.
  if (is_control) to.next_address %= addresses.size();
  auto fd = link::tcp::start_connecting(addresses[to.next_address % addresses.size()]);
  if (!fd) {
    lose(to, fd.error());
    return;
  }
  connection& what = add_connection(std::move(*fd), connection::state::dialing);
  what.to = &to;
  what.is_control = is_control;
  what.stream_index = index;
  what.generation = is_control ? to.link.next_generation() : to.control->generation;
  what.give_up_ns =
      now_ns_ + (addresses.size() > 1 ? std::min(settings_.control_timeout_ns, dial_patience_ns)
                                      : settings_.control_timeout_ns);
  if (is_control)
    to.control = &what;
  else
    to.data.push_back(&what);
  if (const auto watched = watch(what, EPOLLOUT); !watched) lose(to, watched.error());
}

void engine::on_dialed(connection& what) {
  const int outcome = link::tcp::connect_outcome(what.fd.get());
  if (outcome == EINPROGRESS) return;
  if (outcome != 0) {
    base::failure why = base::fail_os(outcome, "cannot connect to {}",
                                      what.to->desc->addresses[what.to->next_address].text());
    on_broken(what, why);
    return;
  }
  const wire::initiator_options options{
      .self = &keys_,
      .target_key = what.to->desc->public_key,
      .what = {.key = settings_.key,
               .instance = what.to->link_id,
               .wanted_instance = what.to->desc->instance,
               .purpose =
                   what.is_control ? wire::stream_purpose::control : wire::stream_purpose::data,
               .mode = settings_.security,
               .stream_index = what.stream_index,
               .stream_count = static_cast<uint16_t>(std::max(tcp_.stream_count, 1)),
               .generation = what.generation},
      .ephemeral = nullptr,
  };
  auto started = wire::initiator::start(options);
  if (!started) {
    on_broken(what, started.error());
    return;
  }
  what.greet.emplace(std::move(*started));
  what.at = connection::state::greeting;
  what.give_up_ns = now_ns_ + settings_.control_timeout_ns;
  if (!send_handshake(what)) return;
  if (const auto watched = watch(what, EPOLLIN); !watched) on_broken(what, watched.error());
}

// A fresh socket takes a few hundred bytes at once, or it is broken.
bool engine::send_handshake(connection& what) {
  const link::byte_span bytes = what.greet ? what.greet->output() : what.answer->output();
  if (bytes.empty()) return true;
  const ssize_t sent =
      ::send(what.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(bytes.size())) {
    const int problem = sent < 0 ? errno : EPIPE;
    on_broken(what, base::fail_os(problem, "cannot send a handshake"));
    return false;
  }
  what.greet ? what.greet->on_sent(bytes.size()) : what.answer->on_sent(bytes.size());
  return true;
}

namespace {

// Looks at what has come and takes as much as `machine` wants of it.
template <class Machine>
base::result<bool> feed(int fd, Machine& machine) {
  std::array<std::byte, 1024> room;
  const ssize_t got = ::recv(fd, room.data(), room.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got == 0) return base::fail(MORI_E_PEER_DEAD, "closed during the handshake");
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    return base::fail_os(errno, "the handshake broke off");
  }
  const link::byte_span seen(room.data(), static_cast<size_t>(got));
  auto taken = machine.on_bytes(seen);
  const size_t consumed = taken ? *taken : seen.size();
  if (consumed > 0) ::recv(fd, room.data(), consumed, MSG_DONTWAIT);
  if (!taken) return taken.error();
  return consumed > 0;
}

}  // namespace

void engine::on_greeting(connection& what) {
  auto fed = feed(what.fd.get(), *what.greet);
  if (!fed) {
    base::failure why = std::move(fed.error());
    // What the target itself said is final; what anybody could have said is a lost connection.
    const bool is_final = why.status == MORI_E_AUTH || why.status == MORI_E_VERSION ||
                          why.status == MORI_E_PEER_DEAD || why.status == MORI_E_PROTOCOL;
    if (!what.greet->hearsay() && is_final)
      fail_peer(*what.to, why.status,
                fmt::format("engine '{}' refuses the connection: {}", what.to->key(), why.text));
    else
      on_broken(what, why);
    return;
  }
  if (!what.greet->done()) return;
  if (!send_handshake(what)) return;
  on_proven_peer(what);
}

void engine::on_proven_peer(connection& what) {
  peer& to = *what.to;
  what.stream = std::make_unique<protocol::stream>(what.greet->agreed());
  what.greet.reset();
  what.at = connection::state::open;
  what.give_up_ns = UINT64_MAX;
  keep_alive(what.fd.get());
  if (what.is_control) {
    base::log(MORI_LOG_DEBUG, "io: link to engine '{}' is up, generation {}", to.key(),
              what.generation);
    to.link.on_control(*what.stream, now_ns_);
  } else {
    to.link.add_data(*what.stream);
  }
  need(to);
}

// --- Accepting.

void engine::accept_strangers() {
  for (const base::unique_fd& each : listeners_) {
    for (int i = 0; i < 64; ++i) {
      auto fd = link::tcp::accept_one(each.get());
      if (!fd) return pause_accepting(fd.error());
      if (!*fd) break;
      if (strangers_.size() >= most_strangers) {
        base::log(MORI_LOG_DEBUG, "io: {} unproven connections, the oldest goes", most_strangers);
        drop_connection(*strangers_.front());
      }
      connection& what = add_connection(std::move(*fd), connection::state::answering);
      strangers_.push_back(&what);
      what.give_up_ns = now_ns_ + std::min(settings_.control_timeout_ns, stranger_patience_ns);
      what.answer.emplace(wire::responder_options{
          .self = &keys_, .instance = instance_, .mode = settings_.security, .ephemeral = nullptr});
      if (const auto watched = watch(what, EPOLLIN); !watched) drop_connection(what);
    }
  }
}

void engine::watch_listeners(uint32_t interest) const {
  for (const base::unique_fd& each : listeners_) {
    epoll_event event{};
    event.events = interest;
    event.data.u64 = listener_ticket;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, each.get(), &event);
  }
}

// A listener with a connection that cannot be taken is readable all the time, and would keep the
// loop awake.
void engine::pause_accepting(const base::failure& why) {
  watch_listeners(0);
  accept_again_ns_ = now_ns_ + accept_pause_ns;
  if (accept_said_ns_ != 0 && now_ns_ - accept_said_ns_ < accept_silence_ns) return;
  accept_said_ns_ = now_ns_;
  base::log(MORI_LOG_WARN, "io: {}; it waits, and is tried again every {} ms", why.text,
            accept_pause_ns / base::ns_per_ms);
}

void engine::on_answering(connection& what) {
  while (!what.answer->done() && !what.answer->wants_open()) {
    const auto fed = feed(what.fd.get(), *what.answer);
    if (!fed) {
      base::log(MORI_LOG_DEBUG, "io: a stranger's handshake failed: {}", fed.error().text);
      if (send_handshake(what)) drop_connection(what);
      return;
    }
    if (!*fed) return;
  }
  if (what.answer->wants_open())
    open_responder(what);
  else if (what.answer->done())
    on_proven_guest(what);
}

// Curve operations, a bounded number a turn; what is left is level-triggered and comes again.
void engine::open_responder(connection& what) {
  if (handshakes_left_ <= 0) return;
  --handshakes_left_;
  if (const auto opened = what.answer->open(); !opened) {
    base::log(MORI_LOG_INFO, "io: a hello was refused: {}", opened.error().text);
    if (send_handshake(what)) drop_connection(what);
    return;
  }
  decide(what);
}

// Whether one more link, or one more stream of it, is within what this engine serves.
base::status engine::check_room(const wire::identity& who) const {
  const auto found = guests_.find(who.instance);
  const bool is_here = found != guests_.end() && found->second->control != nullptr;
  if (who.purpose == wire::stream_purpose::data) {
    const size_t streams = found->second->data.size();
    if (streams >= size_t{max_stream_count})
      return base::fail(MORI_E_NO_MEMORY, "{} data streams of engine '{}' are open, {} are allowed",
                        streams, who.key, max_stream_count);
  } else if (!is_here && guest_count_ >= settings_.guest_count) {
    return base::fail(MORI_E_NO_MEMORY,
                      "{} engines are connected, {} are allowed (MORI_IO_GUEST_COUNT)",
                      guest_count_, settings_.guest_count);
  }
  return {};
}

void engine::decide(connection& what) {
  const wire::identity& who = what.answer->who();
  const wire::public_key& its_key = what.answer->peer_key();
  const auto known = peers_.find(who.key);
  const auto earlier = guests_.find(who.instance);
  base::status verdict;
  if (known != peers_.end() && known->second->desc->public_key != its_key)
    verdict = base::fail(MORI_E_AUTH,
                         "engine '{}' is registered here with another public key; if it was "
                         "started again, its new descriptor has to be registered",
                         who.key);
  else if (known == peers_.end() && settings_.require_known_peers)
    verdict = base::fail(MORI_E_AUTH, "engine '{}' is not registered here", who.key);
  else if (earlier != guests_.end() && earlier->second->public_key != its_key)
    verdict = base::fail(MORI_E_AUTH, "engine '{}' came with another public key before", who.key);
  else if (who.purpose == wire::stream_purpose::data &&
           (earlier == guests_.end() || earlier->second->control == nullptr ||
            earlier->second->link.generation() != who.generation))
    verdict = base::fail(MORI_E_STATE, "generation {} is not current", who.generation);
  else if (who.purpose == wire::stream_purpose::control && earlier != guests_.end() &&
           who.generation <= earlier->second->link.generation())
    verdict = base::fail(MORI_E_STATE, "generation {} is not after {}", who.generation,
                         earlier->second->link.generation());
  else
    verdict = check_room(who);
  const auto said = verdict ? what.answer->admit()
                            : what.answer->refuse(verdict.error().status, verdict.error().text);
  if (!verdict) base::log(MORI_LOG_WARN, "io: refused a connection: {}", verdict.error().text);
  if (!send_handshake(what)) return;
  if (!verdict || !said) drop_connection(what);
}

void engine::on_proven_guest(connection& what) {
  const wire::identity who = what.answer->who();
  auto found = guests_.find(who.instance);
  const bool is_control = who.purpose == wire::stream_purpose::control;
  // Others may have come since decide().
  const bool is_late =
      is_control ? found != guests_.end() && who.generation <= found->second->link.generation()
                 : found == guests_.end() || found->second->control == nullptr ||
                       found->second->link.generation() != who.generation;
  if (is_late || !check_room(who)) {
    drop_connection(what);
    return;
  }
  if (found == guests_.end())
    found = guests_
                .emplace(who.instance,
                         std::make_unique<guest>(*guest_host_, who, what.answer->peer_key(),
                                                 inbox_.peer_number(who.key)))
                .first;
  guest& from = *found->second;
  // The fence: nothing of an earlier generation arrives from here on.
  if (is_control) lose_guest(from, "a later generation has come");
  std::erase(strangers_, &what);
  what.stream = std::make_unique<protocol::stream>(what.answer->agreed());
  what.answer.reset();
  what.at = connection::state::open;
  what.give_up_ns = UINT64_MAX;
  what.from = &from;
  what.is_control = is_control;
  what.generation = who.generation;
  keep_alive(what.fd.get());
  if (is_control) {
    ++guest_count_;
    from.control = &what;
    from.lost_ns = 0;
    from.link.on_control(*what.stream, who.generation);
  } else {
    from.data.push_back(&what);
    from.link.add_data(*what.stream);
  }
  on_bytes(what);
}

// --- Frames.

void engine::on_broken(connection& what, const base::failure& why) {
  if (what.to != nullptr) {
    if (why.status == MORI_E_PEER_DEAD && what.at == connection::state::open)
      fail_peer(*what.to, why.status, why.text);
    else
      lose(*what.to, why);
  } else if (what.from != nullptr) {
    lose_guest(*what.from, why.text);
  } else {
    drop_connection(what);
  }
}

void engine::on_event(connection& what, uint32_t events) {
  switch (what.at) {
    case connection::state::dialing: on_dialed(what); return;
    case connection::state::greeting: on_greeting(what); return;
    case connection::state::answering: on_answering(what); return;
    default: break;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) on_bytes(what);
  if (!connections_.contains(what.ticket)) return;
  if (what.to != nullptr)
    need(*what.to);
  else if (what.from != nullptr && !std::exchange(what.from->is_dirty, true))
    dirty_guests_.push_back(what.from);
}

void engine::on_bytes(connection& what) {
  for (uint64_t total = 0; total < turn_bytes;) {
    if (what.from != nullptr && !what.from->link.wants_input(*what.stream)) break;
    const transport::movement came = transport::receive_into(what.fd.get(), *what.stream);
    if (came.went == transport::moved::blocked) break;
    if (came.went == transport::moved::closed) {
      on_broken(what, {MORI_E_OS, came.os_errno, reason_of(came.os_errno)});
      return;
    }
    revoking_ = what.to;
    speaking_ = what.from;
    const base::status taken = what.to != nullptr
                                   ? what.to->link.receive(*what.stream, came.bytes, now_ns_)
                                   : what.from->link.receive(*what.stream, came.bytes);
    if (!taken) {
      on_broken(what, taken.error());
      return;
    }
    if (!connections_.contains(what.ticket) || came.is_partial) break;
    total += came.bytes;
  }
  if (what.to != nullptr && connections_.contains(what.ticket)) {
    // Once the link is up, it has been reached again.
    if (what.is_control && what.to->link.is_ready()) {
      what.to->attempts = 0;
      what.to->down_since_ns = what.to->refused_since_ns = 0;
      what.to->is_dead = false;
      if (std::exchange(what.to->ready_generation, what.generation) != what.generation)
        what.to->release_due = true;
    }
    need(*what.to);
  } else if (what.from != nullptr && !std::exchange(what.from->is_dirty, true)) {
    dirty_guests_.push_back(what.from);
  }
}

// True when something was sent; the connection may be gone afterwards.
bool engine::flush(connection& what) {
  bool sent = false;
  bool is_full = false;
  for (uint64_t total = 0; what.stream->wants_write() && total < turn_bytes;) {
    const transport::movement went = transport::send_from(what.fd.get(), *what.stream);
    if (went.went == transport::moved::closed) {
      on_broken(what, {MORI_E_OS, went.os_errno, reason_of(went.os_errno)});
      return false;
    }
    is_full = went.went == transport::moved::blocked;
    if (is_full) break;
    total += went.bytes;
    sent = true;
  }
  watch_for_more(what);
  return sent && !is_full;
}

void engine::watch_for_more(connection& what) {
  const bool takes = what.from == nullptr || what.from->link.wants_input(*what.stream);
  const uint32_t interest = (takes ? EPOLLIN : 0u) | (what.stream->wants_write() ? EPOLLOUT : 0u);
  if (const auto watched = watch(what, interest | EPOLLERR); !watched)
    on_broken(what, watched.error());
}

// A link that has had its share of the turn, and still has something to send: what it puts on its
// streams makes the next turn begin at once.
template <class Link>
void engine::leave_for_next_turn(Link& what, auto&& pump) {
  pump();
  connection* const control = what.control;
  watch_for_more(*control);
  for (size_t i = 0; what.control == control && i < what.data.size(); ++i)
    if (what.data[i]->at == connection::state::open) watch_for_more(*what.data[i]);
}

void engine::flush(peer& what) {
  for (int round = 0;; ++round) {
    connection* const control = what.control;
    if (control == nullptr || control->at != connection::state::open) return;
    if (round == rounds_per_turn) {
      leave_for_next_turn(what, [&] { what.link.pump(now_ns_); });
      break;
    }
    // What was submitted meanwhile may be more urgent than what is being sent.
    take_submitted();
    what.link.pump(now_ns_);
    bool sent = flush(*control);
    if (what.control != control) return;
    for (size_t i = 0; i < what.data.size(); ++i) {
      if (what.data[i]->at != connection::state::open) continue;
      sent |= flush(*what.data[i]);
      if (what.control != control) return;
    }
    if (what.link.is_ready() && std::exchange(what.release_due, false)) {
      release_held(what);
      continue;
    }
    if (!sent) break;
  }
  if (what.control == nullptr || !what.link.is_ready() || !what.link.wants_data()) return;
  while (what.control != nullptr &&
         what.data.size() < static_cast<size_t>(std::max(tcp_.stream_count, 1)))
    dial(what, false, static_cast<uint16_t>(what.data.size()));
}

void engine::flush(guest& what) {
  for (int round = 0;; ++round) {
    connection* const control = what.control;
    if (control == nullptr) return;
    if (round == rounds_per_turn) return leave_for_next_turn(what, [&] { what.link.pump(); });
    what.link.pump();
    bool sent = flush(*control);
    if (what.control != control) return;
    for (size_t i = 0; i < what.data.size(); ++i) {
      sent |= flush(*what.data[i]);
      if (what.control != control) return;
    }
    if (!sent) break;
  }
}

}  // namespace mori::io_core
