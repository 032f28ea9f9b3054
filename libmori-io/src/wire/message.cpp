// message.cpp - see message.hpp. Layouts are written down in docs/protocol.md.
#include "wire/message.hpp"

#include <mori/io_types.h>

#include <algorithm>

namespace mori::io_core::wire {
namespace {

constexpr size_t slice_fixed_bytes = 68;
constexpr size_t data_fixed_bytes = 24;
constexpr size_t resume_answer_fixed_bytes = 24;
constexpr uint8_t known_slice_flags = slice_notifies | slice_replayed | slice_elsewhere;

template <class... Args>
base::failure wrong(message_kind kind, fmt::format_string<Args...> format, Args&&... args) {
  return base::fail(MORI_E_PROTOCOL, "{} message: {}", name_of(kind),
                    fmt::format(format, std::forward<Args>(args)...));
}

base::status check_size(message_kind kind, byte_span body, size_t bytes) {
  if (body.size() == bytes) return {};
  return wrong(kind, "{} bytes, it has {}", body.size(), bytes);
}

// The body is a list of entries and nothing else.
base::status check_list(message_kind kind, byte_span body, size_t entry_bytes, size_t most) {
  const size_t count = body.size() / entry_bytes;
  if (body.size() % entry_bytes != 0 || count == 0 || count > most)
    return wrong(kind, "{} bytes, allowed are 1 .. {} entries of {}", body.size(), most,
                 entry_bytes);
  return {};
}

bool runs_over(uint64_t begin, uint64_t size) { return begin > UINT64_MAX - size; }

void write_outcomes(room_writer& out, std::span<const outcome> outcomes) {
  for (const outcome& one : outcomes) {
    out.u64(one.sequence);
    out.i32(one.status);
  }
}

// Fields in front of the segments, checked apart from what follows them.
struct slice_sizes {
  size_t segments = 0, metadata = 0, payload_inline = 0;
};

base::status read_fixed(message_kind kind, byte_span body, slice_view& to, slice_sizes& sizes) {
  if (body.size() < slice_fixed_bytes)
    return wrong(kind, "{} bytes, it has at least {}", body.size(), slice_fixed_bytes);
  link::byte_reader in(body);
  read_raw(in, to.capability);
  to.sequence = in.u64();
  to.floor = in.u64();
  to.uid = in.u64();
  to.total_bytes = in.u64();
  to.region = in.u32();
  to.slice_index = in.u32();
  to.slice_count = in.u32();
  sizes.segments = in.u16();
  sizes.metadata = in.u16();
  sizes.payload_inline = in.u16();
  to.operation = in.u8();
  to.flags = in.u8();
  return {};
}

base::status check_fixed(message_kind kind, const slice& what, size_t metadata_bytes) {
  const bool operation_fits =
      kind == message_kind::notify
          ? what.operation == MORI_IO_READ || what.operation == MORI_IO_WRITE
          : what.operation == (kind == message_kind::read ? MORI_IO_READ : MORI_IO_WRITE);
  if (!operation_fits) return wrong(kind, "operation {}", what.operation);
  if ((what.flags & ~known_slice_flags) != 0)
    return wrong(kind, "flags {:#x}, known are {:#x}", what.flags, known_slice_flags);
  if (what.floor == 0 || what.floor > what.sequence)
    return wrong(kind, "sequence {} with floor {}, allowed are 1 .. the sequence", what.sequence,
                 what.floor);
  const uint32_t most = kind == message_kind::notify ? 1 : max_slices;
  if (what.slice_count == 0 || what.slice_count > most)
    return wrong(kind, "{} slices, allowed are 1 .. {}", what.slice_count, most);
  if (what.slice_index >= what.slice_count)
    return wrong(kind, "slice {} of {}", what.slice_index, what.slice_count);
  if (metadata_bytes > max_metadata_bytes)
    return wrong(kind, "metadata of {} bytes, the limit is {}", metadata_bytes, max_metadata_bytes);
  if (metadata_bytes > 0 && what.slice_index > 0)
    return wrong(kind, "metadata with slice {}, it comes with slice 0", what.slice_index);
  return {};
}

base::status add_up(message_kind kind, slice_view& what) {
  for (size_t i = 0; i < what.segments.size(); ++i) {
    const segment one = what.segments[i];
    if (one.bytes == 0 || runs_over(one.offset, one.bytes))
      return wrong(kind, "segment {} is of {} bytes at offset {}", i, one.bytes, one.offset);
    what.bytes += one.bytes;
  }
  if (what.bytes > max_payload_bytes)
    return wrong(kind, "a slice of {} bytes, the limit is {}", what.bytes, max_payload_bytes);
  return {};
}

// Segments, metadata and bytes against what the fixed part and the frame say.
base::status check_amounts(message_kind kind, const slice_view& what, uint32_t payload_bytes) {
  const uint64_t here = what.payload_inline.size() + uint64_t{payload_bytes};
  if (payload_bytes > 0 && !what.payload_inline.empty())
    return wrong(kind, "{} bytes in the body and {} behind it", what.payload_inline.size(),
                 payload_bytes);
  if (kind != message_kind::write && here > 0)
    return wrong(kind, "a payload of {} bytes, it has none", here);
  if (kind == message_kind::write && here != what.bytes)
    return wrong(kind, "{} bytes for segments of {}", here, what.bytes);
  if (kind == message_kind::notify) return {};
  if (what.bytes > what.total_bytes || (what.slice_count == 1 && what.bytes != what.total_bytes))
    return wrong(kind, "slice {} of {} has {} bytes of {}", what.slice_index, what.slice_count,
                 what.bytes, what.total_bytes);
  return {};
}

}  // namespace

const char* name_of(message_kind kind) {
  static constexpr const char* names[] = {
      "?",         "write",  "read",          "data",   "ack",    "resume",  "resume answer",
      "heartbeat", "cancel", "cancel answer", "notify", "revoke", "revoked", "goodbye",
      "error",     "attach", "attached"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(names) ? names[index] : names[0];
}

uint8_t frame_flags(message_kind kind) {
  const bool masked = kind == message_kind::write || kind == message_kind::read ||
                      kind == message_kind::notify || kind == message_kind::attach;
  return masked ? frame_masked : 0;
}

base::status slice_writer::start(byte_room room, message_kind kind, const slice& what) {
  MORI_CHECK(check_fixed(kind, what, what.metadata.size()));
  room_ = room.first(std::min(room.size(), max_body_bytes));
  metadata_ = what.metadata;
  segment_count_ = bytes_ = 0;
  most_segments_ = kind == message_kind::notify ? 0 : max_segments;
  room_writer out(room_);
  out.raw(what.capability);
  out.u64(what.sequence);
  out.u64(what.floor);
  out.u64(what.uid);
  out.u64(what.total_bytes);
  out.u32(what.region);
  out.u32(what.slice_index);
  out.u32(what.slice_count);
  out.u16(0);
  out.u16(static_cast<uint16_t>(metadata_.size()));
  out.u16(0);
  out.u8(what.operation);
  out.u8(what.flags);
  if (!out.good() || room_.size() - out.used() < metadata_.size())
    return base::fail(MORI_E_INVALID, "room of {} bytes for a message of at least {}", room.size(),
                      slice_fixed_bytes + metadata_.size());
  used_ = out.used();
  return {};
}

bool slice_writer::add(uint64_t offset, uint32_t bytes) {
  if (bytes == 0) return true;
  if (segment_count_ >= most_segments_ || bytes > max_payload_bytes - bytes_ ||
      runs_over(offset, bytes) || room_.size() - used_ < segment_bytes + metadata_.size())
    return false;
  std::memcpy(room_.data() + used_, &offset, sizeof offset);
  std::memcpy(room_.data() + used_ + sizeof offset, &bytes, sizeof bytes);
  used_ += segment_bytes;
  ++segment_count_;
  bytes_ += bytes;
  return true;
}

size_t slice_writer::finish() {
  const auto count = static_cast<uint16_t>(segment_count_);
  std::memcpy(room_.data() + slice_fixed_bytes - 8, &count, sizeof count);
  if (!metadata_.empty()) std::memcpy(room_.data() + used_, metadata_.data(), metadata_.size());
  used_ += metadata_.size();
  metadata_ = {};
  return used_;
}

bool slice_writer::fits_inline() const {
  return bytes_ <= max_inline_bytes && room_.size() - used_ >= metadata_.size() + bytes_;
}

byte_room slice_writer::finish_inline(size_t& body_bytes) {
  body_bytes = 0;
  if (!fits_inline()) return {};
  const auto size = static_cast<uint16_t>(bytes_);
  const size_t at = finish();
  std::memcpy(room_.data() + slice_fixed_bytes - 4, &size, sizeof size);
  body_bytes = at + size;
  return room_.subspan(at, size);
}

bool resume_answer::is_delivered(uint64_t sequence) const {
  if (sequence < base || sequence - base >= count) return false;
  const uint64_t bit = sequence - base;
  return (static_cast<uint8_t>(delivered[bit / 8]) >> (bit % 8) & 1) != 0;
}

size_t encode(byte_room room, const data& what, byte_room* inline_room) {
  const size_t here = inline_room != nullptr ? what.bytes : what.payload_inline.size();
  if (here > max_inline_bytes || (here > 0 && here != what.bytes)) return 0;
  room_writer out(room);
  out.u64(what.sequence);
  out.u64(what.offset);
  out.u32(what.slice_index);
  out.u32(what.bytes);
  if (!out.good() || room.size() - out.used() < here) return 0;
  if (inline_room != nullptr)
    *inline_room = room.subspan(out.used(), here);
  else
    out.raw(what.payload_inline);
  return data_fixed_bytes + here;
}

size_t encode_ack(byte_room room, std::span<const outcome> outcomes) {
  if (outcomes.empty() || outcomes.size() > max_acks) return 0;
  room_writer out(room);
  write_outcomes(out, outcomes);
  return out.size();
}

size_t encode(byte_room room, const resume& what) {
  room_writer out(room);
  out.u64(what.generation);
  out.u64(what.floor);
  out.u64(what.next);
  return out.size();
}

size_t encode(byte_room room, const resume_answer& what, std::span<const outcome> failures) {
  if (what.count > max_resume_bits || what.delivered.size() != (what.count + 7u) / 8 ||
      failures.size() > max_resume_failures)
    return 0;
  room_writer out(room);
  out.u64(what.generation);
  out.u64(what.base);
  out.u32(what.count);
  out.u16(static_cast<uint16_t>(failures.size()));
  out.u8(what.last ? 1 : 0);
  out.u8(0);
  out.raw(what.delivered);
  write_outcomes(out, failures);
  return out.size();
}

size_t encode(byte_room room, const heartbeat& what) {
  room_writer out(room);
  out.u64(what.floor);
  out.u64(what.next);
  out.u64(what.stamp);
  out.u8(what.wants_answer ? 1 : 0);
  return out.size();
}

size_t encode_cancel(byte_room room, uint64_t sequence) {
  room_writer out(room);
  out.u64(sequence);
  return out.size();
}

size_t encode(byte_room room, const cancel_answer& what) {
  room_writer out(room);
  out.u64(what.sequence);
  out.i32(what.status);
  out.u8(static_cast<uint8_t>(what.outcome));
  return out.size();
}

size_t encode_revoke(byte_room room, uint32_t region) {
  room_writer out(room);
  out.u32(region);
  return out.size();
}

size_t encode(byte_room room, const attach& what) {
  room_writer out(room);
  out.raw(what.capability);
  out.u32(what.region);
  out.u8(static_cast<uint8_t>(what.operation));
  return out.size();
}

size_t encode_goodbye(byte_room room, mori_status status, std::string_view text) {
  return encode(room, error_message{0, status, text});
}

size_t encode(byte_room room, const error_message& what) {
  const std::string_view text = cut_text(what.text, max_text_bytes);
  room_writer out(room);
  out.u64(what.sequence);
  out.i32(what.status);
  out.u16(static_cast<uint16_t>(text.size()));
  out.raw(link::as_bytes(text));
  return out.size();
}

base::result<message_kind> decode_kind(uint8_t kind, uint8_t flags, uint32_t payload_bytes) {
  if (kind == 0 || kind > last_message_kind)
    return base::fail(MORI_E_PROTOCOL, "message kind {}, known are 1 .. {}", kind,
                      last_message_kind);
  const auto known = static_cast<message_kind>(kind);
  if (flags != frame_flags(known))
    return wrong(known, "flags {:#x}, not {:#x}", flags, frame_flags(known));
  if (payload_bytes > 0 && known != message_kind::write && known != message_kind::data)
    return wrong(known, "a payload of {} bytes, it has none", payload_bytes);
  return known;
}

base::result<slice_view> decode_slice(message_kind kind, byte_span body, uint32_t payload_bytes) {
  slice_view what;
  slice_sizes sizes;
  MORI_CHECK(read_fixed(kind, body, what, sizes));
  MORI_CHECK(check_fixed(kind, what, sizes.metadata));
  const size_t most = kind == message_kind::notify ? 0 : max_segments;
  if (sizes.segments > most)
    return wrong(kind, "{} segments, the limit is {}", sizes.segments, most);
  if (sizes.payload_inline > max_inline_bytes)
    return wrong(kind, "{} bytes in the body, the limit is {}", sizes.payload_inline,
                 max_inline_bytes);
  const size_t segments_bytes = sizes.segments * segment_bytes;
  MORI_CHECK(check_size(
      kind, body, slice_fixed_bytes + segments_bytes + sizes.metadata + sizes.payload_inline));
  link::byte_reader in(body.subspan(slice_fixed_bytes));
  what.segments = segment_list(in.raw(segments_bytes));
  what.metadata = in.raw(sizes.metadata);
  what.payload_inline = in.raw(sizes.payload_inline);
  MORI_CHECK(add_up(kind, what));
  MORI_CHECK(check_amounts(kind, what, payload_bytes));
  return what;
}

base::result<data> decode_data(byte_span body, uint32_t payload_bytes) {
  constexpr auto kind = message_kind::data;
  if (body.size() < data_fixed_bytes)
    return wrong(kind, "{} bytes, it has at least {}", body.size(), data_fixed_bytes);
  link::byte_reader in(body);
  data what;
  what.sequence = in.u64();
  what.offset = in.u64();
  what.slice_index = in.u32();
  what.bytes = in.u32();
  what.payload_inline = in.rest();
  const size_t here = what.payload_inline.size();
  if (here > max_inline_bytes)
    return wrong(kind, "{} bytes in the body, the limit is {}", here, max_inline_bytes);
  if (here > 0 && payload_bytes > 0)
    return wrong(kind, "{} bytes in the body and {} behind it", here, payload_bytes);
  if (here + payload_bytes != what.bytes)
    return wrong(kind, "{} bytes, it says {}", here + payload_bytes, what.bytes);
  if (what.slice_index >= max_slices)
    return wrong(kind, "slice {}, the limit is {}", what.slice_index, max_slices);
  if (what.offset > max_payload_bytes - what.bytes)
    return wrong(kind, "{} bytes at offset {} of a slice, its limit is {}", what.bytes, what.offset,
                 max_payload_bytes);
  return what;
}

base::result<outcome_list> decode_ack(byte_span body) {
  MORI_CHECK(check_list(message_kind::ack, body, outcome_bytes, max_acks));
  return outcome_list(body);
}

base::result<resume> decode_resume(byte_span body) {
  constexpr auto kind = message_kind::resume;
  MORI_CHECK(check_size(kind, body, 24));
  link::byte_reader in(body);
  resume what;
  what.generation = in.u64();
  what.floor = in.u64();
  what.next = in.u64();
  if (what.floor == 0 || what.floor > what.next)
    return wrong(kind, "floor {}, next {}", what.floor, what.next);
  return what;
}

base::result<resume_answer> decode_resume_answer(byte_span body) {
  constexpr auto kind = message_kind::resume_answer;
  if (body.size() < resume_answer_fixed_bytes)
    return wrong(kind, "{} bytes, it has at least {}", body.size(), resume_answer_fixed_bytes);
  link::byte_reader in(body);
  resume_answer what;
  what.generation = in.u64();
  what.base = in.u64();
  what.count = in.u32();
  const size_t failures = in.u16();
  const uint8_t last = in.u8();
  const uint8_t zero = in.u8();
  if (what.count > max_resume_bits || runs_over(what.base, what.count))
    return wrong(kind, "{} sequences from {}, the limit is {}", what.count, what.base,
                 max_resume_bits);
  if (failures > max_resume_failures)
    return wrong(kind, "{} failures, the limit is {}", failures, max_resume_failures);
  if (last > 1 || zero != 0) return wrong(kind, "flags {} and {}", last, zero);
  const size_t bits_bytes = (what.count + 7u) / 8;
  MORI_CHECK(
      check_size(kind, body, resume_answer_fixed_bytes + bits_bytes + failures * outcome_bytes));
  what.last = last == 1;
  what.delivered = in.raw(bits_bytes);
  what.failures = outcome_list(in.rest());
  if (const uint32_t over = what.count % 8;
      over != 0 && static_cast<uint8_t>(what.delivered.back()) >> over != 0)
    return wrong(kind, "bits beyond the last of {}", what.count);
  for (size_t i = 0; i < failures; ++i) {
    const outcome one = what.failures[i];
    if (one.sequence < what.base || one.sequence - what.base >= what.count ||
        one.status == MORI_OK || what.is_delivered(one.sequence))
      return wrong(kind, "sequence {} failed with status {}", one.sequence, one.status);
  }
  return what;
}

base::result<heartbeat> decode_heartbeat(byte_span body) {
  constexpr auto kind = message_kind::heartbeat;
  MORI_CHECK(check_size(kind, body, 25));
  link::byte_reader in(body);
  heartbeat what;
  what.floor = in.u64();
  what.next = in.u64();
  what.stamp = in.u64();
  const uint8_t wants = in.u8();
  if (wants > 1) return wrong(kind, "flags {}", wants);
  if (what.floor > what.next) return wrong(kind, "floor {}, next {}", what.floor, what.next);
  what.wants_answer = wants == 1;
  return what;
}

base::result<uint64_t> decode_cancel(byte_span body) {
  MORI_CHECK(check_size(message_kind::cancel, body, 8));
  return load<uint64_t>(body.data());
}

base::result<cancel_answer> decode_cancel_answer(byte_span body) {
  constexpr auto kind = message_kind::cancel_answer;
  MORI_CHECK(check_size(kind, body, 13));
  link::byte_reader in(body);
  cancel_answer what;
  what.sequence = in.u64();
  what.status = known_status(in.i32());
  const uint8_t how = in.u8();
  if (how < 1 || how > 3) return wrong(kind, "outcome {}, allowed are 1 .. 3", how);
  what.outcome = static_cast<cancel_outcome>(how);
  if ((what.status != MORI_OK) != (what.outcome == cancel_outcome::failed))
    return wrong(kind, "outcome {} with status {}", how, what.status);
  return what;
}

base::result<uint32_t> decode_revoke(byte_span body) {
  MORI_CHECK(check_size(message_kind::revoke, body, 4));
  return load<uint32_t>(body.data());
}

base::result<attach> decode_attach(byte_span body) {
  constexpr auto kind = message_kind::attach;
  MORI_CHECK(check_size(kind, body, 21));
  link::byte_reader in(body);
  attach what;
  read_raw(in, what.capability);
  what.region = in.u32();
  what.operation = in.u8();
  if (what.operation != MORI_IO_READ && what.operation != MORI_IO_WRITE)
    return wrong(kind, "operation {}", what.operation);
  return what;
}

base::result<error_message> decode_error(byte_span body) {
  constexpr auto kind = message_kind::error;
  constexpr size_t fixed_bytes = 14;
  if (body.size() < fixed_bytes)
    return wrong(kind, "{} bytes, it has at least {}", body.size(), fixed_bytes);
  link::byte_reader in(body);
  error_message what;
  what.sequence = in.u64();
  what.status = known_status(in.i32());
  const size_t text_bytes = in.u16();
  if (text_bytes > max_text_bytes)
    return wrong(kind, "text of {} bytes, the limit is {}", text_bytes, max_text_bytes);
  MORI_CHECK(check_size(kind, body, fixed_bytes + text_bytes));
  what.text = as_text(in.raw(text_bytes));
  return what;
}

}  // namespace mori::io_core::wire
