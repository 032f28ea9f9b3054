// Headroom: which of several limits is the tightest, read from folders laid out
// as the kernel does.
#include "memory/headroom.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace mori::link;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t mib = 1 << 20;

class machine {
 public:
  machine() {
    std::string name = fs::temp_directory_path() / "mori-headroom-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
    write("proc/meminfo",
          "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\nSwapFree: 0 kB\n");
  }
  ~machine() { fs::remove_all(root_); }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write(const std::string& path, uint64_t value) { write(path, std::to_string(value) + "\n"); }
  headroom look() const { return memory_headroom({root_ / "proc", root_ / "cgroup"}); }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("without cgroups the machine is the limit") {
  machine m;
  const headroom room = m.look();
  CHECK(room.bytes == 512 * mib);
  CHECK(room.margin_bytes == 32 * mib);
  CHECK(room.usable_bytes() == 480 * mib);
  CHECK(room.limit == "this machine");
}

TEST_CASE("nothing readable is no limit") {
  const headroom room = memory_headroom({"/nonexistent", "/nonexistent"});
  CHECK(room.bytes == UINT64_MAX);
  CHECK(room.usable_bytes() == UINT64_MAX);
}

TEST_CASE("version 2: the tightest group above the process counts, file pages give way") {
  machine m;
  m.write("proc/self/cgroup", "0::/slice/job\n");
  m.write("cgroup/slice/job/memory.max", "max\n");
  m.write("cgroup/slice/job/memory.current", 10 * mib);
  m.write("cgroup/slice/memory.max", 160 * mib);
  m.write("cgroup/slice/memory.current", 100 * mib);
  m.write("cgroup/slice/memory.stat", "anon 4\ninactive_file 20971520\n");
  headroom room = m.look();
  CHECK(room.bytes == 80 * mib);
  CHECK(room.margin_bytes == 10 * mib);
  CHECK(room.limit == "memory cgroup '/slice'");

  m.write("cgroup/slice/memory.current", 200 * mib);  // the limit was lowered
  m.write("cgroup/slice/memory.stat", "");
  room = m.look();
  CHECK(room.bytes == 0);
  CHECK(room.usable_bytes() == 0);
}

TEST_CASE("version 1: in a container the path is not below the mount, the mount is the group") {
  machine m;
  m.write("proc/self/cgroup", "3:cpuset:/\n4:cpu,memory:/outside/job\n0::/\n");
  m.write("cgroup/memory/memory.limit_in_bytes", 96 * mib);
  m.write("cgroup/memory/memory.usage_in_bytes", 16 * mib);
  m.write("cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 1048576\n");
  const headroom room = m.look();
  CHECK(room.bytes == 81 * mib);
  CHECK(room.limit == "memory cgroup '/'");
}

TEST_CASE("swap is room, as far as the group may use it") {
  machine m;
  m.write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\nSwapFree: 102400 kB\n");
  CHECK(m.look().bytes == 612 * mib);
  m.write("proc/self/cgroup", "0::/\n");
  m.write("cgroup/memory.max", 64 * mib);
  m.write("cgroup/memory.current", 0);
  CHECK(m.look().bytes == 164 * mib);
  m.write("cgroup/memory.swap.max", 8 * mib);
  m.write("cgroup/memory.swap.current", 3 * mib);
  CHECK(m.look().bytes == 69 * mib);
}
