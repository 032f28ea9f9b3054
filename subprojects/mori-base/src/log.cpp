// log.cpp - see log.hpp. The queue is never destroyed: threads of ours may log
// until the process ends.
#include <mori/base/log.hpp>

#include <mori/base/env.hpp>
#include <mori/base/process.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>

namespace mori::base {
namespace {

constexpr const char* level_names[] = {"off", "error", "warn", "info", "debug", "trace"};

int32_t level_from_environment() {
  const auto text = env_text("MORI_LOG_LEVEL");
  if (!text) return MORI_LOG_WARN;
  for (int32_t level = MORI_LOG_OFF; level <= MORI_LOG_TRACE; ++level)
    if (strcasecmp(text->c_str(), level_names[level]) == 0 || *text == std::to_string(level))
      return level;
  if (strcasecmp(text->c_str(), "warning") == 0) return MORI_LOG_WARN;
  // Not worth failing a job for; said once, below, at the default level.
  return -1;
}

struct queue {
  std::mutex lock;
  std::deque<mori_log_record> records;
  uint64_t dropped_count = 0;
};

queue& records() {
  static auto* const q = [] {
    auto* const made = new queue;
    hold_across_fork(made->lock);
    return made;
  }();
  return *q;
}

// Made before there are threads: a child that is forked while another thread makes it for the first
// time would wait for that thread for ever.
[[maybe_unused]] const queue& made_at_load = records();

std::atomic<const char*> line_name{"mori"};

std::atomic<int32_t>& current_level() {
  static std::atomic<int32_t> level{[] {
    const int32_t asked = level_from_environment();
    return asked < 0 ? static_cast<int32_t>(MORI_LOG_WARN) : asked;
  }()};
  return level;
}

}  // namespace

bool log_enabled(int32_t level) { return level <= current_level().load(std::memory_order_relaxed); }

bool log_set_level(int32_t level) {
  if (level < MORI_LOG_OFF || level > MORI_LOG_TRACE) return false;
  current_level().store(level, std::memory_order_relaxed);
  return true;
}

void log_set_name(const char* name) {
  line_name.store(name);
  static const bool said = [] {
    if (level_from_environment() < 0)
      log(MORI_LOG_WARN, "MORI_LOG_LEVEL='{}' is none of off, error, warn, info, debug, trace",
          env_text("MORI_LOG_LEVEL").value_or(""));
    return true;
  }();
  (void)said;
}

void log_write(int32_t level, std::string_view text) {
  mori_log_record record{};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  record.time_ns =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  record.level = level;
  record.os_thread_id = static_cast<int32_t>(syscall(SYS_gettid));
  const size_t size = std::min(text.size(), sizeof record.message - 1);
  std::memcpy(record.message, text.data(), size);
  std::replace(record.message, record.message + size, '\n', ' ');

  const auto line = fmt::format("[{} {} {}.{}] {}\n", line_name.load(),
                                level_names[std::clamp<int32_t>(level, 0, MORI_LOG_TRACE)],
                                getpid(), record.os_thread_id, record.message);
  // One write, so that lines of several processes do not interleave.
  (void)!::write(STDERR_FILENO, line.data(), line.size());

  queue& q = records();
  const std::lock_guard guard(q.lock);
  if (q.records.size() == log_queue_count) {
    q.dropped_count += 1 + q.records.front().dropped_count;
    q.records.pop_front();
  }
  q.records.push_back(record);
}

bool log_next(mori_log_record& out) {
  queue& q = records();
  const std::lock_guard guard(q.lock);
  if (q.records.empty()) return false;
  const uint64_t struct_size = out.struct_size;
  out = q.records.front();
  out.struct_size = struct_size;
  out.dropped_count += q.dropped_count;
  q.dropped_count = 0;
  q.records.pop_front();
  return true;
}

}  // namespace mori::base
