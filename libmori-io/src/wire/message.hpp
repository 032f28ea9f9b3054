// message.hpp - what engines say to each other, one message a frame. Encoders
// write into room that the caller gives and say how much they wrote; decoders
// check everything that can be checked without knowing regions, and give views
// into the frame. Nothing allocates. docs/protocol.md says when each is sent.
//
// "Sequence": a transfer's number in its link, from 1. "Floor": the initiator's
// lowest sequence that is not finished; the target forgets all below.
#pragma once

#include <mori/base/result.hpp>

#include "wire/codec.hpp"
#include "wire/limits.hpp"

namespace mori::io_core::wire {

enum class message_kind : uint8_t {
  write = 1,          // initiator -> target: a slice, with its bytes
  read = 2,           // initiator -> target: asks for a slice
  data = 3,           // target -> initiator: bytes of a slice that was asked for
  ack = 4,            // target -> initiator: outcomes
  resume = 5,         // initiator -> target: first message of a generation
  resume_answer = 6,  // target -> initiator: what was delivered before
  heartbeat = 7,      // either; `answer` set: is to be answered by one without
  cancel = 8,         // initiator -> target
  cancel_answer = 9,  // target -> initiator: the outcome that stands
  notify = 10,        // initiator -> target: bytes that went another way are there
  revoke = 11,        // target -> initiator: stop using this region
  revoked = 12,       // initiator -> target: it does
  goodbye = 13,       // either: closes in order
  error = 14,         // either: why a transfer or the link failed, as text
  attach = 15,        // initiator -> target: asks to use a region without the target's help
  attached = 16,      // target -> initiator: it may, until it is revoked
};
inline constexpr uint8_t last_message_kind = 16;
const char* name_of(message_kind kind);

// For frame_head::flags: frame_masked where the body begins with a capability.
uint8_t frame_flags(message_kind kind);

// `bytes` at `offset` of the target's region.
struct segment {
  uint64_t offset = 0;
  uint32_t bytes = 0;
};

inline segment load_entry(const std::byte* from, const segment*) {
  return {load<uint64_t>(from), load<uint32_t>(from + 8)};
}
inline constexpr size_t segment_bytes = 12;

// View of encoded entries; each is decoded when it is asked for.
template <class Entry, size_t Bytes>
class entry_list {
 public:
  entry_list() = default;
  explicit entry_list(byte_span bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size() / Bytes; }
  // index < size()
  Entry operator[](size_t index) const {
    return load_entry(bytes_.data() + index * Bytes, static_cast<const Entry*>(nullptr));
  }

 private:
  byte_span bytes_;
};

using segment_list = entry_list<segment, segment_bytes>;

// Flags of slice::flags and notification.
inline constexpr uint8_t slice_notifies = 1;   // the target gets a notification
inline constexpr uint8_t slice_replayed = 2;   // was sent before, on an earlier generation
inline constexpr uint8_t slice_elsewhere = 4;  // of notify: no byte of it came over a link

// What write, read and notify have in front.
struct slice {
  wire::capability capability{};  // of the access: write, or read
  uint32_t region = 0;
  uint8_t flags = 0;
  uint8_t operation = 0;  // MORI_IO_READ, MORI_IO_WRITE
  uint64_t sequence = 0;
  uint64_t floor = 0;
  uint64_t uid = 0;
  uint64_t total_bytes = 0;  // of the transfer
  uint32_t slice_index = 0;  // < slice_count
  uint32_t slice_count = 1;  // of the transfer
  byte_span metadata;        // slice 0 only
};

// Decoded: also the segments, whose sizes add up to `bytes`. A write's bytes are
// in the body (payload_inline) or follow as the frame's payload, never both.
struct slice_view : slice {
  segment_list segments;
  uint64_t bytes = 0;
  byte_span payload_inline;
};

// Writes a slice piece by piece:  start, add*, then finish or finish_inline.
class slice_writer {
 public:
  // kind: write, read or notify. room: max_body_bytes suffice for any slice.
  // MORI_E_INVALID: a field beyond its limit, or no room for what is fixed.
  base::status start(byte_room room, message_kind kind, const slice& what);

  // False: no room, too many segments or too many bytes; the slice is full.
  bool add(uint64_t offset, uint32_t bytes);

  size_t segment_count() const { return segment_count_; }
  uint64_t bytes() const { return bytes_; }

  // Size of the body. The bytes follow as payload (write), or are not here (read,
  // notify).
  size_t finish();

  // Small writes: whether bytes() fit into the body, and the room for them there, to
  // be filled by the caller. body_bytes: size of the body with them, 0 if they do
  // not fit.
  bool fits_inline() const;
  byte_room finish_inline(size_t& body_bytes);

 private:
  byte_room room_;
  byte_span metadata_;
  size_t used_ = 0, segment_count_ = 0, most_segments_ = 0;
  uint64_t bytes_ = 0;
};

struct data {
  uint64_t sequence = 0;
  uint32_t slice_index = 0;
  uint64_t offset = 0;       // of these bytes in the slice
  uint32_t bytes = 0;        // inline or payload
  byte_span payload_inline;  // bytes long, or empty when they are payload
};

struct outcome {
  uint64_t sequence = 0;
  mori_status status = MORI_OK;
};
inline outcome load_entry(const std::byte* from, const outcome*) {
  return {load<uint64_t>(from), known_status(load<int32_t>(from + 8))};
}
inline constexpr size_t outcome_bytes = 12;
using outcome_list = entry_list<outcome, outcome_bytes>;

struct resume {
  uint64_t generation = 0;
  uint64_t floor = 0;  // outstanding: floor <= sequence < next
  uint64_t next = 0;
};

// Bit i of `delivered`: sequence base + i was delivered and succeeded. Several
// answers, in order, cover what was asked; the last one says so.
struct resume_answer {
  uint64_t generation = 0;
  uint64_t base = 0;
  uint32_t count = 0;  // bits
  bool last = true;
  byte_span delivered;    // (count + 7) / 8 bytes, bits beyond count are 0
  outcome_list failures;  // of sequences that ended otherwise; decoded
  bool is_delivered(uint64_t sequence) const;
};

struct heartbeat {
  bool wants_answer = false;
  uint64_t floor = 0;
  uint64_t next = 0;
  uint64_t stamp = 0;  // comes back in the answer
};

enum class cancel_outcome : uint8_t {
  cancelled = 1,  // not delivered, and nothing of it will be written any more
  delivered = 2,  // too late
  failed = 3,     // ended with `status` before
};

struct cancel_answer {
  uint64_t sequence = 0;
  cancel_outcome outcome{};
  mori_status status = MORI_OK;
};

struct attach {
  wire::capability capability{};  // of the access: write, or read
  uint32_t region = 0;
  int32_t operation = 0;  // MORI_IO_READ, MORI_IO_WRITE
};

struct error_message {
  uint64_t sequence = 0;  // 0: the link
  mori_status status = MORI_E_INTERNAL;
  std::string_view text;  // cut at max_text_bytes; decoded: as it came, see printable()
};

// Encoders: size of the body, 0 when `room` is too small or a limit is exceeded.
// data: inline_room, when given, becomes the room for what.bytes bytes in the body.
size_t encode(byte_room room, const data& what, byte_room* inline_room = nullptr);
size_t encode_ack(byte_room room, std::span<const outcome> outcomes);
size_t encode(byte_room room, const resume& what);
size_t encode(byte_room room, const resume_answer& what, std::span<const outcome> failures);
size_t encode(byte_room room, const heartbeat& what);
size_t encode_cancel(byte_room room, uint64_t sequence);
size_t encode(byte_room room, const cancel_answer& what);
size_t encode_revoke(byte_room room, uint32_t region);  // revoke, revoked and attached
size_t encode(byte_room room, const attach& what);
size_t encode_goodbye(byte_room room, mori_status status, std::string_view text);
size_t encode(byte_room room, const error_message& what);

// Decoders: MORI_E_PROTOCOL says the message, the field, value and limit.
// payload_bytes is the frame's.
base::result<slice_view> decode_slice(message_kind kind, byte_span body, uint32_t payload_bytes);
base::result<data> decode_data(byte_span body, uint32_t payload_bytes);
base::result<outcome_list> decode_ack(byte_span body);
base::result<resume> decode_resume(byte_span body);
base::result<resume_answer> decode_resume_answer(byte_span body);
base::result<heartbeat> decode_heartbeat(byte_span body);
base::result<uint64_t> decode_cancel(byte_span body);
base::result<cancel_answer> decode_cancel_answer(byte_span body);
base::result<uint32_t> decode_revoke(byte_span body);  // and revoked and attached
base::result<attach> decode_attach(byte_span body);
base::result<error_message> decode_error(byte_span body);  // goodbye too
// The kind, checked; and that only write and data carry payload.
base::result<message_kind> decode_kind(uint8_t kind, uint8_t flags, uint32_t payload_bytes);

}  // namespace mori::io_core::wire
