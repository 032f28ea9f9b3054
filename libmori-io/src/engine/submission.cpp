// submission.cpp - how a request becomes a transfer on its way: checked without the
// lock, then sent at once by the submitting thread if nobody holds the lock, else
// by who does. Jobs of direct backends are here too.
#include <mori/io_types.h>
#include <mori/base/boundary.hpp>

#include <algorithm>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

// What a submitting thread moves itself by a direct backend before it returns.
constexpr uint64_t inline_job_bytes = 64 * 1024;
// What one job moves before the next has its turn.
constexpr uint64_t job_turn_bytes = 1 << 20;

uint8_t rank_of(int32_t priority) {
  switch (priority) {
    case MORI_IO_PRIORITY_LATENCY: return 0;
    case MORI_IO_PRIORITY_BULK: return 2;
    default: return 1;
  }
}

base::status check_pieces(const session_record& of, const mori_io_request& request) {
  const uint64_t local_bytes = of.local->size_bytes, remote_bytes = of.remote->size_bytes;
  uint64_t total = 0;
  for (uint64_t i = 0; i < request.piece_count; ++i) {
    const uint64_t bytes = request.in_sizes_bytes[i];
    const uint64_t local = request.in_local_offsets[i], remote = request.in_remote_offsets[i];
    if (!memory::inside(local, bytes, local_bytes))
      return base::fail(MORI_E_INVALID, "piece {}: local bytes {} + {} are outside region {} of {}",
                        i, local, bytes, of.local->id, local_bytes);
    if (!memory::inside(remote, bytes, remote_bytes))
      return base::fail(MORI_E_INVALID,
                        "piece {}: remote bytes {} + {} are outside region {} of {} of engine '{}'",
                        i, remote, bytes, of.remote->region, remote_bytes, of.remote->engine_key);
    if (total + bytes < total)
      return base::fail(MORI_E_INVALID, "piece {}: the sizes add up to more than 2^64 bytes", i);
    total += bytes;
  }
  return {};
}

// Copies what is not empty; in order of remote offsets; neighbours on both sides become one.
void fill_pieces(std::vector<memory::piece>& to, const mori_io_request& request) {
  bool sorted = true;
  for (uint64_t i = 0; i < request.piece_count; ++i) {
    const memory::piece each{request.in_local_offsets[i], request.in_remote_offsets[i],
                             request.in_sizes_bytes[i]};
    if (each.bytes == 0) continue;
    if (!to.empty()) {
      memory::piece& last = to.back();
      if (last.remote_offset + last.bytes == each.remote_offset &&
          last.local_offset + last.bytes == each.local_offset) {
        last.bytes += each.bytes;
        continue;
      }
      sorted &= last.remote_offset <= each.remote_offset;
    }
    to.push_back(each);
  }
  if (sorted) return;
  std::sort(to.begin(), to.end(), [](const memory::piece& a, const memory::piece& b) {
    return a.remote_offset < b.remote_offset;
  });
  size_t last = 0;
  for (size_t i = 1; i < to.size(); ++i) {
    if (to[last].remote_offset + to[last].bytes == to[i].remote_offset &&
        to[last].local_offset + to[last].bytes == to[i].local_offset)
      to[last].bytes += to[i].bytes;
    else
      to[++last] = to[i];
  }
  to.resize(last + 1);
}

}  // namespace

base::status engine::check_request(const session_record& of, const mori_io_request& request) const {
  MORI_CHECK(check_alive());
  const bool reads = request.operation == MORI_IO_READ;
  if (!reads && request.operation != MORI_IO_WRITE)
    return base::fail(MORI_E_INVALID, "operation {} is neither MORI_IO_READ nor MORI_IO_WRITE",
                      request.operation);
  if (request.priority < MORI_IO_PRIORITY_NORMAL || request.priority > MORI_IO_PRIORITY_BULK)
    return base::fail(MORI_E_INVALID, "priority {} is none of MORI_IO_PRIORITY_*",
                      request.priority);
  for (const auto& [name, flag] : {std::pair("disable_notification", request.disable_notification),
                                   std::pair("enqueue_completion", request.enqueue_completion)})
    if (flag != 0 && flag != 1)
      return base::fail(MORI_E_INVALID, "{} {} is neither 0 nor 1", name, flag);
  if (request.metadata_bytes > wire::max_metadata_bytes)
    return base::fail(MORI_E_INVALID, "metadata_bytes {} is more than {}", request.metadata_bytes,
                      wire::max_metadata_bytes);
  if (request.metadata_bytes > 0) MORI_CHECK(base::check_out(request.in_metadata, "in_metadata"));
  if (request.timeout_ns > max_timeout_ns)
    return base::fail(MORI_E_INVALID, "timeout_ns {} is more than {} (a day)", request.timeout_ns,
                      max_timeout_ns);
  if (request.piece_count > 0) {
    MORI_CHECK(base::check_out(request.in_local_offsets, "in_local_offsets"));
    MORI_CHECK(base::check_out(request.in_remote_offsets, "in_remote_offsets"));
    MORI_CHECK(base::check_out(request.in_sizes_bytes, "in_sizes_bytes"));
  }
  const int32_t needed = reads ? MORI_IO_ACCESS_READ : MORI_IO_ACCESS_WRITE;
  if ((of.remote->access & needed) == 0)
    return base::fail(MORI_E_INVALID, "region {} of engine '{}' may not be {}", of.remote->region,
                      of.remote->engine_key, reads ? "read" : "written");
  if (of.local->revoked.load(std::memory_order_acquire))
    return base::fail(MORI_E_STATE, "region {} was deregistered", of.local->id);
  return check_pieces(of, request);
}

base::status engine::fill(transfer_record& to, const session_record& of,
                          const mori_io_request& request) {
  to.is_read = request.operation == MORI_IO_READ;
  to.notifies = request.disable_notification == 0;
  to.priority = rank_of(request.priority != 0 ? request.priority : of.priority);
  to.remote_region = of.remote->region;
  to.capability = to.is_read ? of.remote->read_capability : of.remote->write_capability;
  to.uid = request.uid;
  to.local = of.local.get();
  to.tag = request.tag;
  to.enqueues = request.enqueue_completion == 1;
  uint64_t total = 0;
  for (uint64_t i = 0; i < request.piece_count; ++i) total += request.in_sizes_bytes[i];
  to.total_bytes = total;
  if (request.piece_count == 1) {
    to.few_pieces[0] = {request.in_local_offsets[0], request.in_remote_offsets[0], total};
    to.pieces = std::span(to.few_pieces).first(total > 0 ? 1 : 0);
  } else if (request.piece_count > 1) {
    to.piece_store = take_piece_store(request.piece_count);
    fill_pieces(to.piece_store, request);
    to.pieces = to.piece_store;
  }
  if (count_slices(to, min_chunk_bytes) > wire::max_slices)
    return base::fail(MORI_E_INVALID, "the transfer has more than {} slices", wire::max_slices);
  if (request.metadata_bytes > 0) {
    const auto* const begin = static_cast<const std::byte*>(request.in_metadata);
    to.metadata_store.assign(begin, begin + request.metadata_bytes);
    to.metadata = to.metadata_store;
  }
  const uint64_t now = base::now_ns();
  to.timeout_ns = request.timeout_ns;
  to.deadline_ns = request.timeout_ns == 0 ? UINT64_MAX : now + request.timeout_ns;
  to.begin_ns.store(now, std::memory_order_relaxed);
  to.end_ns.store(0, std::memory_order_relaxed);
  to.asked_uid.store(request.uid, std::memory_order_relaxed);
  to.asked_bytes.store(total, std::memory_order_relaxed);
  to.backend.store(MORI_IO_BACKEND_AUTO, std::memory_order_relaxed);
  to.retries.store(0, std::memory_order_relaxed);
  to.status.store(MORI_OK, std::memory_order_relaxed);
  return {};
}

// Counts the transfer, or waits until it may be counted.
base::status engine::reserve_room() {
  const auto reserve = [this] {
    uint64_t count = in_flight_.load(std::memory_order_relaxed);
    do {
      if (count >= settings_.transfer_count) return false;
    } while (!in_flight_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed));
    return true;
  };
  if (reserve()) return {};
  blocked_.fetch_add(1, std::memory_order_seq_cst);
  bool reserved = false;
  const bool came = wait(
      [&] {
        if (!reserved) reserved = reserve();
        return reserved || is_ended();
      },
      base::deadline::after(settings_.control_timeout_ns));
  blocked_.fetch_sub(1, std::memory_order_seq_cst);
  if (came && reserved) {
    if (!is_ended()) return {};
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
  }
  MORI_CHECK(check_alive());
  return base::fail(MORI_E_AGAIN, "{} transfers are in flight, {} are allowed; waited {} ms",
                    in_flight_.load(), settings_.transfer_count,
                    settings_.control_timeout_ns / base::ns_per_ms);
}

base::result<transfer_table::ref> engine::submit(const session_table::ref& of,
                                                 const mori_io_request& request) {
  MORI_CHECK(check_request(*of, request));
  MORI_CHECK(reserve_room());
  auto made = transfers().acquire();
  if (!made) {
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    return made.error();
  }
  transfer_record& what = **made;
  if (auto filled = fill(what, *of, request); !filled) {
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    return filled.error();
  }
  what.owner = shared_from_this();
  what.session = of;
  what.self = *made;
  const uint64_t begin_ns = what.begin_ns.load(std::memory_order_relaxed);
  const bool is_large = what.total_bytes > inline_job_bytes && role_.begin_submission(begin_ns);
  // Others may have the lock: then who holds it does the rest before he lets it go.
  transfer_record* first = submitted_.load(std::memory_order_relaxed);
  do {
    what.next_submitted = first;
  } while (!submitted_.compare_exchange_weak(first, &what, std::memory_order_seq_cst,
                                             std::memory_order_relaxed));
  if (core_.try_lock()) {
    now_ns_ = begin_ns;
    work_off();
    leave_core();
  }
  if (is_large) role_.end_submission(base::now_ns());
  return made;
}

// In the order of submission.
void engine::take_submitted() {
  transfer_record* newest = submitted_.exchange(nullptr, std::memory_order_seq_cst);
  transfer_record* oldest = nullptr;
  while (newest != nullptr) {
    transfer_record* const before = newest->next_submitted;
    newest->next_submitted = oldest;
    oldest = newest;
    newest = before;
  }
  while (oldest != nullptr) {
    transfer_record& next = *oldest;
    oldest = std::exchange(next.next_submitted, nullptr);
    next.stamp.store(++last_stamp_, std::memory_order_relaxed);
    ++next.session->counted.transfer_count;
    if (next.deadline_ns != UINT64_MAX) {
      deadlines_.push_back({next.deadline_ns, &next, last_stamp_});
      std::push_heap(deadlines_.begin(), deadlines_.end());
      if (next.deadline_ns < planned_ns_.load(std::memory_order_relaxed) && !driver_holds_) {
        planned_ns_.store(next.deadline_ns, std::memory_order_relaxed);
        kick();
      }
    }
    route(next);
  }
}

// Puts a transfer on the way that its session has at present.
void engine::route(transfer_record& what) {
  session_record& of = *what.session;
  const auto fail_now = [&](mori_status status, std::string text) {
    complete(what, status, text);
    release(what);
  };
  if (ended_.load(std::memory_order_relaxed))
    return fail_now(MORI_E_CANCELLED, "the engine has ended");
  if (of.local->revoked.load(std::memory_order_relaxed))
    return fail_now(MORI_E_CANCELLED, fmt::format("region {} was deregistered", of.local->id));
  if (of.to->is_gone)
    return fail_now(MORI_E_CANCELLED,
                    fmt::format("engine '{}' was deregistered or replaced", of.to->key()));
  if (of.is_revoked)
    return fail_now(MORI_E_NOT_FOUND, fmt::format("engine '{}' deregistered region {}",
                                                  of.to->key(), of.remote->region));
  if (of.backend == MORI_IO_BACKEND_AUTO)
    return fail_now(MORI_E_UNAVAILABLE, fmt::format("no backend reaches: {}", of.reason));
  what.backend.store(of.backend, std::memory_order_relaxed);
  ++counted_[static_cast<size_t>(of.backend)].transfer_count;
  if (!notifies_by(of.backend)) what.notifies = false;
  if (of.path != nullptr) {
    if (of.to->may_use(of.remote->region))
      start_job(what);
    else
      hold(what, *of.to);
    return;
  }
  what.where = stage::linked;
  auto& flows = protocol::initiator::is_small(what) ? of.small_flows : of.bulk_flows;
  what.of = &flows[what.priority];
  of.to->link.submit(what, now_ns_);
  need(*of.to);
}

void engine::hold(transfer_record& what, peer& at) {
  what.where = stage::holding;
  at.holding.push_back(&what);
  ask_attach(*what.session);
  need(at);
}

// Once a generation for each region.
void engine::ask_attach(const session_record& of) {
  peer& at = *of.to;
  if (!at.link.is_ready()) return;
  peer::attachment& asked = at.attachments[of.remote->region];
  if (asked.generation == at.link.generation()) return;
  asked = {at.link.generation(), false};
  const bool writes = (of.remote->access & MORI_IO_ACCESS_WRITE) != 0;
  at.link.ask_attach(
      {.capability = writes ? of.remote->write_capability : of.remote->read_capability,
       .region = of.remote->region,
       .operation = writes ? MORI_IO_WRITE : MORI_IO_READ});
}

void engine::release_held(peer& of) {
  std::vector<transfer_record*> held;
  held.swap(of.holding);
  for (transfer_record* each : held) {
    --counted_[static_cast<size_t>(each->backend.load(std::memory_order_relaxed))].transfer_count;
    route(*each);
  }
}

// --- Jobs of direct backends.

void engine::start_job(transfer_record& what) {
  session_record& of = *what.session;
  what.where = stage::moving;
  what.job = {};
  what.job.along = of.path.get();
  what.job.is_read = what.is_read;
  what.job.pieces = what.pieces;
  what.path = of.path;
  what.mover = of.direct;
  ++of.to->moving;
  jobs_.push_back(&what);
  if (const auto started = what.mover->start(what.job); !started) {
    fail_over(what, started.error());
    return;
  }
  if (what.total_bytes <= inline_job_bytes || driver_holds_)
    advance_job(what, inline_job_bytes);
  else if (role_.is_taken())
    kick();
  else
    role_.hurry();
}

// False: the job is over.
bool engine::advance_job(transfer_record& what, uint64_t budget) {
  auto state = what.mover->advance(what.job, budget);
  if (!state) {
    fail_over(what, state.error());
    return false;
  }
  jobs_wait_ &= *state == transport::job_state::waiting;
  if (*state != transport::job_state::done) return true;
  stop_job(what);
  // A write is done when the peer knows of it; a read when its bytes are here.
  if (!what.notifies || what.is_read) complete(what, MORI_OK, {});
  if (!what.notifies) {
    release(what);
    return false;
  }
  what.moved_elsewhere = true;
  what.where = stage::linked;
  what.of = nullptr;
  peer& to = *what.session->to;
  to.link.submit(what, now_ns_);
  need(to);
  return false;
}

// Takes it from the list; the backend no longer knows it.
void engine::stop_job(transfer_record& what) {
  std::erase(jobs_, &what);
  what.mover.reset();
  what.path.reset();
  what.where = stage::idle;
  --what.session->to->moving;
}

void engine::run_jobs() {
  jobs_wait_ = true;
  const size_t count = jobs_.size();
  for (size_t i = 0; i < count && !jobs_.empty(); ++i) {
    next_job_ = next_job_ % jobs_.size();
    if (advance_job(*jobs_[next_job_], job_turn_bytes)) ++next_job_;
  }
}

// A direct backend cannot go on with this pair: the next one takes over, from the start. Nothing
// was notified, and nothing of the failed attempt can still be written.
void engine::fail_over(transfer_record& what, const base::failure& why) {
  session_record& of = *what.session;
  stop_job(what);
  const bool may_move = of.pinned == MORI_IO_BACKEND_AUTO && has_tcp_;
  base::log(MORI_LOG_WARN, "io: {} to engine '{}' failed: {}; {}", backend_name(of.backend),
            of.to->key(), why.text, may_move ? "TCP takes over" : "it is pinned");
  if (!may_move) {
    complete(what, why.status, why.text);
    release(what);
    return;
  }
  if (of.path != nullptr) {
    of.reason = fmt::format("{} failed: {}", backend_name(of.backend), why.text);
    of.path.reset();
    of.direct.reset();
    of.backend = MORI_IO_BACKEND_TCP;
  }
  ++of.counted.failover_count;
  ++counted_[MORI_IO_BACKEND_TCP].failover_count;
  route(what);
}

}  // namespace mori::io_core
