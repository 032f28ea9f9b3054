// choice.cpp - see choice.hpp.
#include <mori/base/env.hpp>
#include <mori/link/verbs/choice.hpp>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace mori::link::verbs {
namespace {

bool is_link_local(const gid_fact& gid) { return gid.bytes[0] == 0xfe && gid.bytes[1] == 0x80; }

bool is_ipv4(const gid_fact& gid) {
  constexpr std::array<uint8_t, 12> mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(mapped.begin(), mapped.end(), gid.bytes.begin());
}

// Smaller is better.
int merit(const gid_fact& gid) {
  const int kind = gid.kind == gid_kind::roce_v1 ? 4 : 0;
  return kind + (is_link_local(gid) ? 2 : 0) + (is_ipv4(gid) ? 0 : 1);
}

base::status check_port(const port_fact& port) {
  if (port.state != "ACTIVE")
    return base::fail(MORI_E_UNAVAILABLE, "port {} is {}, not ACTIVE", port.number,
                      port.state.empty() ? "in no known state" : port.state);
  if (!port.is_ethernet && port.lid == 0)
    return base::fail(MORI_E_UNAVAILABLE, "port {} has no LID: no subnet manager has seen it",
                      port.number);
  return {};
}

port_choice judge(const device_fact& of, const port_fact& port, const settings& with) {
  port_choice made;
  made.device = of.name;
  made.port = port.number;
  made.place = of.place;
  if (!with.devices.takes(of.name, port.number)) {
    made.reason = "left out by MORI_RDMA_DEVICES";
    return made;
  }
  if (const auto checked = check_port(port); !checked) {
    made.reason = checked.error().text;
    return made;
  }
  const auto gid = choose_gid(port, with.gid_index);
  if (!gid) {
    made.reason = gid.error().text;
    return made;
  }
  made.gid = *gid;
  made.is_usable = true;
  made.reason = fmt::format("{}, {}", gid->text(), port.rate);
  return made;
}

template <class Number>
base::status take_number(const char* name, uint64_t maximum, Number& to) {
  MORI_TRY(const auto given, base::env_number(name, 0, maximum));
  if (given) to = static_cast<Number>(*given);
  return {};
}

}  // namespace

std::string device_filter::entry::text() const {
  return port == 0 ? name : fmt::format("{}:{}", name, port);
}

base::result<device_filter> device_filter::parse(std::string_view text) {
  device_filter made;
  const std::string_view whole = text;
  if (text.starts_with('^')) {
    made.leaves_out_ = true;
    text.remove_prefix(1);
  }
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t colon = part.find(':');
    entry one{std::string(part.substr(0, colon)), 0};
    if (one.name.empty() || one.name.find('^') != std::string::npos)
      return base::fail(MORI_E_INVALID,
                        "MORI_RDMA_DEVICES='{}': '{}' is no device; write mlx5_0,mlx5_1:2 or "
                        "^mlx5_0 to leave it out",
                        whole, part);
    if (colon != std::string_view::npos) {
      const std::string_view port = part.substr(colon + 1);
      const char* const end = port.data() + port.size();
      const auto [stop, problem] = std::from_chars(port.data(), end, one.port);
      if (problem != std::errc() || stop != end || one.port == 0)
        return base::fail(MORI_E_INVALID, "MORI_RDMA_DEVICES='{}': port '{}' is not in 1 .. 255",
                          whole, port);
    }
    made.entries_.push_back(std::move(one));
    if (comma == std::string_view::npos) return made;
    text.remove_prefix(comma + 1);
  }
}

bool device_filter::takes(std::string_view name, uint8_t port) const {
  if (entries_.empty()) return true;
  const bool listed =
      std::ranges::any_of(entries_, [&](const entry& each) { return each.meets(name, port); });
  return listed != leaves_out_;
}

std::vector<std::string> device_filter::unmet(const std::vector<device_fact>& among) const {
  std::vector<std::string> found;
  for (const entry& each : entries_) {
    bool met = false;
    for (const device_fact& device : among)
      for (const port_fact& port : device.ports) met |= each.meets(device.name, port.number);
    if (!met) found.push_back(each.text());
  }
  return found;
}

base::result<settings> settings_from_environment() {
  settings made;
  if (const auto list = base::env_text("MORI_RDMA_DEVICES")) {
    MORI_TRY(made.devices, device_filter::parse(*list));
  }
  MORI_TRY(const auto gid, base::env_number("MORI_IB_GID_INDEX", 0, max_gid_index));
  if (gid) made.gid_index = static_cast<uint16_t>(*gid);
  MORI_TRY(const auto mtu, base::env_number("MORI_IB_PATH_MTU", 256, 4096));
  if (mtu && (*mtu & (*mtu - 1)) != 0)
    return base::fail(MORI_E_INVALID,
                      "MORI_IB_PATH_MTU='{}' is none of 256, 512, 1024, 2048 and 4096", *mtu);
  if (mtu) made.path_mtu = static_cast<uint16_t>(*mtu);
  MORI_CHECK(take_number("MORI_RDMA_SL", 15, made.service_level));
  MORI_CHECK(take_number("MORI_RDMA_TC", 255, made.traffic_class));
  MORI_CHECK(take_number("MORI_RDMA_TIMEOUT", 31, made.timeout));
  MORI_CHECK(take_number("MORI_RDMA_RETRY_COUNT", 7, made.retry_count));
  MORI_TRY(const auto flat, base::env_flag("MORI_DISABLE_TOPO"));
  made.ignores_topology = flat.value_or(false);
  return made;
}

base::result<gid_fact> choose_gid(const port_fact& port, std::optional<uint16_t> wanted) {
  if (wanted) {
    const auto found = std::ranges::find(port.gids, *wanted, &gid_fact::index);
    if (found == port.gids.end())
      return base::fail(MORI_E_UNAVAILABLE,
                        "port {} has no GID {}, which MORI_IB_GID_INDEX asks for; it has {}",
                        port.number, *wanted, port.gids.size());
    return *found;
  }
  if (port.gids.empty())
    return base::fail(MORI_E_UNAVAILABLE, "port {} has no GID: its interface has no address",
                      port.number);
  return *std::ranges::min_element(port.gids, {}, merit);
}

std::vector<port_choice> judge_ports(const std::vector<device_fact>& all, const settings& with) {
  std::vector<port_choice> ports;
  uint32_t rail = 0;
  for (const device_fact& device : all) {
    for (const port_fact& port : device.ports) {
      ports.push_back(judge(device, port, with));
      if (ports.back().is_usable) ports.back().rail = rail++;
    }
  }
  return ports;
}

uint32_t distance(const bus_place& a, const bus_place& b) {
  if (!a.path.empty() && !b.path.empty() && a.path.front() == b.path.front()) {
    const auto [left, right] = std::ranges::mismatch(a.path, b.path);
    return static_cast<uint32_t>((a.path.end() - left) + (b.path.end() - right));
  }
  if (a.numa_node < 0 || b.numa_node < 0) return unknown_numa_node;
  return a.numa_node == b.numa_node ? same_numa_node : far_numa_node;
}

std::vector<size_t> by_distance(const std::vector<port_choice>& ports, const bus_place& from,
                                const settings& with, size_t turn) {
  std::vector<size_t> usable;
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].is_usable) usable.push_back(i);
  const auto away = [&](size_t i) {
    return with.ignores_topology ? 0 : distance(ports[i].place, from);
  };
  std::ranges::sort(usable, {}, [&](size_t i) { return std::pair(away(i), i); });
  // Turns each run of equals.
  for (auto first = usable.begin(); first != usable.end();) {
    const auto last =
        std::find_if(first, usable.end(), [&](size_t i) { return away(i) != away(*first); });
    std::rotate(
        first, first + static_cast<std::ptrdiff_t>(turn % static_cast<size_t>(last - first)), last);
    first = last;
  }
  return usable;
}

}  // namespace mori::link::verbs
