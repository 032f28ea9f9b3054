// log.hpp - one line to stderr and one record to a bounded queue that a
// binding may poll. Whoever decides that something is an error logs it;
// nobody above does. Lower case, no trailing full stop.
#pragma once

#include <fmt/core.h>
#include <mori/base.h>

#include <cstdint>
#include <string_view>

namespace mori::base {

// True when a record of this level would go anywhere; check before formatting.
bool log_enabled(int32_t level);
// False when the level is not one of MORI_LOG_*.
bool log_set_level(int32_t level);
void log_write(int32_t level, std::string_view text);

// Oldest record of the queue; false when it is empty. Fills all but struct_size.
bool log_next(mori_log_record& out);
inline constexpr unsigned log_queue_count = 1024;

// Name that lines on stderr start with ("mori-shmem"); a static string.
void log_set_name(const char* name);

template <class... Args>
void log(int32_t level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_write(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mori::base
