// device.hpp - one RDMA port, opened: its limits, memory that the device may
// reach, and what the device says of itself out of order. queue_pair.hpp moves
// bytes.
//
// Objects of a device keep it: it is closed when the last of them is gone. Safe
// from any thread.
#pragma once

#include <mori/link/verbs/choice.hpp>

#include <memory>
#include <mutex>

namespace mori::link::verbs {

namespace abi {
struct calls;
struct context;
struct pd;
struct mr;
}  // namespace abi

class device;

// Who may do what with registered memory. This device itself may always read it.
enum access : uint32_t {
  local_write = 1,   // results of reads and atomics are put there
  remote_write = 2,  // needs local_write
  remote_read = 4,
  remote_atomic = 8,  // needs local_write
};

// A registration: the pages are pinned and the keys valid as long as it lives. Destroying it makes
// the memory unreachable for the peers that know the key before the call returns; requests under
// way with it end in an access error there.
class memory {
 public:
  memory(std::shared_ptr<device> of, abi::mr* made, uint64_t bytes);
  ~memory();
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;

  uint32_t local_key() const;
  uint32_t remote_key() const;
  uint64_t size_bytes() const { return bytes_; }

 private:
  const std::shared_ptr<device> of_;  // shared with all that was made of it
  abi::mr* const made_;
  const uint64_t bytes_;
};

struct device_limits {
  uint64_t max_registration_bytes = 0;
  uint32_t max_registrations = 0;
  uint32_t max_message_bytes = 0;  // of one work request
  uint32_t max_queue_count = 0;    // work requests in one queue
  uint32_t max_completion_count = 0;
  uint32_t max_segments = 0;
  uint32_t max_reads_in_flight = 0;  // reads and atomics, as initiator
  uint32_t max_reads_served = 0;     // as target, of one queue pair
  bool has_atomics = false;
};

class device : public std::enable_shared_from_this<device> {
 public:
  // MORI_E_UNAVAILABLE: no library, no such device, or its port is not active.
  static base::result<std::shared_ptr<device>> open(const port_choice& what, const settings& with);
  ~device();
  device(const device&) = delete;
  device& operator=(const device&) = delete;

  const port_choice& port() const { return port_; }
  const settings& with() const { return with_; }
  const device_limits& limits() const { return limits_; }
  uint16_t mtu() const { return mtu_; }  // of the port, or MORI_IB_PATH_MTU if that is smaller
  uint16_t lid() const { return lid_; }  // 0: Ethernet
  bool is_ethernet() const { return is_ethernet_; }

  // Host memory, or GPU memory where the kernel has a peer-memory module for it. MORI_E_INVALID:
  // nothing, or more than the device takes; MORI_E_NO_MEMORY: a limit of the system, with its name.
  base::result<std::shared_ptr<memory>> register_memory(void* begin, uint64_t bytes,
                                                        uint32_t access);
  // GPU memory exported as a dma-buf. The device sees it at `address`.
  base::result<std::shared_ptr<memory>> register_dmabuf(int fd, uint64_t offset, uint64_t bytes,
                                                        uint64_t address, uint32_t access);
  // Memory that only this side uses: registrations that are alive and cover it are shared. None
  // outlives its users, so an address that was freed and is used anew never meets an old one. For
  // the same reason memory that peers reach is never shared: its key has to die with its region.
  base::result<std::shared_ptr<memory>> borrow_memory(void* begin, uint64_t bytes);
  size_t borrowed_count();

  // Readable when the device has something to say; then look(). Only from one thread at a time.
  int event_fd() const;
  void look();
  // Empty while all is well: "port 1 of rxe0 is down", "rxe0 was removed". A port may come back, a
  // device does not.
  base::status check();

  const abi::calls& library() const { return *library_; }
  abi::context* context() const { return context_; }
  abi::pd* domain() const { return domain_; }

 private:
  device(const abi::calls& library, const port_choice& port, const settings& with);
  base::status open();
  base::status query();
  base::status check_range(uint64_t begin, uint64_t bytes);
  base::failure refusal(int os_errno, uint64_t bytes) const;

  struct borrowed {
    uint64_t begin = 0;
    uint64_t bytes = 0;
    std::weak_ptr<memory> what;
  };

  const abi::calls* library_;
  port_choice port_;
  settings with_;
  device_limits limits_;
  uint16_t mtu_ = 0;
  uint16_t lid_ = 0;
  bool is_ethernet_ = false;
  abi::context* context_ = nullptr;
  abi::pd* domain_ = nullptr;
  std::mutex lock_;
  std::vector<borrowed> borrowed_;
  std::string trouble_;
  bool is_gone_ = false;
};

// Of this machine, judged by the environment; why there is nothing to judge, when the environment
// does not parse. Devices that MORI_RDMA_DEVICES names in vain are logged.
base::result<std::vector<port_choice>> ports_here();

}  // namespace mori::link::verbs
