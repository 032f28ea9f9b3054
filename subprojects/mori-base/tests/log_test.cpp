// Tests of the log queue: order, levels, bound and the count of dropped records.
#include <mori/base/log.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace base = mori::base;

namespace {
// The lines themselves are not wanted in the test's output.
struct quiet_stderr {
  int saved = dup(2);
  quiet_stderr() {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    close(null);
  }
  ~quiet_stderr() {
    dup2(saved, 2);
    close(saved);
  }
};
}  // namespace

TEST_CASE("log records come in order, below the level none are made, overflow is counted") {
  const quiet_stderr quiet;
  mori_log_record record{};
  record.struct_size = sizeof record;
  while (base::log_next(record)) {
  }
  CHECK(!base::log_set_level(-1));
  CHECK(!base::log_set_level(MORI_LOG_TRACE + 1));
  REQUIRE(base::log_set_level(MORI_LOG_INFO));
  base::log(MORI_LOG_DEBUG, "unseen");
  base::log(MORI_LOG_INFO, "one\ntwo");
  REQUIRE(base::log_next(record));
  CHECK(std::string(record.message) == "one two");
  CHECK(record.level == MORI_LOG_INFO);
  CHECK(record.time_ns > 1'500'000'000'000'000'000u);
  CHECK(record.struct_size == sizeof record);
  CHECK(!base::log_next(record));

  for (unsigned i = 0; i < base::log_queue_count + 5; ++i) base::log(MORI_LOG_WARN, "{}", i);
  REQUIRE(base::log_next(record));
  CHECK(std::string(record.message) == "5");
  CHECK(record.dropped_count == 5);
  unsigned left = 0;
  while (base::log_next(record)) ++left;
  CHECK(left == base::log_queue_count - 1);
  CHECK(record.dropped_count == 0);
  base::log(MORI_LOG_ERROR, "{}", std::string(2000, 'x'));
  REQUIRE(base::log_next(record));
  CHECK(std::string(record.message) == std::string(sizeof record.message - 1, 'x'));
  base::log_set_level(MORI_LOG_WARN);
}
