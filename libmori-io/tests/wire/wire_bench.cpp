// wire_bench.cpp - what the wire layer costs on this machine: a handshake, a
// small frame sealed and opened, and payload bytes per second in each mode.
// Built with the tests, run by hand:  build/.../io_wire_bench
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "samples.hpp"
#include "wire/message.hpp"

using namespace mori::io_core::wire;
using mori::link::byte_vector;

namespace {

using clock_type = std::chrono::steady_clock;

// The best of seven rounds: nanoseconds of one call.
template <class Body>
double best_ns(size_t calls, Body body) {
  double best = 1e18;
  for (int round = 0; round < 7; ++round) {
    const auto start = clock_type::now();
    for (size_t i = 0; i < calls; ++i) body();
    const std::chrono::duration<double, std::nano> spent = clock_type::now() - start;
    best = std::min(best, spent.count() / static_cast<double>(calls));
  }
  return best;
}

void say(std::string_view what, double value, std::string_view unit) {
  std::fputs(fmt::format("{:<58} {:>10.2f} {}\n", what, value, unit).c_str(), stdout);
}

size_t write_slice(byte_room body, size_t segments, uint32_t bytes, bool in_body) {
  slice what;
  what.operation = 2;
  what.sequence = what.floor = 1;
  what.total_bytes = segments * bytes;
  slice_writer writer;
  if (!writer.start(body, message_kind::write, what)) return 0;
  for (size_t i = 0; i < segments; ++i) (void)writer.add(i * 2 * bytes, bytes);
  size_t size = 0;
  if (!in_body) return writer.finish();
  const byte_room room = writer.finish_inline(size);
  std::fill(room.begin(), room.end(), std::byte{7});
  return size;
}

void measure_frame(security_mode mode, size_t segments, uint32_t bytes) {
  static byte_vector frame(max_frame_bytes);
  const secret_key key = samples::counting(1);
  sealer out(key, mode);
  opener in(key, mode);
  constexpr auto kind = message_kind::write;
  size_t size = 0;
  const double ns = best_ns(20000, [&] {
    size =
        write_slice(byte_room(frame).subspan(header_bytes, max_body_bytes), segments, bytes, true);
    const frame_head head{static_cast<uint32_t>(size), 0, static_cast<uint8_t>(kind),
                          frame_flags(kind)};
    out.seal(frame, head);
    const auto body = in.open(byte_room(frame).first(header_bytes + size + tag_bytes));
    if (!body || !decode_slice(kind, *body, 0)) size = 0;
  });
  say(fmt::format("write of {} x {} B in the body ({} B), both ends, {}", segments, bytes, size,
                  name_of(mode)),
      ns, "ns");
}

void measure_ack(security_mode mode) {
  static byte_vector frame(max_frame_bytes);
  const secret_key key = samples::counting(1);
  sealer out(key, mode);
  opener in(key, mode);
  const outcome done[] = {{1, MORI_OK}};
  const double ns = best_ns(20000, [&] {
    const size_t size = encode_ack(byte_room(frame).subspan(header_bytes), done);
    out.seal(frame, {static_cast<uint32_t>(size), 0, 4, 0});
    const auto body = in.open(byte_room(frame).first(header_bytes + size + tag_bytes));
    if (!body || !decode_ack(*body)) say("WRONG", 0, "");
  });
  say(fmt::format("ack of one, both ends, {}", name_of(mode)), ns, "ns");
}

void measure_payload(security_mode mode, uint32_t bytes) {
  static byte_vector payload(8u << 20), sent(8u << 20), frame(max_frame_bytes);
  const secret_key key = samples::counting(1);
  sealer out(key, mode);
  opener in(key, mode);
  std::array<std::byte, tag_bytes> tag{};
  constexpr size_t piece = 64 * 1024;  // about what one readv brings
  const auto each_piece = [&](auto body) {
    for (size_t at = 0; at < bytes; at += piece) body(at, std::min<size_t>(piece, bytes - at));
  };
  const size_t calls = std::max<size_t>(2, (16u << 20) / bytes);
  const auto rate = [&](double ns) { return static_cast<double>(bytes) / ns; };
  const double copied = best_ns(calls, [&] {
    out.seal(frame, {24, bytes, 1, 0});
    each_piece([&](size_t at, size_t size) {
      out.copy(byte_span(payload).subspan(at, size), sent.data() + at);
    });
    out.payload_tag(tag);
  });
  say(fmt::format("payload of {} B, sealed into a copy, {}", bytes, name_of(mode)), rate(copied),
      "GB/s");
  if (mode == security_mode::mac) {
    const double absorbed = best_ns(calls, [&] {
      out.seal(frame, {24, bytes, 1, 0});
      each_piece([&](size_t at, size_t size) { out.absorb(byte_span(payload).subspan(at, size)); });
      out.payload_tag(tag);
    });
    say(fmt::format("payload of {} B, sealed where it lies, {}", bytes, name_of(mode)),
        rate(absorbed), "GB/s");
  }
  sealer again(key, mode);
  const double both = best_ns(calls, [&] {
    const byte_span head = again.seal(frame, {24, bytes, 1, 0});
    each_piece([&](size_t at, size_t size) {
      again.copy(byte_span(payload).subspan(at, size), sent.data() + at);
    });
    again.payload_tag(tag);
    (void)in.open(byte_room(frame).first(head.size()));
    each_piece([&](size_t at, size_t size) { in.absorb(byte_room(sent).subspan(at, size)); });
    if (!in.payload_authentic(tag)) say("WRONG", 0, "");
  });
  say(fmt::format("payload of {} B, opened, {}", bytes, name_of(mode)), rate(both - copied),
      "GB/s");
}

void measure_handshake() {
  samples::ends e;
  e.fixed = false;
  say("handshake: initiator's hello", best_ns(200, [&] { (void)e.initiator().output(); }) / 1e3,
      "us");
  auto left = e.initiator();
  const byte_vector hello(left.output().begin(), left.output().end());
  byte_vector strange = hello;
  strange.back() ^= std::byte{1};
  say("handshake: target refuses a wrong stamp",
      best_ns(20000,
              [&] {
                auto right = e.responder();
                (void)right.on_bytes(strange);
              }) /
          1e3,
      "us");
  say("handshake: target opens a hello",
      best_ns(200,
              [&] {
                auto right = e.responder();
                (void)right.on_bytes(hello);
                (void)right.open();
              }) /
          1e3,
      "us");
  say("handshake: target opens and admits",
      best_ns(200,
              [&] {
                auto right = e.responder();
                (void)right.on_bytes(hello);
                (void)right.open();
                (void)right.admit();
              }) /
          1e3,
      "us");
  auto right = e.responder();
  (void)right.on_bytes(hello);
  (void)right.open();
  (void)right.admit();
  say("handshake: initiator checks the answer",
      best_ns(200,
              [&] {
                auto copy = left;
                (void)copy.on_bytes(right.output());
              }) /
          1e3,
      "us");
}

}  // namespace

int main() {
  measure_handshake();
  for (const auto mode : {security_mode::mac, security_mode::encrypt}) {
    measure_frame(mode, 1, 8);
    measure_frame(mode, 1, 4096);
    measure_frame(mode, 128, 8);
    measure_ack(mode);
    for (const uint32_t bytes : {4096u, 65536u, 1u << 20, 8u << 20}) measure_payload(mode, bytes);
  }
  return 0;
}
