// inventory.cpp - see inventory.hpp.
#include <mori/link/verbs/inventory.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

namespace mori::link::verbs {
namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return line;
}

template <class Number>
Number number_in(std::string_view text, int base, Number otherwise) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  Number value{};
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return problem == std::errc() && stop == text.data() + text.size() ? value : otherwise;
}

// "mlx5_10": the text before its number, and the number.
std::pair<std::string, uint64_t> in_counting_order(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  return {name.substr(0, digits),
          number_in<uint64_t>(std::string_view(name).substr(digits), 10, 0)};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names, {}, in_counting_order);
  return names;
}

bool is_pci(const std::string& part) {
  return part.starts_with("pci") || (part.size() >= 12 && part[4] == ':' && part[7] == ':');
}

bus_place place_of(const fs::path& device) {
  bus_place at;
  std::error_code problem;
  const fs::path real = fs::canonical(device, problem);
  if (problem) return at;
  for (const auto& part : real)
    if (is_pci(part.string())) at.path.push_back(part.string());
  at.numa_node = number_in<int32_t>(read_line(real / "numa_node"), 10, -1);
  return at;
}

std::optional<gid_fact> read_gid(const fs::path& port, int index, bool is_ethernet) {
  std::string text = read_line(port / "gids" / std::to_string(index));
  std::erase(text, ':');
  if (text.size() != 32) return std::nullopt;
  gid_fact gid;
  gid.index = static_cast<uint16_t>(index);
  for (size_t i = 0; i < gid.bytes.size(); ++i)
    gid.bytes[i] = number_in<uint8_t>(std::string_view(text).substr(2 * i, 2), 16, 0);
  if (gid.bytes == std::array<uint8_t, 16>{}) return std::nullopt;
  // Without an interface behind it the entry has no kind, and cannot be used.
  const std::string kind = read_line(port / "gid_attrs/types" / std::to_string(index));
  if (!is_ethernet) return gid;
  if (kind.empty()) return std::nullopt;
  gid.kind = kind == "RoCE v2" ? gid_kind::roce_v2 : gid_kind::roce_v1;
  return gid;
}

port_fact read_port(const fs::path& folder, uint8_t number) {
  port_fact port;
  port.number = number;
  const std::string state = read_line(folder / "state");  // "4: ACTIVE"
  const size_t colon = state.find(": ");
  port.state = colon == std::string::npos ? state : state.substr(colon + 2);
  port.is_ethernet = read_line(folder / "link_layer") == "Ethernet";
  port.lid = number_in<uint16_t>(read_line(folder / "lid"), 16, 0);
  port.rate = read_line(folder / "rate");
  for (int index = 0; index <= max_gid_index; ++index) {
    std::error_code problem;
    if (!fs::exists(folder / "gids" / std::to_string(index), problem)) break;
    if (const auto gid = read_gid(folder, index, port.is_ethernet)) port.gids.push_back(*gid);
  }
  return port;
}

device_fact read_device(const fs::path& sysfs, const std::string& name) {
  device_fact device;
  device.name = name;
  const fs::path folder = sysfs / "class/infiniband" / name;
  std::error_code problem;
  // A software device sits where its network interface does.
  if (fs::exists(folder / "device", problem))
    device.place = place_of(folder / "device");
  else if (const std::string parent = read_line(folder / "parent"); !parent.empty())
    device.place = place_of(sysfs / "class/net" / parent / "device");
  for (const std::string& number : names_in(folder / "ports"))
    if (const auto port = number_in<uint8_t>(number, 10, 0); port != 0)
      device.ports.push_back(read_port(folder / "ports" / number, port));
  return device;
}

}  // namespace

std::string gid_fact::text() const {
  char address[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, bytes.data(), address, sizeof address);
  const char* const name = kind == gid_kind::infiniband ? "InfiniBand"
                           : kind == gid_kind::roce_v2  ? "RoCE v2"
                                                        : "RoCE v1";
  return fmt::format("GID {} {} ({})", index, address, name);
}

std::vector<device_fact> read_inventory(const std::string& sysfs) {
  std::vector<device_fact> found;
  for (const std::string& name : names_in(fs::path(sysfs) / "class/infiniband"))
    found.push_back(read_device(sysfs, name));
  return found;
}

bus_place read_bus_place(const std::string& pci_address, const std::string& sysfs) {
  return place_of(fs::path(sysfs) / "bus/pci/devices" / pci_address);
}

}  // namespace mori::link::verbs
