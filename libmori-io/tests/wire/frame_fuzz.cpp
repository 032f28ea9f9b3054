// Frames and messages from anybody, and from a peer with keys. The first byte of
// the input says what the rest is:
//   0  bytes of a stream: header and what follows, not authentic
//   1  kind, flags, payload bytes u32, body: a message that came in a good frame
//   2  mode, then changes [offset u16, xor] of a stream of good frames
#include <algorithm>

#include "wire/message.hpp"
#include "wire_fuzz.hpp"

using namespace mori::io_core::wire;
using mori::link::byte_reader;
using mori::link::byte_vector;

namespace {

void stream_of_strangers(byte_span bytes) {
  opener in(samples::counting(1), security_mode::mac);
  if (bytes.size() < header_bytes) return;
  const auto head = in.peek(bytes);
  if (!head) return;
  fuzz::require(head->body_bytes <= max_body_bytes && head->payload_bytes <= max_payload_bytes);
  byte_vector frame(bytes.begin(), bytes.end());
  frame.resize(header_bytes + head->body_bytes + tag_bytes);
  fuzz::require(!in.open(frame));
}

// Decoded and encoded again, a slice is the same bytes.
void check_slice(message_kind kind, byte_span body, uint32_t payload_bytes) {
  const auto got = decode_slice(kind, body, payload_bytes);
  if (!got) return;
  uint64_t sum = 0;
  static byte_vector room(max_body_bytes);
  slice_writer writer;
  fuzz::require(static_cast<bool>(writer.start(room, kind, *got)));
  for (size_t i = 0; i < got->segments.size(); ++i) {
    const segment one = got->segments[i];
    fuzz::require(one.bytes > 0 && one.offset + one.bytes > one.offset);
    sum += one.bytes;
    fuzz::require(writer.add(one.offset, one.bytes));
  }
  fuzz::require(sum == got->bytes && sum <= got->total_bytes + (kind == message_kind::notify));
  fuzz::require(got->slice_index < got->slice_count && got->floor <= got->sequence);
  size_t size = 0;
  if (got->payload_inline.empty()) {
    size = writer.finish();
  } else {
    const byte_room to = writer.finish_inline(size);
    fuzz::require(to.size() == got->payload_inline.size());
    std::ranges::copy(got->payload_inline, to.begin());
  }
  fuzz::require(std::ranges::equal(byte_span(room).first(size), body));
}

template <class Entry, size_t Bytes>
std::vector<Entry> all_of(const entry_list<Entry, Bytes>& list) {
  std::vector<Entry> all;
  for (size_t i = 0; i < list.size(); ++i) all.push_back(list[i]);
  return all;
}

void same(size_t size, byte_span room, byte_span body) {
  fuzz::require(std::ranges::equal(room.first(size), body));
}

void check_answer(byte_span body, byte_room room) {
  const auto got = decode_resume_answer(body);
  if (!got) return;
  const auto failures = all_of(got->failures);
  const size_t size = encode(room, *got, failures);
  fuzz::require(size == body.size());
  const auto again = decode_resume_answer(room.first(size));
  fuzz::require(again && std::ranges::equal(again->delivered, got->delivered));
  (void)got->is_delivered(got->base + got->count);
}

void check_message(uint8_t number, uint8_t flags, uint32_t payload_bytes, byte_span body) {
  static byte_vector room(max_body_bytes);
  const auto kind = decode_kind(number, flags, payload_bytes);
  if (!kind) return;
  switch (*kind) {
    case message_kind::write:
    case message_kind::read:
    case message_kind::notify: return check_slice(*kind, body, payload_bytes);
    case message_kind::data:
      if (const auto got = decode_data(body, payload_bytes)) same(encode(room, *got), room, body);
      return;
    case message_kind::ack:
      if (const auto got = decode_ack(body))
        fuzz::require(encode_ack(room, all_of(*got)) == body.size());
      return;
    case message_kind::resume:
      if (const auto got = decode_resume(body)) same(encode(room, *got), room, body);
      return;
    case message_kind::resume_answer: return check_answer(body, room);
    case message_kind::heartbeat:
      if (const auto got = decode_heartbeat(body)) same(encode(room, *got), room, body);
      return;
    case message_kind::cancel:
      if (const auto got = decode_cancel(body)) same(encode_cancel(room, *got), room, body);
      return;
    case message_kind::cancel_answer:
      if (const auto got = decode_cancel_answer(body))
        fuzz::require(encode(room, *got) == body.size());
      return;
    case message_kind::revoke:
    case message_kind::revoked:
    case message_kind::attached:
      if (const auto got = decode_revoke(body)) same(encode_revoke(room, *got), room, body);
      return;
    case message_kind::attach:
      if (const auto got = decode_attach(body)) same(encode(room, *got), room, body);
      return;
    case message_kind::goodbye:
    case message_kind::error:
      if (const auto got = decode_error(body)) {
        fuzz::require(got->text.size() <= max_text_bytes);
        (void)printable(got->text);
      }
      return;
  }
}

constexpr size_t body_bytes = 40;
constexpr uint32_t payload_bytes = 100;
constexpr size_t stream_frame_bytes =
    header_bytes + body_bytes + tag_bytes + payload_bytes + tag_bytes;

byte_vector good_stream(security_mode mode) {
  sealer out(samples::counting(1), mode);
  byte_vector stream;
  for (int i = 0; i < 3; ++i) {
    byte_vector frame(stream_frame_bytes);
    const byte_room payload = byte_room(frame).subspan(header_bytes + body_bytes + tag_bytes);
    out.seal(frame, {body_bytes, payload_bytes, 1, frame_masked});
    if (mode == security_mode::trusted) {
      frame.resize(frame.size() - tag_bytes);
    } else {
      out.copy(payload.first(payload_bytes), payload.data());
      out.payload_tag(std::span<std::byte, tag_bytes>(payload.data() + payload_bytes, tag_bytes));
    }
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  return stream;
}

// A frame opens exactly when nobody changed it; a changed payload does not stop the next frame.
void changed_stream(security_mode mode, byte_reader& in) {
  const byte_vector good = good_stream(mode);
  byte_vector stream = good;
  while (in.rest().size() >= 3) {
    const size_t at = in.u16();
    const uint8_t change = in.u8();
    if (at < stream.size()) stream[at] ^= std::byte{change};
  }
  opener from(samples::counting(1), mode);
  const size_t tag = from.payload_tag_bytes(payload_bytes);
  constexpr size_t head_bytes = header_bytes + body_bytes + tag_bytes;
  for (size_t at = 0; at < stream.size(); at += head_bytes + payload_bytes + tag) {
    const auto untouched = [&](size_t begin, size_t size) {
      return std::equal(good.begin() + static_cast<ptrdiff_t>(begin),
                        good.begin() + static_cast<ptrdiff_t>(begin + size),
                        stream.begin() + static_cast<ptrdiff_t>(begin));
    };
    const bool frame_good = untouched(at, head_bytes);
    const bool payload_good = untouched(at + head_bytes, payload_bytes + tag);
    const auto got = from.open(byte_room(stream).subspan(at, head_bytes));
    fuzz::require(static_cast<bool>(got) == frame_good);
    if (!got) return;
    if (tag == 0) continue;
    from.absorb(byte_room(stream).subspan(at + head_bytes, payload_bytes));
    const std::span<const std::byte, tag_bytes> given(
        stream.data() + at + head_bytes + payload_bytes, tag_bytes);
    fuzz::require(from.payload_authentic(given) == payload_good);
  }
}

}  // namespace

void fuzz::frame(byte_span input) {
  if (input.empty() || input.size() > max_frame_bytes) return;
  byte_reader in(input.subspan(1));
  switch (static_cast<uint8_t>(input[0]) % 3) {
    case 0: return stream_of_strangers(in.rest());
    case 1: {
      const uint8_t kind = in.u8(), flags = in.u8();
      const uint32_t bytes = in.u32();
      if (in.good() && bytes <= max_payload_bytes) check_message(kind, flags, bytes, in.rest());
      return;
    }
    default: return changed_stream(static_cast<security_mode>(1 + in.u8() % 3), in);
  }
}
