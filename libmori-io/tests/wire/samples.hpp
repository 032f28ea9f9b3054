// samples.hpp - keys, identities and descriptors that the tests of the wire
// layer and its fuzz targets start from.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "wire/descriptor.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace samples {

namespace wire = mori::io_core::wire;

template <class Array>
Array filled(uint8_t value) {
  Array bytes{};
  bytes.fill(value);
  return bytes;
}

inline wire::secret_key counting(uint8_t first) {
  wire::secret_key key;
  for (size_t i = 0; i < key.size(); ++i) key.data()[i] = static_cast<uint8_t>(first + i);
  return key;
}

inline wire::secret_key repeated(uint8_t value) {
  wire::secret_key key;
  std::fill_n(key.data(), key.size(), value);
  return key;
}

inline wire::engine_desc engine() {
  wire::engine_desc what;
  what.key = "prefill-0";
  what.node_id = "node-7";
  what.hostname = "host.example";
  what.addresses = {{4, {192, 0, 2, 1}, 7000}, {6, {0x20, 1, 0xd, 0xb8, 1}, 7000}};
  what.port = 7000;
  what.os_process_id = 4242;
  what.instance = filled<wire::instance_id>(0x11);
  what.public_key = wire::key_pair::of(counting(1)).public_key;
  return what;
}

inline wire::memory_desc memory() {
  wire::memory_desc what;
  what.engine_key = "prefill-0";
  what.instance = filled<wire::instance_id>(0x11);
  what.region = 9;
  what.address = 0x7f0012345000;
  what.size_bytes = uint64_t{5} << 32;
  what.location = 2;
  what.device = 3;
  what.device_bus_id = "0000:c1:00.0";
  what.numa_node = 1;
  what.access = 3;
  what.read_capability = filled<wire::capability>(0xAA);
  what.write_capability = filled<wire::capability>(0xBB);
  what.blobs = {
      wire::pack_process({4242, 987654321, {1, 2, 3}, 4026531836, 0x7f0000001000, {4, 5, 6}}),
      {wire::blob_kind::gpu_ipc, std::vector<uint8_t>(80, 0x5C)},
      {static_cast<wire::blob_kind>(77), {}}};
  return what;
}

// Both ends of a handshake with fixed keys; every field may be changed before use.
struct ends {
  wire::key_pair initiator_key = wire::key_pair::of(counting(1));
  wire::key_pair target_key = wire::key_pair::of(counting(101));
  wire::secret_key initiator_ephemeral = repeated(0xE1), target_ephemeral = repeated(0xE2);
  wire::identity who;
  wire::responder_options target;
  bool fixed = true;  // the ephemeral keys

  ends() {
    who.key = "prefill-0 \u00e9";
    who.instance = filled<wire::instance_id>(0x11);
    who.wanted_instance = filled<wire::instance_id>(0x22);
    who.purpose = wire::stream_purpose::data;
    who.stream_index = 3;
    who.stream_count = 4;
    who.generation = 7;
    target.instance = who.wanted_instance;
  }

  wire::initiator initiator() const {
    auto made = wire::initiator::start(
        {&initiator_key, target_key.public_key, who, fixed ? &initiator_ephemeral : nullptr});
    return std::move(made).value();
  }
  wire::responder responder() {
    target.self = &target_key;
    target.ephemeral = fixed ? &target_ephemeral : nullptr;
    return wire::responder(target);
  }
};

}  // namespace samples
