// headroom.hpp - how much more memory may be taken before the kernel ends a
// process for it. Beyond a memory cgroup's limit, or the machine's, fallocate()
// on shared memory does not fail: the kernel kills. So whoever reserves pages
// must look first; see segment::reserve.
#pragma once

#include <cstdint>
#include <string>

namespace mori::link {

struct headroom {
  uint64_t bytes = UINT64_MAX;
  uint64_t margin_bytes = 0;  // to be left for others that take memory meanwhile
  std::string limit;          // whose: "memory cgroup '/job'", "this machine"

  uint64_t usable_bytes() const { return bytes > margin_bytes ? bytes - margin_bytes : 0; }
};

struct headroom_sources {
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};

// The tightest of this process's limits. What cannot be read is no limit.
headroom memory_headroom(const headroom_sources& from = {});

}  // namespace mori::link
