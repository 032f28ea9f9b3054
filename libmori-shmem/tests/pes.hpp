// pes.hpp - runs a test body as several PEs, each a thread of this process with
// a context of its own, through the C ABI. Used by the tests that link the
// shared library.
#pragma once

#include <mori/shmem.h>

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace mori_test {

// ThreadSanitizer's own locks are not all safe in a child that was forked while
// other threads ran: such a child may hang in the sanitizer's runtime.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_tsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool under_tsan = true;
#else
inline constexpr bool under_tsan = false;
#endif
#else
inline constexpr bool under_tsan = false;
#endif

inline constexpr uint64_t second_ns = 1'000'000'000;

inline mori_shmem_options options(int pe, int pe_count) {
  mori_shmem_options made{};
  made.struct_size = sizeof made;
  made.pe = pe;
  made.pe_count = pe_count;
  made.heap_bytes = 4 << 20;
  made.bootstrap_timeout_ns = 30 * second_ns;
  made.wait_timeout_ns = 20 * second_ns;
  return made;
}

// A failure of a call, as "MORI_E_X: text", or "" for success.
template <class Function, class... Arguments>
std::string failure(Function function, Arguments... arguments) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = function(arguments..., &error);
  if (status == MORI_OK) return "";
  return std::string(mori_shmem_status_name(status)) + ": " + error.message;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct run_with {
  int pe_count = 2;
  std::function<void(mori_shmem_options&)> adjust = [](mori_shmem_options&) {};
};

// body(context, pe) on every PE; contexts are destroyed after all bodies ended.
inline void run_pes(const run_with& with, const std::function<void(mori_shmem*, int)>& body) {
  mori_shmem_unique_id id{};
  REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
  std::vector<mori_shmem*> contexts(static_cast<size_t>(with.pe_count), nullptr);
  std::vector<std::thread> threads;
  for (int pe = 0; pe < with.pe_count; ++pe)
    threads.emplace_back([&, pe] {
      mori_shmem_options mine = options(pe, with.pe_count);
      with.adjust(mine);
      mori_shmem*& context = contexts[static_cast<size_t>(pe)];
      const std::string joined = failure(mori_shmem_create, &id, &mine, &context);
      CHECK(joined == "");
      if (joined.empty()) body(context, pe);
    });
  for (auto& thread : threads) thread.join();
  for (mori_shmem* context : contexts) mori_shmem_destroy(context);
}

}  // namespace mori_test
