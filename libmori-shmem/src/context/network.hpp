// network.hpp - the PEs of a context that are not mapped: who reaches whom how, their
// data connections and the proxy that serves them. The engine says where rings and
// memory are (network_site).
#pragma once

#include "context/heap_memory.hpp"
#include "network/proxy.hpp"
#include "network/ring_memory.hpp"

#include <mori/link/group.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace mori::shmem_core {

// What an engine lends to the network. It outlives the proxy.
struct network_site {
  std::vector<mori_shmem_ring_v1> rings;  // as the host reaches them
  std::unique_ptr<own_memory> memory;
  uint64_t spin_ns = 0;
  uint64_t longest_nap_ns = 0;  // 0: all producers wake the proxy
  mori_shmem_driver_v1* driver = nullptr;
};

class network {
 public:
  struct plan {
    ring_shape shape;
    int wake_fd = -1;
  };
  struct hooks {
    std::function<base::result<network_site>(const plan&)> open_site;
    std::function<bool()> is_ended;
    std::function<bool(int pe)> has_left;
    std::function<void(base::failure, int32_t operation, int pe)> raise;
  };

  // Collective: succeeds or fails on all PEs alike. Null when all PEs are mapped at all PEs. Notes
  // in `memory` which PEs are reached by it.
  static base::result<std::unique_ptr<network>> create(link::group& group, const settings& with,
                                                       heap_memory& memory, const hooks& use,
                                                       base::deadline until);

  void await_rest() { proxy_->await_rest(); }
  // From here on nobody is served; see proxy.hpp.
  void stop(uint64_t budget_ns) { proxy_->stop(budget_ns); }

 private:
  std::unique_ptr<proxy> proxy_;
};

}  // namespace mori::shmem_core
