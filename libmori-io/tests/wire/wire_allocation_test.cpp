// No call on a frame's way allocates: encoding, sealing, opening, decoding, and
// payloads. Counted by this program's own operator new.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "samples.hpp"
#include "wire/message.hpp"

using namespace mori::io_core::wire;

namespace {
size_t allocation_count = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocation_count;
  void* const made = std::malloc(bytes == 0 ? 1 : bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void operator delete(void* given) noexcept { std::free(given); }
void operator delete(void* given, size_t) noexcept { std::free(given); }

namespace {

std::byte frame[max_frame_bytes];
std::byte payload[100'000];

// Whether all of it worked; nothing here may allocate.
bool send_write(sealer& out, opener& in, const slice& what, uint32_t bytes) {
  slice_writer writer;
  const byte_room room = byte_room(frame).subspan(header_bytes, max_body_bytes);
  if (!writer.start(room, message_kind::write, what)) return false;
  for (uint32_t i = 0; i < 100; ++i)
    if (!writer.add(uint64_t{i} * 4096, bytes / 100)) return false;
  const frame_head head{static_cast<uint32_t>(writer.finish()), bytes, 1, frame_masked};
  const size_t size = out.seal(frame, head).size();
  std::array<std::byte, tag_bytes> tag{};
  out.copy(byte_span(payload).first(bytes), payload);
  out.payload_tag(tag);
  const auto peeked = in.peek(byte_span(frame).first(header_bytes));
  const auto body = in.open(byte_room(frame).first(size));
  if (!peeked || !body || !decode_kind(peeked->kind, peeked->flags, peeked->payload_bytes))
    return false;
  const auto got = decode_slice(message_kind::write, *body, bytes);
  uint64_t sum = 0;
  for (size_t i = 0; got && i < got->segments.size(); ++i) sum += got->segments[i].bytes;
  in.absorb(byte_room(payload).first(bytes));
  return in.payload_authentic(tag) && sum == bytes;
}

bool send_ack(sealer& out, opener& in) {
  const outcome done[] = {{1, MORI_OK}, {2, MORI_E_INVALID}};
  const size_t size = encode_ack(byte_room(frame).subspan(header_bytes), done);
  const size_t whole = out.seal(frame, {static_cast<uint32_t>(size), 0, 4, 0}).size();
  const auto body = in.open(byte_room(frame).first(whole));
  const auto got = body ? decode_ack(*body) : mori::base::result<outcome_list>(body.error());
  return got && got->size() == 2 && (*got)[1].status == MORI_E_INVALID;
}

}  // namespace

TEST_CASE("nothing on a frame's way allocates") {
  const byte_span note(payload, 8);
  slice what;
  what.operation = 2;
  what.sequence = what.floor = 1;
  what.total_bytes = 50'000;
  what.metadata = note;
  for (const auto mode : {security_mode::mac, security_mode::encrypt}) {
    sealer out(samples::counting(1), mode);
    opener in(samples::counting(1), mode);
    const size_t before = allocation_count;
    bool good = true;
    for (int i = 0; i < 40; ++i)
      good = good && send_write(out, in, what, 50'000) && send_ack(out, in);
    const size_t made = allocation_count - before;
    CHECK(good);
    CHECK(made == 0);
  }
  const size_t before = allocation_count;
  ::operator delete(::operator new(1));
  CHECK(allocation_count > before);  // it does count
}
