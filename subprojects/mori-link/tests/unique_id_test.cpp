// Unique ids: round trip, damage, and the sockets that wait for them.
#include <mori/link/unique_id.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "bootstrap/identity.hpp"
#include "wire/keyed_hash.hpp"

namespace base = mori::base;
using namespace mori::link;

namespace {

// Gives an id that was changed on purpose a matching checksum.
unique_id resealed(unique_id id) {
  std::array<uint8_t, 16> hash{};
  const byte_span body = std::as_bytes(std::span(id.bytes)).first(120);
  keyed_hash({}, "mori-link id", {&body, 1}, hash);
  std::copy_n(hash.begin(), 8, id.bytes.begin() + 120);
  return id;
}

}  // namespace

TEST_CASE("an id says where its maker listens, loopback last") {
  const auto id = make_unique_id();
  REQUIRE(id);
  const auto what = decode_identity(*id);
  REQUIRE(what);
  REQUIRE(!what->addresses.empty());
  CHECK(what->addresses.size() <= tcp::max_addresses);
  CHECK(what->addresses[0].port != 0);
  CHECK(what->secret != std::array<uint8_t, 32>{});
  const tcp::address& last = what->addresses.back();
  CHECK((last.family == 4 ? last.bytes[0] == 127 : last.bytes[15] == 1));
  CHECK(encode_identity(*what).bytes == id->bytes);
  const base::unique_fd listener = take_listener(*id);
  CHECK(listener);
  CHECK(!take_listener(*id));  // once
}

TEST_CASE("ids differ in everything that matters") {
  std::set<std::array<uint8_t, 128>> seen;
  std::set<uint64_t> jobs;
  for (int i = 0; i < 10; ++i) {
    const auto id = make_unique_id();
    REQUIRE(id);
    seen.insert(id->bytes);
    jobs.insert(decode_identity(*id)->job);
    CHECK(take_listener(*id));
  }
  CHECK(seen.size() == 10);
  CHECK(jobs.size() == 10);
}

TEST_CASE("damage to any byte is an error that says what is wrong") {
  identity what;
  what.secret.fill(3);
  what.job = 42;
  what.addresses = {{4, {127, 0, 0, 1}, 700}, {6, {0x20, 1}, 700}};
  const unique_id id = encode_identity(what);
  REQUIRE(decode_identity(id));
  CHECK(decode_identity(id)->addresses == what.addresses);
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    unique_id damaged = id;
    damaged.bytes[i] ^= 0x20;
    const auto refused = decode_identity(damaged);
    REQUIRE_MESSAGE(!refused, "byte ", i);
    CHECK(refused.error().status == MORI_E_INVALID);
    CHECK(refused.error().text == (i < 7
                                       ? "the unique id does not begin with 'MORI-ID': no unique id"
                                       : "the unique id is damaged: its checksum does not match"));
  }
  CHECK(decode_identity(unique_id{}).error().text == "the unique id is all zero: nobody made it");
}

TEST_CASE("a sealed id with impossible contents is refused too") {
  identity what;
  what.addresses = {{4, {127, 0, 0, 1}, 700}};
  unique_id newer = encode_identity(what);
  newer.bytes[7] = 2;
  CHECK(decode_identity(resealed(newer)).error().status == MORI_E_VERSION);
  CHECK(decode_identity(resealed(newer)).error().text ==
        "the unique id has format 2, this library knows 1");
  unique_id nowhere = encode_identity(what);
  nowhere.bytes[50] = 0;
  CHECK(decode_identity(resealed(nowhere)).error().status == MORI_E_INVALID);
  nowhere.bytes[50] = 5;
  CHECK(decode_identity(resealed(nowhere)).error().status == MORI_E_INVALID);
  unique_id family = encode_identity(what);
  family.bytes[52] = 7;
  CHECK(decode_identity(resealed(family)).error().text ==
        "address 0 of the unique id has family 7, neither 4 nor 6");
}

TEST_CASE("unused ids beyond the bound void the oldest") {
  std::vector<unique_id> ids;
  for (size_t i = 0; i < max_waiting_listeners + 2; ++i) {
    const auto id = make_unique_id();
    REQUIRE(id);
    ids.push_back(*id);
  }
  CHECK(!take_listener(ids[0]));
  CHECK(!take_listener(ids[1]));
  for (size_t i = 2; i < ids.size(); ++i) CHECK(take_listener(ids[i]));
}

TEST_CASE("MORI_SOCKET_IFNAME selects the interface or says that it is not there") {
  ::setenv("MORI_SOCKET_IFNAME", "lo", 1);
  const auto loopback = tcp::host_addresses();
  REQUIRE(loopback);
  for (const tcp::address& a : *loopback)
    CHECK((a.family == 4 ? a.bytes[0] == 127 : a.bytes[15] == 1));
  ::setenv("MORI_SOCKET_IFNAME", "nosuch0", 1);
  const auto none = make_unique_id();
  REQUIRE(!none);
  CHECK(none.error().status == MORI_E_NOT_FOUND);
  CHECK(none.error().text ==
        "MORI_SOCKET_IFNAME='nosuch0': no such interface is up with an address");
  ::unsetenv("MORI_SOCKET_IFNAME");
}

TEST_CASE("addresses print the way people write them") {
  CHECK(tcp::address{4, {192, 0, 2, 1}, 80}.text() == "192.0.2.1:80");
  CHECK(tcp::address{6, {0x20, 0x01, 0x0d, 0xb8}, 443}.text() == "[2001:db8::]:443");
}
