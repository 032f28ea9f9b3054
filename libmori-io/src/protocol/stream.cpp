// stream.cpp - see stream.hpp.
#include "protocol/stream.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace mori::io_core::protocol {
namespace {

// Read ahead while nothing is known of what comes: small, so that a payload's first bytes are
// rarely copied, yet room for several small messages.
constexpr size_t idle_read_bytes = 16 * 1024;
// Behind a payload: the next frame's header and body, in the same call.
constexpr size_t tail_read_bytes = 4 * 1024;
constexpr size_t scratch_bytes = 64 * 1024;
// Gathered at once: what is authenticated just before it is sent stays in the cache. Without that a
// slice of the usual size goes in one call, with its frame.
constexpr uint64_t gather_bytes = 256 * 1024;
constexpr uint64_t gather_unread_bytes = (1 << 20) + 64 * 1024;

}  // namespace

stream::stream(const wire::agreement& agreed)
    : sealer_(agreed.sending, agreed.mode),
      opener_(agreed.receiving, agreed.mode),
      in_(wire::max_frame_bytes + idle_read_bytes) {}

// --- Out.

std::byte* stream::owned_room(size_t bytes) {
  if (out_head_ == out_end_) out_base_ = out_head_ = out_end_ = 0;
  if (out_end_ - out_base_ + bytes > out_.size()) {
    const uint64_t left = out_end_ - out_head_;
    if (out_head_ > out_base_ && left > 0)
      std::memmove(out_.data(), out_.data() + (out_head_ - out_base_), left);
    out_base_ = out_head_;
    if (left + bytes > out_.size()) out_.resize(std::max(2 * out_.size(), left + bytes));
  }
  return out_.data() + (out_end_ - out_base_);
}

void stream::push_owned(size_t bytes) {
  const bool extends = item_head_ < items_.size() && items_.back().from == nullptr &&
                       !items_.back().is_tag &&
                       items_.back().offset + items_.back().bytes == out_end_;
  if (extends)
    items_.back().bytes += bytes;
  else
    items_.push_back({.offset = out_end_, .bytes = bytes});
  out_end_ += bytes;
  queued_bytes_ += bytes;
}

wire::byte_room stream::begin_frame() {
  std::byte* room = owned_room(wire::max_frame_bytes);
  return {room + wire::header_bytes, wire::max_body_bytes};
}

void stream::end_frame(wire::message_kind kind, size_t body_bytes, uint32_t payload_bytes) {
  // The sealer takes a payload to its end before it seals the next frame.
  for (size_t i = item_head_; i < items_.size(); ++i)
    if (items_[i].from != nullptr || items_[i].is_tag) authenticate(items_[i], UINT64_MAX);
  const size_t whole = wire::header_bytes + body_bytes + wire::tag_bytes;
  const wire::frame_head head{
      .body_bytes = static_cast<uint32_t>(body_bytes),
      .payload_bytes = payload_bytes,
      .kind = static_cast<uint8_t>(kind),
      .flags = wire::frame_flags(kind),
  };
  std::byte* frame = owned_room(whole);
  const wire::byte_span sealed = sealer_.seal({frame, whole}, head);
  push_owned(sealed.size());
}

void stream::add_payload(const std::byte* from, uint64_t bytes, pin_count* pins) {
  if (bytes == 0) return;
  if (mode() == wire::security_mode::encrypt) {
    sealer_.copy({from, bytes}, owned_room(bytes));
    push_owned(bytes);
    return;
  }
  item* last = item_head_ < items_.size() ? &items_.back() : nullptr;
  if (last != nullptr && last->from != nullptr && last->from + last->bytes == from &&
      last->pins == pins) {
    last->bytes += bytes;
  } else {
    items_.push_back({.from = from, .bytes = bytes, .pins = pins});
    if (pins != nullptr) ++*pins;
  }
  queued_bytes_ += bytes;
}

void stream::finish_payload() {
  const size_t bytes = sealer_.payload_tag_bytes(1);
  if (bytes == 0) return;
  std::byte* room = owned_room(bytes);
  if (mode() == wire::security_mode::encrypt) {
    sealer_.payload_tag(std::span<std::byte, wire::tag_bytes>(room, wire::tag_bytes));
    push_owned(bytes);
    return;
  }
  items_.push_back({.offset = out_end_, .bytes = bytes, .is_tag = true});
  out_end_ += bytes;
  queued_bytes_ += bytes;
}

void stream::authenticate(item& what, uint64_t most) {
  if (mode() != wire::security_mode::mac) return;
  if (what.is_tag) {
    std::byte* room = out_.data() + (what.offset - out_base_);
    sealer_.payload_tag(std::span<std::byte, wire::tag_bytes>(room, wire::tag_bytes));
    what.is_tag = false;
    return;
  }
  const uint64_t upto = std::min(what.bytes, most);
  if (what.from == nullptr || upto <= what.authenticated) return;
  sealer_.absorb({what.from + what.authenticated, upto - what.authenticated});
  what.authenticated = upto;
}

size_t stream::gather(std::span<iovec> out) {
  size_t count = 0;
  uint64_t left = mode() == wire::security_mode::mac ? gather_bytes : gather_unread_bytes;
  for (size_t i = item_head_; i < items_.size() && count < out.size() && left > 0; ++i) {
    item& each = items_[i];
    const uint64_t bytes = std::min(each.bytes, left);
    authenticate(each, bytes);
    const std::byte* from =
        each.from != nullptr ? each.from : out_.data() + (each.offset - out_base_);
    out[count++] = {const_cast<std::byte*>(from), bytes};
    left -= bytes;
  }
  return count;
}

void stream::on_sent(uint64_t bytes) {
  assert(bytes <= queued_bytes_);
  queued_bytes_ -= bytes;
  while (bytes > 0) {
    item& front = items_[item_head_];
    const uint64_t taken = std::min(bytes, front.bytes);
    if (front.from != nullptr) {
      front.from += taken;
      front.authenticated -= std::min(front.authenticated, taken);
    } else {
      front.offset += taken;
      out_head_ = front.offset;
    }
    front.bytes -= taken;
    bytes -= taken;
    if (front.bytes > 0) break;
    if (front.pins != nullptr) --*front.pins;
    ++item_head_;
  }
  if (item_head_ == items_.size()) {
    items_.clear();
    item_head_ = 0;
  } else if (item_head_ > 256 && item_head_ * 2 > items_.size()) {
    items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(item_head_));
    item_head_ = 0;
  }
}

void stream::drop_output() {
  for (size_t i = item_head_; i < items_.size(); ++i)
    if (items_[i].pins != nullptr) --*items_[i].pins;
  items_.clear();
  item_head_ = 0;
  queued_bytes_ = 0;
  out_base_ = out_head_ = out_end_ = 0;
}

// --- In.

void stream::make_room(size_t wanted) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ + wanted <= in_.size()) return;
  std::memmove(in_.data(), in_.data() + begin_, buffered());
  end_ = buffered();
  begin_ = 0;
}

size_t stream::room(std::span<iovec> out) {
  size_t count = 0;
  if (stage_ == stage::frame) {
    size_t wanted = idle_read_bytes;
    if (buffered() >= wire::header_bytes) {
      // A frame that is larger than what is read ahead: exactly it.
      const auto head = opener_.peek({in_.data() + begin_, wire::header_bytes});
      if (head) wanted = std::max(wanted, wire::header_bytes + head->body_bytes + wire::tag_bytes);
    }
    make_room(wanted);
    out[0] = {in_.data() + end_, std::max(wanted, buffered() + 1) - buffered()};
    return 1;
  }
  assert(buffered() == 0);
  begin_ = end_ = 0;
  uint64_t left = payload_left_;
  uint64_t offset = place_offset_;
  for (size_t i = place_index_; left > 0 && count + 2 < out.size(); ++i, offset = 0) {
    const iovec& where = place_[i];
    uint64_t bytes = where.iov_len - offset;
    if (where.iov_base == nullptr) {
      if (scratch_.empty()) scratch_.resize(scratch_bytes);
      bytes = std::min<uint64_t>(bytes, scratch_bytes);
      out[count++] = {scratch_.data(), bytes};
      left -= bytes;
      break;
    }
    out[count++] = {static_cast<std::byte*>(where.iov_base) + offset, bytes};
    left -= bytes;
  }
  if (left > 0) return count;
  const size_t tag_bytes = opener_.payload_tag_bytes(1);
  if (tag_filled_ < tag_bytes) out[count++] = {tag_.data() + tag_filled_, tag_bytes - tag_filled_};
  out[count++] = {in_.data(), tail_read_bytes};
  return count;
}

// `bytes` of the payload have arrived where room() said.
void stream::place_bytes(uint64_t bytes) {
  payload_left_ -= bytes;
  while (bytes > 0) {
    const iovec& where = place_[place_index_];
    const uint64_t taken = std::min<uint64_t>(bytes, where.iov_len - place_offset_);
    std::byte* at = where.iov_base == nullptr
                        ? scratch_.data()
                        : static_cast<std::byte*>(where.iov_base) + place_offset_;
    if (mode() != wire::security_mode::trusted) opener_.absorb({at, taken});
    place_offset_ += taken;
    bytes -= taken;
    if (place_offset_ == where.iov_len) ++place_index_, place_offset_ = 0;
  }
}

void stream::copy_to_place(const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    const iovec& where = place_[place_index_];
    uint64_t taken = std::min<uint64_t>(bytes, where.iov_len - place_offset_);
    if (where.iov_base == nullptr) {
      if (scratch_.empty()) scratch_.resize(scratch_bytes);
      taken = std::min<uint64_t>(taken, scratch_bytes);
      std::memcpy(scratch_.data(), from, taken);
    } else {
      std::memcpy(static_cast<std::byte*>(where.iov_base) + place_offset_, from, taken);
    }
    place_bytes(taken);
    from += taken;
    bytes -= taken;
  }
}

base::status stream::on_received(uint64_t bytes, handler& to) {
  received_bytes_ += bytes;
  if (stage_ == stage::frame) {
    end_ += bytes;
    return drain(to);
  }
  // The order of room(): the payload's place, its tag, then the next frame.
  const uint64_t payload = std::min(bytes, payload_left_);
  place_bytes(payload);
  bytes -= payload;
  const size_t tag = std::min<uint64_t>(bytes, opener_.payload_tag_bytes(1) - tag_filled_);
  tag_filled_ += tag;
  end_ = bytes - tag;
  return drain(to);
}

void stream::drain_payload() {
  const uint64_t payload = std::min<uint64_t>(buffered(), payload_left_);
  copy_to_place(in_.data() + begin_, payload);
  begin_ += payload;
  if (payload_left_ > 0) return;
  const size_t tag = std::min(buffered(), opener_.payload_tag_bytes(1) - tag_filled_);
  std::memcpy(tag_.data() + tag_filled_, in_.data() + begin_, tag);
  tag_filled_ += tag;
  begin_ += tag;
}

base::status stream::drain_frame(handler& to, bool& more) {
  more = false;
  if (buffered() < wire::header_bytes) return {};
  std::byte* frame = in_.data() + begin_;
  MORI_TRY(const wire::frame_head head, opener_.peek({frame, wire::header_bytes}));
  const size_t whole = wire::header_bytes + head.body_bytes + wire::tag_bytes;
  if (buffered() < whole) return {};
  MORI_TRY(const wire::byte_room body, opener_.open({frame, whole}));
  MORI_TRY(const wire::message_kind kind,
           wire::decode_kind(head.kind, head.flags, head.payload_bytes));
  begin_ += whole;
  place_.clear();
  place_index_ = 0;
  place_offset_ = 0;
  if (head.payload_bytes > 0) {
    stage_ = stage::payload;
    payload_left_ = head.payload_bytes;
    tag_filled_ = 0;
  }
  MORI_CHECK(to.on_message(*this, kind, body, head.payload_bytes, place_));
  if (head.payload_bytes > 0 && place_.empty()) place_.push_back({nullptr, head.payload_bytes});
  more = true;
  return {};
}

base::status stream::drain(handler& to) {
  for (;;) {
    if (stage_ != stage::frame) {
      drain_payload();
      if (payload_left_ > 0 || tag_filled_ < opener_.payload_tag_bytes(1)) return {};
      stage_ = stage::frame;
      bool authentic = true;
      if (mode() != wire::security_mode::trusted) authentic = opener_.payload_authentic(tag_);
      MORI_CHECK(to.on_payload(*this, authentic));
    }
    bool more = false;
    MORI_CHECK(drain_frame(to, more));
    if (!more) return {};
  }
}

void stream::discard_payload() {
  if (stage_ != stage::payload || payload_left_ == 0) return;
  place_.assign(1, {nullptr, payload_left_});
  place_index_ = 0;
  place_offset_ = 0;
}

}  // namespace mori::io_core::protocol
