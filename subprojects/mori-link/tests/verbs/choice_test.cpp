// choice_test.cpp - which RDMA devices are found and chosen, on machines that are folders.
#include <doctest/doctest.h>
#include <mori/link/verbs/choice.hpp>

#include <cstdlib>

#include "fake_sysfs.hpp"

using namespace mori;
using namespace mori::link::verbs;
using mori::test::fake_sysfs;

namespace {

// Sets an environment variable until the end of the scope.
class variable {
 public:
  variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~variable() { ::unsetenv(name_); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  const char* name_;
};

void four_cards(fake_sysfs& sys) {
  sys.card("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0", 0);
  sys.card("mlx5_2", "pci0000:00/0000:00:02.0/0000:02:00.0", 0);
  sys.card("mlx5_10", "pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  sys.card("mlx5_11", "pci0000:80/0000:80:02.0/0000:82:00.0", 1);
  for (const char* name : {"mlx5_0", "mlx5_2", "mlx5_10", "mlx5_11"})
    sys.gid(name, 0, test::ipv4_gid, "RoCE v2");
}

std::vector<std::string> names(const std::vector<port_choice>& ports,
                               const std::vector<size_t>& order) {
  std::vector<std::string> found;
  for (const size_t i : order) found.push_back(ports[i].device);
  return found;
}

}  // namespace

TEST_CASE("a machine without RDMA has an empty inventory") {
  const fake_sysfs sys;
  CHECK(read_inventory(sys.root()).empty());
  CHECK(read_bus_place("0000:01:00.0", sys.root()) == bus_place{});
}

TEST_CASE("the inventory counts as people do and says place, state and addresses") {
  fake_sysfs sys;
  four_cards(sys);
  sys.gid("mlx5_2", 1, test::no_gid, "");
  sys.gid("mlx5_2", 2, test::link_local_gid, "IB/RoCE v1");
  sys.gid("mlx5_2", 3, test::ipv6_gid, "");  // no interface behind it
  const auto all = read_inventory(sys.root());
  REQUIRE(all.size() == 4);
  CHECK(all[0].name == "mlx5_0");
  CHECK(all[1].name == "mlx5_2");
  CHECK(all[2].name == "mlx5_10");
  CHECK(all[3].name == "mlx5_11");
  CHECK(all[1].place.numa_node == 0);
  CHECK(all[1].place.path ==
        std::vector<std::string>{"pci0000:00", "0000:00:02.0", "0000:02:00.0"});
  REQUIRE(all[1].ports.size() == 1);
  const port_fact& port = all[1].ports[0];
  CHECK(port.state == "ACTIVE");
  CHECK(port.is_ethernet);
  CHECK(port.rate == "100 Gb/sec (4X EDR)");
  REQUIRE(port.gids.size() == 2);
  CHECK(port.gids[0].text() == "GID 0 ::ffff:10.0.0.1 (RoCE v2)");
  CHECK(port.gids[1].index == 2);
  CHECK(port.gids[1].kind == gid_kind::roce_v1);
}

TEST_CASE("a software device sits where its network interface does") {
  fake_sysfs sys;
  sys.file("class/infiniband/rxe0/parent", "eth3");
  sys.file("devices/pci0000:40/0000:40:01.0/numa_node", "3");
  sys.link("class/net/eth3/device", "devices/pci0000:40/0000:40:01.0");
  sys.port("rxe0", "1", "4: ACTIVE");
  const auto all = read_inventory(sys.root());
  REQUIRE(all.size() == 1);
  CHECK(all[0].place.numa_node == 3);
  CHECK(all[0].place.path == std::vector<std::string>{"pci0000:40", "0000:40:01.0"});
}

TEST_CASE("device lists") {
  const auto filter = [](std::string_view text) { return device_filter::parse(text).value(); };
  CHECK(device_filter().takes("mlx5_0", 1));
  CHECK(filter("mlx5_0").takes("mlx5_0", 1));
  CHECK(filter("mlx5_0").takes("mlx5_0", 2));
  CHECK(!filter("mlx5_1").takes("mlx5_10", 1));
  CHECK(filter("a,mlx5_1:2").takes("mlx5_1", 2));
  CHECK(!filter("a,mlx5_1:2").takes("mlx5_1", 1));
  CHECK(!filter("^mlx5_0,mlx5_1:1").takes("mlx5_0", 1));
  CHECK(!filter("^mlx5_0,mlx5_1:1").takes("mlx5_1", 1));
  CHECK(filter("^mlx5_0,mlx5_1:1").takes("mlx5_1", 2));
  for (const char* bad :
       {"^", ",", "a,", ",a", "a,,b", "a,^b", "a:0", "a:256", "a:x", "a:", ":1"}) {
    CAPTURE(bad);
    const auto parsed = device_filter::parse(bad);
    REQUIRE(!parsed);
    CHECK(parsed.error().status == MORI_E_INVALID);
    CHECK(parsed.error().text.find(bad) != std::string::npos);
  }
  CHECK(device_filter::parse("a:256").error().text ==
        "MORI_RDMA_DEVICES='a:256': port '256' is not in 1 .. 255");
}

TEST_CASE("names in a list that no device has") {
  fake_sysfs sys;
  four_cards(sys);
  const auto filter = device_filter::parse("mlx5_0,mlx5_1,mlx5_2:2").value();
  CHECK(filter.unmet(read_inventory(sys.root())) == std::vector<std::string>{"mlx5_1", "mlx5_2:2"});
}

TEST_CASE("settings of the environment, and what is wrong with them") {
  CHECK(settings_from_environment()->timeout == 14);
  {
    const variable gid("MORI_IB_GID_INDEX", "3"), mtu("MORI_IB_PATH_MTU", "1024"),
        level("MORI_RDMA_SL", "15"), traffic("MORI_RDMA_TC", "255"),
        timeout("MORI_RDMA_TIMEOUT", "0"), retry("MORI_RDMA_RETRY_COUNT", "0"),
        flat("MORI_DISABLE_TOPO", "1"), list("MORI_RDMA_DEVICES", "^x");
    const settings with = settings_from_environment().value();
    CHECK(with.gid_index == 3);
    CHECK(with.path_mtu == 1024);
    CHECK(with.service_level == 15);
    CHECK(with.traffic_class == 255);
    CHECK(with.timeout == 0);
    CHECK(with.retry_count == 0);
    CHECK(with.ignores_topology);
    CHECK(!with.devices.takes("x", 1));
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"MORI_IB_GID_INDEX", "256"},   {"MORI_IB_PATH_MTU", "1500"},     {"MORI_IB_PATH_MTU", "128"},
      {"MORI_RDMA_SL", "16"},         {"MORI_RDMA_TC", "256"},          {"MORI_RDMA_TIMEOUT", "32"},
      {"MORI_RDMA_RETRY_COUNT", "8"}, {"MORI_DISABLE_TOPO", "perhaps"}, {"MORI_RDMA_DEVICES", "^"}};
  for (const auto& [name, value] : wrong) {
    CAPTURE(name);
    const variable set(name, value);
    const auto read = settings_from_environment();
    REQUIRE(!read);
    CHECK(read.error().status == MORI_E_INVALID);
    CHECK(read.error().text.find(fmt::format("{}='{}'", name, value)) == 0);
  }
}

TEST_CASE("GIDs: RoCE v2 first, routed before link-local, IPv4 first, then the lower index") {
  fake_sysfs sys;
  sys.card("one", "pci0000:00/0000:00:01.0", 0);
  const auto chosen = [&] {
    return choose_gid(read_inventory(sys.root())[0].ports[0], std::nullopt);
  };
  CHECK(chosen().error().text == "port 1 has no GID: its interface has no address");
  sys.gid("one", 0, test::link_local_gid, "IB/RoCE v1");
  CHECK(chosen()->index == 0);
  sys.gid("one", 1, test::ipv4_gid, "IB/RoCE v1");
  CHECK(chosen()->index == 1);
  sys.gid("one", 2, test::link_local_gid, "RoCE v2");
  CHECK(chosen()->index == 2);
  sys.gid("one", 3, test::ipv6_gid, "RoCE v2");
  CHECK(chosen()->index == 3);
  sys.gid("one", 4, test::ipv4_gid, "RoCE v2");
  sys.gid("one", 5, test::ipv4_gid, "RoCE v2");
  CHECK(chosen()->index == 4);
  const port_fact port = read_inventory(sys.root())[0].ports[0];
  CHECK(choose_gid(port, 2)->index == 2);
  CHECK(choose_gid(port, 9).error().text ==
        "port 1 has no GID 9, which MORI_IB_GID_INDEX asks for; it has 6");
}

TEST_CASE("each port is judged, with a reason") {
  fake_sysfs sys;
  four_cards(sys);
  sys.port("mlx5_2", "1", "1: DOWN");
  sys.card("mlx5_12", "pci0000:80/0000:80:03.0/0000:83:00.0", 1, false);
  sys.gid("mlx5_12", 0, test::link_local_gid, "IB/RoCE v1");
  sys.port("mlx5_13", "1", "4: ACTIVE", false);
  sys.file("class/infiniband/mlx5_13/ports/1/lid", "0x0");
  settings with;
  with.devices = device_filter::parse("^mlx5_0").value();
  const auto ports = judge_ports(read_inventory(sys.root()), with);
  REQUIRE(ports.size() == 6);
  CHECK(ports[0].reason == "left out by MORI_RDMA_DEVICES");
  CHECK(ports[1].reason == "port 1 is DOWN, not ACTIVE");
  CHECK(ports[2].reason == "GID 0 ::ffff:10.0.0.1 (RoCE v2), 100 Gb/sec (4X EDR)");
  CHECK(ports[4].reason.find("(InfiniBand)") != std::string::npos);
  CHECK(ports[5].reason == "port 1 has no LID: no subnet manager has seen it");
  const std::vector<bool> usable = {false, false, true, true, true, false};
  for (size_t i = 0; i < ports.size(); ++i) CHECK(ports[i].is_usable == usable[i]);
  // Rails count what is used.
  CHECK(ports[2].rail == 0);
  CHECK(ports[3].rail == 1);
  CHECK(ports[4].rail == 2);
}

TEST_CASE("distance counts bridges, then NUMA nodes") {
  const bus_place card{{"pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"}, 0};
  const bus_place sibling{{"pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:01.0"}, 0};
  const bus_place cousin{{"pci0000:00", "0000:00:02.0", "0000:09:00.0"}, 0};
  const bus_place neighbour{{"pci0000:40", "0000:40:01.0"}, 0};
  const bus_place stranger{{"pci0000:80", "0000:80:01.0"}, 1};
  CHECK(distance(card, card) == 0);
  CHECK(distance(card, sibling) == 2);
  CHECK(distance(card, cousin) == 5);
  CHECK(distance(cousin, card) == 5);
  CHECK(distance(card, neighbour) == same_numa_node);
  CHECK(distance(card, stranger) == far_numa_node);
  CHECK(distance(card, bus_place{}) == unknown_numa_node);
  CHECK(distance(card, bus_place{{}, 0}) == same_numa_node);
  CHECK(distance(card, bus_place{{}, 1}) == far_numa_node);
}

TEST_CASE("the nearest ports come first, equals take turns") {
  fake_sysfs sys;
  four_cards(sys);
  settings with;
  const auto ports = judge_ports(read_inventory(sys.root()), with);
  using list = std::vector<std::string>;
  const bus_place gpu = read_bus_place("x", sys.root());
  CHECK(gpu == bus_place{});
  const bus_place near_11{{"pci0000:80", "0000:80:02.0", "0000:85:00.0"}, 1};
  CHECK(names(ports, by_distance(ports, near_11, with)) ==
        list{"mlx5_11", "mlx5_10", "mlx5_0", "mlx5_2"});
  const bus_place node_1{{}, 1};
  CHECK(names(ports, by_distance(ports, node_1, with)) ==
        list{"mlx5_10", "mlx5_11", "mlx5_0", "mlx5_2"});
  CHECK(names(ports, by_distance(ports, node_1, with, 3)) ==
        list{"mlx5_11", "mlx5_10", "mlx5_2", "mlx5_0"});
  with.ignores_topology = true;
  CHECK(names(ports, by_distance(ports, node_1, with, 5)) ==
        list{"mlx5_2", "mlx5_10", "mlx5_11", "mlx5_0"});
  CHECK(by_distance({}, node_1, with).empty());
}
