// world.hpp - runs a test body as several PEs on GPUs: as processes, or as threads of
// one process. All of it happens in forked children, so that the test program itself never
// opens a driver (which does not survive a fork). A body returns "" or what was
// wrong; a child that dies or takes too long is a failure too.
#pragma once

#include <mori/shmem.h>

#include <functional>
#include <string>

namespace gpu_test {

enum class as { processes, threads };

struct world {
  int pe_count = 2;
  as kind = as::processes;
  int patience_s = 120;
  std::function<void(mori_shmem_options&)> adjust = [](mori_shmem_options&) {};
};

using body = std::function<std::string(mori_shmem*, int pe)>;

// Under a tool that makes kernels slow (MORI_TEST_SANITIZED, see sanitize.py): two processes
// alone, with long budgets.
bool is_sanitized();

// "" or "PE 3: ...".
std::string run(const world& with, const body& what);

// MORI_BACKEND_NVIDIA or _AMD: the one that has a device here, asked in a child. 0: none, and why.
struct found_backend {
  int32_t backend;
  std::string reason;
};
const found_backend& backend_here();

// "" for success, else "MORI_E_X: text".
template <class Function, class... Arguments>
std::string failure(Function function, Arguments... arguments) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = function(arguments..., &error);
  if (status == MORI_OK) return "";
  return std::string(mori_shmem_status_name(status)) + ": " + error.message;
}

}  // namespace gpu_test

// Leaves the body with a text that says what was expected.
#define EXPECT(condition)                                                                      \
  do {                                                                                         \
    if (!(condition))                                                                          \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": not so: " #condition; \
  } while (0)
// A call that must succeed.
#define EXPECT_OK(...)                                                               \
  do {                                                                               \
    if (const std::string failed = gpu_test::failure(__VA_ARGS__); !failed.empty())  \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + failed; \
  } while (0)
// A call whose failure must contain a text.
#define EXPECT_FAILS(part, ...)                                                        \
  do {                                                                                 \
    if (const std::string failed = gpu_test::failure(__VA_ARGS__);                     \
        failed.find(part) == std::string::npos)                                        \
      return std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": '" + failed + \
             "' instead of " + (part);                                                 \
  } while (0)
