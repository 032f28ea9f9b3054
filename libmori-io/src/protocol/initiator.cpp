// initiator.cpp - see initiator.hpp.
#include "protocol/initiator.hpp"

#include <mori/io_types.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace mori::io_core::protocol {
namespace {

// Queued on the control stream before small transfers wait.
constexpr uint64_t control_queue_bytes = 128 * 1024;
// Queued on a data stream before it gets its next slice.
constexpr uint64_t data_queue_bytes = 256 * 1024;
// Slices asked for on one data stream; more would take the order out of our hands.
constexpr size_t max_data_reads = 8;
constexpr size_t max_control_reads = 4096;

}  // namespace

initiator::initiator(host& to, options with) : host_(to), options_(std::move(with)), window_(64) {}

// --- Lists and lookups.

transfer* initiator::at(uint64_t sequence) const {
  if (sequence < floor_ || sequence >= next_) return nullptr;
  return window_[sequence & (window_.size() - 1)];
}

initiator::lane* initiator::lane_of(const stream& which) {
  for (lane& each : lanes_)
    if (each.on == &which) return &each;
  return nullptr;
}

bool initiator::number(transfer& what) {
  if (what.sequence != 0) return true;
  if (next_ - floor_ >= window_count) return false;
  if (next_ - floor_ >= window_.size()) {
    std::vector<transfer*> larger(2 * window_.size());
    for (uint64_t each = floor_; each < next_; ++each)
      larger[each & (larger.size() - 1)] = window_[each & (window_.size() - 1)];
    window_ = std::move(larger);
  }
  what.sequence = next_++;
  window_[what.sequence & (window_.size() - 1)] = &what;
  return true;
}

void initiator::release(transfer& what) {
  if (what.sequence != 0) {
    window_[what.sequence & (window_.size() - 1)] = nullptr;
    while (floor_ < next_ && window_[floor_ & (window_.size() - 1)] == nullptr) ++floor_;
  }
  (what.link_before != nullptr ? what.link_before->link_after : first_) = what.link_after;
  (what.link_after != nullptr ? what.link_after->link_before : last_) = what.link_before;
  what.link_before = what.link_after = nullptr;
  what.at = phase::idle;
  if (what.cancelling) std::erase(cancelling_, &what);
  --count_;
  host_.on_released(what);
}

// The outcome is final and nothing refers to the transfer's memory.
void initiator::finish(transfer& what, mori_status status, std::string_view text) {
  assert(what.pins == 0);
  if (what.at != phase::notifying) host_.on_outcome(what, status, text);
  release(what);
}

// The target has said how it ended.
void initiator::settle(transfer& what, mori_status status) {
  if (what.settled) return;
  if (what.at == phase::queued || what.at == phase::sending) schedule_of(what).remove(what);
  if (what.is_read && what.at != phase::notifying) drop_reads(what);
  what.settled = true;
  what.outcome = status;
  if (what.pins > 0)
    settled_.push_back(&what);
  else
    finish(what, status, what.failure_text);
}

void initiator::drain_settled() {
  for (size_t i = 0; i < settled_.size();) {
    transfer* const what = settled_[i];
    if (what->pins > 0) {
      ++i;
      continue;
    }
    settled_[i] = settled_.back();
    settled_.pop_back();
    finish(*what, what->outcome, what->failure_text);
  }
}

// --- From the engine.

void initiator::submit(transfer& what, uint64_t now_ns) {
  if (count_ == 0) busy_since_ns_ = now_ns;
  ++count_;
  what.link_before = last_;
  what.link_after = nullptr;
  (last_ != nullptr ? last_->link_after : first_) = &what;
  last_ = &what;
  what.at = what.moved_elsewhere && what.is_read ? phase::notifying : phase::queued;
  schedule_of(what).push_back(what);
}

void initiator::drop_reads(transfer& what) {
  for (lane& each : lanes_) {
    if (each.receiving == &what) {
      each.on->discard_payload();
      each.receiving = nullptr;
    }
    for (size_t i = 0; i < each.reads.size(); ++i)
      if (each.reads[i].of == &what) each.reads[i].of = nullptr;
  }
}

void initiator::cancel(transfer& what, mori_status status, uint64_t now_ns) {
  if (what.at == phase::idle || what.at == phase::notifying || what.settled || what.cancelling)
    return;
  if (what.is_read || what.sequence == 0) {
    if (what.at != phase::sent) schedule_of(what).remove(what);
    drop_reads(what);
    finish(what, status, what.failure_text);
    return;
  }
  // The target may have some of it, or all.
  if (what.at == phase::sending) schedule_of(what).remove(what);
  if (what.at == phase::queued && ready_) schedule_of(what).remove(what);
  what.cancelling = true;
  what.cancel_status = status;
  what.cancel_sent_ns = now_ns;
  cancelling_.push_back(&what);
  if (!ready_) return;
  what.at = phase::sent;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::cancel,
                    wire::encode_cancel(control.begin_frame(), what.sequence));
}

void initiator::answer_revoke(uint32_t region) {
  if (!ready_) return;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::revoked,
                    wire::encode_revoke(control.begin_frame(), region));
}

void initiator::ask_attach(const wire::attach& what) {
  if (!ready_) return;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::attach, wire::encode(control.begin_frame(), what));
}

void initiator::fail_all(mori_status status, std::string_view text) {
  on_lost(text);
  while (first_ != nullptr) {
    transfer& what = *first_;
    if (what.at == phase::queued && what.sequence == 0) schedule_of(what).remove(what);
    if (what.at == phase::notifying && what.sequence == 0) small_.remove(what);
    finish(what, status, text);
  }
  floor_ = next_;
}

void initiator::say_goodbye() {
  if (!ready_) return;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::goodbye,
                    wire::encode_goodbye(control.begin_frame(), MORI_OK, "the engine ends"));
}

// --- Connections.

void initiator::on_control(stream& control, uint64_t now_ns) {
  assert(lanes_.empty());
  lanes_.emplace_back();
  lanes_.back().on = &control;
  heard_ns_ = now_ns;
  asked_ns_ = 0;
  heard_goodbye_ = false;
  const wire::resume question{.generation = generation_, .floor = floor_, .next = next_};
  control.end_frame(wire::message_kind::resume, wire::encode(control.begin_frame(), question));
}

void initiator::add_data(stream& data) {
  lanes_.emplace_back();
  lanes_.back().on = &data;
}

// Back to where it was before anything was sent, with its sequence.
void initiator::restart(transfer& what) {
  what.position = {};
  what.slice_count = what.slices_sent = what.slices_done = 0;
  what.failure_text.clear();
}

void initiator::on_lost(std::string_view why) {
  for (lane& each : lanes_) each.on->drop_output();
  const bool was_ready = ready_;
  lanes_.clear();
  ready_ = false;
  drain_settled();
  for (transfer *each = first_, *after = nullptr; each != nullptr; each = after) {
    after = each->link_after;
    if (each->sequence == 0) continue;
    transfer& what = *each;
    if (was_ready && (what.at == phase::queued || what.at == phase::sending))
      schedule_of(what).remove(what);
    if (was_ready && what.at == phase::notifying) small_.remove(what);
    if (what.at == phase::notifying) continue;
    what.at = phase::queued;
    if (what.is_read) restart(what);
    if (what.cancelling && what.cancel_sent_ns == 0)
      finish(what, what.cancel_status, unknown_delivery(why));
  }
}

base::status initiator::receive(stream& from, uint64_t bytes, uint64_t now_ns) {
  now_ns_ = now_ns;
  heard_ns_ = now_ns;
  asked_ns_ = 0;
  return from.on_received(bytes, *this);
}

// --- Sending.

initiator::lane* initiator::idlest_data() {
  lane* best = nullptr;
  for (size_t i = 1; i < lanes_.size(); ++i) {
    lane& each = lanes_[i];
    if (each.on->queued_bytes() >= data_queue_bytes || each.reads.size() >= max_data_reads)
      continue;
    if (best == nullptr ||
        each.on->queued_bytes() + each.reads.size() < best->on->queued_bytes() + best->reads.size())
      best = &each;
  }
  return best;
}

void initiator::send_notification(stream& on, transfer& what) {
  wire::slice_writer writer;
  const wire::slice slice{
      .capability = what.capability,
      .region = what.remote_region,
      .flags = static_cast<uint8_t>(wire::slice_notifies |
                                    (what.moved_elsewhere ? wire::slice_elsewhere : 0)),
      .operation = static_cast<uint8_t>(what.is_read ? MORI_IO_READ : MORI_IO_WRITE),
      .sequence = what.sequence,
      .floor = floor_,
      .uid = what.uid,
      .total_bytes = what.total_bytes,
      .metadata = what.metadata,
  };
  const auto started = writer.start(on.begin_frame(), wire::message_kind::notify, slice);
  assert(started);
  (void)started;
  on.end_frame(wire::message_kind::notify, writer.finish());
}

// The fixed part and the segments of the transfer's next slice; moves its position on.
void initiator::start_slice(stream& on, transfer& what, wire::slice_writer& writer) {
  const auto kind = what.is_read ? wire::message_kind::read : wire::message_kind::write;
  const wire::slice slice{
      .capability = what.capability,
      .region = what.remote_region,
      .flags = static_cast<uint8_t>((what.notifies ? wire::slice_notifies : 0) |
                                    (what.retry_count > 0 ? wire::slice_replayed : 0)),
      .operation = static_cast<uint8_t>(what.is_read ? MORI_IO_READ : MORI_IO_WRITE),
      .sequence = what.sequence,
      .floor = floor_,
      .uid = what.uid,
      .total_bytes = what.total_bytes,
      .slice_index = what.slices_sent,
      .slice_count = what.slice_count,
      .metadata = what.slices_sent == 0 ? what.metadata : std::span<const std::byte>(),
  };
  const auto started = writer.start(on.begin_frame(), kind, slice);
  assert(started);
  (void)started;
  what.position = next_slice(what, what.position, what.chunk_bytes,
                             [&](std::byte*, uint64_t offset, uint32_t bytes) {
                               const bool added = writer.add(offset, bytes);
                               assert(added);
                               (void)added;
                             });
}

// The bytes of a write's slice: few of them inside the frame, more behind it.
void initiator::send_bytes(stream& on, transfer& what, wire::slice_writer& writer, cut begin) {
  const uint64_t bytes = writer.bytes();
  size_t body_bytes = 0;
  const wire::byte_room inside =
      bytes <= wire::max_inline_bytes ? writer.finish_inline(body_bytes) : wire::byte_room();
  if (bytes > 0 && inside.empty()) {
    on.end_frame(wire::message_kind::write, writer.finish(), static_cast<uint32_t>(bytes));
    next_slice(what, begin, what.chunk_bytes, [&](const std::byte* at, uint64_t, uint32_t size) {
      on.add_payload(at, size, &what.pins);
    });
    on.finish_payload();
    return;
  }
  std::byte* to = inside.data();
  if (bytes == 0) body_bytes = writer.finish();
  next_slice(what, begin, what.chunk_bytes, [&](const std::byte* at, uint64_t, uint32_t size) {
    std::memcpy(to, at, size);
    to += size;
  });
  on.end_frame(wire::message_kind::write, body_bytes);
}

// One slice; true while there may be more to send on that lane.
bool initiator::send_slice(lane& on, transfer& what) {
  if (!number(what)) return false;
  schedule& from = schedule_of(what);
  if (what.at == phase::notifying || what.moved_elsewhere) {
    send_notification(*on.on, what);
    from.charge(what, 0);
    from.pop(what);
    if (what.at != phase::notifying) what.at = phase::sent;
    return true;
  }
  if (what.slice_count == 0) {
    what.chunk_bytes = options_.chunk_bytes;
    what.slice_count = static_cast<uint32_t>(count_slices(what, what.chunk_bytes));
  }
  const cut begin = what.position;
  wire::slice_writer writer;
  start_slice(*on.on, what, writer);
  const uint64_t bytes = writer.bytes();
  if (what.is_read) {
    on.on->end_frame(wire::message_kind::read, writer.finish());
    on.reads.push_back({&what, what.sequence, what.slices_sent, begin, bytes});
  } else {
    send_bytes(*on.on, what, writer, begin);
  }
  ++what.slices_sent;
  what.at = phase::sending;
  from.charge(what, bytes);
  if (what.slices_sent == what.slice_count) {
    from.pop(what);
    what.at = phase::sent;
  }
  return true;
}

void initiator::pump_control() {
  lane& control = lanes_.front();
  while (control.on->queued_bytes() < control_queue_bytes &&
         control.reads.size() < max_control_reads) {
    transfer* const what = small_.peek();
    if (what == nullptr || !send_slice(control, *what)) return;
  }
}

void initiator::pump_bulk() {
  for (;;) {
    lane* const on = idlest_data();
    if (on == nullptr) return;
    transfer* const what = bulk_.peek();
    if (what == nullptr || !send_slice(*on, *what)) return;
  }
}

void initiator::pump(uint64_t now_ns) {
  now_ns_ = now_ns;
  if (!settled_.empty()) drain_settled();
  if (!ready_) return;
  pump_control();
  pump_bulk();
}

// --- Receiving.

base::status initiator::on_message(stream& from, wire::message_kind kind, wire::byte_room body,
                                   uint32_t payload_bytes, payload_place& place) {
  lane* const on = lane_of(from);
  assert(on != nullptr);
  const bool is_control = on == &lanes_.front();
  switch (kind) {
    case wire::message_kind::data: return on_data(*on, body, payload_bytes, place);
    case wire::message_kind::error: return on_error(*on, body);
    case wire::message_kind::goodbye: return on_goodbye(body);
    default: break;
  }
  if (!is_control)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' sent {} on a data stream", options_.peer,
                      wire::name_of(kind));
  switch (kind) {
    case wire::message_kind::ack: {
      MORI_TRY(const wire::outcome_list outcomes, wire::decode_ack(body));
      for (size_t i = 0; i < outcomes.size(); ++i) {
        const wire::outcome each = outcomes[i];
        transfer* const what = at(each.sequence);
        if (what != nullptr && (!what->is_read || what->at == phase::notifying))
          settle(*what, each.status);
      }
      return {};
    }
    case wire::message_kind::resume_answer: return on_resume_answer(body);
    case wire::message_kind::cancel_answer: return on_cancel_answer(body);
    case wire::message_kind::heartbeat: {
      MORI_TRY(const wire::heartbeat beat, wire::decode_heartbeat(body));
      if (!beat.wants_answer) return {};
      wire::heartbeat answer = beat;
      answer.wants_answer = false;
      from.end_frame(kind, wire::encode(from.begin_frame(), answer));
      return {};
    }
    case wire::message_kind::revoke: {
      MORI_TRY(const uint32_t region, wire::decode_revoke(body));
      host_.on_revoke(region);
      return {};
    }
    case wire::message_kind::attached: {
      MORI_TRY(const uint32_t region, wire::decode_revoke(body));
      host_.on_attached(region);
      return {};
    }
    default:
      return base::fail(MORI_E_PROTOCOL, "engine '{}' sent {}, which only initiators send",
                        options_.peer, wire::name_of(kind));
  }
}

base::status initiator::on_data(lane& on, wire::byte_room body, uint32_t payload_bytes,
                                payload_place& place) {
  MORI_TRY(const wire::data data, wire::decode_data(body, payload_bytes));
  if (on.reads.empty() || on.reads.front().sequence != data.sequence ||
      on.reads.front().index != data.slice_index)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' sent slice {} of {}, which is not due",
                      options_.peer, data.slice_index, data.sequence);
  const read_slice due = on.reads.pop_front();
  if (data.offset != 0 || data.bytes != due.bytes)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' sent bytes {} + {} of a slice of {}",
                      options_.peer, data.offset, data.bytes, due.bytes);
  if (due.of == nullptr) return {};
  if (payload_bytes == 0) {
    const std::byte* from = data.payload_inline.data();
    next_slice(*due.of, due.from, due.of->chunk_bytes,
               [&](std::byte* to, uint64_t, uint32_t bytes) {
                 std::memcpy(to, from, bytes);
                 from += bytes;
               });
    on_slice_read(*due.of);
    return {};
  }
  next_slice(*due.of, due.from, due.of->chunk_bytes,
             [&](std::byte* to, uint64_t, uint32_t bytes) { place.push_back({to, bytes}); });
  on.receiving = due.of;
  return {};
}

base::status initiator::on_payload(stream& from, bool authentic) {
  lane* const on = lane_of(from);
  transfer* const what = std::exchange(on->receiving, nullptr);
  if (what == nullptr) return {};
  if (authentic) {
    on_slice_read(*what);
    return {};
  }
  what->failure_text = fmt::format("bytes of engine '{}' were changed on their way", options_.peer);
  settle(*what, MORI_E_PROTOCOL);
  return {};
}

void initiator::on_slice_read(transfer& what) {
  ++what.slices_done;
  if (what.slices_done < what.slice_count) return;
  if (!what.notifies) {
    finish(what, MORI_OK, {});
    return;
  }
  host_.on_outcome(what, MORI_OK, {});
  what.at = phase::notifying;
  what.of = nullptr;  // its flow may wait among the bulk ones
  small_.push_back(what);
}

base::status initiator::on_error(lane& on, wire::byte_span body) {
  MORI_TRY(const wire::error_message said, wire::decode_error(body));
  if (said.sequence == 0)
    return base::failure{said.status, 0,
                         fmt::format("engine '{}' ends the link: {}", options_.peer, said.text)};
  if (!on.reads.empty() && on.reads.front().sequence == said.sequence) on.reads.pop_front();
  transfer* const what = at(said.sequence);
  if (what == nullptr) return {};
  what->failure_text = said.text;
  settle(*what, said.status);
  return {};
}

base::status initiator::on_goodbye(wire::byte_span body) {
  MORI_TRY(const wire::error_message said, wire::decode_error(body));
  heard_goodbye_ = true;
  return base::fail(MORI_E_PEER_DEAD, "engine '{}' has ended: {}", options_.peer, said.text);
}

base::status initiator::on_cancel_answer(wire::byte_span body) {
  MORI_TRY(const wire::cancel_answer answer, wire::decode_cancel_answer(body));
  transfer* const what = at(answer.sequence);
  if (what == nullptr || !what->cancelling) return {};
  switch (answer.outcome) {
    case wire::cancel_outcome::delivered: settle(*what, MORI_OK); break;
    case wire::cancel_outcome::failed: settle(*what, answer.status); break;
    case wire::cancel_outcome::cancelled: settle(*what, what->cancel_status); break;
  }
  return {};
}

base::status initiator::on_resume_answer(wire::byte_span body) {
  MORI_TRY(const wire::resume_answer answer, wire::decode_resume_answer(body));
  if (answer.generation != generation_ || ready_)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' resumes generation {}, {} is current",
                      options_.peer, answer.generation, generation_);
  for (size_t i = 0; i < answer.failures.size(); ++i) {
    const wire::outcome each = answer.failures[i];
    transfer* const what = at(each.sequence);
    if (what == nullptr) continue;
    what->failure_text = fmt::format("engine '{}' refused it", options_.peer);
    settle(*what,
           what->cancelling && each.status == MORI_E_CANCELLED ? what->cancel_status : each.status);
  }
  for (uint64_t each = answer.base; each < answer.base + answer.count; ++each) {
    transfer* const what = at(each);
    if (what == nullptr) continue;
    if (answer.is_delivered(each))
      settle(*what, MORI_OK);
    else if (what->cancelling)
      settle(*what, what->cancel_status);
  }
  if (answer.last) replay();
  return {};
}

// The target has said of all that it knows; what is left was not delivered.
void initiator::replay() {
  ready_ = true;
  replay_.clear();
  for (uint64_t each = floor_; each < next_; ++each)
    if (transfer* const what = at(each); what != nullptr && !what->settled) replay_.push_back(what);
  for (size_t i = replay_.size(); i-- > 0;) {
    transfer& what = *replay_[i];
    if (what.retry_count >= options_.max_retry_count) {
      finish(what, MORI_E_PEER_DEAD,
             fmt::format("the connection to engine '{}' was lost {} times, {} are allowed",
                         options_.peer, what.retry_count + 1, options_.max_retry_count));
      continue;
    }
    ++what.retry_count;
    restart(what);
    if (what.at != phase::notifying) what.at = phase::queued;
    schedule_of(what).push_front(what);
  }
}

// --- Time.

uint64_t initiator::next_time_ns() const {
  uint64_t due = UINT64_MAX;
  for (const transfer* each : cancelling_)
    due = std::min(due, each->cancel_sent_ns + cancel_patience_ns());
  if (lanes_.empty() || count_ == 0) return due;
  if (!ready_) return std::min(due, heard_ns_ + options_.peer_timeout_ns);
  if (asked_ns_ != 0) return std::min(due, asked_ns_ + options_.peer_timeout_ns / 4 * 3);
  return std::min(due, std::max(heard_ns_, busy_since_ns_) + options_.peer_timeout_ns / 4);
}

// Without a connection nothing of it is on its way, and only a short loss is worth waiting for.
uint64_t initiator::cancel_patience_ns() const {
  return lanes_.empty() ? std::min(options_.cancel_patience_ns, options_.down_patience_ns)
                        : options_.cancel_patience_ns;
}

// Cancels that were not answered in time; true: there is a connection to be closed for them.
bool initiator::give_up_cancels(uint64_t now_ns) {
  bool impatient = false;
  for (size_t i = 0; i < cancelling_.size();) {
    transfer& each = *cancelling_[i];
    const bool late = now_ns - each.cancel_sent_ns >= cancel_patience_ns();
    if (!late) {
      ++i;
    } else if (lanes_.empty() && !each.settled) {
      finish(each, each.cancel_status, unknown_delivery("there is no connection"));
    } else {
      each.cancel_sent_ns = 0;  // on_lost() ends it
      impatient = true;
      ++i;
    }
  }
  return impatient;
}

std::string initiator::unknown_delivery(std::string_view why) const {
  return fmt::format("delivery unknown: engine '{}' did not say whether it stopped; {}",
                     options_.peer, why);
}

base::status initiator::on_time(uint64_t now_ns) {
  now_ns_ = now_ns;
  if (!cancelling_.empty() && give_up_cancels(now_ns))
    return base::fail(MORI_E_TIMEOUT, "engine '{}' did not answer a cancel for {} ms",
                      options_.peer, options_.cancel_patience_ns / 1'000'000);
  if (lanes_.empty() || count_ == 0) return {};
  // Silence counts from when an answer was asked for: this process may have been stopped itself.
  const uint64_t since = ready_ ? asked_ns_ : heard_ns_;
  const uint64_t allowed_ns = options_.peer_timeout_ns / (ready_ ? 4 : 1) * (ready_ ? 3 : 1);
  if (since != 0 && now_ns > since && now_ns - since >= allowed_ns)
    return base::fail(MORI_E_PEER_DEAD, "engine '{}' has been silent for {} ms, {} ms are allowed",
                      options_.peer, (now_ns - std::min(heard_ns_, since)) / 1'000'000,
                      options_.peer_timeout_ns / 1'000'000);
  const uint64_t quiet_since = std::max(heard_ns_, busy_since_ns_);
  if (ready_ && asked_ns_ == 0 && now_ns > quiet_since &&
      now_ns - quiet_since >= options_.peer_timeout_ns / 4) {
    asked_ns_ = now_ns;
    stream& control = *lanes_.front().on;
    const wire::heartbeat beat{
        .wants_answer = true, .floor = floor_, .next = next_, .stamp = now_ns};
    control.end_frame(wire::message_kind::heartbeat, wire::encode(control.begin_frame(), beat));
  }
  return {};
}

}  // namespace mori::io_core::protocol
