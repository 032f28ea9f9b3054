// Handshake and frames against reference.py, a second implementation: the same
// keys must give the same bytes, in this release and in all that speak format 1.
#include <doctest/doctest.h>

#include "samples.hpp"
#include "vectors.hpp"

using namespace mori::io_core::wire;
using mori::link::byte_vector;

namespace {

std::string hex(byte_span bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return out;
}

std::string hex(const secret_key& key) { return hex(as_bytes(key.view())); }

struct direction_keys {
  secret_key forward, backward;
};

direction_keys shake_hands() {
  samples::ends e;
  auto left = e.initiator();
  auto right = e.responder();
  CHECK(hex(left.output()) == vectors::hello);
  REQUIRE(right.on_bytes(left.output()));
  REQUIRE(right.open());
  REQUIRE(right.admit());
  CHECK(hex(right.output()) == vectors::answer);
  REQUIRE(left.on_bytes(right.output()));
  CHECK(hex(left.output()) == vectors::confirmation);
  REQUIRE(right.on_bytes(left.output()));
  REQUIRE(right.done());
  CHECK(hex(left.agreed().sending) == hex(right.agreed().receiving));
  CHECK(hex(left.agreed().receiving) == hex(right.agreed().sending));
  return {left.agreed().sending, left.agreed().receiving};
}

// Frame `number` with the reference's body and payload, as it goes over the wire.
std::string sealed_frame(const secret_key& key, security_mode mode, uint32_t number) {
  sealer out(key, mode);
  byte_vector frame(header_bytes + 40 + tag_bytes);
  for (uint32_t i = 0; i < number; ++i) out.seal(frame, {0, 0, 1, 0});
  for (size_t i = 0; i < 40; ++i) frame[header_bytes + i] = static_cast<std::byte>(i);
  byte_vector payload(150);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  const std::string head = hex(out.seal(frame, {40, 150, 1, frame_masked}));
  out.copy(payload, payload.data());
  std::array<std::byte, tag_bytes> tag{};
  out.payload_tag(tag);
  return head + hex(payload) + hex(tag);
}

}  // namespace

TEST_CASE("the handshake's bytes and keys are the reference's") {
  const auto keys = shake_hands();
  CHECK(hex(keys.forward) == vectors::forward);
  CHECK(hex(keys.backward) == vectors::backward);
}

TEST_CASE("sealed frames are the reference's") {
  const auto keys = shake_hands();
  CHECK(sealed_frame(keys.forward, security_mode::mac, 0) == vectors::mac_frame_0);
  CHECK(sealed_frame(keys.forward, security_mode::mac, 33) == vectors::mac_frame_33);
  CHECK(sealed_frame(keys.backward, security_mode::encrypt, 0) == vectors::encrypted_frame_0);
  CHECK(sealed_frame(keys.backward, security_mode::encrypt, 33) == vectors::encrypted_frame_33);
}

TEST_CASE("the reference's own bytes are the ones that were recorded") {
  // Changes here are changes of the format: raise its number.
  std::array<uint8_t, 32> sum{};
  std::string all;
  for (const char* part : {vectors::hello, vectors::answer, vectors::confirmation, vectors::forward,
                           vectors::backward, vectors::mac_frame_0, vectors::mac_frame_33,
                           vectors::encrypted_frame_0, vectors::encrypted_frame_33})
    all += part;
  keyed_hash({}, "vectors", {mori::link::as_bytes(all)}, sum);
  CHECK(hex(as_bytes(std::span(sum))) ==
        "95b96aace95d84ed190a3103a681f30b85d7bac38b3b2a582c0aa468bf368f9f");
}
