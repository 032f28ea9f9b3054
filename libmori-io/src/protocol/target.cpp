// target.cpp - see target.hpp.
#include "protocol/target.hpp"

#include <mori/io_types.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace mori::io_core::protocol {
namespace {

// Queued on a stream before slices that were asked for wait.
constexpr uint64_t serve_queue_bytes = 256 * 1024;
// Slices that wait on one stream before nothing more is read from it.
constexpr size_t max_waiting = 4096;
constexpr size_t max_spare = 1024;

}  // namespace

target::lane* target::lane_of(const stream& which) {
  for (lane& each : lanes_)
    if (each.on == &which) return &each;
  return nullptr;
}

// --- Connections.

void target::on_control(stream& control, uint64_t generation) {
  assert(lanes_.empty());
  generation_ = generation;
  resumed_ = false;
  lanes_.emplace_back();
  lanes_.back().on = &control;
}

void target::add_data(stream& data) {
  lanes_.emplace_back();
  lanes_.back().on = &data;
}

void target::on_lost() {
  for (lane& each : lanes_) each.on->drop_output();
  lanes_.clear();
  // Their slices come again, all of them, or never.
  drop_assemblies();
  attached_.clear();
  acks_.clear();
  resumed_ = false;
}

base::status target::receive(stream& from, uint64_t bytes) {
  return from.on_received(bytes, *this);
}

bool target::wants_input(const stream& from) const {
  for (const lane& each : lanes_)
    if (each.on == &from)
      return each.waiting.size() < max_waiting && each.on->queued_bytes() < 4 * serve_queue_bytes;
  return true;
}

// --- Checks.

base::status target::check_sequence(const wire::slice& what) {
  if (!resumed_)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' sent a slice before resume", peer_);
  journal_.raise_floor(what.floor);
  if (what.sequence >= journal_.floor() && !journal_.within(what.sequence))
    return base::fail(MORI_E_PROTOCOL, "engine '{}': sequence {} is beyond {} + {}", peer_,
                      what.sequence, journal_.floor(), window_count);
  return {};
}

base::result<std::shared_ptr<const memory::region>> target::check_slice(
    const wire::slice_view& what, int32_t access) {
  std::shared_ptr<const memory::region> region = host_.find_region(what.region);
  const bool reads = access == MORI_IO_ACCESS_READ;
  if (!region)
    return base::fail(MORI_E_NOT_FOUND, "the target has no region {}; it may be deregistered",
                      what.region);
  const wire::capability& needed = reads ? region->read_capability : region->write_capability;
  if (!wire::equal_in_constant_time(needed, what.capability))
    return base::fail(MORI_E_AUTH, "the capability does not fit region {} of the target",
                      what.region);
  if ((region->access & access) == 0)
    return base::fail(MORI_E_AUTH, "region {} of the target may not be {}", what.region,
                      reads ? "read" : "written");
  for (size_t i = 0; i < what.segments.size(); ++i) {
    const wire::segment each = what.segments[i];
    if (!memory::inside(each.offset, each.bytes, region->size_bytes))
      return base::fail(MORI_E_INVALID, "bytes {} + {} are outside region {} of {} bytes",
                        each.offset, each.bytes, what.region, region->size_bytes);
  }
  return region;
}

// --- Outcomes.

void target::fail(const wire::slice& what, const base::failure& why) {
  if (!journal_.within(what.sequence) || journal_.look_up(what.sequence) != journal::entry::unknown)
    return;
  journal_.mark_failed(what.sequence, why.status);
  drop_assembly(what.sequence);
  stream& control = *lanes_.front().on;
  const wire::error_message said{.sequence = what.sequence, .status = why.status, .text = why.text};
  control.end_frame(wire::message_kind::error, wire::encode(control.begin_frame(), said));
}

void target::deliver(const wire::slice& what, std::span<const std::byte> metadata) {
  journal_.mark_delivered(what.sequence);
  acks_.push_back({what.sequence, MORI_OK});
  if ((what.flags & wire::slice_notifies) != 0)
    host_.on_delivered({.uid = what.uid,
                        .total_bytes = what.total_bytes,
                        .region = what.region,
                        .operation = what.operation,
                        .moved_elsewhere = (what.flags & wire::slice_elsewhere) != 0,
                        .metadata = metadata});
}

// One slice of a write is in memory.
void target::on_slice(const wire::slice& what, std::span<const std::byte> metadata) {
  if (what.slice_count == 1) {
    deliver(what, metadata);
    return;
  }
  const auto found = assembly_of(what);
  if (!found) return fail(what, found.error());
  assembly& of = **found;
  if (what.slice_index == 0) of.metadata.assign(metadata.begin(), metadata.end());
  if (++of.received < of.slice_count) return;
  deliver(what, of.metadata);
  drop_assembly(what.sequence);
}

base::result<target::assembly*> target::assembly_of(const wire::slice& what) {
  if (const auto found = assemblies_.find(what.sequence); found != assemblies_.end())
    return &found->second;
  if (host_.assembly_count >= host_.max_assembly_count)
    return base::fail(MORI_E_NO_MEMORY, "{} transfers of the target have come in part, {} may",
                      host_.assembly_count, host_.max_assembly_count);
  ++host_.assembly_count;
  if (spare_assemblies_.empty()) {
    assembly& made = assemblies_[what.sequence];
    made.slice_count = what.slice_count;
    return &made;
  }
  assembly_map::node_type node = std::move(spare_assemblies_.back());
  spare_assemblies_.pop_back();
  node.key() = what.sequence;
  node.mapped().slice_count = what.slice_count;
  node.mapped().received = 0;
  node.mapped().metadata.clear();
  return &assemblies_.insert(std::move(node)).position->second;
}

void target::drop_assembly(uint64_t sequence) {
  assembly_map::node_type node = assemblies_.extract(sequence);
  if (node.empty()) return;
  --host_.assembly_count;
  if (spare_assemblies_.size() < max_spare) spare_assemblies_.push_back(std::move(node));
}

void target::drop_assemblies() {
  host_.assembly_count -= assemblies_.size();
  assemblies_.clear();
}

// --- Messages.

base::status target::on_message(stream& from, wire::message_kind kind, wire::byte_room body,
                                uint32_t payload_bytes, payload_place& place) {
  lane* const on = lane_of(from);
  assert(on != nullptr);
  if (kind == wire::message_kind::write) return on_write(*on, body, payload_bytes, place);
  if (kind == wire::message_kind::read) return on_read(*on, body);
  if (on != &lanes_.front())
    return base::fail(MORI_E_PROTOCOL, "engine '{}' sent {} on a data stream", peer_,
                      wire::name_of(kind));
  switch (kind) {
    case wire::message_kind::notify: return on_notify(body);
    case wire::message_kind::attach: return on_attach(body);
    case wire::message_kind::cancel: return on_cancel(body);
    case wire::message_kind::resume: return on_resume(body);
    case wire::message_kind::heartbeat: return on_heartbeat(body);
    case wire::message_kind::revoked: {
      MORI_TRY(const uint32_t region, wire::decode_revoke(body));
      attached_.erase(region);
      host_.on_revoked(region);
      return {};
    }
    case wire::message_kind::goodbye:
      return base::fail(MORI_E_CANCELLED, "engine '{}' has closed the link", peer_);
    case wire::message_kind::error: {
      MORI_TRY(const wire::error_message said, wire::decode_error(body));
      return base::fail(MORI_E_PROTOCOL, "engine '{}' ends the link: {}", peer_, said.text);
    }
    default:
      return base::fail(MORI_E_PROTOCOL, "engine '{}' sent {}, which only targets send", peer_,
                        wire::name_of(kind));
  }
}

base::status target::on_write(lane& on, wire::byte_span body, uint32_t payload_bytes,
                              payload_place& place) {
  MORI_TRY(const wire::slice_view slice,
           wire::decode_slice(wire::message_kind::write, body, payload_bytes));
  MORI_CHECK(check_sequence(slice));
  on.in.is_wanted = false;
  if (!journal_.within(slice.sequence) ||
      journal_.look_up(slice.sequence) != journal::entry::unknown)
    return {};  // cancelled or refused meanwhile: what comes of it is not kept
  if (const std::string_view refusal = host_.refusal(); !refusal.empty()) {
    fail(slice, base::fail(MORI_E_UNAVAILABLE, "{}", refusal));
    return {};
  }
  auto region = check_slice(slice, MORI_IO_ACCESS_WRITE);
  if (!region) {
    fail(slice, region.error());
    return {};
  }
  std::byte* const begin = (*region)->begin;
  if (payload_bytes == 0) {
    const std::byte* from = slice.payload_inline.data();
    for (size_t i = 0; i < slice.segments.size(); ++i) {
      const wire::segment each = slice.segments[i];
      if (each.bytes > 0) std::memcpy(begin + each.offset, from, each.bytes);
      from += each.bytes;
    }
    on_slice(slice, slice.metadata);
    return {};
  }
  for (size_t i = 0; i < slice.segments.size(); ++i) {
    const wire::segment each = slice.segments[i];
    if (each.bytes > 0) place.push_back({begin + each.offset, each.bytes});
  }
  on.in.is_wanted = true;
  on.in.what = slice;
  on.in.metadata.assign(slice.metadata.begin(), slice.metadata.end());
  on.in.region = std::move(*region);
  return {};
}

base::status target::on_payload(stream& from, bool authentic) {
  lane& on = *lane_of(from);
  on.in.region.reset();
  if (!std::exchange(on.in.is_wanted, false)) return {};
  if (!journal_.within(on.in.what.sequence) ||
      journal_.look_up(on.in.what.sequence) != journal::entry::unknown)
    return {};
  if (authentic)
    on_slice(on.in.what, on.in.metadata);
  else
    fail(on.in.what, base::fail(MORI_E_PROTOCOL, "the bytes were changed on their way"));
  return {};
}

std::unique_ptr<target::serving> target::take_serving() {
  if (spare_.empty()) return std::make_unique<serving>();
  std::unique_ptr<serving> taken = std::move(spare_.back());
  spare_.pop_back();
  taken->refused = MORI_OK;
  taken->segments.clear();
  taken->bytes = 0;
  return taken;
}

base::status target::on_read(lane& on, wire::byte_span body) {
  MORI_TRY(const wire::slice_view slice, wire::decode_slice(wire::message_kind::read, body, 0));
  MORI_CHECK(check_sequence(slice));
  std::unique_ptr<serving> asked = take_serving();
  asked->sequence = slice.sequence;
  asked->slice_index = slice.slice_index;
  const std::string_view refusal = host_.refusal();
  auto region = check_slice(slice, MORI_IO_ACCESS_READ);
  if (!region || !refusal.empty()) {
    asked->refused = region ? MORI_E_UNAVAILABLE : region.error().status;
    asked->text = region ? std::string(refusal) : region.error().text;
  } else {
    asked->region = std::move(*region);
    asked->bytes = slice.bytes;
    for (size_t i = 0; i < slice.segments.size(); ++i) asked->segments.push_back(slice.segments[i]);
  }
  on.waiting.push_back(std::move(asked));
  return {};
}

base::status target::on_notify(wire::byte_span body) {
  MORI_TRY(const wire::slice_view slice, wire::decode_slice(wire::message_kind::notify, body, 0));
  MORI_CHECK(check_sequence(slice));
  if (!journal_.within(slice.sequence) ||
      journal_.look_up(slice.sequence) != journal::entry::unknown)
    return {};
  // Whoever may not touch the region has nothing to say about it either.
  const bool reads = slice.operation == MORI_IO_READ;
  if (const auto region = check_slice(slice, reads ? MORI_IO_ACCESS_READ : MORI_IO_ACCESS_WRITE))
    deliver(slice, slice.metadata);
  else
    fail(slice, region.error());
  return {};
}

// Who does not know the capability learns as much as of a region that is gone.
base::status target::on_attach(wire::byte_span body) {
  MORI_TRY(const wire::attach asked, wire::decode_attach(body));
  if (!resumed_) return base::fail(MORI_E_PROTOCOL, "engine '{}' sent attach before resume", peer_);
  const std::shared_ptr<const memory::region> region = host_.find_region(asked.region);
  const bool reads = asked.operation == MORI_IO_READ;
  const int32_t access = reads ? MORI_IO_ACCESS_READ : MORI_IO_ACCESS_WRITE;
  const bool may =
      region && (region->access & access) != 0 &&
      wire::equal_in_constant_time(reads ? region->read_capability : region->write_capability,
                                   asked.capability);
  if (!may) {
    revoke(asked.region);
    return {};
  }
  attached_.insert(asked.region);
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::attached,
                    wire::encode_revoke(control.begin_frame(), asked.region));
  return {};
}

base::status target::on_cancel(wire::byte_span body) {
  MORI_TRY(const uint64_t sequence, wire::decode_cancel(body));
  wire::cancel_answer answer{.sequence = sequence, .outcome = wire::cancel_outcome::cancelled};
  if (journal_.within(sequence)) {
    switch (journal_.look_up(sequence)) {
      case journal::entry::delivered: answer.outcome = wire::cancel_outcome::delivered; break;
      case journal::entry::failed:
        answer.outcome = wire::cancel_outcome::failed;
        answer.status = journal_.failure_of(sequence);
        break;
      case journal::entry::unknown:
        journal_.mark_failed(sequence, MORI_E_CANCELLED);
        drop_assembly(sequence);
        for (lane& each : lanes_)
          if (each.in.is_wanted && each.in.what.sequence == sequence) each.on->discard_payload();
        break;
    }
  }
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::cancel_answer, wire::encode(control.begin_frame(), answer));
  return {};
}

base::status target::on_resume(wire::byte_span body) {
  MORI_TRY(const wire::resume asked, wire::decode_resume(body));
  if (asked.generation != generation_ || resumed_)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' resumes generation {}, {} is current", peer_,
                      asked.generation, generation_);
  if (asked.floor < journal_.floor() || asked.next - asked.floor > window_count)
    return base::fail(MORI_E_PROTOCOL, "engine '{}' asks for sequences {} .. {}, known are {} + {}",
                      peer_, asked.floor, asked.next, journal_.floor(), window_count);
  journal_.raise_floor(asked.floor);
  resumed_ = true;
  stream& control = *lanes_.front().on;
  uint64_t base = asked.floor;
  std::vector<wire::outcome> failures;
  do {
    std::vector<std::byte> bits((asked.next - base + 7) / 8);
    failures.clear();
    uint64_t each = base;
    for (; each < asked.next && failures.size() < wire::max_resume_failures; ++each) {
      const journal::entry entry = journal_.look_up(each);
      if (entry == journal::entry::delivered)
        bits[(each - base) / 8] |= std::byte{1} << static_cast<int>((each - base) % 8);
      if (entry == journal::entry::failed) failures.push_back({each, journal_.failure_of(each)});
    }
    const auto count = static_cast<uint32_t>(each - base);
    const wire::resume_answer answer{
        .generation = generation_,
        .base = base,
        .count = count,
        .last = each == asked.next,
        .delivered = wire::byte_span(bits).first((count + 7) / 8),
        .failures = {},
    };
    control.end_frame(wire::message_kind::resume_answer,
                      wire::encode(control.begin_frame(), answer, failures));
    base = each;
  } while (base < asked.next);
  return {};
}

base::status target::on_heartbeat(wire::byte_span body) {
  MORI_TRY(const wire::heartbeat beat, wire::decode_heartbeat(body));
  journal_.raise_floor(beat.floor);
  if (!beat.wants_answer) return {};
  wire::heartbeat answer = beat;
  answer.wants_answer = false;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::heartbeat, wire::encode(control.begin_frame(), answer));
  return {};
}

// --- Sending.

void target::serve_one(lane& on, std::unique_ptr<serving> what) {
  stream& out = *on.on;
  if (what->refused == MORI_OK && what->region->revoked.load(std::memory_order_relaxed)) {
    what->refused = MORI_E_NOT_FOUND;
    what->text = fmt::format("region {} of the target was deregistered", what->region->id);
  }
  if (what->refused != MORI_OK) {
    const wire::error_message said{
        .sequence = what->sequence, .status = what->refused, .text = what->text};
    out.end_frame(wire::message_kind::error, wire::encode(out.begin_frame(), said));
  } else {
    const std::byte* const begin = what->region->begin;
    wire::data head{.sequence = what->sequence,
                    .slice_index = what->slice_index,
                    .offset = 0,
                    .bytes = static_cast<uint32_t>(what->bytes),
                    .payload_inline = {}};
    if (what->bytes <= wire::max_inline_bytes) {
      std::byte copied[wire::max_inline_bytes];
      size_t filled = 0;
      for (const wire::segment& each : what->segments) {
        if (each.bytes > 0) std::memcpy(copied + filled, begin + each.offset, each.bytes);
        filled += each.bytes;
      }
      head.payload_inline = {copied, filled};
      out.end_frame(wire::message_kind::data, wire::encode(out.begin_frame(), head));
    } else {
      out.end_frame(wire::message_kind::data, wire::encode(out.begin_frame(), head), head.bytes);
      for (const wire::segment& each : what->segments)
        out.add_payload(begin + each.offset, each.bytes, &what->pins);
      out.finish_payload();
    }
  }
  on.leaving.push_back(std::move(what));
}

void target::serve(lane& on) {
  while (!on.leaving.empty() && on.leaving.front()->pins == 0) {
    std::unique_ptr<serving> done = on.leaving.pop_front();
    done->region.reset();
    if (spare_.size() < max_spare) spare_.push_back(std::move(done));
  }
  while (!on.waiting.empty() && on.on->queued_bytes() < serve_queue_bytes)
    serve_one(on, on.waiting.pop_front());
}

void target::flush_acks() {
  if (acks_.empty() || lanes_.empty()) return;
  stream& control = *lanes_.front().on;
  for (size_t done = 0; done < acks_.size();) {
    const size_t count = std::min(acks_.size() - done, wire::max_acks);
    const std::span<const wire::outcome> part(acks_.data() + done, count);
    control.end_frame(wire::message_kind::ack, wire::encode_ack(control.begin_frame(), part));
    done += count;
  }
  acks_.clear();
}

void target::pump() {
  flush_acks();
  for (lane& each : lanes_) serve(each);
}

// --- Regions.

bool target::drop_region(uint32_t id) {
  bool leaving = false;
  for (lane& each : lanes_) {
    if (each.in.is_wanted && each.in.what.region == id && each.on->in_payload()) {
      each.on->discard_payload();
      each.in.is_wanted = false;
      fail(each.in.what,
           base::fail(MORI_E_NOT_FOUND, "region {} of the target was deregistered", id));
    }
    for (size_t i = 0; i < each.leaving.size(); ++i) {
      const serving& out = *each.leaving[i];
      leaving |= out.pins > 0 && out.region && out.region->id == id;
    }
  }
  return leaving;
}

void target::revoke(uint32_t region) {
  if (lanes_.empty()) return;
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::revoke, wire::encode_revoke(control.begin_frame(), region));
}

void target::say_goodbye(std::string_view why) {
  if (lanes_.empty()) return;
  flush_acks();
  stream& control = *lanes_.front().on;
  control.end_frame(wire::message_kind::goodbye,
                    wire::encode_goodbye(control.begin_frame(), MORI_E_PEER_DEAD, why));
}

}  // namespace mori::io_core::protocol
