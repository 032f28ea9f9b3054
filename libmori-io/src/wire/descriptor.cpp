// descriptor.cpp - see descriptor.hpp. Both kinds are the same envelope around
// another body; texts are u16 length and bytes.
#include "wire/descriptor.hpp"

#include <mori/io_types.h>

#include <algorithm>

#include "wire/codec.hpp"

namespace mori::io_core::wire {
namespace {

constexpr size_t envelope_bytes = 12;  // in front of the body
constexpr size_t checksum_bytes = 8;
constexpr uint16_t format = 1;        // that this library writes
constexpr uint16_t least_reader = 1;  // the oldest that understands it

struct kind {
  std::string_view magic;
  const char* name;
  const char* article;
};
constexpr kind engine_kind{"MIOE", "engine descriptor", "an"};
constexpr kind memory_kind{"MIOM", "memory descriptor", "a"};

std::array<uint8_t, checksum_bytes> checksum_of(byte_span bytes) {
  std::array<uint8_t, 16> hash{};
  keyed_hash({}, "mori-io descriptor", {bytes}, hash);
  std::array<uint8_t, checksum_bytes> sum{};
  std::copy_n(hash.begin(), sum.size(), sum.begin());
  return sum;
}

base::result<link::byte_vector> enclose(const kind& what, byte_span body) {
  link::byte_writer out;
  out.raw(link::as_bytes(what.magic));
  out.u16(format);
  out.u16(least_reader);
  out.u32(static_cast<uint32_t>(body.size()));
  out.raw(body);
  const auto sum = checksum_of(out.view());
  out.raw(std::as_bytes(std::span(sum)));
  return out.take();
}

struct enclosed {
  byte_span body;
  bool newer = false;  // has fields that this library does not know
};

base::result<enclosed> disclose(const kind& what, byte_span bytes) {
  if (bytes.empty()) return base::fail(MORI_E_INVALID, "the {} is empty", what.name);
  link::byte_reader in(bytes);
  const std::string_view magic = as_text(in.raw(what.magic.size()));
  for (const kind& other : {engine_kind, memory_kind})
    if (other.magic != what.magic && magic == other.magic)
      return base::fail(MORI_E_INVALID, "the {} is none: it is {} {}", what.name, other.article,
                        other.name);
  if (magic != what.magic)
    return base::fail(MORI_E_INVALID, "no {}: it does not begin with '{}'", what.name, what.magic);
  if (bytes.size() < envelope_bytes + checksum_bytes || bytes.size() > max_desc_bytes)
    return base::fail(MORI_E_PROTOCOL, "the {} is damaged: {} bytes, it has {} .. {}", what.name,
                      bytes.size(), envelope_bytes + checksum_bytes, max_desc_bytes);
  const uint16_t written = in.u16();
  const uint16_t reader = in.u16();
  const uint32_t body_bytes = in.u32();
  const size_t there = bytes.size() - envelope_bytes - checksum_bytes;
  if (body_bytes != there)
    return base::fail(MORI_E_PROTOCOL, "the {} is damaged: its body has {} bytes, it says {}",
                      what.name, there, body_bytes);
  const auto sum = checksum_of(bytes.first(bytes.size() - checksum_bytes));
  if (!std::ranges::equal(bytes.last(checksum_bytes), std::as_bytes(std::span(sum))))
    return base::fail(MORI_E_PROTOCOL, "the {} is damaged: its checksum does not match", what.name);
  if (reader > format)
    return base::fail(
        MORI_E_VERSION,
        "the {} has format {}, made for readers of {} or newer; this library knows {}", what.name,
        written, reader, format);
  return enclosed{in.raw(body_bytes), written > format};
}

base::failure damaged(const kind& what, const char* field) {
  return base::fail(MORI_E_PROTOCOL, "the {} is damaged: {}", what.name, field);
}

// All read, and nothing left over that this format does not have.
base::status check_end(const kind& what, const link::byte_reader& in, bool newer) {
  if (newer ? in.good() : in.complete()) return {};
  return damaged(what, "its fields do not fill it");
}

base::status check_text(const char* field, std::string_view text, size_t least, size_t most) {
  if (text.size() < least || text.size() > most)
    return base::fail(MORI_E_INVALID, "{} has {} bytes, allowed are {} .. {}", field, text.size(),
                      least, most);
  if (text.find('\0') != std::string_view::npos)
    return base::fail(MORI_E_INVALID, "{} has a zero byte in it", field);
  return {};
}

base::status check(const engine_desc& what) {
  MORI_CHECK(check_text("the engine's key", what.key, 1, max_key_bytes));
  MORI_CHECK(check_text("the node id", what.node_id, 0, max_node_bytes));
  MORI_CHECK(check_text("the hostname", what.hostname, 0, max_host_bytes));
  if (what.addresses.size() > max_desc_addresses)
    return base::fail(MORI_E_INVALID, "{} addresses, the limit is {}", what.addresses.size(),
                      max_desc_addresses);
  for (const auto& one : what.addresses)
    if (one.family != 4 && one.family != 6)
      return base::fail(MORI_E_INVALID, "an address of family {}, neither 4 nor 6", one.family);
  if (what.least_version == 0 || what.least_version > what.version)
    return base::fail(MORI_E_INVALID, "protocol versions {} .. {}", what.least_version,
                      what.version);
  return {};
}

base::status check_blobs(const std::vector<desc_blob>& blobs) {
  if (blobs.size() > max_blobs)
    return base::fail(MORI_E_INVALID, "{} backend facts, the limit is {}", blobs.size(), max_blobs);
  for (size_t i = 0; i < blobs.size(); ++i) {
    const auto number = static_cast<uint16_t>(blobs[i].kind);
    if (blobs[i].bytes.size() > max_blob_bytes)
      return base::fail(MORI_E_INVALID, "backend fact {} has {} bytes, the limit is {}", number,
                        blobs[i].bytes.size(), max_blob_bytes);
    for (size_t j = 0; j < i; ++j)
      if (blobs[j].kind == blobs[i].kind)
        return base::fail(MORI_E_INVALID, "backend fact {} is there twice", number);
  }
  return {};
}

base::status check(const memory_desc& what) {
  MORI_CHECK(check_text("the engine's key", what.engine_key, 1, max_key_bytes));
  MORI_CHECK(check_text("the device's bus id", what.device_bus_id, 0, max_bus_id_bytes));
  if (what.size_bytes == 0 || what.address > UINT64_MAX - what.size_bytes)
    return base::fail(MORI_E_INVALID, "a region of {} bytes at {:#x}", what.size_bytes,
                      what.address);
  if (what.location != MORI_IO_LOCATION_CPU && what.location != MORI_IO_LOCATION_GPU)
    return base::fail(MORI_E_INVALID, "location {}, allowed are {} .. {}", what.location,
                      static_cast<int>(MORI_IO_LOCATION_CPU),
                      static_cast<int>(MORI_IO_LOCATION_GPU));
  if (what.access < 1 || what.access > (MORI_IO_ACCESS_READ | MORI_IO_ACCESS_WRITE))
    return base::fail(MORI_E_INVALID, "access {}, allowed are 1 .. 3", what.access);
  if (what.device < -1 || what.numa_node < -1)
    return base::fail(MORI_E_INVALID, "device {} on NUMA node {}, allowed are -1 and up",
                      what.device, what.numa_node);
  return check_blobs(what.blobs);
}

// A descriptor with a good checksum can still be nonsense, which is damage too.
template <class Desc>
base::status check_read(const kind& which, const Desc& what) {
  auto outcome = check(what);
  if (outcome) return {};
  return base::fail(MORI_E_PROTOCOL, "the {} is damaged: {}", which.name, outcome.error().text);
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace

base::result<link::byte_vector> pack(const engine_desc& what) {
  MORI_CHECK(check(what));
  link::byte_writer out;
  out.text(what.key);
  out.text(what.node_id);
  out.text(what.hostname);
  out.u16(what.port);
  out.u16(static_cast<uint16_t>(what.addresses.size()));
  for (const auto& one : what.addresses) link::tcp::write_address(out, one);
  out.i32(what.os_process_id);
  out.raw(std::as_bytes(std::span(what.instance)));
  out.raw(std::as_bytes(std::span(what.public_key)));
  out.u16(what.least_version);
  out.u16(what.version);
  return enclose(engine_kind, out.view());
}

base::result<engine_desc> unpack_engine(byte_span bytes) {
  MORI_TRY(const enclosed got, disclose(engine_kind, bytes));
  link::byte_reader in(got.body);
  engine_desc what;
  what.key = in.text(max_key_bytes);
  what.node_id = in.text(max_node_bytes);
  what.hostname = in.text(max_host_bytes);
  what.port = in.u16();
  const size_t count = in.u16();
  if (count > max_desc_addresses) return damaged(engine_kind, "it has too many addresses");
  for (size_t i = 0; i < count; ++i) what.addresses.push_back(link::tcp::read_address(in));
  what.os_process_id = in.i32();
  read_raw(in, what.instance);
  read_raw(in, what.public_key);
  what.least_version = in.u16();
  what.version = in.u16();
  MORI_CHECK(check_end(engine_kind, in, got.newer));
  MORI_CHECK(check_read(engine_kind, what));
  return what;
}

base::result<link::byte_vector> pack(const memory_desc& what) {
  MORI_CHECK(check(what));
  link::byte_writer out;
  out.text(what.engine_key);
  out.raw(std::as_bytes(std::span(what.instance)));
  out.u32(what.region);
  out.u64(what.address);
  out.u64(what.size_bytes);
  out.i32(what.location);
  out.i32(what.device);
  out.text(what.device_bus_id);
  out.i32(what.numa_node);
  out.i32(what.access);
  out.raw(std::as_bytes(std::span(what.read_capability)));
  out.raw(std::as_bytes(std::span(what.write_capability)));
  out.u16(static_cast<uint16_t>(what.blobs.size()));
  for (const desc_blob& one : what.blobs) {
    out.u16(static_cast<uint16_t>(one.kind));
    out.u16(static_cast<uint16_t>(one.bytes.size()));
    out.raw(std::as_bytes(std::span(one.bytes)));
  }
  return enclose(memory_kind, out.view());
}

base::result<memory_desc> unpack_memory(byte_span bytes) {
  MORI_TRY(const enclosed got, disclose(memory_kind, bytes));
  link::byte_reader in(got.body);
  memory_desc what;
  what.engine_key = in.text(max_key_bytes);
  read_raw(in, what.instance);
  what.region = in.u32();
  what.address = in.u64();
  what.size_bytes = in.u64();
  what.location = in.i32();
  what.device = in.i32();
  what.device_bus_id = in.text(max_bus_id_bytes);
  what.numa_node = in.i32();
  what.access = in.i32();
  read_raw(in, what.read_capability);
  read_raw(in, what.write_capability);
  const size_t count = in.u16();
  if (count > max_blobs) return damaged(memory_kind, "it has too many backend facts");
  for (size_t i = 0; i < count && in.good(); ++i) {
    desc_blob one;
    one.kind = static_cast<blob_kind>(in.u16());
    const byte_span raw = in.raw(in.u16());
    const auto* begin = reinterpret_cast<const uint8_t*>(raw.data());
    one.bytes.assign(begin, begin + raw.size());
    what.blobs.push_back(std::move(one));
  }
  MORI_CHECK(check_end(memory_kind, in, got.newer));
  MORI_CHECK(check_read(memory_kind, what));
  return what;
}

const desc_blob* memory_desc::find(blob_kind kind) const {
  const auto at = std::ranges::find(blobs, kind, &desc_blob::kind);
  return at == blobs.end() ? nullptr : &*at;
}

desc_blob pack_process(const process_facts& facts) {
  link::byte_writer out;
  out.i32(facts.os_process_id);
  out.u64(facts.start_time);
  out.raw(std::as_bytes(std::span(facts.boot_id)));
  out.u64(facts.pid_namespace);
  out.u64(facts.nonce_address);
  out.raw(std::as_bytes(std::span(facts.nonce)));
  const auto* begin = reinterpret_cast<const uint8_t*>(out.view().data());
  return {blob_kind::process, {begin, begin + out.view().size()}};
}

base::result<process_facts> unpack_process(const desc_blob& blob) {
  link::byte_reader in(std::as_bytes(std::span(blob.bytes)));
  process_facts facts;
  facts.os_process_id = in.i32();
  facts.start_time = in.u64();
  read_raw(in, facts.boot_id);
  facts.pid_namespace = in.u64();
  facts.nonce_address = in.u64();
  read_raw(in, facts.nonce);
  if (blob.kind != blob_kind::process || !in.complete() || facts.os_process_id <= 0)
    return damaged(memory_kind, "its process facts");
  return facts;
}

std::string text(const engine_desc& what) {
  std::string where = what.addresses.empty() ? "no address" : what.addresses.front().text();
  return fmt::format("engine '{}' of process {} on '{}' (node '{}', {}), instance {}, key {}",
                     printable(what.key), what.os_process_id, printable(what.hostname),
                     printable(what.node_id), where, hex(std::span(what.instance).first(4)),
                     hex(std::span(what.public_key).first(4)));
}

std::string text(const memory_desc& what) {
  std::string access;
  if ((what.access & MORI_IO_ACCESS_READ) != 0) access += "read";
  if ((what.access & MORI_IO_ACCESS_WRITE) != 0) access += access.empty() ? "write" : "/write";
  const std::string where =
      what.location == MORI_IO_LOCATION_CPU
          ? std::string("host memory")
          : fmt::format("GPU {} ({})", what.device, printable(what.device_bus_id));
  return fmt::format("region {} of engine '{}': {} bytes of {} at {:#x}, {}, capability hidden",
                     what.region, printable(what.engine_key), what.size_bytes, where, what.address,
                     access);
}

}  // namespace mori::io_core::wire
