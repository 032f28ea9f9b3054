// xgmi_path.hpp - the ways between two memories of one node, once they are open. A path
// moves jobs; how it was proven and opened is xgmi.cpp's.
#pragma once

#include "local/attach.hpp"
#include "local/gpu_devices.hpp"
#include "local/gpu_share.hpp"
#include "local/mapping.hpp"
#include "transport/backend.hpp"

namespace mori::io_core::transport {

class xgmi_path : public path {
 public:
  virtual base::status start(job& what) = 0;
  virtual base::result<job_state> advance(job& what, uint64_t budget_bytes) = 0;
  virtual void cancel(job& what) = 0;
};

// Host memory of the other side: mapped here, or to be attached. One of the two is set.
struct remote_host {
  std::shared_ptr<local::mapping> mapping;        // shared with other paths; null: attached
  std::shared_ptr<local::attachment> attachment;  // likewise; null: mapped, or of this process
  uint64_t address = 0;                           // of the region: here, or there if attached
  std::string text;
};

// Host memory on both sides.
std::shared_ptr<xgmi_path> make_host_path(std::shared_ptr<const memory::region> mine,
                                          remote_host theirs);

// Memory that one device reaches on both sides: GPU memory, or pinned host memory.
struct device_sides {
  std::shared_ptr<local::gpu_copier> by;
  uint64_t local = 0;
  uint64_t remote = 0;
  std::shared_ptr<local::gpu_import> import;  // keeps `remote`; null: nothing to keep
  std::string text;
};
std::shared_ptr<xgmi_path> make_device_path(device_sides sides);

// GPU memory on one side, host memory that no device reaches on the other.
struct staged_sides {
  std::shared_ptr<local::staging_pool> pool;
  uint64_t device = 0;                        // of the region on the GPU
  bool device_is_local = false;               // the GPU side is this process's
  std::shared_ptr<local::gpu_import> import;  // keeps a remote `device`
  std::byte* host = nullptr;                  // where the GPU side is remote
  remote_host theirs;                         // where it is local
  std::string text;
};
std::shared_ptr<xgmi_path> make_staged_path(staged_sides sides);

}  // namespace mori::io_core::transport
