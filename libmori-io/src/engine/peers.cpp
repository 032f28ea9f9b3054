// peers.cpp - links to peers and from guests over the life of their connections: when
// to connect, when to try again, when to give up and say so.
#include <algorithm>
#include <cerrno>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

constexpr uint64_t first_back_off_ns = 10 * base::ns_per_ms;
constexpr uint64_t longest_back_off_ns = base::ns_per_s;
// Nobody listens, or who listens is somebody else: the process is gone.
constexpr uint64_t refused_patience_ns = base::ns_per_s;
// What a guest without a connection is remembered, so that it can resume.
constexpr uint64_t guest_memory_ns = 600 * base::ns_per_s;
constexpr size_t most_lost_guests = 4096;

}  // namespace

peer* engine::find_peer(std::string_view key) {
  const auto found = peers_.find(key);
  return found == peers_.end() ? nullptr : found->second.get();
}

// Something is to be sent, or may be. Connects when that is due.
void engine::need(peer& what) {
  if (what.is_gone) return;
  if (!std::exchange(what.is_dirty, true)) dirty_.push_back(&what);
  if (what.control != nullptr || !what.is_busy()) return;
  if (what.down_since_ns == 0) {
    what.down_since_ns = now_ns_;
    what.attempts = 0;
    what.retry_ns = 0;
  }
  if (now_ns_ >= what.retry_ns) dial(what, true, 0);
}

// The link's connections are gone; what is in flight waits for the next generation.
void engine::lose(peer& what, const base::failure& why) {
  what.last_failure = why.text;
  const bool was_up = what.link.is_ready();
  what.link.on_lost(why.text);
  for (connection* each : what.data) drop_connection(*each);
  what.data.clear();
  if (what.control != nullptr) drop_connection(*std::exchange(what.control, nullptr));
  // Nobody says any more whether their memory is still there: they start again on the next one.
  for (size_t i = jobs_.size(); i-- > 0;) {
    transfer_record& each = *jobs_[i];
    if (each.session->to.get() != &what) continue;
    each.mover->cancel(each.job);
    stop_job(each);
    each.where = stage::holding;
    what.holding.push_back(&each);
  }
  if (was_up && what.is_busy() && !what.link.has_heard_goodbye())
    base::log(MORI_LOG_WARN, "io: link to engine '{}' was lost: {}", what.key(), why.text);
  const bool is_nobody = why.os_errno == ECONNREFUSED || why.status == MORI_E_PEER_DEAD;
  if (!is_nobody)
    what.refused_since_ns = 0;
  else if (what.refused_since_ns == 0)
    what.refused_since_ns = now_ns_;
  if (what.down_since_ns == 0) what.down_since_ns = now_ns_;
  ++what.next_address;
  // All addresses are tried before the pause.
  const uint64_t rounds = what.attempts++ / std::max<size_t>(1, what.desc->addresses.size());
  const bool in_round = what.attempts % std::max<size_t>(1, what.desc->addresses.size()) != 0;
  const uint64_t pause =
      in_round ? 0
               : std::min(first_back_off_ns << std::min<uint64_t>(rounds, 8), longest_back_off_ns);
  what.retry_ns = was_up ? now_ns_ : now_ns_ + pause;
  if (what.is_busy() && !std::exchange(what.is_dirty, true)) dirty_.push_back(&what);
}

// Everything with that peer ends.
void engine::fail_peer(peer& what, mori_status status, const std::string& text) {
  // An end in order is nobody's fault; transfers that it ends say so themselves.
  const bool is_orderly = status == MORI_E_CANCELLED || what.link.has_heard_goodbye();
  base::log(is_orderly ? MORI_LOG_DEBUG : MORI_LOG_WARN, "io: {}", text);
  lose(what, {status, 0, text});
  what.is_dead = true;
  what.down_since_ns = what.refused_since_ns = what.retry_ns = 0;
  what.attempts = 0;
  const std::vector<transfer_record*> held = std::exchange(what.holding, {});
  for (transfer_record* each : held) {
    complete(*each, status, text);
    release(*each);
  }
  what.link.fail_all(status, text);
}

// Timers of one peer.
void engine::tend(peer& what) {
  if (const auto fine = what.link.on_time(now_ns_); !fine) {
    if (fine.error().status == MORI_E_PEER_DEAD)
      fail_peer(what, MORI_E_PEER_DEAD, fine.error().text);
    else
      lose(what, fine.error());
  }
  need(what);
  if (what.link.is_ready() || !what.is_busy() || what.down_since_ns == 0) return;
  if (what.refused_since_ns != 0 && now_ns_ - what.refused_since_ns >= refused_patience_ns) {
    fail_peer(what, MORI_E_PEER_DEAD,
              fmt::format("engine '{}' is gone: {}", what.key(), what.last_failure));
  } else if (now_ns_ - what.down_since_ns >= settings_.peer_timeout_ns) {
    fail_peer(what, MORI_E_PEER_DEAD,
              fmt::format("engine '{}' was not reached for {} ms, {} ms are allowed: {}",
                          what.key(), (now_ns_ - what.down_since_ns) / base::ns_per_ms,
                          settings_.peer_timeout_ns / base::ns_per_ms, what.last_failure));
  }
}

// The peer leaves the engine's tables; sessions may still refer to it.
void engine::retire(const std::shared_ptr<peer>& what, const std::string& text) {
  what->link.say_goodbye();
  if (what->control != nullptr && what->control->at == connection::state::open)
    flush(*what->control);
  what->is_gone = true;
  fail_peer(*what, MORI_E_CANCELLED, text);
  what->is_gone = true;
  std::erase(dirty_, what.get());
}

base::status engine::register_peer(const wire::engine_desc& what) {
  MORI_CHECK(check_alive());
  if (what.key == settings_.key && what.instance != instance_)
    return base::fail(MORI_E_INVALID, "engine '{}' has the name of this engine", what.key);
  if (what.version < wire::least_protocol_version || what.least_version > wire::protocol_version)
    return base::fail(MORI_E_VERSION, "engine '{}' speaks versions {} .. {}, this one {} .. {}",
                      what.key, what.least_version, what.version, wire::least_protocol_version,
                      wire::protocol_version);
  const section held(*this);
  now_ns_ = base::now_ns();
  const auto found = peers_.find(what.key);
  if (found != peers_.end()) {
    if (*found->second->desc == what) return {};
    retire(found->second, fmt::format("engine '{}' was started again", what.key));
    peers_.erase(found);
  }
  const protocol::initiator::options options{
      .peer = what.key,
      .chunk_bytes = tcp_.chunk_bytes,
      .peer_timeout_ns = settings_.peer_timeout_ns,
      .cancel_patience_ns = std::min(base::ns_per_s, settings_.peer_timeout_ns),
  };
  peers_.emplace(what.key, std::make_shared<peer>(
                               *this, std::make_shared<const wire::engine_desc>(what), options));
  return {};
}

base::status engine::deregister_peer(std::string_view key) {
  MORI_CHECK(check_alive());
  const section held(*this);
  now_ns_ = base::now_ns();
  take_submitted();
  const auto found = peers_.find(key);
  if (found == peers_.end())
    return base::fail(MORI_E_NOT_FOUND, "engine '{}' is not registered", key);
  const std::shared_ptr<peer> gone = found->second;
  peers_.erase(found);
  retire(gone, fmt::format("engine '{}' was deregistered", key));
  return {};
}

void engine::on_revoke(uint32_t region) {
  for (session_record* each : opening_)
    if (each->to.get() == revoking_ && each->remote->region == region) each->is_revoked = true;
  sessions().for_each([&](session_table::ref& each) {
    session_record& of = *each;
    if (of.owner.get() != this || of.to.get() != revoking_ || of.remote->region != region) return;
    of.is_revoked = true;
    if (of.path == nullptr) return;
    for (size_t i = jobs_.size(); i-- > 0;) {
      transfer_record& job = *jobs_[i];
      if (job.path == of.path)
        end_transfer(job, MORI_E_NOT_FOUND,
                     fmt::format("engine '{}' deregistered region {}", of.to->key(), region));
    }
    of.reason = fmt::format("engine '{}' deregistered region {}", of.to->key(), region);
    of.path.reset();
    of.direct.reset();
  });
  revoking_->attachments.erase(region);
  revoking_->release_due = true;
  revoking_->link.answer_revoke(region);
  need(*revoking_);
}

void engine::on_attached(uint32_t region) {
  const auto found = revoking_->attachments.find(region);
  if (found == revoking_->attachments.end() ||
      found->second.generation != revoking_->link.generation())
    return;
  found->second.agreed = true;
  revoking_->release_due = true;
}

// --- Guests.

void engine::lose_guest(guest& what, std::string_view why) {
  if (what.control != nullptr)
    base::log(MORI_LOG_DEBUG, "io: link from engine '{}' has ended: {}", what.key, why);
  what.link.on_lost();
  for (connection* each : what.data) drop_connection(*each);
  what.data.clear();
  if (what.control != nullptr) {
    drop_connection(*std::exchange(what.control, nullptr));
    --guest_count_;
  }
  what.lost_ns = now_ns_;
  // Who has no link holds no path either.
  for (auto& [region, waiting] : revocations_) std::erase(waiting, what.instance);
}

void engine::forget_old_guests() {
  size_t lost = 0;
  guest* oldest = nullptr;
  for (auto each = guests_.begin(); each != guests_.end();) {
    guest& of = *each->second;
    if (of.lost_ns != 0 && now_ns_ - of.lost_ns >= guest_memory_ns) {
      std::erase(dirty_guests_, &of);
      each = guests_.erase(each);
      continue;
    }
    if (of.lost_ns != 0) {
      ++lost;
      if (oldest == nullptr || of.lost_ns < oldest->lost_ns) oldest = &of;
    }
    ++each;
  }
  if (lost <= most_lost_guests) return;
  std::erase(dirty_guests_, oldest);
  guests_.erase(oldest->instance);
}

void engine::on_delivered(const guest& from, const protocol::delivery& what) {
  const bool kept = inbox_.push(from.inbox_number, {.uid = what.uid,
                                                    .total_bytes = what.total_bytes,
                                                    .region = what.region,
                                                    .operation = what.operation,
                                                    .moved_elsewhere = what.moved_elsewhere,
                                                    .metadata = what.metadata});
  if (!kept)
    base::log(MORI_LOG_WARN, "io: {} notifications are kept, the oldest was dropped",
              settings_.inbound_count);
  signal_event();
}

void engine::on_revoked(const guest& from, uint32_t region) {
  const auto found = revocations_.find(region);
  if (found != revocations_.end()) std::erase(found->second, from.instance);
}

}  // namespace mori::io_core
