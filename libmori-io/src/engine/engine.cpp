// engine.cpp - the life of an engine: made, running, ended; its backends.
#include "engine/engine.hpp"

#include <mori/base/env.hpp>
#include <mori/base/log.hpp>
#include <mori/base/quiet_signals.hpp>
#include <mori/link/transport.hpp>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "engine/network.hpp"

namespace mori::io_core {
namespace {

constexpr uint64_t farewell_ns = 500 * base::ns_per_ms;

base::status add_to_epoll(int epoll, int fd, uint64_t ticket) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ticket;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return base::fail_os(errno, "cannot watch a descriptor");
  return {};
}

}  // namespace

// What a link from a guest asks of its engine.
class guest_host final : public protocol::target::host {
 public:
  explicit guest_host(engine& of) : of_(of) {}
  std::shared_ptr<const memory::region> find_region(uint32_t id) override {
    return of_.find_region(id);
  }
  std::string_view refusal() override {
    return of_.has_tcp_ ? std::string_view() : "the target engine has no TCP backend";
  }
  void on_delivered(const protocol::delivery& what) override {
    of_.on_delivered(*of_.speaking_, what);
  }
  void on_revoked(uint32_t region) override { of_.on_revoked(*of_.speaking_, region); }

 private:
  engine& of_;
};

engine::engine(const settings& with)
    : settings_(with), keys_(wire::key_pair::make()), inbox_(with.inbound_count) {
  guest_host_ = std::make_unique<guest_host>(*this);
}

engine::~engine() { shut_down(); }

base::status engine::open() {
  epoll_ = base::unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return base::fail_os(errno, "no epoll descriptor");
  kick_fd_ = base::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick_fd_) return base::fail_os(errno, "no event descriptor");
  MORI_CHECK(add_to_epoll(epoll_.get(), kick_fd_.get(), kick_ticket));
  MORI_TRY(transport::listening at, transport::listen_at(settings_.host, settings_.port));
  for (const base::unique_fd& each : at.sockets)
    MORI_CHECK(add_to_epoll(epoll_.get(), each.get(), listener_ticket));
  listeners_ = std::move(at.sockets);
  char hostname[wire::max_host_bytes + 1] = {};
  ::gethostname(hostname, sizeof hostname - 1);
  const std::string node = base::env_text("MORI_NODE_ID").value_or("");
  if (node.size() > wire::max_node_bytes)
    return base::fail(MORI_E_INVALID, "MORI_NODE_ID has {} bytes, {} are allowed", node.size(),
                      wire::max_node_bytes);
  desc_ = wire::engine_desc{.key = settings_.key,
                            .node_id = link::this_place(node).node_id,
                            .hostname = hostname,
                            .addresses = std::move(at.told),
                            .port = at.port,
                            .os_process_id = ::getpid(),
                            .instance = instance_,
                            .public_key = keys_.public_key};
  if (settings_.caller_progresses) return {};
  const base::quiet_signals quiet;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "mori-io");
  return {};
}

base::result<std::shared_ptr<engine>> engine::create(const settings& with) {
  const std::shared_ptr<engine> made(new engine(with));
  MORI_CHECK(made->open());
  return made;
}

void engine::run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    if (!role_.wait_for_turn()) continue;
    if (!role_.take()) {
      role_.nap();
      continue;
    }
    own_thread_drives_.store(true, std::memory_order_seq_cst);
    if (!role_.is_wanted()) turn(UINT64_MAX);
    own_thread_drives_.store(false, std::memory_order_seq_cst);
    role_.leave();
  }
}

base::status engine::check_alive() const {
  if (is_ended()) return base::fail(MORI_E_STATE, "engine '{}' has been destroyed", settings_.key);
  return {};
}

// Reads that are complete and copies that are done are still told to their targets; the rest ends.
void engine::shut_down() {
  if (ended_.exchange(true, std::memory_order_seq_cst)) return;
  if (!epoll_ || desc_.key.empty()) return;  // never opened
  {
    const section held(*this);
    now_ns_ = base::now_ns();
    take_submitted();
    for_each_transfer([&](transfer_record& what) {
      end_transfer(what, MORI_E_CANCELLED, "the engine has ended");
    });
    work_off();
  }
  wait(
      [this] {
        const section held(*this);
        bool idle = true;
        for (const auto& [key, each] : peers_)
          idle &= !each->link.has_work() || each->control == nullptr || !each->link.is_ready();
        return idle;
      },
      base::deadline::after(farewell_ns));
  stopping_.store(true, std::memory_order_release);
  kick();
  role_.hurry();
  if (thread_.joinable()) thread_.join();
  role_.rouse_all();
  const section held(*this);
  now_ns_ = base::now_ns();
  take_submitted();
  for (const auto& [key, each] : peers_) retire(each, "the engine has ended");
  for (const auto& [instance, each] : guests_) {
    each->link.say_goodbye("the engine has ended");
    flush(*each);
    lose_guest(*each, "the engine has ended");
  }
  dirty_.clear();
  dirty_guests_.clear();
  while (!connections_.empty()) drop_connection(*connections_.begin()->second);
  listeners_.clear();
  for (direct_backend& each : direct_) each = {};
}

base::result<link::byte_vector> engine::describe() const {
  MORI_CHECK(check_alive());
  return wire::pack(desc_);
}

// --- Backends.

base::status engine::create_backend(int32_t backend, const backend_settings& with) {
  MORI_CHECK(check_alive());
  switch (backend) {
    case MORI_IO_BACKEND_XGMI:
    case MORI_IO_BACKEND_TCP: break;
    case MORI_IO_BACKEND_RDMA: return base::fail(MORI_E_UNAVAILABLE, "RDMA is not in this build");
    case MORI_IO_BACKEND_FABRIC:
      return base::fail(MORI_E_UNSUPPORTED,
                        "FABRIC needs GPUs of one fabric pod, which this "
                        "library does not drive");
    default: return base::fail(MORI_E_INVALID, "backend {} is none of MORI_IO_BACKEND_*", backend);
  }
  const auto index = static_cast<size_t>(backend);
  {
    const section held(*this);
    if (backend == MORI_IO_BACKEND_TCP ? has_tcp_ : direct_[index].made != nullptr) {
      base::log(MORI_LOG_WARN, "io: engine '{}' has {} already; the second is ignored",
                settings_.key, backend_name(backend));
      return {};
    }
    if (backend == MORI_IO_BACKEND_TCP) {
      has_tcp_ = true;
      tcp_ = with;
      if (tcp_.stream_count == 0) tcp_.stream_count = 2;
      reasons_[index] =
          fmt::format("{} streams per peer, slices of {} bytes, {}", tcp_.stream_count,
                      tcp_.chunk_bytes, wire::name_of(settings_.security));
      for (const auto& [key, each] : peers_) each->link.set_chunk_bytes(tcp_.chunk_bytes);
    }
  }
  if (backend == MORI_IO_BACKEND_XGMI) {
    auto made =
        transport::make_xgmi({.stream_count = with.stream_count == 0 ? 64 : with.stream_count,
                              .event_count = with.event_count == 0 ? 64 : with.event_count});
    if (!made) {
      const section held(*this);
      reasons_[index] = made.error().text;
      return made.error();
    }
    MORI_CHECK(add_direct(backend, std::move(*made), with));
  }
  reconsider_sessions();
  return {};
}

base::status engine::add_direct(int32_t backend, std::shared_ptr<transport::backend> made,
                                const backend_settings& with) {
  std::vector<std::shared_ptr<memory::region>> known;
  {
    const std::shared_lock guard(regions_lock_);
    for (const auto& [id, each] : regions_) known.push_back(each);
  }
  // Descriptors that were packed before do not name it; those packed from now on do.
  for (const auto& each : known) {
    std::vector<wire::desc_blob> blobs;
    if (const auto told = made->describe(*each, blobs); !told) {
      base::log(MORI_LOG_WARN, "io: {} cannot share region {}: {}", made->name(), each->id,
                told.error().text);
      continue;
    }
    const std::unique_lock guard(regions_lock_);
    each->blobs.insert(each->blobs.end(), blobs.begin(), blobs.end());
  }
  const section held(*this);
  const auto index = static_cast<size_t>(backend);
  if (made->event_fd() >= 0)
    MORI_CHECK(add_to_epoll(epoll_.get(), made->event_fd(), backend_ticket));
  reasons_[index] = made->facts();
  direct_[index] = {std::move(made), with.disable_notification};
  return {};
}

// Sessions that are not pinned may have a better way now, or need another one.
void engine::reconsider_sessions() {
  sessions().for_each([this](session_table::ref& each) {
    session_record& of = *each;
    if (of.owner.get() != this) return;
    choice chosen = choose(of);
    const section held(*this);
    if (of.is_revoked) return;
    if (chosen.backend != of.backend || chosen.path == nullptr) adopt(of, std::move(chosen));
  });
}

base::status engine::remove_backend(int32_t backend) {
  MORI_CHECK(check_alive());
  const auto index = static_cast<size_t>(backend);
  std::shared_ptr<transport::backend> gone;
  std::vector<transfer_record*> homeless;
  {
    const section held(*this);
    now_ns_ = base::now_ns();
    if (backend < 0 || index >= backend_count ||
        (backend == MORI_IO_BACKEND_TCP ? !has_tcp_ : direct_[index].made == nullptr))
      return base::fail(MORI_E_NOT_FOUND, "engine '{}' has no backend {} ({})", settings_.key,
                        backend, backend_name(backend));
    take_submitted();
    reasons_[index] = "was removed";
    if (backend == MORI_IO_BACKEND_TCP) {
      has_tcp_ = false;
    } else {
      gone = std::move(direct_[index].made);
      direct_[index] = {};
    }
  }
  reconsider_sessions();
  {
    const section held(*this);
    now_ns_ = base::now_ns();
    for (size_t i = jobs_.size(); gone != nullptr && i-- > 0;) {
      transfer_record& each = *jobs_[i];
      if (each.mover != gone) continue;
      each.mover->cancel(each.job);
      stop_job(each);
      move_on(each, backend);
    }
    if (backend == MORI_IO_BACKEND_TCP)
      for_each_transfer([&](transfer_record& what) {
        if (what.where != stage::linked || what.told || what.cancelling || what.moved_elsewhere)
          return;
        what.moves_on = true;
        end_transfer(what, MORI_E_CANCELLED, "the TCP backend was removed");
      });
    work_off();
    planned_ns_.store(0, std::memory_order_relaxed);
  }
  kick();
  const bool came = wait(
      [this, backend] {
        const section held(*this);
        bool used = false;
        if (backend == MORI_IO_BACKEND_TCP)
          for_each_transfer([&](const transfer_record& what) { used |= what.moves_on; });
        return !used;
      },
      base::deadline::after(settings_.control_timeout_ns));
  if (!came)
    return base::fail(MORI_E_TIMEOUT, "transfers by {} did not end within {} ms",
                      backend_name(backend), settings_.control_timeout_ns / base::ns_per_ms);
  return {};
}

// Its backend was taken out, or could not be fenced: the session's next one goes on with it.
void engine::move_on(transfer_record& what, int32_t from) {
  ++what.session->counted.failover_count;
  ++counted_[static_cast<size_t>(from)].failover_count;
  route(what);
}

base::status engine::progress(uint64_t timeout_ns) {
  MORI_CHECK(check_alive());
  bool turned = false;
  const uint64_t patience = std::min(timeout_ns, max_timeout_ns);
  role_.want();
  if (role_.take()) {
    turn(patience);
    role_.note_foreground(base::now_ns());
    role_.leave();
    turned = true;
  }
  role_.want_no_more();
  if (turned) return {};
  // Another thread drives: what it does is progress too.
  waiter me;
  role_.add_sleeper(me);
  sleep_on(me.signal, 0, std::min(patience, base::ns_per_ms));
  role_.remove_sleeper(me);
  return {};
}

}  // namespace mori::io_core
