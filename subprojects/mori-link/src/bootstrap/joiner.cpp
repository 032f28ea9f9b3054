// joiner.cpp - see joiner.hpp.
#include "bootstrap/joiner.hpp"

#include <mori/base/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <set>

#include "bootstrap/acceptor.hpp"
#include "bootstrap/dialer.hpp"
#include "bootstrap/rendezvous.hpp"
#include "protocol/collective.hpp"
#include "protocol/message.hpp"
#include "tcp/local_socket.hpp"
#include "wire/keyed_hash.hpp"

namespace mori::link {
namespace {

// After a failure: to let ranks that are on their way hear of it too.
constexpr uint64_t verdict_linger_ns = base::ns_per_s;
constexpr uint64_t parting_linger_ns = 200 * base::ns_per_ms;
constexpr size_t min_pending = 64;

// The engine keeps parts of collectives far below this; notices may pass them.
const tcp::channel_limits link_limits{max_part_bytes + part_header_bytes, 4 * 1024 * 1024};

class joiner {
 public:
  explicit joiner(const group_options& options)
      : options_(options),
        began_ns_(base::now_ns()),
        until_(base::deadline::at(
            base::deadline::saturating_add(began_ns_, options.join_timeout_ns))) {}

  base::result<joined_group> run();

 private:
  base::status prepare();
  base::status start_rendezvous();
  void watch();
  uint64_t next_due_ns() const;
  void step(uint64_t now_ns);
  void step_root(uint64_t now_ns);
  void step_guest(uint64_t now_ns);
  void on_root_frame(const tcp::frame& said);
  void on_table(byte_span bytes, uint64_t now_ns);
  void step_neighbours(uint64_t now_ns);
  void adopt(acceptor::arrival arrival);
  void check_ready();
  void fail(base::failure why) {
    if (!failure_) failure_ = std::move(why);
  }
  void give_up(base::failure why);
  std::vector<int> silent_neighbours() const;
  void on_deadline();
  void part();
  bool over() const { return failure_ || gone_; }
  acceptor_options entrance_options(size_t callers) const;
  dialer_options dial_options(connection_purpose purpose, int to_rank) const;

  const group_options& options_;
  const uint64_t began_ns_;
  const base::deadline until_;
  identity id_;
  enrolment own_;
  base::unique_fd neighbour_listener_;
  base::unique_fd local_listener_;

  std::unique_ptr<rendezvous> root_;            // in the process that made the id
  std::unique_ptr<dialer> dial_root_;           // elsewhere, until connected
  std::unique_ptr<tcp::channel> root_channel_;  // then
  size_t root_slot_ = SIZE_MAX;
  std::string waiting_for_ = "the rendezvous has not answered";

  topology shape_{0, 1};
  std::vector<enrolment> table_;
  std::unique_ptr<acceptor> entrance_;
  std::vector<std::unique_ptr<dialer>> dials_;  // by round
  std::vector<std::unique_ptr<tcp::channel>> links_;

  tcp::poll_list list_;
  bool ready_said_ = false;
  bool gone_ = false;  // let go: the group is complete
  bool told_ = false;  // the failure came from the root: no need to report it
  std::optional<base::failure> failure_;
};

acceptor_options joiner::entrance_options(size_t callers) const {
  acceptor_options how;
  how.secret = id_.secret;
  how.job = id_.job;
  // Each honest caller may try all addresses at once.
  how.max_pending = std::max(min_pending, tcp::max_addresses * callers + min_pending);
  return how;
}

dialer_options joiner::dial_options(connection_purpose purpose, int to_rank) const {
  dialer_options how;
  how.secret = id_.secret;
  how.job = id_.job;
  how.self = {purpose, options_.rank, to_rank};
  return how;
}

base::status joiner::prepare() {
  if (options_.size < 1 || options_.size > max_group_size)
    return base::fail(MORI_E_INVALID, "group size {} is outside 1 .. {}", options_.size,
                      max_group_size);
  if (options_.rank < 0)
    return base::fail(MORI_E_INVALID, "rank {} is outside 0 .. {}", options_.rank,
                      options_.size - 1);
  if (options_.node_id.size() > max_node_id_bytes)
    return base::fail(MORI_E_INVALID, "a node id of {} bytes, the limit is {}",
                      options_.node_id.size(), max_node_id_bytes);
  MORI_TRY(id_, decode_identity(options_.id));
  own_.rank = options_.rank;
  own_.size = options_.size;
  own_.process_id = static_cast<int32_t>(::getpid());
  own_.heartbeat_timeout_ns = options_.heartbeat_timeout_ns;
  own_.where = this_place(options_.node_id);
  MORI_TRY(own_.addresses, tcp::host_addresses());
  MORI_TRY(tcp::listener socket, tcp::listen_anywhere());
  for (tcp::address& a : own_.addresses) a.port = socket.port;
  neighbour_listener_ = std::move(socket.fd);
  random_bytes(own_.socket_name);
  MORI_TRY(local_listener_, tcp::listen_locally(own_.socket_name));
  return start_rendezvous();
}

base::status joiner::start_rendezvous() {
  if (base::unique_fd listener = take_listener(options_.id)) {
    root_ = std::make_unique<rendezvous>(
        std::move(listener), entrance_options(static_cast<size_t>(options_.size)), own_);
    return {};
  }
  dialer_options how = dial_options(connection_purpose::rendezvous, -1);
  how.addresses = id_.addresses;
  how.max_payload_bytes = static_cast<uint32_t>(options_.size) * max_enrolment_bytes + 4096;
  dial_root_ = std::make_unique<dialer>(how, began_ns_);
  return {};
}

void joiner::watch() {
  list_.clear();
  if (root_) root_->watch(list_);
  if (dial_root_) dial_root_->watch(list_);
  root_slot_ =
      root_channel_ ? list_.add(root_channel_->fd(), root_channel_->wants_write()) : SIZE_MAX;
  if (entrance_) entrance_->watch(list_);
  for (const auto& dial : dials_)
    if (dial) dial->watch(list_);
}

uint64_t joiner::next_due_ns() const {
  uint64_t due = until_.when_ns();
  if (root_) due = std::min(due, root_->next_due_ns());
  if (dial_root_) due = std::min(due, dial_root_->next_due_ns());
  if (entrance_) due = std::min(due, entrance_->next_due_ns());
  for (const auto& dial : dials_)
    if (dial) due = std::min(due, dial->next_due_ns());
  return due;
}

void joiner::step(uint64_t now_ns) {
  if (root_) step_root(now_ns);
  if (dial_root_ || root_channel_) step_guest(now_ns);
  if (!over() && !table_.empty()) step_neighbours(now_ns);
  if (root_ && root_->open()) gone_ = true;  // perhaps just now, by our own readiness
}

void joiner::step_root(uint64_t now_ns) {
  root_->step(list_, now_ns);
  if (const base::failure* why = root_->failure()) return fail(*why);
  if (root_->table() != nullptr && table_.empty()) on_table(*root_->table(), now_ns);
}

void joiner::step_guest(uint64_t now_ns) {
  if (dial_root_) {
    dial_root_->step(list_, now_ns);
    if (const base::failure* why = dial_root_->failure()) return fail(*why);
    root_channel_ = dial_root_->take();
    if (!root_channel_) return;
    dial_root_.reset();
    byte_writer out;
    write_enrolment(out, own_);
    (void)root_channel_->send(static_cast<uint16_t>(message_kind::enrol), {out.view()});
  }
  if (list_.writable(root_slot_)) root_channel_->on_writable();
  // Also on the first call: the handshake may have brought frames along.
  if (auto outcome = root_channel_->on_readable(); !outcome) return fail(outcome.error());
  while (!over()) {
    auto said = root_channel_->next();
    if (!said) return fail(said.error());
    if (!said->has_value()) break;
    on_root_frame(**said);
  }
  if (!over() && root_channel_->ended()) {
    told_ = true;
    fail(base::fail(MORI_E_PEER_DEAD, "the process that made the unique id {} during the join",
                    root_channel_->end_reason()));
  }
}

void joiner::on_root_frame(const tcp::frame& said) {
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(said.payload.data()), said.payload.size());
  };
  switch (static_cast<message_kind>(said.kind)) {
    case message_kind::waiting: waiting_for_ = text(); return;
    case message_kind::table: return on_table(said.payload, base::now_ns());
    case message_kind::go: gone_ = ready_said_; return;
    case message_kind::failed: told_ = true; return fail(decode_failure(said.payload));
    default:
      return fail(base::fail(MORI_E_PROTOCOL, "the rendezvous sent a frame of kind {}", said.kind));
  }
}

void joiner::on_table(byte_span bytes, uint64_t now_ns) {
  auto table = roster::decode(bytes, options_.size);
  if (!table) return fail(std::move(table.error()));
  if (options_.rank >= options_.size)
    return fail(base::fail(MORI_E_PROTOCOL, "PE {} is not in the table", options_.rank));
  table_ = std::move(*table);
  shape_ = topology(options_.rank, options_.size);
  waiting_for_ = fmt::format("PE {} could not connect to all neighbours", options_.rank);
  links_.resize(static_cast<size_t>(shape_.link_count()));
  entrance_ = std::make_unique<acceptor>(std::move(neighbour_listener_),
                                         entrance_options(static_cast<size_t>(shape_.rounds())));
  for (int round = 0; round < shape_.rounds(); ++round) {
    const int to = shape_.rank_at(shape_.out_link(round));
    dialer_options how = dial_options(connection_purpose::neighbour, to);
    how.addresses = table_[static_cast<size_t>(to)].addresses;
    dials_.push_back(std::make_unique<dialer>(how, now_ns));
  }
  // Without a poll result yet, this begins the connections.
  list_.clear();
  watch();
}

void joiner::step_neighbours(uint64_t now_ns) {
  entrance_->step(list_, now_ns);
  for (auto& arrival : entrance_->take_arrivals()) adopt(std::move(arrival));
  for (int round = 0; round < shape_.rounds(); ++round) {
    auto& dial = dials_[static_cast<size_t>(round)];
    if (!dial) continue;
    dial->step(list_, now_ns);
    const int to = shape_.rank_at(shape_.out_link(round));
    if (const base::failure* why = dial->failure())
      return give_up({why->status, 0, fmt::format("cannot reach PE {}: {}", to, why->text)});
    auto channel = dial->take();
    if (!channel) continue;
    byte_writer out;
    out.i32(round);
    (void)channel->send(static_cast<uint16_t>(message_kind::attach), {out.view()});
    links_[static_cast<size_t>(shape_.out_link(round))] = std::move(channel);
    dial.reset();
  }
  check_ready();
}

void joiner::adopt(acceptor::arrival arrival) {
  byte_reader in(arrival.payload);
  const int round = in.i32();
  const hello& who = arrival.channel->peer();
  const bool proper = in.complete() && round >= 0 && round < shape_.rounds() &&
                      arrival.kind == static_cast<uint16_t>(message_kind::attach) &&
                      who.purpose == connection_purpose::neighbour &&
                      who.to_rank == shape_.rank() &&
                      who.from_rank == shape_.rank_at(shape_.in_link(round));
  if (!proper) return;
  auto& link = links_[static_cast<size_t>(shape_.in_link(round))];
  if (!link) link = std::move(arrival.channel);
}

void joiner::check_ready() {
  const bool complete =
      std::ranges::all_of(links_, [](const auto& link) { return link != nullptr; });
  if (!complete || ready_said_) return;
  ready_said_ = true;
  waiting_for_ = "other PEs could not connect to all their neighbours";
  if (root_) return root_->own_ready();
  (void)root_channel_->send(static_cast<uint16_t>(message_kind::ready), {});
}

// This rank's own trouble: tell the others, through the root.
void joiner::give_up(base::failure why) {
  if (root_) root_->fail(why);
  fail(std::move(why));
}

// Neighbours that the table names, and no connection came to or from.
std::vector<int> joiner::silent_neighbours() const {
  std::set<int> silent;
  for (size_t link = 0; link < links_.size(); ++link)
    if (!links_[link]) silent.insert(shape_.rank_at(static_cast<int>(link)));
  return {silent.begin(), silent.end()};
}

void joiner::on_deadline() {
  // Whoever hangs keeps all its neighbours from being ready: say who it is, not whom it stopped.
  const std::vector<int> silent = silent_neighbours();
  const std::string what = !silent.empty()
                               ? fmt::format("no connection with PE {}", list_ranks(silent))
                           : root_      ? root_->missing_text()
                           : dial_root_ ? "no rendezvous: " + dial_root_->describe()
                                        : waiting_for_;
  give_up(base::fail(MORI_E_TIMEOUT, "no group after {:.1f} s: {}",
                     static_cast<double>(base::now_ns() - began_ns_) / 1e9, what));
}

// What others must still hear from us, for a bounded time.
void joiner::part() {
  if (root_) {
    const bool awaits_late_ranks = failure_ && failure_->status != MORI_E_TIMEOUT;
    const auto until =
        base::deadline::after(awaits_late_ranks ? verdict_linger_ns : parting_linger_ns);
    const auto heard_by_all = [&] {
      return root_->settled() && (!awaits_late_ranks || root_->all_came());
    };
    while (!heard_by_all() && !until.passed()) {
      list_.clear();
      root_->watch(list_);
      list_.wait(std::min(until.when_ns(), root_->next_due_ns()));
      root_->step(list_, base::now_ns());
    }
  } else if (root_channel_ && failure_ && !told_) {
    (void)root_channel_->send(static_cast<uint16_t>(message_kind::give_up),
                              {encode_failure(*failure_)});
  }
}

base::result<joined_group> joiner::run() {
  MORI_CHECK(prepare());
  watch();
  step(base::now_ns());  // a group of one is complete by itself: no event will come
  for (;;) {
    step(base::now_ns());
    if (!over() && until_.passed()) on_deadline();
    if (over()) break;
    watch();
    list_.wait(next_due_ns());
  }
  part();
  if (failure_) {
    base::log(MORI_LOG_ERROR, "join of PE {}: {}", options_.rank, failure_->text);
    return std::move(*failure_);
  }
  joined_group group;
  group.shape = shape_;
  group.table = std::move(table_);
  group.links = std::move(links_);
  for (const auto& link : group.links) link->set_limits(link_limits);
  group.local_listener = std::move(local_listener_);
  for (const enrolment& e : group.table)
    group.heartbeat_timeout_ns = std::max(group.heartbeat_timeout_ns, e.heartbeat_timeout_ns);
  group.job = id_.job;
  group.secret = id_.secret;
  wipe(id_.secret);
  return group;
}

}  // namespace

base::result<joined_group> join_by_id(const group_options& options) {
  return joiner(options).run();
}

}  // namespace mori::link
