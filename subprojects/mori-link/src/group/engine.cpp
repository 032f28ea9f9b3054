// engine.cpp - see engine.hpp.
#include "group/engine.hpp"

#include "bootstrap/mesh.hpp"

#include <mori/base/log.hpp>

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace mori::link {
namespace {

constexpr uint64_t leave_ns = 500 * base::ns_per_ms;
// Unsent bytes of a link beyond which parts of collectives wait.
constexpr size_t bulk_queue_bytes = 256 * 1024;

void signal(const base::unique_fd& event) {
  const uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof one);  // full: it is signalled already
}

void clear(const base::unique_fd& event) {
  uint64_t count = 0;
  (void)!::read(event.get(), &count, sizeof count);
}

liveness_options liveness_from(const std::vector<enrolment>& table, uint64_t timeout_ns) {
  liveness_options options;
  options.heartbeat_timeout_ns = timeout_ns;
  for (const enrolment& e : table) options.process_ids.push_back(e.process_id);
  return options;
}

}  // namespace

engine::engine(joined_group&& joined)
    : shape_(joined.shape),
      table_(std::move(joined.table)),
      job_(joined.job),
      secret_(joined.secret),
      heartbeat_timeout_ns_(joined.heartbeat_timeout_ns),
      member_(shape_, liveness_from(table_, joined.heartbeat_timeout_ns), base::now_ns()) {
  for (auto& channel : joined.links) links_.push_back({std::move(channel), SIZE_MAX, false});
  acceptor_options entrance;
  entrance.secret = secret_;
  entrance.job = job_;
  entrance.max_pending = table_.size() + 64;
  desk_ = std::make_unique<descriptor_desk>(std::move(joined.local_listener), entrance);
}

base::result<std::shared_ptr<engine>> engine::create(joined_group&& joined) {
  auto made = std::make_shared<engine>(std::move(joined));
  MORI_CHECK(made->open_events());
  return made;
}

base::status engine::open_events() {
  wake_ = base::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  faulted_ = base::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_ || !faulted_) return base::fail_os(errno, "no eventfd for the group");
  return {};
}

void engine::wake_thread() { signal(wake_); }

void engine::watch() {
  list_.clear();
  wake_slot_ = list_.add(wake_.get(), false);
  for (link_state& link : links_) {
    link.slot = SIZE_MAX;
    if (link.channel) link.slot = list_.add(link.channel->fd(), link.channel->wants_write());
  }
  if (!leaving_) desk_->watch(list_);
}

uint64_t engine::next_due_ns() const {
  uint64_t due = std::min(member_.next_due_ns(), leave_by_ns_);
  return leaving_ ? due : std::min(due, desk_->next_due_ns());
}

bool engine::may_end(uint64_t now_ns) const {
  if (stopping_) return true;
  if (!leaving_) return false;
  const bool all_closed =
      std::ranges::all_of(links_, [](const link_state& link) { return !link.channel; });
  return all_closed || now_ns >= leave_by_ns_;
}

// Nothing escapes the thread: out of memory is a fault of this group, and the
// peers see its connections close.
void engine::run() {
  std::unique_lock held(lock_);
  std::function<void(const group_fault&)> tell;
  try {
    serve(held);
  } catch (const std::exception& e) {
    if (!held.owns_lock()) held.lock();
    base::log(MORI_LOG_ERROR, "PE {}: the group's thread ended: {}", shape_.rank(), e.what());
    if (!fault_delivered_) tell = fault_handler_;
    fault_delivered_ = true;
  }
  for (link_state& link : links_) link.channel.reset();
  desk_.reset();
  ended_ = true;
  signal(faulted_);
  changed_.notify_all();
  held.unlock();
  if (tell) tell({MORI_E_NO_MEMORY, shape_.rank(), "the group's thread ran out of memory"});
}

void engine::serve(std::unique_lock<std::mutex>& held) {
  uint64_t now = base::now_ns();
  // The join may have read the first frames of a quick neighbour.
  for (int link = 0; link < shape_.link_count(); ++link) read_link(link, now);
  close_ended();
  member_.on_tick(now);
  pump();
  while (!may_end(now)) {
    watch();
    const uint64_t due = next_due_ns();
    held.unlock();
    list_.wait(due);
    held.lock();
    now = base::now_ns();
    if (list_.readable(wake_slot_)) clear(wake_);
    step(now);
    deliver(held);
  }
}

void engine::step(uint64_t now_ns) {
  for (int link = 0; link < shape_.link_count(); ++link) {
    link_state& l = links_[static_cast<size_t>(link)];
    if (l.channel && list_.writable(l.slot)) l.channel->on_writable();
    if (l.channel && list_.readable(l.slot)) read_link(link, now_ns);
  }
  close_ended();
  member_.on_tick(now_ns);
  pump();
  if (!leaving_ && desk_->step(list_, now_ns) && !offer_taken_) {
    offer_taken_ = true;
    changed_.notify_all();
  }
}

void engine::read_link(int link, uint64_t now_ns) {
  link_state& l = links_[static_cast<size_t>(link)];
  const auto outcome = l.channel->on_readable();
  std::string nonsense = outcome ? "" : outcome.error().text;
  while (nonsense.empty()) {
    const auto said = l.channel->next();
    if (!said) nonsense = said.error().text;
    if (!said || !said->has_value()) break;
    member_.on_frame(link, (*said)->kind, (*said)->payload, now_ns);
  }
  if (!nonsense.empty()) {
    member_.on_nonsense(link, nonsense);
    // Its bytes can no longer be told apart.
    pump();
    l.channel.reset();
  }
}

// After all links were read: a rank's last words may be on another of its links.
void engine::close_ended() {
  for (int link = 0; link < shape_.link_count(); ++link) {
    link_state& l = links_[static_cast<size_t>(link)];
    if (!l.channel || !l.channel->ended()) continue;
    member_.on_closed(link, l.channel->end_reason());
    pump();
    l.channel.reset();
  }
}

// What the member wants to say goes to the sockets; then its waiters look.
void engine::pump() {
  send_parts();
  for (auto& message : member_.take_outbox()) {
    link_state& l = links_[static_cast<size_t>(message.link)];
    if (!l.channel || l.finishing) continue;
    // A beat adds nothing while earlier bytes are on their way.
    if (message.kind == message_kind::heartbeat && l.channel->wants_write()) continue;
    const auto taken = l.channel->send(static_cast<uint16_t>(message.kind), {message.payload});
    if (!taken) member_.on_nonsense(message.link, taken.error().text);
  }
  for (int link = 0; link < shape_.link_count(); ++link) {
    link_state& l = links_[static_cast<size_t>(link)];
    if (l.channel && !l.finishing && (leaving_ || member_.finished(link))) {
      l.finishing = true;
      l.channel->finish_sending();
    }
  }
  note_changes();
}

void engine::send_parts() {
  for (int link = 0; link < shape_.rounds(); ++link) {
    link_state& l = links_[static_cast<size_t>(link)];
    while (l.channel && !l.finishing && l.channel->queued_bytes() < bulk_queue_bytes) {
      const auto part = member_.peek_part(link);
      if (!part) break;
      if (!l.channel->send(static_cast<uint16_t>(message_kind::part_of_collective),
                           {part->header, part->data}))
        break;  // full: goes on when the socket is writable
      member_.commit_part(link);
    }
  }
}

void engine::note_changes() {
  if (member_.fault() != nullptr && !fault_signalled_) {
    fault_signalled_ = true;
    signal(faulted_);
    changed_.notify_all();
  }
  if (!member_.running()) changed_.notify_all();
}

// To the handlers, without the lock: they may call the group.
void engine::deliver(std::unique_lock<std::mutex>& held) {
  if (member_.fault() != nullptr && !fault_delivered_ && fault_handler_) {
    fault_delivered_ = true;
    const group_fault what = *member_.fault();
    const auto handler = std::exchange(fault_handler_, nullptr);
    held.unlock();
    handler(what);
    held.lock();
  }
  while (leave_handler_ && departures_delivered_ < member_.departures().size()) {
    const int rank = member_.departures()[departures_delivered_++];
    const auto handler = leave_handler_;
    held.unlock();
    handler(rank);
    held.lock();
  }
}

base::failure engine::usage_failure() const {
  return base::fail(MORI_E_STATE, "PE {} has left the group", shape_.rank());
}

base::status engine::collective(collective_kind kind, byte_span mine, std::span<std::byte> all,
                                base::deadline until) {
  const uint64_t began_ns = base::now_ns();
  const std::lock_guard one_at_a_time(call_lock_);
  std::unique_lock held(lock_);
  if (leaving_ || stopping_ || ended_) return usage_failure();
  MORI_CHECK(member_.start(kind, mine));
  pump();
  if (std::ranges::any_of(
          links_, [](const link_state& l) { return l.channel && l.channel->wants_write(); }) ||
      (member_.fault() != nullptr && !fault_delivered_))
    wake_thread();
  const auto wake_at = std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(std::min<uint64_t>(until.when_ns(), INT64_MAX)));
  while (member_.running() && !ended_) {
    if (changed_.wait_until(held, wake_at) == std::cv_status::timeout && until.passed() &&
        member_.running()) {
      member_.give_up(base::now_ns() - began_ns);
      pump();
      wake_thread();
    }
  }
  if (member_.running()) return usage_failure();
  if (!member_.outcome()) return member_.outcome();
  for (int rank = 0; rank < shape_.size() && !mine.empty(); ++rank) {
    const byte_span block = member_.block(rank);
    std::ranges::copy(block, all.begin() + static_cast<ptrdiff_t>(block.size()) * rank);
  }
  return {};
}

base::result<base::unique_fd> engine::share(int owner_rank, int fd,
                                            std::span<const int> local_ranks,
                                            base::deadline until) {
  const std::lock_guard one_at_a_time(call_lock_);
  descriptor_request wanted;
  {
    const std::lock_guard held(lock_);
    if (leaving_ || stopping_ || ended_) return usage_failure();
    if (const group_fault* f = member_.fault()) return base::failure{f->status, 0, f->text};
    wanted.sequence = ++share_sequence_;
  }
  const enrolment& owner = table_[static_cast<size_t>(owner_rank)];
  // Every local rank finds the same answer in the table, so nobody waits.
  for (const int rank : local_ranks) {
    const answer can =
        shared_memory_transport().reachable(owner.where, table_[static_cast<size_t>(rank)].where);
    if (!can.yes)
      return base::fail(MORI_E_UNAVAILABLE, "PE {} cannot pass descriptors to PE {}: {}",
                        owner_rank, rank, can.reason);
  }
  if (owner_rank == shape_.rank()) return give(fd, local_ranks, until);
  wanted.owner_socket = owner.socket_name;
  wanted.secret = secret_;
  wanted.job = job_;
  wanted.own_rank = shape_.rank();
  wanted.owner_rank = owner_rank;
  wanted.wake_fd = faulted_.get();
  auto got = fetch_descriptor(wanted, until);
  if (got || got.error().status != MORI_E_CANCELLED) return got;
  const auto why = fault();
  if (!why) return usage_failure();
  return base::failure{why->status, 0, why->text};
}

base::result<base::unique_fd> engine::give(int fd, std::span<const int> local_ranks,
                                           base::deadline until) {
  base::unique_fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  base::unique_fd passed(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own || !passed) return base::fail_os(errno, "cannot duplicate descriptor {}", fd);
  std::set<int> takers(local_ranks.begin(), local_ranks.end());
  takers.erase(shape_.rank());
  std::unique_lock held(lock_);
  offer_taken_ =
      takers.empty() || ended_ || desk_->offer(share_sequence_, std::move(passed), takers);
  const auto wake_at = std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(std::min<uint64_t>(until.when_ns(), INT64_MAX)));
  bool late = false;
  while (!offer_taken_ && member_.fault() == nullptr && !ended_ && !leaving_ && !late)
    late = changed_.wait_until(held, wake_at) == std::cv_status::timeout && until.passed();
  const std::vector<int> left =
      desk_ ? std::vector<int>(desk_->takers_left().begin(), desk_->takers_left().end())
            : std::vector<int>();
  if (desk_) desk_->withdraw();
  if (offer_taken_ && !ended_) return own;
  if (const group_fault* f = member_.fault()) return base::failure{f->status, 0, f->text};
  if (!late) return usage_failure();
  return base::fail(MORI_E_TIMEOUT, "PE {} did not fetch the descriptor in time", list_ranks(left));
}

base::result<std::vector<peer_link>> engine::open_links(std::span<const int> peers, int lane_count,
                                                        base::deadline until) {
  auto socket = tcp::listen_anywhere();
  // Everybody takes part in the exchange, whatever happened here.
  const uint16_t own_port = socket ? socket->port : 0;
  std::vector<uint16_t> ports(static_cast<size_t>(shape_.size()));
  MORI_CHECK(collective(collective_kind::allgather, std::as_bytes(std::span(&own_port, 1)),
                        std::as_writable_bytes(std::span(ports)), until));
  if (!socket) return std::move(socket.error());
  mesh_options how;
  how.own_rank = shape_.rank();
  how.secret = secret_;
  how.job = job_;
  how.listener = std::move(socket->fd);
  how.peers.assign(peers.begin(), peers.end());
  how.lane_count = lane_count;
  how.unanswered_limit_ns = heartbeat_timeout_ns_;
  how.still_sound = [this]() -> base::status {
    const auto why = fault();
    return why ? base::status(base::failure{why->status, 0, why->text}) : base::status();
  };
  for (const int rank : peers) {
    const auto at = static_cast<size_t>(rank);
    if (ports[at] == 0)
      return base::fail(MORI_E_UNAVAILABLE, "PE {} has no socket for data connections", rank);
    how.addresses.push_back(table_[at].addresses);
    for (tcp::address& where : how.addresses.back()) where.port = ports[at];
  }
  return connect_mesh(std::move(how), until);
}

void engine::on_fault(std::function<void(const group_fault&)> handler) {
  const std::lock_guard held(lock_);
  if (!fault_delivered_) fault_handler_ = std::move(handler);
  wake_thread();
}

void engine::on_leave(std::function<void(int)> handler) {
  const std::lock_guard held(lock_);
  leave_handler_ = std::move(handler);
  wake_thread();
}

std::unique_ptr<group_fault> engine::fault() const {
  const std::lock_guard held(lock_);
  const group_fault* f = member_.fault();
  return f == nullptr ? nullptr : std::make_unique<group_fault>(*f);
}

void engine::abort(const std::string& why) {
  const std::lock_guard held(lock_);
  if (leaving_ || ended_) return;
  member_.abort(why);
  pump();
  wake_thread();
}

void engine::leave() {
  const std::lock_guard held(lock_);
  if (leaving_ || ended_) return;
  member_.leave();
  leaving_ = true;
  leave_by_ns_ = base::now_ns() + leave_ns;
  pump();
  changed_.notify_all();
  wake_thread();
}

void engine::stop() {
  const std::lock_guard held(lock_);
  stopping_ = true;
  wake_thread();
}

}  // namespace mori::link
