// device.cpp - see device.hpp.
#include <mori/base/log.hpp>
#include <mori/link/verbs/device.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "verbs/library.hpp"

namespace mori::link::verbs {
namespace {

constexpr uint64_t page_bytes = 4096;

// Opens the device of that name from the library's list.
base::result<abi::context*> open_named(const abi::calls& library, const std::string& name) {
  int count = 0;
  abi::device** const list = library.ibv_get_device_list(&count);
  if (list == nullptr) return base::fail_os(errno, "no list of RDMA devices");
  abi::context* opened = nullptr;
  bool found = false;
  for (int i = 0; i < count && !found; ++i) {
    if (library.ibv_get_device_name(list[i]) != name) continue;
    found = true;
    opened = library.ibv_open_device(list[i]);
  }
  const int problem = errno;
  library.ibv_free_device_list(list);
  if (!found)
    return base::fail(MORI_E_UNAVAILABLE,
                      "{} has no driver in user space (of {} devices that have)", name, count);
  if (opened == nullptr) return base::fail_os(problem, "{} cannot be opened", name);
  return opened;
}

// 1 .. 5 stand for 256 .. 4096.
uint16_t mtu_bytes(int code) { return static_cast<uint16_t>(128 << std::clamp(code, 1, 5)); }

uint32_t positive(int value) { return value > 0 ? static_cast<uint32_t>(value) : 0; }

}  // namespace

// --- Registrations.

memory::memory(std::shared_ptr<device> of, abi::mr* made, uint64_t bytes)
    : of_(std::move(of)), made_(made), bytes_(bytes) {}

memory::~memory() {
  if (const int problem = of_->library().ibv_dereg_mr(made_); problem != 0)
    base::log(MORI_LOG_ERROR, "{} did not let go of {} registered bytes: errno {}",
              of_->port().device, bytes_, problem);
}

uint32_t memory::local_key() const { return made_->lkey; }
uint32_t memory::remote_key() const { return made_->rkey; }

base::status device::check_range(uint64_t begin, uint64_t bytes) {
  if (begin == 0 || bytes == 0)
    return base::fail(MORI_E_INVALID, "{} bytes at {:#x} cannot be registered", bytes, begin);
  if (bytes > UINT64_MAX - begin)
    return base::fail(MORI_E_INVALID, "{} bytes at {:#x} go beyond the end of the address space",
                      bytes, begin);
  if (bytes > limits_.max_registration_bytes)
    return base::fail(MORI_E_INVALID, "{} bytes; {} registers at most {} at once", bytes,
                      port_.device, limits_.max_registration_bytes);
  return check();
}

// EAGAIN and ENOMEM mean the limit of locked memory more often than anything else.
base::failure device::refusal(int os_errno, uint64_t bytes) const {
  if (os_errno == ENOMEM || os_errno == EAGAIN)
    return {MORI_E_NO_MEMORY, os_errno,
            fmt::format("{} did not register {} bytes: the limit of locked memory (ulimit -l) or "
                        "of registrations ({}) is reached",
                        port_.device, bytes, limits_.max_registrations)};
  return base::fail_os(os_errno, "{} did not register {} bytes", port_.device, bytes);
}

base::result<std::shared_ptr<memory>> device::register_memory(void* begin, uint64_t bytes,
                                                              uint32_t access) {
  MORI_CHECK(check_range(reinterpret_cast<uintptr_t>(begin), bytes));
  abi::mr* const made = library_->ibv_reg_mr(domain_, begin, bytes, static_cast<int>(access));
  if (made == nullptr) return refusal(errno, bytes);
  return std::make_shared<memory>(shared_from_this(), made, bytes);
}

base::result<std::shared_ptr<memory>> device::register_dmabuf(int fd, uint64_t offset,
                                                              uint64_t bytes, uint64_t address,
                                                              uint32_t access) {
  MORI_CHECK(check_range(address, bytes));
  if (library_->ibv_reg_dmabuf_mr == nullptr)
    return base::fail(MORI_E_UNSUPPORTED, "this libibverbs is too old for dma-bufs");
  abi::mr* const made =
      library_->ibv_reg_dmabuf_mr(domain_, offset, bytes, address, fd, static_cast<int>(access));
  if (made == nullptr && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EPROTONOSUPPORT))
    return base::fail(MORI_E_UNSUPPORTED, "{} does not register dma-bufs", port_.device);
  if (made == nullptr) return refusal(errno, bytes);
  return std::make_shared<memory>(shared_from_this(), made, bytes);
}

// Whole pages, so that neighbours in one page share it.
base::result<std::shared_ptr<memory>> device::borrow_memory(void* begin, uint64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  MORI_CHECK(check_range(at, bytes));
  const uint64_t first = at / page_bytes * page_bytes;
  const uint64_t end = (at + bytes + page_bytes - 1) / page_bytes * page_bytes;
  const std::lock_guard guard(lock_);
  std::erase_if(borrowed_, [](const borrowed& each) { return each.what.expired(); });
  for (const borrowed& each : borrowed_)
    if (each.begin <= first && end <= each.begin + each.bytes)
      if (auto shared = each.what.lock()) return shared;
  abi::mr* const made =
      library_->ibv_reg_mr(domain_, reinterpret_cast<void*>(first), end - first, local_write);
  if (made == nullptr) return refusal(errno, bytes);
  auto fresh = std::make_shared<memory>(shared_from_this(), made, end - first);
  borrowed_.push_back({first, end - first, fresh});
  return fresh;
}

size_t device::borrowed_count() {
  const std::lock_guard guard(lock_);
  return static_cast<size_t>(
      std::ranges::count_if(borrowed_, [](const borrowed& each) { return !each.what.expired(); }));
}

// --- Opening and closing.

device::device(const abi::calls& library, const port_choice& port, const settings& with)
    : library_(&library), port_(port), with_(with) {}

device::~device() {
  if (domain_ != nullptr) library_->ibv_dealloc_pd(domain_);
  if (context_ != nullptr) library_->ibv_close_device(context_);
}

base::status device::open() {
  MORI_TRY(context_, open_named(*library_, port_.device));
  MORI_CHECK(query());
  domain_ = library_->ibv_alloc_pd(context_);
  if (domain_ == nullptr) return base::fail_os(errno, "{}: no protection domain", port_.device);
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return base::fail_os(errno, "{}: its events cannot be polled", port_.device);
  return {};
}

base::status device::query() {
  abi::device_attr of{};
  if (const int problem = library_->ibv_query_device(context_, &of); problem != 0)
    return base::fail_os(problem, "{} does not tell its limits", port_.device);
  abi::port_attr port{};
  if (const int problem = library_->ibv_query_port(context_, port_.port, &port); problem != 0)
    return base::fail_os(problem, "{} has no port {}", port_.device, port_.port);
  if (port.state != abi::state_active)
    return base::fail(MORI_E_UNAVAILABLE, "port {} of {} is not active", port_.port, port_.device);
  limits_.max_registration_bytes = of.max_mr_size;
  limits_.max_registrations = positive(of.max_mr);
  limits_.max_message_bytes = port.max_msg_sz;
  limits_.max_queue_count = positive(of.max_qp_wr);
  limits_.max_completion_count = positive(of.max_cqe);
  limits_.max_segments = positive(of.max_sge);
  limits_.max_reads_in_flight = positive(of.max_qp_init_rd_atom);
  limits_.max_reads_served = positive(of.max_qp_rd_atom);
  limits_.has_atomics = of.atomic_cap != 0;
  lid_ = port.lid;
  is_ethernet_ = port.link_layer != abi::layer_infiniband && port.link_layer != 0;
  mtu_ = std::min(mtu_bytes(port.active_mtu), with_.path_mtu.value_or(UINT16_MAX));
  return {};
}

base::result<std::shared_ptr<device>> device::open(const port_choice& what, const settings& with) {
  if (!what.is_usable) return base::fail(MORI_E_UNAVAILABLE, "{}: {}", what.device, what.reason);
  MORI_TRY(const abi::calls* const library, abi::library());
  std::shared_ptr<device> made(new device(*library, what, with));
  MORI_CHECK(made->open());
  return made;
}

// --- Events.

int device::event_fd() const { return context_->async_fd; }

void device::look() {
  abi::async_event event{};
  while (library_->ibv_get_async_event(context_, &event) == 0) {
    const int type = event.event_type;
    const int port = event.element.port_num;
    library_->ibv_ack_async_event(&event);
    const std::lock_guard guard(lock_);
    if (type == abi::event_device_fatal) {
      is_gone_ = true;
      trouble_ = fmt::format("{} was removed, or has failed for good", port_.device);
    } else if (type == abi::event_port_err && port == port_.port && !is_gone_) {
      trouble_ = fmt::format("port {} of {} is down", port, port_.device);
    } else if (type == abi::event_port_active && port == port_.port && !is_gone_) {
      trouble_.clear();
    } else {
      continue;
    }
    base::log(MORI_LOG_WARN, "rdma: {}",
              trouble_.empty() ? fmt::format("port {} of {} is up", port, port_.device) : trouble_);
  }
}

base::status device::check() {
  const std::lock_guard guard(lock_);
  if (trouble_.empty()) return {};
  return base::failure{MORI_E_UNAVAILABLE, 0, trouble_};
}

base::result<std::vector<port_choice>> ports_here() {
  MORI_TRY(const settings with, settings_from_environment());
  const auto all = read_inventory();
  for (const std::string& each : with.devices.unmet(all))
    base::log(MORI_LOG_WARN, "MORI_RDMA_DEVICES names {}, which is not here", each);
  return judge_ports(all, with);
}

}  // namespace mori::link::verbs
