// inventory.hpp - the RDMA devices of this machine as the kernel tells them in
// sysfs: ports, addresses, place on the bus. No device is opened and no library
// is needed, and another root than /sys makes it a test. choice.hpp judges them.
#pragma once

#include <mori/base/result.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mori::link::verbs {

enum class gid_kind : uint8_t { infiniband, roce_v1, roce_v2 };

struct gid_fact {
  uint16_t index = 0;  // in the port's table
  gid_kind kind = gid_kind::infiniband;
  std::array<uint8_t, 16> bytes{};

  std::string text() const;  // "::ffff:10.0.0.1" or "fe80::1", and the kind
  bool operator==(const gid_fact&) const = default;
};

// Where something sits: the bridges down to it and its NUMA node.
struct bus_place {
  std::vector<std::string> path;  // "pci0000:00", "0000:00:01.0", ...; empty: not on a PCI bus
  int32_t numa_node = -1;         // -1: unknown
  bool operator==(const bus_place&) const = default;
};

struct port_fact {
  uint8_t number = 1;
  std::string state;  // "ACTIVE", "DOWN", ...
  bool is_ethernet = false;
  uint16_t lid = 0;  // InfiniBand only
  std::string rate;  // "100 Gb/sec (4X EDR)"
  std::vector<gid_fact> gids;
};

struct device_fact {
  std::string name;  // "mlx5_0"
  bus_place place;
  std::vector<port_fact> ports;
};

// GIDs beyond are not looked at: tables have up to a few thousand entries, those in use come first.
inline constexpr int max_gid_index = 255;

// Sorted by name as people count: mlx5_2 before mlx5_10. Empty where the kernel has no RDMA.
std::vector<device_fact> read_inventory(const std::string& sysfs = "/sys");

// Of a PCI device, by its address ("0000:3b:00.0"); an empty place where there is none.
bus_place read_bus_place(const std::string& pci_address, const std::string& sysfs = "/sys");

}  // namespace mori::link::verbs
