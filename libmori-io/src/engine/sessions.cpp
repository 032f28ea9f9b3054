// sessions.cpp - pairs of regions and the way between them: the best backend that
// reaches, with the reason why not a better one.
#include <mori/io_types.h>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

// What proving a way may take; a peer of this node answers in microseconds or not at all.
constexpr uint64_t attach_patience_ns = 250 * base::ns_per_ms;
// A way is chosen again when its backend was taken out meanwhile.
constexpr int most_choices = 8;
constexpr int32_t by_merit[] = {MORI_IO_BACKEND_XGMI, MORI_IO_BACKEND_RDMA};

void add_reason(std::string& to, const char* backend, std::string_view why) {
  if (!to.empty()) to += "; ";
  to += fmt::format("{}: {}", backend, why);
}

}  // namespace

bool engine::notifies_by(int32_t backend) const {
  if (backend == MORI_IO_BACKEND_TCP) return !tcp_.disable_notification;
  return !direct_[static_cast<size_t>(backend)].disable_notification;
}

// Asks the backends, best first; without the lock, since proving a way may take a moment.
engine::choice engine::choose(const session_record& of) {
  std::array<direct_backend, backend_count> backends;
  bool has_tcp = false;
  {
    const section held(*this);
    backends = direct_;
    has_tcp = has_tcp_;
  }
  choice made;
  const transport::pair between{of.local, of.remote, of.to->desc};
  for (const int32_t each : by_merit) {
    if (of.pinned != MORI_IO_BACKEND_AUTO && of.pinned != each) continue;
    const auto& backend = backends[static_cast<size_t>(each)].made;
    if (backend == nullptr) {
      add_reason(made.reason, backend_name(each), "was not created");
      continue;
    }
    auto path = backend->attach(between, base::deadline::after(attach_patience_ns));
    if (!path) {
      add_reason(made.reason, backend->name(), path.error().text);
      continue;
    }
    add_reason(made.reason, backend->name(), (*path)->text());
    made.backend = each;
    made.path = std::move(*path);
    made.direct = backend;
    return made;
  }
  if (of.pinned != MORI_IO_BACKEND_AUTO && of.pinned != MORI_IO_BACKEND_TCP) return made;
  if (!has_tcp)
    add_reason(made.reason, "TCP", "was not created");
  else if (of.local->location != MORI_IO_LOCATION_CPU)
    add_reason(made.reason, "TCP", "does not move GPU memory");
  else if (of.remote->location != MORI_IO_LOCATION_CPU)
    add_reason(made.reason, "TCP", "does not move GPU memory of the peer");
  else if (of.to->desc->port == 0 || of.to->desc->addresses.empty())
    add_reason(made.reason, "TCP", "the peer has no address");
  else
    made.backend = MORI_IO_BACKEND_TCP;
  return made;
}

void engine::adopt(session_record& of, choice&& chosen) {
  of.backend = chosen.backend;
  of.path = std::move(chosen.path);
  of.direct = std::move(chosen.direct);
  of.reason = std::move(chosen.reason);
}

base::result<mori_io_session*> engine::create_session(uint32_t local_id, wire::memory_desc remote,
                                                      const mori_io_session_options& options) {
  MORI_CHECK(check_alive());
  if (options.backend < MORI_IO_BACKEND_AUTO || options.backend > MORI_IO_BACKEND_FABRIC)
    return base::fail(MORI_E_INVALID, "backend {} is none of MORI_IO_BACKEND_*", options.backend);
  if (options.priority < MORI_IO_PRIORITY_NORMAL || options.priority > MORI_IO_PRIORITY_BULK)
    return base::fail(MORI_E_INVALID, "priority {} is none of MORI_IO_PRIORITY_*",
                      options.priority);
  std::shared_ptr<const memory::region> local = find_region(local_id);
  if (local == nullptr)
    return base::fail(MORI_E_NOT_FOUND, "region {} is not registered", local_id);
  std::shared_ptr<peer> to;
  {
    const section held(*this);
    const auto found = peers_.find(remote.engine_key);
    if (found != peers_.end()) to = found->second;
  }
  if (to == nullptr)
    return base::fail(MORI_E_NOT_FOUND, "engine '{}' is not registered", remote.engine_key);
  if (to->desc->instance != remote.instance)
    return base::fail(MORI_E_NOT_FOUND,
                      "region {} belongs to another instance of engine '{}' than is registered",
                      remote.region, remote.engine_key);
  MORI_TRY(session_table::ref made, sessions().acquire());
  session_record& of = *made;
  {
    // A revocation that comes while the way is being chosen finds it here.
    const section held(*this);
    of.owner = shared_from_this();
    of.local = std::move(local);
    of.remote = std::make_shared<const wire::memory_desc>(std::move(remote));
    of.to = std::move(to);
    of.pinned = options.backend;
    of.priority = options.priority;
    opening_.push_back(&of);
  }
  auto opened = open_session(made);
  const section held(*this);
  std::erase(opening_, &of);
  return opened;
}

base::result<mori_io_session*> engine::open_session(const session_table::ref& made) {
  session_record& of = *made;
  for (int round = 0; round < most_choices; ++round) {
    choice chosen = choose(of);
    if (chosen.backend == MORI_IO_BACKEND_AUTO)
      return base::fail(MORI_E_STATE, "no backend reaches region {} of engine '{}': {}",
                        of.remote->region, of.remote->engine_key, chosen.reason);
    const bool is_slow = chosen.backend == MORI_IO_BACKEND_TCP &&
                         of.to->desc->node_id == desc_.node_id && !chosen.reason.empty() &&
                         direct_of_node();
    const std::string reason = chosen.reason;
    MORI_TRY(mori_io_session * opened, publish_session(made, chosen));
    if (opened == nullptr) continue;
    if (is_slow)
      base::log(MORI_LOG_WARN, "io: TCP to engine '{}' of the same node: {}", of.to->key(), reason);
    return opened;
  }
  return base::fail(MORI_E_AGAIN, "the engine's backends changed {} times meanwhile", most_choices);
}

// What was revoked or taken out while the way was being chosen is seen here, under the same lock as
// the session gets its handle. Null: choose again.
base::result<mori_io_session*> engine::publish_session(const session_table::ref& made,
                                                       choice& chosen) {
  session_record& of = *made;
  const section held(*this);
  if (of.is_revoked)
    return base::fail(MORI_E_NOT_FOUND, "engine '{}' deregistered region {} meanwhile",
                      of.to->key(), of.remote->region);
  const auto index = static_cast<size_t>(chosen.backend);
  const bool is_there =
      chosen.backend == MORI_IO_BACKEND_TCP ? has_tcp_ : direct_[index].made == chosen.direct;
  if (!is_there) return nullptr;
  adopt(of, std::move(chosen));
  return sessions().publish(made);
}

// A slow path on one node is worth a warning only where a fast one was wanted.
bool engine::direct_of_node() {
  const section held(*this);
  return direct_[MORI_IO_BACKEND_XGMI].made != nullptr;
}

mori_io_stats engine::session_stats(session_record& of) {
  const section held(*this);
  mori_io_stats out{};
  of.counted.write_to(out);
  out.backend = of.backend;
  out.is_alive = !ended_ && !of.local->revoked && !of.is_revoked && !of.to->is_gone &&
                 !of.to->is_dead && of.backend != MORI_IO_BACKEND_AUTO;
  std::snprintf(out.reason, sizeof out.reason, "%s", of.reason.c_str());
  return out;
}

}  // namespace mori::io_core
