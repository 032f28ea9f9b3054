// proxy.cpp - see proxy.hpp.
#include "network/proxy.hpp"

#include <mori/base/log.hpp>
#include <mori/base/quiet_signals.hpp>

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace mori::shmem_core {
namespace {

constexpr int commands_per_step = 1024;
constexpr int frames_per_step = 16;
constexpr int reads_per_step = 4;
constexpr int events_per_step = 64;
constexpr size_t largest_queue_bytes = 1 << 20;
// The group says more of a PE that died than its data connection does; let it speak first.
constexpr uint64_t close_patience_ns = 500 * base::ns_per_ms;
constexpr uint64_t close_look_ns = 20 * base::ns_per_ms;
constexpr uint64_t rest_patience_ns = 2 * base::ns_per_s;
constexpr uint64_t parting_ns = 200 * base::ns_per_ms;
constexpr uint64_t shortest_nap_ns = 20'000;
constexpr int longest_seat_sleep_ms = 1;

int32_t operation_of(const mori_shmem_command_v1& command) {
  switch (command.kind) {
    case MORI_SHMEM_COMMAND_GET: return MORI_SHMEM_OP_GET;
    case MORI_SHMEM_COMMAND_ATOMIC: return MORI_SHMEM_OP_ATOMIC;
    default: return command.operation != 0 ? MORI_SHMEM_OP_PUT_SIGNAL : MORI_SHMEM_OP_PUT;
  }
}

const char* name_of(int32_t operation) {
  switch (operation) {
    case MORI_SHMEM_OP_GET: return "get";
    case MORI_SHMEM_OP_ATOMIC: return "atomic";
    case MORI_SHMEM_OP_PUT_SIGNAL: return "put with signal";
    default: return "put";
  }
}

}  // namespace

proxy::proxy(proxy_options&& options, std::unique_ptr<own_memory> memory,
             base::unique_fd wake_event)
    : options_(std::move(options)), memory_(std::move(memory)), wake_event_(std::move(wake_event)) {
  for (const mori_shmem_ring_v1& ring : options_.rings)
    rings_.emplace_back(ring, options_.pe_count);
}

base::result<std::unique_ptr<proxy>> proxy::start(proxy_options options,
                                                  std::unique_ptr<own_memory> memory,
                                                  base::unique_fd wake_event) {
  std::unique_ptr<proxy> made(
      new proxy(std::move(options), std::move(memory), std::move(wake_event)));
  MORI_CHECK(made->open_pollers());
  MORI_CHECK(made->open_lines());
  MORI_CHECK(made->start_thread());
  if (made->options_.driver != nullptr) {
    made->options_.driver->self = reinterpret_cast<uint64_t>(made.get());
    made->options_.driver->call = reinterpret_cast<uint64_t>(drive);
  }
  return made;
}

base::status proxy::open_pollers() {
  poller_ = base::unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  thread_poller_ = base::unique_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller_ || !thread_poller_) return base::fail_os(errno, "no epoll for the network's thread");
  seat_event_ = base::unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!seat_event_) return base::fail_os(errno, "no eventfd for the network's thread");
  const std::pair<int, int> watched[] = {{poller_.get(), seat_event_.get()},
                                         {thread_poller_.get(), wake_event_.get()},
                                         {thread_poller_.get(), poller_.get()}};
  for (const auto& [poller, fd] : watched) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
      return base::fail_os(errno, "an event of the network's thread cannot be watched");
  }
  return {};
}

base::status proxy::open_lines() {
  const auto lanes = static_cast<size_t>(options_.lane_count);
  line_of_.assign(static_cast<size_t>(options_.pe_count) * lanes, nullptr);
  for (link::peer_link& from : options_.links) {
    auto made = std::make_unique<line>();
    made->pe = from.rank;
    made->channel = std::move(from.channel);
    made->channel->set_limits({largest_payload_bytes, largest_queue_bytes});
    made->channel->allow_bulk(largest_chunk_bytes, options_.authenticates_bulk);
    made->talk = std::make_unique<conversation>(*memory_, options_.heap, *this,
                                                !options_.authenticates_bulk);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = made.get();
    if (::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, made->channel->fd(), &event) != 0)
      return base::fail_os(errno, "a data connection cannot be watched");
    line_of_[static_cast<size_t>(from.rank) * lanes + static_cast<size_t>(from.lane)] = made.get();
    lines_.push_back(std::move(made));
  }
  options_.links.clear();
  return {};
}

base::status proxy::start_thread() {
  const base::quiet_signals quiet;
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "mori-network");
      run();
    });
  } catch (const std::system_error& e) {
    return base::fail_os(e.code().value(), "no thread for the network");
  }
  return {};
}

proxy::~proxy() { stop(0); }

void proxy::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_event_.get(), &one, sizeof one);
}

void proxy::stop(uint64_t budget_ns) {
  if (!thread_.joinable()) return;
  stop_by_ns_ = base::deadline::after(budget_ns).when_ns();
  wake();
  thread_.join();
}

void proxy::await_rest() {
  const auto until = base::deadline::after(rest_patience_ns);
  while (!is_at_rest_.load() && !until.passed()) {
    wake();
    std::this_thread::sleep_for(std::chrono::nanoseconds(shortest_nap_ns));
  }
}

// Nothing escapes the thread.
void proxy::run() {
  try {
    serve();
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    fail({MORI_E_NO_MEMORY, 0, fmt::format("the network's thread ended: {}", e.what())},
         MORI_SHMEM_OP_NONE, options_.own_pe);
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  is_at_rest_ = true;
  __atomic_store_n(options_.asleep, 0u, __ATOMIC_SEQ_CST);
  for (const auto& each : lines_) each->channel.reset();
}

// True: there was something to do.
bool proxy::serve_once() {
  const std::lock_guard lock(mutex_);
  if (!serves()) {
    is_at_rest_ = true;
    return false;
  }
  const bool worked = step();
  if (worked && is_seat_taken_) {
    const uint64_t one = 1;
    (void)!::write(seat_event_.get(), &one, sizeof one);
  }
  return worked;
}

bool proxy::is_stop_due() {
  const uint64_t stop_by_ns = stop_by_ns_.load();
  if (stop_by_ns == UINT64_MAX) return false;
  const std::lock_guard lock(mutex_);
  return !serves() || is_idle() || base::now_ns() >= stop_by_ns;
}

void proxy::serve() {
  uint64_t worked_at_ns = base::now_ns();
  {
    // Opening the connections may have read frames of a quick peer.
    const std::lock_guard lock(mutex_);
    for (const auto& each : lines_) read(*each);
  }
  for (;;) {
    if (is_stop_due()) return part();
    if (serve_once()) {
      worked_at_ns = base::now_ns();
      nap_ns_ = 0;
    } else if (options_.spin_ns == 0 || is_seat_taken_ ||
               base::now_ns() - worked_at_ns >= options_.spin_ns) {
      sleep();
    }
  }
}

// --- The driver's seat

int32_t proxy::drive(uint64_t self, int32_t what) noexcept {
  auto& of = *reinterpret_cast<proxy*>(self);
  switch (what) {
    case MORI_SHMEM_DRIVE_BEGIN: return of.take_seat() ? 1 : 0;
    case MORI_SHMEM_DRIVE_STEP: return of.step_unless_busy() ? 1 : 0;
    case MORI_SHMEM_DRIVE_SLEEP:
      if (!of.step_unless_busy()) of.wait_in_seat();
      return 1;
    case MORI_SHMEM_DRIVE_END: of.leave_seat(); return 1;
    default: return 0;
  }
}

bool proxy::take_seat() {
  if (is_seat_taken_.exchange(true)) {
    // Its holder may be asleep, and who asks may have posted without waking anybody.
    if (__atomic_exchange_n(options_.asleep, 0u, __ATOMIC_SEQ_CST) != 0) wake();
    return false;
  }
  (void)::epoll_ctl(thread_poller_.get(), EPOLL_CTL_DEL, poller_.get(), nullptr);
  return true;
}

// The connections are the thread's again: this wakes it if something has come meanwhile.
void proxy::leave_seat() {
  clear_seat_event();
  epoll_event event{};
  event.events = EPOLLIN;
  (void)::epoll_ctl(thread_poller_.get(), EPOLL_CTL_ADD, poller_.get(), &event);
  is_seat_taken_ = false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !active_.empty() || !ending_.empty() || has_published_command()) wake();
}

// True: there was something to do, or somebody is at it. Nothing escapes into the caller's code.
bool proxy::step_unless_busy() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (has_ended_ || !serves()) return false;
  try {
    return step();
  } catch (const std::exception& e) {
    fail({MORI_E_NO_MEMORY, 0, fmt::format("the network cannot be served: {}", e.what())},
         MORI_SHMEM_OP_NONE, options_.own_pe);
    return true;
  }
}

void proxy::clear_seat_event() {
  uint64_t count = 0;
  (void)!::read(seat_event_.get(), &count, sizeof count);
}

void proxy::wait_in_seat() {
  epoll_event event{};
  (void)::epoll_wait(poller_.get(), &event, 1, longest_seat_sleep_ms);
  clear_seat_event();
  (void)step_unless_busy();
}

// True: there was something to do.
bool proxy::step() {
  bool worked = take_commands();
  worked = poll_lines() || worked;
  if (auto changed = memory_->flush(); !changed)
    fail(std::move(changed.error()), MORI_SHMEM_OP_NONE, options_.own_pe);
  publish();
  for (size_t i = 0; i < active_.size() && !has_failed_;) {
    line& each = *active_[i];
    worked = speak(each) || worked;
    if (each.channel && (each.talk->wants_to_speak() || each.channel->wants_write())) {
      ++i;
      continue;
    }
    each.is_active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  watch_ends();
  return worked;
}

// --- Commands

proxy::line* proxy::line_to(int pe, size_t ring) {
  const auto lanes = static_cast<size_t>(options_.lane_count);
  if (pe < 0 || pe >= options_.pe_count) return nullptr;
  return line_of_[static_cast<size_t>(pe) * lanes + ring % lanes];
}

bool proxy::take_commands() {
  bool took = false;
  for (size_t ring = 0; ring < rings_.size(); ++ring)
    for (int i = 0; i < commands_per_step && can_take(ring); ++i) took = take_one(ring) || took;
  return took;
}

// A command is there, and its peer's window has room; a command that will fail counts.
bool proxy::can_take(size_t ring) {
  const mori_shmem_command_v1* next = has_failed_ ? nullptr : rings_[ring].peek();
  if (next == nullptr) return false;
  const line* to = line_to(next->pe, ring);
  return to == nullptr || !to->channel || to->talk->has_room();
}

bool proxy::take_one(size_t ring) {
  const mori_shmem_command_v1 what = *rings_[ring].peek();
  const int32_t operation = operation_of(what);
  const uint64_t index = rings_[ring].take();
  line* to = line_to(what.pe, ring);
  if (to == nullptr) {
    fail(base::fail(MORI_E_UNAVAILABLE, "{}: PE {} is not reached by a network", name_of(operation),
                    what.pe),
         operation, what.pe);
    return false;
  }
  if (!to->channel || to->talk->peer_has_left()) {
    fail(base::fail(MORI_E_PEER_DEAD, "{}: PE {} has left the group", name_of(operation), what.pe),
         operation, what.pe);
    return false;
  }
  if (auto added = to->talk->add(what, {static_cast<uint32_t>(ring), index}); !added) {
    fail(std::move(added.error()), operation, what.pe);
    return false;
  }
  activate(*to);
  return true;
}

void proxy::on_answer(const origin& of, uint64_t value) { rings_[of.ring].answer(of.index, value); }

void proxy::on_complete(const origin& of) { rings_[of.ring].finish(of.index, completing_pe_); }

void proxy::publish() {
  for (ring_reader& ring : rings_) ring.publish();
}

// --- Connections

bool proxy::poll_lines() {
  std::array<epoll_event, events_per_step> events;
  const int count = ::epoll_wait(poller_.get(), events.data(), events_per_step, 0);
  bool heard = false;
  for (int i = 0; i < count && !has_failed_; ++i) {
    auto* const said = static_cast<line*>(events[static_cast<size_t>(i)].data.ptr);
    if (said == nullptr) continue;  // seat_event_
    heard = true;
    line& each = *said;
    if (!each.channel) continue;
    if ((events[static_cast<size_t>(i)].events & EPOLLOUT) != 0) {
      each.channel->on_writable();
      activate(each);
    }
    read(each);
  }
  return heard;
}

void proxy::activate(line& of) {
  if (of.is_active) return;
  of.is_active = true;
  active_.push_back(&of);
}

base::status proxy::hear_frame(line& of, const link::tcp::frame& said) {
  if (said.kind != records_frame)
    return base::fail(MORI_E_PROTOCOL, "a frame of kind {}", said.kind);
  MORI_CHECK(of.talk->on_frame(said.payload, said.bulk_bytes));
  if (said.bulk_bytes != 0) of.channel->place_bulk(of.talk->bulk_place());
  return {};
}

// What is there of one connection, within bounds: others wait.
base::status proxy::hear(line& of) {
  for (int i = 0; i < reads_per_step; ++i) {
    MORI_CHECK(of.channel->on_readable());
    for (;;) {
      if (of.channel->has_bulk_due()) {
        MORI_TRY(const bool is_over, of.channel->bulk_is_over());
        if (!is_over) break;
        MORI_CHECK(of.talk->on_bulk());
      }
      MORI_TRY(const auto said, of.channel->next());
      if (!said) break;
      MORI_CHECK(hear_frame(of, *said));
    }
    if (!of.channel->may_have_more()) break;
  }
  return {};
}

void proxy::read(line& of) {
  completing_pe_ = of.pe;
  if (auto outcome = hear(of); !outcome) {
    fail({outcome.error().status, outcome.error().os_errno,
          fmt::format("data connection with PE {}: {}", of.pe, outcome.error().text)},
         MORI_SHMEM_OP_NONE, of.pe);
    return;
  }
  activate(of);
  if (of.channel->ended())
    close(of, of.channel->end_reason());
  else if (of.talk->peer_has_left() && !of.has_ended && of.closed_at_ns == 0)
    close(of, "has left the group");
}

// True: a frame was said.
bool proxy::speak(line& of) {
  if (!of.channel) return false;
  bool spoke = false;
  for (int i = 0; i < frames_per_step; ++i) {
    if (!of.talk->wants_to_speak() || !of.channel->has_room()) break;
    auto frame = of.talk->next_frame();
    if (frame && frame->text.empty()) break;
    base::status sent =
        frame ? of.channel->send(records_frame, {frame->text}, {frame->bulk, memory_->is_near()})
              : frame.error();
    if (!sent) {
      fail(std::move(sent.error()), MORI_SHMEM_OP_NONE, of.pe);
      return spoke;
    }
    spoke = true;
  }
  const bool waits = of.channel->wants_write();
  if (waits != of.polls_write) {
    of.polls_write = waits;
    epoll_event event{};
    event.events = waits ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.ptr = &of;
    (void)::epoll_ctl(poller_.get(), EPOLL_CTL_MOD, of.channel->fd(), &event);
  }
  return spoke;
}

void proxy::close(line& of, const std::string& reason) {
  of.closed_at_ns = base::now_ns();
  of.close_reason = reason;
  (void)::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, of.channel->fd(), nullptr);
  of.channel.reset();
  ending_.push_back(&of);
}

void proxy::watch_ends() {
  if (ending_.empty()) return;
  const uint64_t now_ns = base::now_ns();
  for (line* each : ending_) watch_end(*each, now_ns);
  std::erase_if(ending_, [](const line* each) { return each->has_ended; });
}

void proxy::watch_end(line& of, uint64_t now_ns) {
  const bool has_left = of.talk->peer_has_left() || options_.has_left(of.pe);
  if (!has_left && now_ns - of.closed_at_ns < close_patience_ns) return;
  of.has_ended = true;
  if (!has_left) return lose(of, fmt::format("PE {} {}", of.pe, of.close_reason));
  if (of.talk->command_count() != 0) lose(of, fmt::format("PE {} has left the group", of.pe));
}

void proxy::lose(line& of, const std::string& what) {
  const bool waits = of.talk->command_count() != 0;
  const int32_t operation = waits ? operation_of(of.talk->oldest()) : int32_t{MORI_SHMEM_OP_NONE};
  const std::string prefix = waits ? fmt::format("{}: ", name_of(operation)) : "";
  fail({MORI_E_PEER_DEAD, 0, prefix + what}, operation, of.pe);
}

void proxy::fail(base::failure why, int32_t operation, int pe) {
  has_failed_ = true;
  if (!options_.is_ended()) options_.raise(std::move(why), operation, pe);
}

// --- Sleep and the end

bool proxy::has_published_command() {
  for (size_t ring = 0; ring < rings_.size(); ++ring)
    if (can_take(ring)) return true;
  return false;
}

uint64_t proxy::nap_limit_ns() {
  uint64_t limit = UINT64_MAX;
  if (!ending_.empty()) limit = close_look_ns;
  if (const uint64_t by = stop_by_ns_.load(); by != UINT64_MAX)
    limit = std::min(limit, std::min(close_look_ns, base::deadline::at(by).left_ns()));
  if (options_.longest_nap_ns != 0 && !has_failed_) {
    nap_ns_ = std::clamp(nap_ns_ * 2, shortest_nap_ns, options_.longest_nap_ns);
    limit = std::min(limit, nap_ns_);
  }
  return limit;
}

void proxy::sleep() {
  __atomic_exchange_n(options_.asleep, 1u, __ATOMIC_SEQ_CST);
  bool listens = false;
  uint64_t limit_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    listens = serves();
    if (!listens || !has_published_command()) limit_ns = nap_limit_ns();
  }
  if (limit_ns != 0) {
    // After a fault nobody reads: only the end is waited for.
    pollfd waits{listens ? thread_poller_.get() : wake_event_.get(), POLLIN, 0};
    const timespec limit{static_cast<time_t>(limit_ns / base::ns_per_s),
                         static_cast<long>(limit_ns % base::ns_per_s)};
    (void)::ppoll(&waits, 1, limit_ns == UINT64_MAX ? nullptr : &limit, nullptr);
  }
  __atomic_store_n(options_.asleep, 0u, __ATOMIC_SEQ_CST);
  uint64_t count = 0;
  (void)!::read(wake_event_.get(), &count, sizeof count);
}

bool proxy::is_idle() const {
  return std::ranges::all_of(
             rings_, [](const ring_reader& r) { return r.all_done() && r.peek() == nullptr; }) &&
         std::ranges::all_of(lines_, [](const auto& each) {
           return !each->channel ||
                  (!each->talk->wants_to_speak() && !each->channel->wants_write());
         });
}

// Says goodbye where it can still be heard.
void proxy::part() {
  const auto until = base::deadline::after(parting_ns);
  const std::lock_guard lock(mutex_);
  if (!serves()) return;
  for (const auto& each : lines_) {
    if (!each->channel) continue;
    each->talk->say_goodbye();
    (void)speak(*each);
    while (each->channel->wants_write() && !until.passed()) {
      pollfd ready{each->channel->fd(), POLLOUT, 0};
      (void)::poll(&ready, 1, 10);
      each->channel->on_writable();
    }
    each->channel->finish_sending();
  }
}

}  // namespace mori::shmem_core
