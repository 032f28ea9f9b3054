// fake_sysfs.hpp - a folder that looks like the parts of /sys that the inventory of RDMA
// devices reads. Gone with the object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace mori::test {

class fake_sysfs {
 public:
  fake_sysfs() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mori-sysfs-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~fake_sysfs() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  fake_sysfs(const fake_sysfs&) = delete;
  fake_sysfs& operator=(const fake_sysfs&) = delete;

  const std::string& root() const { return root_; }

  void file(const std::string& path, const std::string& text) {
    const std::filesystem::path at = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text << '\n';
  }
  void link(const std::string& path, const std::string& target) {
    const std::filesystem::path at = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::create_symlink(std::filesystem::path(root_) / target, at);
  }

  // A card with one active port, at `bus` below devices/.
  void card(const std::string& name, const std::string& bus, int numa_node, bool ethernet = true) {
    file("devices/" + bus + "/numa_node", std::to_string(numa_node));
    link("class/infiniband/" + name + "/device", "devices/" + bus);
    port(name, "1", "4: ACTIVE", ethernet);
  }
  void port(const std::string& name, const std::string& number, const std::string& state,
            bool ethernet = true) {
    const std::string at = "class/infiniband/" + name + "/ports/" + number + "/";
    file(at + "state", state);
    file(at + "link_layer", ethernet ? "Ethernet" : "InfiniBand");
    file(at + "lid", ethernet ? "0x0" : "0x1f");
    file(at + "rate", "100 Gb/sec (4X EDR)");
  }
  void gid(const std::string& name, int index, const std::string& text, const std::string& kind,
           const std::string& port = "1") {
    const std::string at = "class/infiniband/" + name + "/ports/" + port + "/";
    file(at + "gids/" + std::to_string(index), text);
    if (!kind.empty()) file(at + "gid_attrs/types/" + std::to_string(index), kind);
  }

 private:
  std::string root_;
};

inline constexpr const char* no_gid = "0000:0000:0000:0000:0000:0000:0000:0000";
inline constexpr const char* link_local_gid = "fe80:0000:0000:0000:0e42:a1ff:fe6b:0002";
inline constexpr const char* ipv6_gid = "2001:0db8:0000:0000:0000:0000:0000:0007";
inline constexpr const char* ipv4_gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";

}  // namespace mori::test
