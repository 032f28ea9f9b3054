// Messages as bodies of frames: round trips, every truncation, every field
// beyond its limit, room that is too small.
#include "wire/message.hpp"

#include <doctest/doctest.h>

#include <random>

#include "samples.hpp"

namespace base = mori::base;
using namespace mori::io_core::wire;
using mori::link::byte_vector;

namespace {

constexpr message_kind slice_kinds[] = {message_kind::write, message_kind::read,
                                        message_kind::notify};

slice sample(message_kind kind) {
  slice what;
  what.capability = samples::filled<capability>(0xCA);
  what.region = 0xFFFFFFFF;
  what.operation = kind == message_kind::read ? 1 : 2;
  what.flags = slice_notifies | slice_replayed;
  what.sequence = uint64_t{7} << 40;
  what.floor = 5;
  what.uid = UINT64_MAX;
  what.total_bytes = 300;
  return what;
}

struct encoded {
  byte_vector body;
  uint64_t bytes = 0;
};

encoded encode_slice(message_kind kind, const slice& what, const std::vector<segment>& segments,
                     bool in_body = false) {
  encoded out;
  out.body.resize(max_body_bytes);
  slice_writer writer;
  REQUIRE(writer.start(out.body, kind, what));
  for (const segment& one : segments) REQUIRE(writer.add(one.offset, one.bytes));
  out.bytes = writer.bytes();
  CHECK(writer.segment_count() == segments.size());
  size_t size = 0;
  if (in_body) {
    REQUIRE(writer.fits_inline());
    const byte_room room = writer.finish_inline(size);
    CHECK(room.size() == out.bytes);
    std::fill(room.begin(), room.end(), std::byte{0xDA});
  } else {
    size = writer.finish();
  }
  out.body.resize(size);
  return out;
}

std::string refusal(message_kind kind, const slice& what) {
  byte_vector room(max_body_bytes);
  slice_writer writer;
  const auto got = writer.start(room, kind, what);
  return got ? "" : got.error().text;
}

template <class Got>
std::string text_of(const Got& got) {
  if (got) return "";
  CHECK(got.error().status == MORI_E_PROTOCOL);
  return got.error().text;
}

byte_vector exact(byte_room room, size_t size) {
  REQUIRE(size > 0);
  return {room.begin(), room.begin() + static_cast<ptrdiff_t>(size)};
}

template <class What>
byte_vector body_of(const What& what) {
  byte_vector room(max_body_bytes);
  return exact(room, encode(room, what));
}

// Every shorter body and a longer one are refused; every room that is too small too.
template <class Decode, class Encode>
void check_sizes(const byte_vector& body, Decode decode, Encode encode_into) {
  for (size_t size = 0; size < body.size(); ++size) {
    CHECK_MESSAGE(!decode(byte_span(body).first(size)), size, " bytes");
    byte_vector room(size);
    CHECK(encode_into(byte_room(room)) == 0);
  }
  byte_vector longer = body;
  longer.push_back({});
  CHECK(!decode(byte_span(longer)));
  byte_vector room(body.size());
  CHECK(encode_into(byte_room(room)) == body.size());
  CHECK(room == body);
}

}  // namespace

TEST_CASE("slices come back as they were written") {
  const std::vector<segment> segments = {{0, 100}, {UINT64_MAX - 150, 150}, {4096, 50}};
  const std::string note = "metadata";
  for (const auto kind : slice_kinds) {
    slice what = sample(kind);
    what.metadata = mori::link::as_bytes(note);
    const bool has_segments = kind != message_kind::notify;
    for (const bool in_body : {false, true}) {
      if (in_body && kind != message_kind::write) continue;
      const encoded out =
          encode_slice(kind, what, has_segments ? segments : std::vector<segment>{}, in_body);
      const bool behind = kind == message_kind::write && !in_body;
      const auto got = decode_slice(kind, out.body, behind ? 300 : 0);
      REQUIRE_MESSAGE(got, name_of(kind), ": ", got.error().text);
      CHECK(got->capability == what.capability);
      CHECK(got->region == what.region);
      CHECK(got->operation == what.operation);
      CHECK(got->flags == what.flags);
      CHECK(got->sequence == what.sequence);
      CHECK(got->floor == what.floor);
      CHECK(got->uid == what.uid);
      CHECK(got->total_bytes == what.total_bytes);
      CHECK(got->slice_index == 0);
      CHECK(got->slice_count == 1);
      CHECK(as_text(got->metadata) == note);
      CHECK(got->bytes == (has_segments ? 300 : 0));
      CHECK(got->payload_inline.size() == (in_body ? 300 : 0));
      REQUIRE(got->segments.size() == (has_segments ? 3 : 0));
      for (size_t i = 0; i < got->segments.size(); ++i) {
        CHECK(got->segments[i].offset == segments[i].offset);
        CHECK(got->segments[i].bytes == segments[i].bytes);
      }
      for (size_t size = 0; size < out.body.size(); ++size)
        CHECK(!decode_slice(kind, byte_span(out.body).first(size), behind ? 300 : 0));
      byte_vector longer = out.body;
      longer.push_back({});
      CHECK(!decode_slice(kind, longer, behind ? 300 : 0));
    }
  }
}

TEST_CASE("a slice of zero bytes, and of the most segments, metadata and inline bytes at once") {
  slice what = sample(message_kind::write);
  what.total_bytes = 0;
  const encoded empty = encode_slice(message_kind::write, what, {});
  CHECK(decode_slice(message_kind::write, empty.body, 0)->segments.size() == 0);

  const byte_vector note(max_metadata_bytes, std::byte{1});
  what.metadata = note;
  what.total_bytes = max_inline_bytes;
  byte_vector room(max_body_bytes);
  slice_writer writer;
  REQUIRE(writer.start(room, message_kind::write, what));
  CHECK(writer.add(1, 0));  // nothing to write down
  CHECK(writer.segment_count() == 0);
  for (size_t i = 0; i < max_segments; ++i)
    CHECK(writer.add(i * 100, max_inline_bytes / max_segments));
  CHECK(!writer.add(0, 1));
  CHECK(writer.bytes() == max_inline_bytes);
  CHECK(writer.fits_inline());
  size_t size = 0;
  CHECK(writer.finish_inline(size).size() == max_inline_bytes);
  const auto got = decode_slice(message_kind::write, byte_span(room).first(size), 0);
  REQUIRE(got);
  CHECK(got->segments.size() == max_segments);
  CHECK(got->metadata.size() == max_metadata_bytes);
  CHECK(got->payload_inline.size() == max_inline_bytes);
}

TEST_CASE("a writer says when a slice is full") {
  byte_vector room(max_body_bytes);
  slice what = sample(message_kind::write);
  what.total_bytes = UINT64_MAX;
  what.slice_count = 2;
  slice_writer writer;
  REQUIRE(writer.start(room, message_kind::write, what));
  CHECK(writer.add(0, max_payload_bytes - 1));
  CHECK(!writer.add(0, 2));
  CHECK(writer.add(0, 1));
  CHECK(!writer.add(0, 1));
  CHECK(!writer.fits_inline());
  size_t size = 1;
  CHECK(writer.finish_inline(size).empty());
  CHECK(size == 0);
  CHECK(
      decode_slice(message_kind::write, byte_span(room).first(writer.finish()), max_payload_bytes));

  REQUIRE(writer.start(room, message_kind::write, what));
  CHECK(writer.add(UINT64_MAX - 9, 9));
  CHECK(!writer.add(UINT64_MAX - 9, 10));
  REQUIRE(writer.start(room, message_kind::write, what));
  CHECK(writer.add(0, max_inline_bytes));
  CHECK(writer.fits_inline());
  CHECK(writer.add(0, 1));
  CHECK(!writer.fits_inline());

  // Room that ends anywhere: no byte behind it is written.
  const byte_vector note(10, std::byte{9});
  what.metadata = note;
  for (size_t bytes = 0; bytes < 140; ++bytes) {
    byte_vector small(bytes + 1, std::byte{0x77});
    if (!writer.start(byte_room(small).first(bytes), message_kind::write, what)) {
      CHECK(bytes < 78);
      continue;
    }
    CHECK(bytes >= 78);
    size_t added = 0;
    while (writer.add(0, 1)) ++added;
    CHECK(added == (bytes - 78) / segment_bytes);
    CHECK(writer.finish() <= bytes);
    CHECK(small[bytes] == std::byte{0x77});
  }
  REQUIRE(writer.start(room, message_kind::notify, sample(message_kind::notify)));
  CHECK(!writer.add(0, 1));
}

TEST_CASE("a slice's fields are checked by writer and reader alike") {
  const auto both = [](message_kind kind, auto change) {
    slice what = sample(kind);
    what.total_bytes = 0;
    const encoded good = encode_slice(kind, what, {});
    change(what);
    const std::string written = refusal(kind, what);
    // The reader sees the same field in bytes that no writer of ours makes.
    byte_vector body = good.body;
    const auto put = [&](size_t at, const auto& value) {
      std::memcpy(body.data() + at, &value, sizeof value);
    };
    put(16, what.sequence), put(24, what.floor), put(40, what.total_bytes);
    put(52, what.slice_index), put(56, what.slice_count);
    put(66, what.operation), put(67, what.flags);
    const std::string read = text_of(decode_slice(kind, body, 0));
    CHECK(written == read);
    return read;
  };
  for (const auto kind : slice_kinds) CHECK(both(kind, [](slice&) {}) == "");
  const auto write = message_kind::write;
  CHECK(both(write, [](slice& s) { s.operation = 1; }) == "write message: operation 1");
  CHECK(both(message_kind::read, [](slice& s) { s.operation = 2; }) == "read message: operation 2");
  CHECK(both(message_kind::notify, [](slice& s) { s.operation = 3; }) ==
        "notify message: operation 3");
  CHECK(both(message_kind::notify, [](slice& s) { s.operation = 1; }) == "");
  CHECK(both(write, [](slice& s) { s.flags = 8; }) == "write message: flags 0x8, known are 0x7");
  CHECK(both(write, [](slice& s) { s.floor = 0; }) ==
        "write message: sequence 7696581394432 with floor 0, allowed are 1 .. the sequence");
  CHECK(both(write, [](slice& s) { s.sequence = s.floor = 1; }) == "");
  CHECK(both(write, [](slice& s) { s.sequence = 4; }) ==
        "write message: sequence 4 with floor 5, allowed are 1 .. the sequence");
  CHECK(both(write, [](slice& s) { s.slice_count = 0; }) ==
        "write message: 0 slices, allowed are 1 .. 16777216");
  CHECK(both(write, [](slice& s) { s.slice_count = max_slices; }) == "");
  CHECK(both(write, [](slice& s) { s.slice_count = max_slices + 1; }) ==
        "write message: 16777217 slices, allowed are 1 .. 16777216");
  CHECK(both(message_kind::notify, [](slice& s) { s.slice_count = 2; }) ==
        "notify message: 2 slices, allowed are 1 .. 1");
  CHECK(both(write, [](slice& s) { s.slice_index = 1; }) == "write message: slice 1 of 1");

  slice what = sample(write);
  const byte_vector note(max_metadata_bytes + 1);
  what.metadata = note;
  CHECK(refusal(write, what) == "write message: metadata of 1025 bytes, the limit is 1024");
  what.metadata = byte_span(note).first(1);
  what.slice_count = 2, what.slice_index = 1;
  CHECK(refusal(write, what) == "write message: metadata with slice 1, it comes with slice 0");
}

TEST_CASE("a slice's amounts must agree with each other and with the frame") {
  const auto write = message_kind::write;
  slice what = sample(write);
  const encoded out = encode_slice(write, what, {{0, 300}});
  CHECK(decode_slice(write, out.body, 300));
  CHECK(text_of(decode_slice(write, out.body, 299)) ==
        "write message: 299 bytes for segments of 300");
  CHECK(text_of(decode_slice(write, out.body, 0)) == "write message: 0 bytes for segments of 300");
  const encoded in_body = encode_slice(write, what, {{0, 300}}, true);
  CHECK(text_of(decode_slice(write, in_body.body, 300)) ==
        "write message: 300 bytes in the body and 300 behind it");
  what.total_bytes = 301;
  CHECK(text_of(decode_slice(write, encode_slice(write, what, {{0, 300}}).body, 300)) ==
        "write message: slice 0 of 1 has 300 bytes of 301");
  what.slice_count = 2;
  CHECK(decode_slice(write, encode_slice(write, what, {{0, 300}}).body, 300));
  what.total_bytes = 299;
  CHECK(text_of(decode_slice(write, encode_slice(write, what, {{0, 300}}).body, 300)) ==
        "write message: slice 0 of 2 has 300 bytes of 299");
  const slice asks = sample(message_kind::read);
  CHECK(text_of(decode_slice(message_kind::read,
                             encode_slice(message_kind::read, asks, {{0, 300}}).body, 1)) ==
        "read message: a payload of 1 bytes, it has none");

  // Segments that no writer makes.
  const auto with_segment = [&](uint64_t offset, uint32_t bytes, uint32_t payload) {
    byte_vector body = out.body;
    std::memcpy(body.data() + 68, &offset, 8);
    std::memcpy(body.data() + 76, &bytes, 4);
    return text_of(decode_slice(write, body, payload));
  };
  CHECK(with_segment(0, 0, 0) == "write message: segment 0 is of 0 bytes at offset 0");
  CHECK(with_segment(UINT64_MAX, 300, 300) ==
        "write message: segment 0 is of 300 bytes at offset 18446744073709551615");
  CHECK(with_segment(0, max_payload_bytes + 1, 300) ==
        "write message: a slice of 67108865 bytes, the limit is 67108864");
  const auto with_counts = [&](uint16_t segments, uint16_t metadata, uint16_t inline_bytes) {
    byte_vector body = out.body;
    std::memcpy(body.data() + 60, &segments, 2);
    std::memcpy(body.data() + 62, &metadata, 2);
    std::memcpy(body.data() + 64, &inline_bytes, 2);
    return text_of(decode_slice(write, body, 300));
  };
  CHECK(with_counts(1, 0, 0) == "");
  CHECK(with_counts(max_segments + 1, 0, 0) == "write message: 1025 segments, the limit is 1024");
  CHECK(with_counts(1, max_metadata_bytes + 1, 0) ==
        "write message: metadata of 1025 bytes, the limit is 1024");
  CHECK(with_counts(1, 0, max_inline_bytes + 1) ==
        "write message: 16385 bytes in the body, the limit is 16384");
  CHECK(with_counts(2, 0, 0) == "write message: 80 bytes, it has 92");
}

TEST_CASE("every single-byte change of a slice is refused or stays within limits") {
  const std::string note = "note";
  for (const auto kind : slice_kinds) {
    slice what = sample(kind);
    what.metadata = mori::link::as_bytes(note);
    const bool has_segments = kind != message_kind::notify;
    const encoded out = encode_slice(
        kind, what,
        has_segments ? std::vector<segment>{{0, 100}, {512, 200}} : std::vector<segment>{});
    const uint32_t payload = kind == message_kind::write ? 300 : 0;
    for (size_t i = 0; i < out.body.size(); ++i)
      for (int value = 0; value < 256; ++value) {
        byte_vector body = out.body;
        body[i] = static_cast<std::byte>(value);
        const auto got = decode_slice(kind, body, payload);
        if (!got) continue;
        uint64_t sum = 0;
        for (size_t s = 0; s < got->segments.size(); ++s) sum += got->segments[s].bytes;
        CHECK(sum == got->bytes);
        if (kind == message_kind::write) CHECK(sum == payload);
        CHECK(sum <= got->total_bytes);
        CHECK(got->slice_index < got->slice_count);
        CHECK(got->metadata.size() <= max_metadata_bytes);
      }
  }
}

TEST_CASE("data, in the body or behind it") {
  const std::string bytes = "some bytes";
  data what{uint64_t{3} << 50, 7, 4096, 10, {}};
  const auto same = [&](const data& got) {
    CHECK(got.sequence == what.sequence);
    CHECK(got.slice_index == 7);
    CHECK(got.offset == 4096);
    CHECK(got.bytes == 10);
  };
  byte_vector body = body_of(what);
  same(*decode_data(body, 10));
  CHECK(text_of(decode_data(body, 9)) == "data message: 9 bytes, it says 10");
  CHECK(text_of(decode_data(body, 0)) == "data message: 0 bytes, it says 10");
  what.payload_inline = mori::link::as_bytes(bytes);
  body = body_of(what);
  same(*decode_data(body, 0));
  CHECK(as_text(decode_data(body, 0)->payload_inline) == bytes);
  CHECK(text_of(decode_data(body, 10)) == "data message: 10 bytes in the body and 10 behind it");
  check_sizes(
      body, [](byte_span b) { return decode_data(b, 0); },
      [&](byte_room room) { return encode(room, what); });

  byte_vector room(max_body_bytes);
  byte_room here;
  what.payload_inline = {};
  what.bytes = max_inline_bytes;
  const size_t size = encode(room, what, &here);
  CHECK(here.size() == max_inline_bytes);
  CHECK(here.data() + here.size() == room.data() + size);
  CHECK(decode_data(byte_span(room).first(size), 0));
  what.bytes = max_inline_bytes + 1;
  CHECK(encode(room, what, &here) == 0);
  what.bytes = 3;  // not what is there
  what.payload_inline = mori::link::as_bytes(bytes);
  CHECK(encode(room, what) == 0);

  what = {1, max_slices, 0, 1, {}};
  CHECK(text_of(decode_data(body_of(what), 1)) ==
        "data message: slice 16777216, the limit is 16777216");
  what = {1, 0, max_payload_bytes, 1, {}};
  CHECK(text_of(decode_data(body_of(what), 1)) ==
        "data message: 1 bytes at offset 67108864 of a slice, its limit is 67108864");
  what.offset = max_payload_bytes - 1;
  CHECK(decode_data(body_of(what), 1));
}

TEST_CASE("outcomes, one to the most") {
  for (const size_t count : {size_t{1}, size_t{2}, max_acks}) {
    std::vector<outcome> all(count);
    for (size_t i = 0; i < count; ++i) {
      all[i] = {i << 33, static_cast<mori_status>(i % (MORI_E_INTERNAL + 1))};
    }
    byte_vector room(max_body_bytes);
    const byte_vector acks = exact(room, encode_ack(room, all));
    const auto got = decode_ack(acks);
    REQUIRE(got);
    REQUIRE(got->size() == count);
    for (size_t i = 0; i < count; ++i) {
      CHECK((*got)[i].sequence == all[i].sequence);
      CHECK((*got)[i].status == all[i].status);
    }
    for (size_t cut = 1; cut < outcome_bytes; ++cut)
      CHECK(!decode_ack(byte_span(acks).first(acks.size() - cut)));
    byte_vector small(acks.size() - 1);
    CHECK(encode_ack(small, all) == 0);
  }
  byte_vector room(max_body_bytes);
  CHECK(encode_ack(room, {}) == 0);
  CHECK(encode_ack(room, std::vector<outcome>(max_acks + 1)) == 0);
  CHECK(text_of(decode_ack({})) == "ack message: 0 bytes, allowed are 1 .. 1024 entries of 12");
  CHECK(text_of(decode_ack(byte_vector((max_acks + 1) * 12))) ==
        "ack message: 12300 bytes, allowed are 1 .. 1024 entries of 12");
  // What this library does not know is a failure, never a success.
  for (const mori_status unknown : {-1, MORI_E_INTERNAL + 1, INT32_MAX, INT32_MIN}) {
    const outcome odd[] = {{1, unknown}};
    const byte_vector body = exact(room, encode_ack(room, odd));
    CHECK((*decode_ack(body))[0].status == MORI_E_INTERNAL);
  }
}

TEST_CASE("resume and its answer") {
  const resume asked{9, 5, 70000};
  const byte_vector body = body_of(asked);
  const auto got = decode_resume(body);
  REQUIRE(got);
  CHECK(got->generation == 9);
  CHECK(got->floor == 5);
  CHECK(got->next == 70000);
  check_sizes(
      body, [](byte_span b) { return decode_resume(b); },
      [&](byte_room room) { return encode(room, asked); });
  CHECK(text_of(decode_resume(body_of(resume{9, 6, 5}))) == "resume message: floor 6, next 5");
  CHECK(text_of(decode_resume(body_of(resume{9, 0, 5}))) == "resume message: floor 0, next 5");
  CHECK(decode_resume(body_of(resume{9, 5, 5})));

  std::array<std::byte, 2> bits = {std::byte{0x81}, std::byte{0x02}};
  const outcome failures[] = {{103, MORI_E_NOT_FOUND}, {108, MORI_E_INVALID}};
  resume_answer answer{9, 100, 10, false, bits, {}};
  byte_vector room(max_body_bytes);
  const byte_vector said = exact(room, encode(room, answer, failures));
  const auto heard = decode_resume_answer(said);
  REQUIRE(heard);
  CHECK(heard->generation == 9);
  CHECK(heard->base == 100);
  CHECK(heard->count == 10);
  CHECK(!heard->last);
  REQUIRE(heard->failures.size() == 2);
  CHECK(heard->failures[1].sequence == 108);
  CHECK(heard->failures[1].status == MORI_E_INVALID);
  for (uint64_t sequence = 98; sequence < 112; ++sequence)
    CHECK(heard->is_delivered(sequence) == (sequence == 100 || sequence == 107 || sequence == 109));
  check_sizes(
      said, [](byte_span b) { return decode_resume_answer(b); },
      [&](byte_room r) { return encode(r, answer, failures); });
}

TEST_CASE("limits of a resume answer") {
  byte_vector room(max_body_bytes);
  byte_vector bits(max_resume_bits / 8, std::byte{0xFF});
  resume_answer answer{1, UINT64_MAX - max_resume_bits, max_resume_bits, true, bits, {}};
  const byte_vector most = exact(room, encode(room, answer, {}));
  CHECK(decode_resume_answer(most)->is_delivered(UINT64_MAX - 1));
  answer.base += 1;
  CHECK(text_of(decode_resume_answer(exact(room, encode(room, answer, {})))) ==
        "resume answer message: 131072 sequences from 18446744073709420544, the limit is 131072");
  bits.push_back(std::byte{0xFF});
  answer = {1, 0, max_resume_bits + 1, true, bits, {}};
  CHECK(encode(room, answer, {}) == 0);
  CHECK(encode(room, resume_answer{1, 0, 9, true, byte_span(bits).first(1), {}}, {}) == 0);
  const std::vector<outcome> many(max_resume_failures + 1, {1, MORI_E_INVALID});
  bits.assign(128, std::byte{0});
  answer = {1, 1, 1024, true, bits, {}};
  CHECK(encode(room, answer, many) == 0);
  CHECK(decode_resume_answer(
      exact(room, encode(room, answer, std::span(many).first(max_resume_failures)))));

  std::array<std::byte, 1> one = {std::byte{0x01}};
  const resume_answer small{1, 50, 3, true, one, {}};
  const auto with_failure = [&](uint64_t sequence, mori_status status) {
    const outcome failure[] = {{sequence, status}};
    return text_of(decode_resume_answer(exact(room, encode(room, small, failure))));
  };
  CHECK(with_failure(51, MORI_E_INVALID) == "");
  CHECK(with_failure(52, -5) == "");
  CHECK(with_failure(50, MORI_E_INVALID) ==
        "resume answer message: sequence 50 failed with status 1");
  CHECK(with_failure(51, MORI_OK) == "resume answer message: sequence 51 failed with status 0");
  CHECK(with_failure(49, MORI_E_INVALID) ==
        "resume answer message: sequence 49 failed with status 1");
  CHECK(with_failure(53, MORI_E_INVALID) ==
        "resume answer message: sequence 53 failed with status 1");
  byte_vector body = exact(room, encode(room, small, {}));
  body.back() = std::byte{0x08};
  CHECK(text_of(decode_resume_answer(body)) == "resume answer message: bits beyond the last of 3");
  body.back() = std::byte{0x04};
  CHECK(decode_resume_answer(body));
  body[22] = std::byte{2};
  CHECK(text_of(decode_resume_answer(body)) == "resume answer message: flags 2 and 0");
  body[22] = std::byte{0}, body[23] = std::byte{1};
  CHECK(text_of(decode_resume_answer(body)) == "resume answer message: flags 0 and 1");
  CHECK(decode_resume_answer(exact(room, encode(room, resume_answer{}, {}))));
}

TEST_CASE("the small messages") {
  const heartbeat beat{true, 3, 9, 0xABCDEF0123456789};
  byte_vector body = body_of(beat);
  const auto got = decode_heartbeat(body);
  REQUIRE(got);
  CHECK(got->wants_answer);
  CHECK(got->floor == 3);
  CHECK(got->next == 9);
  CHECK(got->stamp == 0xABCDEF0123456789);
  check_sizes(
      body, [](byte_span b) { return decode_heartbeat(b); },
      [&](byte_room room) { return encode(room, beat); });
  body.back() = std::byte{2};
  CHECK(text_of(decode_heartbeat(body)) == "heartbeat message: flags 2");
  CHECK(text_of(decode_heartbeat(body_of(heartbeat{false, 4, 3, 0}))) ==
        "heartbeat message: floor 4, next 3");

  byte_vector room(max_body_bytes);
  body = exact(room, encode_cancel(room, UINT64_MAX - 3));
  CHECK(*decode_cancel(body) == UINT64_MAX - 3);
  check_sizes(
      body, [](byte_span b) { return decode_cancel(b); },
      [&](byte_room r) { return encode_cancel(r, UINT64_MAX - 3); });
  body = exact(room, encode_revoke(room, 0xFEDCBA98));
  CHECK(*decode_revoke(body) == 0xFEDCBA98);
  check_sizes(
      body, [](byte_span b) { return decode_revoke(b); },
      [&](byte_room r) { return encode_revoke(r, 0xFEDCBA98); });
  attach asked{.region = 0xFEDCBA98, .operation = 2};
  asked.capability.fill(0x3C);
  body = exact(room, encode(room, asked));
  CHECK(decode_attach(body)->region == 0xFEDCBA98);
  CHECK(decode_attach(body)->capability == asked.capability);
  CHECK(decode_attach(body)->operation == 2);
  check_sizes(
      body, [](byte_span b) { return decode_attach(b); },
      [&](byte_room r) { return encode(r, asked); });
  body[20] = std::byte{0};
  CHECK(text_of(decode_attach(body)) == "attach message: operation 0");
  body[20] = std::byte{3};
  CHECK(text_of(decode_attach(body)) == "attach message: operation 3");

  const auto answered = [&](cancel_outcome how, mori_status status) {
    return decode_cancel_answer(body_of(cancel_answer{7, how, status}));
  };
  CHECK(answered(cancel_outcome::cancelled, MORI_OK)->outcome == cancel_outcome::cancelled);
  CHECK(answered(cancel_outcome::delivered, MORI_OK)->sequence == 7);
  CHECK(answered(cancel_outcome::failed, MORI_E_INVALID)->status == MORI_E_INVALID);
  CHECK(answered(cancel_outcome::failed, 999)->status == MORI_E_INTERNAL);
  CHECK(text_of(answered(cancel_outcome::failed, MORI_OK)) ==
        "cancel answer message: outcome 3 with status 0");
  CHECK(text_of(answered(cancel_outcome::delivered, MORI_E_INVALID)) ==
        "cancel answer message: outcome 2 with status 1");
  CHECK(text_of(answered(static_cast<cancel_outcome>(0), MORI_OK)) ==
        "cancel answer message: outcome 0, allowed are 1 .. 3");
  CHECK(text_of(answered(static_cast<cancel_outcome>(4), MORI_OK)) ==
        "cancel answer message: outcome 4, allowed are 1 .. 3");
  check_sizes(
      body_of(cancel_answer{7, cancel_outcome::cancelled, MORI_OK}),
      [](byte_span b) { return decode_cancel_answer(b); },
      [&](byte_room r) { return encode(r, cancel_answer{7, cancel_outcome::cancelled, MORI_OK}); });
}

TEST_CASE("errors carry text up to a limit, cut between characters") {
  const error_message what{12, MORI_E_NOT_FOUND, "region 4 is not registered"};
  const byte_vector body = body_of(what);
  const auto got = decode_error(body);
  REQUIRE(got);
  CHECK(got->sequence == 12);
  CHECK(got->status == MORI_E_NOT_FOUND);
  CHECK(got->text == what.text);
  check_sizes(
      body, [](byte_span b) { return decode_error(b); },
      [&](byte_room room) { return encode(room, what); });
  const std::string longest(max_text_bytes, 'x');
  CHECK(decode_error(body_of(error_message{0, MORI_E_OS, longest}))->text == longest);
  CHECK(decode_error(body_of(error_message{0, MORI_E_OS, longest + "y"}))->text == longest);
  const std::string two = longest.substr(1) + "\u00e9";
  CHECK(decode_error(body_of(error_message{0, MORI_E_OS, two}))->text == longest.substr(1));
  byte_vector over(14 + max_text_bytes + 1);
  const uint16_t size = max_text_bytes + 1;
  std::memcpy(over.data() + 12, &size, 2);
  CHECK(text_of(decode_error(over)) == "error message: text of 240 bytes, the limit is 239");

  byte_vector room(64);
  const byte_vector bye = exact(room, encode_goodbye(room, MORI_OK, "closing"));
  CHECK(decode_error(bye)->text == "closing");
  CHECK(decode_error(bye)->sequence == 0);
}

TEST_CASE("kinds, and which of them have a mask and a payload") {
  for (int number = 0; number < 256; ++number) {
    const auto kind = static_cast<message_kind>(number);
    const bool known = number >= 1 && number <= last_message_kind;
    const bool masked = kind == message_kind::write || kind == message_kind::read ||
                        kind == message_kind::notify || kind == message_kind::attach;
    const bool payload = kind == message_kind::write || kind == message_kind::data;
    const uint8_t flags = masked ? frame_masked : 0;
    const auto byte = static_cast<uint8_t>(number);
    CHECK(static_cast<bool>(decode_kind(byte, flags, 0)) == known);
    CHECK(static_cast<bool>(decode_kind(byte, flags ^ frame_masked, 0)) == false);
    CHECK(static_cast<bool>(decode_kind(byte, flags, 1)) == (known && payload));
    CHECK((std::string(name_of(kind)) != "?") == known);
  }
  CHECK(text_of(decode_kind(17, 0, 0)) == "message kind 17, known are 1 .. 16");
  CHECK(text_of(decode_kind(4, 0, 5)) == "ack message: a payload of 5 bytes, it has none");
  CHECK(text_of(decode_kind(1, 0, 0)) == "write message: flags 0x0, not 0x80");
}
