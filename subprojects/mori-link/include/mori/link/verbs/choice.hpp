// choice.hpp - which RDMA ports to use and how to address them: pure decisions
// over the inventory and the settings, each refusal with its reason. device.hpp
// opens what was chosen.
//
// Environment: MORI_RDMA_DEVICES ("mlx5_0,mlx5_1:2" these only, "^mlx5_2" all but
// these), MORI_IB_GID_INDEX, MORI_IB_PATH_MTU, MORI_RDMA_SL, MORI_RDMA_TC,
// MORI_RDMA_TIMEOUT, MORI_RDMA_RETRY_COUNT, MORI_DISABLE_TOPO.
#pragma once

#include <mori/link/verbs/inventory.hpp>

#include <optional>
#include <string_view>

namespace mori::link::verbs {

// A list of devices to use, or to leave out. `name` means all ports, `name:2` one.
class device_filter {
 public:
  device_filter() = default;  // takes everything
  // MORI_E_INVALID: an entry is empty, its port is no number in 1 .. 255, or ^ is not in front.
  static base::result<device_filter> parse(std::string_view text);

  bool takes(std::string_view name, uint8_t port) const;
  // Entries that no device of the list meets: most likely misspelt.
  std::vector<std::string> unmet(const std::vector<device_fact>& among) const;

 private:
  struct entry {
    std::string name;
    uint8_t port = 0;  // 0: any
    bool meets(std::string_view device, uint8_t number) const {
      return name == device && (port == 0 || port == number);
    }
    std::string text() const;
  };
  bool leaves_out_ = false;
  std::vector<entry> entries_;
};

struct settings {
  device_filter devices;
  std::optional<uint16_t> gid_index;
  std::optional<uint16_t> path_mtu;  // 256, 512, 1024, 2048, 4096
  uint8_t service_level = 0;         // 0 .. 15
  uint8_t traffic_class = 0;
  // An unanswered packet is sent again after 4.096 us * 2^timeout (0: never), `retry_count` times.
  uint8_t timeout = 14;         // 0 .. 31
  uint8_t retry_count = 6;      // 0 .. 7; the kernel's software device takes 7 for without end
  uint8_t not_ready_count = 7;  // for a peer without a posted receive; 7: without end
  bool ignores_topology = false;
};
// MORI_E_INVALID names the variable, its value and what is allowed.
base::result<settings> settings_from_environment();

// A port, and whether it will be used.
struct port_choice {
  std::string device;
  uint8_t port = 1;
  bus_place place;
  // Counts the usable ports of this node in order: equal numbers of two nodes are on one rail, the
  // same switch in fabrics that are built so.
  uint32_t rail = 0;
  gid_fact gid;
  bool is_usable = false;
  std::string reason;  // "GID 1 10.0.0.1 (RoCE v2), 100 Gb/sec", "port 1 is DOWN, not ACTIVE"
};
// All ports of all devices, usable or not, in the order of the inventory.
std::vector<port_choice> judge_ports(const std::vector<device_fact>& all, const settings& with);

// RoCE v2 before v1, an address that is routed before a link-local one, IPv4 before IPv6, then the
// lower index. A wanted index must be in the table.
base::result<gid_fact> choose_gid(const port_fact& port, std::optional<uint16_t> wanted);

// Smaller is nearer: bridges between the two; far_numa_node and more where no bridge is shared.
inline constexpr uint32_t same_numa_node = 100;
inline constexpr uint32_t unknown_numa_node = 150;
inline constexpr uint32_t far_numa_node = 200;
uint32_t distance(const bus_place& a, const bus_place& b);

// Indices of the usable ports, the nearest to `from` first; equals in order, beginning with number
// `turn` of them, so that several users spread. With ignores_topology all are equals.
std::vector<size_t> by_distance(const std::vector<port_choice>& ports, const bus_place& from,
                                const settings& with, size_t turn = 0);

}  // namespace mori::link::verbs
