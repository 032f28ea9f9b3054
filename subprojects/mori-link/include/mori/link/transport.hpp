// transport.hpp - how a transport says whether it can be used, always with a
// reason that a person understands. The group asks before it passes
// descriptors; callers list the answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mori::link {

// Where a process runs, as far as transports care.
struct place {
  std::string node_id;    // equal: the ranks count as one node
  uint64_t host_key = 0;  // kernel and network namespace; 0: unknown
};

// This process's. node_id empty: the boot id stands in.
place this_place(const std::string& node_id);

struct answer {
  bool yes = false;
  std::string reason;  // "memfd and descriptor passing work", "not in this build"
};

class transport {
 public:
  virtual ~transport() = default;
  virtual const char* name() const = 0;
  virtual answer viable() const = 0;  // on this machine, in this build
  virtual answer reachable(const place& from, const place& to) const = 0;
};

// Best first: "shared memory", "verbs", "tcp". Never destroyed.
std::span<const transport* const> transports();
const transport& shared_memory_transport();
const transport& tcp_transport();
const transport& verbs_transport();

}  // namespace mori::link
