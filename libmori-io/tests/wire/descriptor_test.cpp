// Descriptors as bytes: round trips, damage, newer writers, limits, and that no
// secret is in a text.
#include "wire/descriptor.hpp"

#include <doctest/doctest.h>

#include "samples.hpp"
#include "wire/codec.hpp"

namespace base = mori::base;
using namespace mori::io_core::wire;
using mori::link::byte_vector;

namespace {

// Changes bytes of a packed descriptor and makes its checksum and sizes right again.
template <class Change>
byte_vector repaired(byte_vector bytes, Change change) {
  bytes.resize(bytes.size() - 8);
  change(bytes);
  const auto body = static_cast<uint32_t>(bytes.size() - 12);
  std::memcpy(bytes.data() + 8, &body, 4);
  std::array<uint8_t, 16> sum{};
  keyed_hash({}, "mori-io descriptor", {bytes}, sum);
  const auto* begin = reinterpret_cast<const std::byte*>(sum.data());
  bytes.insert(bytes.end(), begin, begin + 8);
  return bytes;
}

std::string error_of(byte_span engine) {
  const auto got = unpack_engine(engine);
  return got ? "" : got.error().text;
}

template <class Desc>
std::string refusal(const Desc& what) {
  const auto got = pack(what);
  if (got) return "";
  CHECK(got.error().status == MORI_E_INVALID);
  return got.error().text;
}

}  // namespace

TEST_CASE("descriptors come back as they were packed") {
  CHECK(*unpack_engine(*pack(samples::engine())) == samples::engine());
  CHECK(*unpack_memory(*pack(samples::memory())) == samples::memory());
  engine_desc least;
  least.key = "k";
  CHECK(*unpack_engine(*pack(least)) == least);
  memory_desc small;
  small.engine_key = "k";
  small.address = UINT64_MAX - 1;
  small.size_bytes = 1;
  CHECK(*unpack_memory(*pack(small)) == small);

  engine_desc most = samples::engine();
  most.key = std::string(max_key_bytes, 'k');
  most.node_id = std::string(max_node_bytes, 'n');
  most.hostname = std::string(max_host_bytes, 'h');
  most.addresses.resize(max_desc_addresses);
  CHECK(*unpack_engine(*pack(most)) == most);
  memory_desc big = samples::memory();
  big.engine_key = std::string(max_key_bytes, 'k');
  big.device_bus_id = std::string(max_bus_id_bytes, 'b');
  big.blobs.clear();
  for (size_t i = 0; i < max_blobs; ++i)
    big.blobs.push_back({static_cast<blob_kind>(i), std::vector<uint8_t>(max_blob_bytes, 7)});
  const auto packed = pack(big);
  REQUIRE(packed);
  CHECK(packed->size() <= max_desc_bytes);
  CHECK(*unpack_memory(*packed) == big);
}

TEST_CASE("every truncation and every changed byte of a descriptor is noticed") {
  const byte_vector engine = *pack(samples::engine());
  const byte_vector memory = *pack(samples::memory());
  const auto check = [](const byte_vector& good, auto unpack) {
    for (size_t size = 0; size < good.size(); ++size) {
      const auto got = unpack(byte_span(good).first(size));
      REQUIRE_MESSAGE(!got, size, " bytes");
      CHECK(got.error().status == (size < 4 ? MORI_E_INVALID : MORI_E_PROTOCOL));
    }
    for (size_t i = 0; i < good.size(); ++i)
      for (const int change : {0x01, 0x80, 0xFF}) {
        byte_vector bad = good;
        bad[i] ^= static_cast<std::byte>(change);
        const auto got = unpack(bad);
        REQUIRE_MESSAGE(!got, "byte ", i);
        CHECK(got.error().status == (i < 4 ? MORI_E_INVALID : MORI_E_PROTOCOL));
      }
    byte_vector longer = good;
    longer.push_back({});
    CHECK(!unpack(longer));
    CHECK(unpack(good));
  };
  check(engine, [](byte_span bytes) { return unpack_engine(bytes); });
  check(memory, [](byte_span bytes) { return unpack_memory(bytes); });
}

TEST_CASE("what is no descriptor is named") {
  CHECK(error_of({}) == "the engine descriptor is empty");
  CHECK(error_of(mori::link::as_bytes("hello")) ==
        "no engine descriptor: it does not begin with 'MIOE'");
  CHECK(error_of(*pack(samples::memory())) ==
        "the engine descriptor is none: it is a memory descriptor");
  CHECK(unpack_memory(*pack(samples::engine())).error().text ==
        "the memory descriptor is none: it is an engine descriptor");
  byte_vector bad = *pack(samples::engine());
  bad.back() ^= std::byte{1};
  CHECK(error_of(bad) == "the engine descriptor is damaged: its checksum does not match");
  bad.resize(max_desc_bytes + 1);
  CHECK(error_of(bad) == "the engine descriptor is damaged: 32769 bytes, it has 20 .. 32768");
}

TEST_CASE("a newer descriptor is read if its writer says that it can be, else refused") {
  const byte_vector good = *pack(samples::engine());
  const auto as_format = [&](uint8_t format, uint8_t reader, size_t more) {
    return repaired(good, [&](byte_vector& bytes) {
      bytes[4] = std::byte{format};
      bytes[6] = std::byte{reader};
      bytes.resize(bytes.size() + more, std::byte{0xEE});
    });
  };
  CHECK(*unpack_engine(as_format(2, 1, 0)) == samples::engine());
  CHECK(*unpack_engine(as_format(9, 1, 30)) == samples::engine());
  CHECK(error_of(as_format(1, 1, 1)) ==
        "the engine descriptor is damaged: its fields do not fill it");
  const auto refused = unpack_engine(as_format(3, 2, 5));
  REQUIRE(!refused);
  CHECK(refused.error().status == MORI_E_VERSION);
  CHECK(refused.error().text ==
        "the engine descriptor has format 3, made for readers of 2 or newer; this library knows 1");
}

TEST_CASE("a good checksum does not make nonsense sense") {
  const byte_vector engine = *pack(samples::engine());
  const byte_vector memory = *pack(samples::memory());
  // Each byte set to extremes behind a repaired checksum: an error, or a value within limits.
  const auto check = [](const byte_vector& good, auto unpack, auto look) {
    for (size_t i = 12; i < good.size() - 8; ++i)
      for (const int value : {0x00, 0x7F, 0x80, 0xFF}) {
        const auto got = unpack(
            repaired(good, [&](byte_vector& bytes) { bytes[i] = static_cast<std::byte>(value); }));
        if (got)
          look(*got);
        else
          CHECK(got.error().status == MORI_E_PROTOCOL);
      }
    for (size_t size = 12; size < good.size() - 8; ++size)
      CHECK(!unpack(repaired(good, [&](byte_vector& bytes) { bytes.resize(size); })));
  };
  check(
      engine, [](byte_span bytes) { return unpack_engine(bytes); },
      [](const engine_desc& got) { CHECK(pack(got)); });
  check(
      memory, [](byte_span bytes) { return unpack_memory(bytes); },
      [](const memory_desc& got) {
        CHECK(pack(got));
        CHECK(got.address + got.size_bytes >= got.address);
      });
}

TEST_CASE("limits of descriptors are said with value and limit") {
  engine_desc e = samples::engine();
  e.key = std::string(max_key_bytes + 1, 'k');
  CHECK(refusal(e) == "the engine's key has 129 bytes, allowed are 1 .. 128");
  e.key.clear();
  CHECK(refusal(e) == "the engine's key has 0 bytes, allowed are 1 .. 128");
  e.key = std::string("a\0b", 3);
  CHECK(refusal(e) == "the engine's key has a zero byte in it");
  e = samples::engine();
  e.node_id = std::string(max_node_bytes + 1, 'n');
  CHECK(refusal(e) == "the node id has 65 bytes, allowed are 0 .. 64");
  e = samples::engine();
  e.hostname = std::string(max_host_bytes + 1, 'h');
  CHECK(refusal(e) == "the hostname has 256 bytes, allowed are 0 .. 255");
  e = samples::engine();
  e.addresses.resize(max_desc_addresses + 1);
  CHECK(refusal(e) == "9 addresses, the limit is 8");
  e.addresses.resize(1);
  e.addresses[0].family = 5;
  CHECK(refusal(e) == "an address of family 5, neither 4 nor 6");
  e = samples::engine();
  e.least_version = 2;
  CHECK(refusal(e) == "protocol versions 2 .. 1");

  memory_desc m = samples::memory();
  m.size_bytes = 0;
  CHECK(refusal(m) == "a region of 0 bytes at 0x7f0012345000");
  m.address = UINT64_MAX;
  m.size_bytes = 1;
  CHECK(refusal(m) == "a region of 1 bytes at 0xffffffffffffffff");
  m = samples::memory();
  m.location = 3;
  CHECK(refusal(m) == "location 3, allowed are 1 .. 2");
  m = samples::memory();
  m.access = 4;
  CHECK(refusal(m) == "access 4, allowed are 1 .. 3");
  m.access = 0;
  CHECK(refusal(m) == "access 0, allowed are 1 .. 3");
  m = samples::memory();
  m.device = -2;
  CHECK(refusal(m) == "device -2 on NUMA node 1, allowed are -1 and up");
  m = samples::memory();
  m.device_bus_id = std::string(max_bus_id_bytes + 1, 'b');
  CHECK(refusal(m) == "the device's bus id has 32 bytes, allowed are 0 .. 31");
  m = samples::memory();
  m.blobs[0].bytes.resize(max_blob_bytes + 1);
  CHECK(refusal(m) == "backend fact 2 has 1025 bytes, the limit is 1024");
  m = samples::memory();
  m.blobs.push_back(m.blobs[0]);
  CHECK(refusal(m) == "backend fact 2 is there twice");
  m.blobs.resize(max_blobs + 1);
  CHECK(refusal(m) == "17 backend facts, the limit is 16");
}

TEST_CASE("facts of a process come back, damaged ones do not") {
  const process_facts facts{4242, 99, {1}, 7, 0x1000, {2}};
  desc_blob blob = pack_process(facts);
  CHECK(*unpack_process(blob) == facts);
  CHECK(*unpack_process(*samples::memory().find(blob_kind::process)) ==
        process_facts{4242, 987654321, {1, 2, 3}, 4026531836, 0x7f0000001000, {4, 5, 6}});
  CHECK(samples::memory().find(blob_kind::rdma) == nullptr);
  for (size_t size = 0; size < blob.bytes.size(); ++size)
    CHECK(!unpack_process(
        {blob.kind, {blob.bytes.begin(), blob.bytes.begin() + static_cast<ptrdiff_t>(size)}}));
  blob.bytes.push_back(0);
  CHECK(!unpack_process(blob));
  CHECK(!unpack_process(pack_process({0, 99, {}, 0, 0, {}})));
}

TEST_CASE("texts show no capability and no control character") {
  memory_desc m = samples::memory();
  CHECK(text(m) ==
        "region 9 of engine 'prefill-0': 21474836480 bytes of GPU 3 (0000:c1:00.0) at "
        "0x7f0012345000, read/write, capability hidden");
  m.location = 1;
  m.access = 2;
  m.engine_key = "a\nb\x80";
  CHECK(text(m) ==
        "region 9 of engine 'a?b?': 21474836480 bytes of host memory at 0x7f0012345000, write, "
        "capability hidden");
  engine_desc e = samples::engine();
  CHECK(text(e) ==
        "engine 'prefill-0' of process 4242 on 'host.example' (node 'node-7', 192.0.2.1:7000), "
        "instance 11111111, key 07a37cbc");
  e.addresses.clear();
  CHECK(text(e).find("no address") != std::string::npos);
}

TEST_CASE("text of peers is made fit for a log line") {
  CHECK(printable("plain") == "plain");
  CHECK(printable("\u00e9\u20ac\U0001F600") == "\u00e9\u20ac\U0001F600");
  CHECK(printable("a\x1b[31m\r\n\t\x7f") == "a?[31m????");
  CHECK(printable("\xc2\x9b") == "?");  // C1 control
  CHECK(printable("\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80") == "?????????");
  CHECK(printable("\xe2\x82") == "??");
  CHECK(printable("") == "");
  CHECK(cut_text("a\u20ac", 4) == "a\u20ac");
  CHECK(cut_text("a\u20ac", 3) == "a");
  CHECK(cut_text("a\u20ac", 1) == "a");
  CHECK(cut_text("\u20ac", 2) == "");
}
