// rendezvous.cpp - see rendezvous.hpp.
#include "bootstrap/rendezvous.hpp"

#include <algorithm>

#include "protocol/message.hpp"

namespace mori::link {
namespace {

constexpr uint64_t news_interval_ns = 100 * base::ns_per_ms;
constexpr size_t max_failure_text_bytes = 600;

}  // namespace

byte_vector encode_failure(const base::failure& why) {
  byte_writer out;
  out.i32(why.status);
  out.i32(why.os_errno);
  out.text(std::string_view(why.text).substr(0, max_failure_text_bytes));
  return out.take();
}

base::failure decode_failure(byte_span payload) {
  byte_reader in(payload);
  base::failure why;
  why.status = in.i32();
  why.os_errno = in.i32();
  why.text = in.text(max_failure_text_bytes);
  if (!in.complete() || why.status == MORI_OK)
    return base::fail(MORI_E_PROTOCOL, "a failure report of {} bytes is damaged", payload.size());
  return why;
}

rendezvous::rendezvous(base::unique_fd listener, const acceptor_options& options,
                       const enrolment& own)
    : entrance_(std::move(listener), options),
      table_limit_bytes_(static_cast<uint32_t>(std::clamp(own.size, 1, max_group_size)) *
                         max_enrolment_bytes),
      own_rank_(own.rank) {
  if (auto outcome = roster_.add(own); !outcome)
    fail(std::move(outcome.error()));
  else
    proceed();
}

void rendezvous::watch(tcp::poll_list& list) {
  entrance_.watch(list);
  for (guest& g : guests_) {
    g.slot = SIZE_MAX;
    if (g.channel) g.slot = list.add(g.channel->fd(), g.channel->wants_write());
  }
}

uint64_t rendezvous::next_due_ns() const {
  const uint64_t due = entrance_.next_due_ns();
  return news_ ? std::min(due, next_news_ns_) : due;
}

void rendezvous::tell(guest& g, message_kind kind, byte_span payload) {
  if (!g.channel) return;
  auto taken = g.channel->send(static_cast<uint16_t>(kind), {payload});
  // News may be dropped, the rest is what a guest waits for.
  if (taken || kind == message_kind::waiting || kind == message_kind::failed) return;
  fail(base::fail(MORI_E_INTERNAL, "PE {} (pid {}) cannot be told: {}", g.rank, g.process_id,
                  taken.error().text));
}

void rendezvous::tell_all(message_kind kind, byte_span payload) {
  for (guest& g : guests_) tell(g, kind, payload);
}

void rendezvous::welcome(acceptor::arrival arrival) {
  byte_reader in(arrival.payload);
  enrolment e = read_enrolment(in);
  const bool proper = arrival.channel->peer().purpose == connection_purpose::rendezvous &&
                      arrival.kind == static_cast<uint16_t>(message_kind::enrol) && in.complete();
  if (!proper) return;
  guest g;
  g.channel = std::move(arrival.channel);
  // A frame and the queue must take the whole table.
  g.channel->set_limits({table_limit_bytes_, size_t{table_limit_bytes_} + 65536});
  g.process_id = e.process_id;
  g.rank = e.rank;
  guests_.push_back(std::move(g));
  if (failure_) return tell(guests_.back(), message_kind::failed, encode_failure(*failure_));
  if (auto outcome = roster_.add(std::move(e)); !outcome) return fail(std::move(outcome.error()));
  news_ = true;
  proceed();
}

void rendezvous::on_frame(guest& g, const tcp::frame& said) {
  switch (static_cast<message_kind>(said.kind)) {
    case message_kind::ready: g.ready = true; return proceed();
    case message_kind::give_up: {
      base::failure why = decode_failure(said.payload);
      why.text = fmt::format("PE {} (pid {}) gave up: {}", g.rank, g.process_id, why.text);
      return fail(std::move(why));
    }
    default:
      return fail(base::fail(MORI_E_PROTOCOL,
                             "PE {} (pid {}) sent a frame of kind {} while joining", g.rank,
                             g.process_id, said.kind));
  }
}

void rendezvous::on_gone(guest& g) {
  g.channel.reset();
  if (!failure_ && !open_)
    fail(base::fail(MORI_E_PEER_DEAD, "PE {} (pid {}) died while joining", g.rank, g.process_id));
}

void rendezvous::serve(guest& g, const tcp::poll_list& list) {
  if (!g.channel) return;
  if (list.writable(g.slot)) g.channel->on_writable();
  if (!list.readable(g.slot)) return;
  if (!g.channel->on_readable()) return on_gone(g);
  while (g.channel) {
    auto said = g.channel->next();
    if (!said) return on_gone(g);
    if (!said->has_value()) break;
    on_frame(g, **said);
  }
  if (g.channel && g.channel->ended()) on_gone(g);
}

void rendezvous::step(const tcp::poll_list& list, uint64_t now_ns) {
  entrance_.step(list, now_ns);
  // Guests that come in this step have no slot yet.
  const size_t known = guests_.size();
  for (size_t i = 0; i < known; ++i) serve(guests_[i], list);
  for (auto& arrival : entrance_.take_arrivals()) welcome(std::move(arrival));
  if (news_ && !table_ && !failure_ && now_ns >= next_news_ns_) {
    tell_all(message_kind::waiting, as_bytes(missing_text()));
    news_ = false;
    next_news_ns_ = now_ns + news_interval_ns;
  }
  if (table_ || failure_) news_ = false;
}

void rendezvous::own_ready() {
  own_ready_ = true;
  proceed();
}

void rendezvous::proceed() {
  if (failure_ || open_) return;
  if (!table_ && roster_.complete()) {
    table_ = roster_.encode();
    tell_all(message_kind::table, *table_);
  }
  if (table_ && own_ready_ &&
      std::ranges::all_of(guests_, [](const guest& g) { return g.ready; })) {
    open_ = true;
    tell_all(message_kind::go, {});
  }
}

void rendezvous::fail(base::failure why) {
  if (failure_ || open_) return;
  failure_ = std::move(why);
  tell_all(message_kind::failed, encode_failure(*failure_));
}

std::string rendezvous::missing_text() const {
  if (!table_) return fmt::format("{} did not join", roster_.missing_text());
  std::vector<int> slow;
  if (!own_ready_) slow.push_back(own_rank_);
  for (const guest& g : guests_)
    if (!g.ready) slow.push_back(g.rank);
  std::ranges::sort(slow);
  return fmt::format("PE {} could not connect to all neighbours", list_ranks(slow));
}

bool rendezvous::settled() const {
  return std::ranges::all_of(
      guests_, [&](const guest& g) { return !g.channel || (open_ && !g.channel->wants_write()); });
}

}  // namespace mori::link
