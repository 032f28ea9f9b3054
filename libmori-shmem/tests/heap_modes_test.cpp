// Tests of the symmetric heap as PEs see it: what each mode promises, statistics, kinds
// of memory, a heap that is full to its last byte and one in pieces.
#include "pes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

using namespace mori_test;

namespace {

constexpr uint64_t mib = 1 << 20;
constexpr uint64_t header_bytes = 8192;  // the library's own, at the start of each heap

struct variable {
  variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~variable() { ::unsetenv(name_); }
  variable(const variable&) = delete;
  const char* name_;
};

mori_shmem_heap_report stats_of(const mori_shmem* context) {
  mori_shmem_heap_report report{};
  report.struct_size = sizeof report;
  CHECK(failure(mori_shmem_heap_stats, context, &report) == "");
  return report;
}

std::byte* allocate(mori_shmem* context, uint64_t bytes) {
  void* memory = nullptr;
  CHECK(failure(mori_shmem_malloc, context, bytes, &memory) == "");
  return static_cast<std::byte*>(memory);
}

// Whether a child of this process survives doing it.
bool survives(const std::function<void()>& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would print a report
    what();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0;
  CHECK(WTERMSIG(status) == SIGSEGV);
  return false;
}

run_with with_heap(int pe_count, int32_t mode, uint64_t bytes) {
  return {.pe_count = pe_count, .adjust = [=](mori_shmem_options& o) {
            o.heap_mode = mode;
            o.heap_bytes = bytes;
          }};
}

}  // namespace

TEST_CASE("vmm: a heap of a terabyte takes memory in chunks, and gives them back") {
  const variable chunk("MORI_SHMEM_VMM_CHUNK_SIZE", "2MiB");
  run_pes(with_heap(2, MORI_SHMEM_HEAP_VMM, uint64_t{1} << 40), [](mori_shmem* context, int pe) {
    CHECK(stats_of(context).size_bytes == (uint64_t{1} << 40) - header_bytes);
    CHECK(stats_of(context).committed_bytes == 0);
    CHECK(stats_of(context).step_bytes == 2 * mib);
    CHECK(stats_of(context).heap_mode == MORI_SHMEM_HEAP_VMM);
    std::byte* small = allocate(context, 1);
    CHECK(stats_of(context).committed_bytes == 2 * mib - header_bytes);
    std::byte* large = allocate(context, 5 * mib);
    CHECK(stats_of(context).committed_bytes == 6 * mib - header_bytes);
    std::memset(large, 1 + pe, 5 * mib);
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    void* there = nullptr;
    CHECK(failure(mori_shmem_ptr_p2p, context, large, 1 - pe, &there) == "");
    REQUIRE(there != nullptr);
    CHECK(static_cast<uint8_t*>(there)[5 * mib - 1] == 2 - pe);
    CHECK(failure(mori_shmem_free, context, large) == "");
    // A peer may be reading it still: it goes with the next call of all.
    CHECK(stats_of(context).committed_bytes == 6 * mib - header_bytes);
    allocate(context, 0);
    CHECK(stats_of(context).committed_bytes == 2 * mib - header_bytes);
    CHECK(failure(mori_shmem_free, context, small) == "");
    large = allocate(context, 5 * mib);
    CHECK(static_cast<uint8_t>(large[4 * mib]) == 0);  // new memory again
    CHECK(stats_of(context).peak_bytes == 5 * mib + 256);
    CHECK(stats_of(context).used_bytes == 5 * mib);
    CHECK(stats_of(context).allocation_count == 1);
  });
}

TEST_CASE("isolation: what is not allocated cannot be touched, here or at a peer" *
          doctest::skip(under_tsan)) {
  run_pes(with_heap(2, MORI_SHMEM_HEAP_ISOLATION, 16 * mib), [](mori_shmem* context, int pe) {
    std::byte* first = allocate(context, 5000);
    std::byte* second = allocate(context, 4096);
    CHECK(second - first == 3 * 4096);
    CHECK(reinterpret_cast<uint64_t>(first) % 4096 == 0);
    CHECK(stats_of(context).used_bytes == 5 * 4096);
    std::memset(first, 7, 2 * 4096);  // its own pages, to the last byte
    void* there = nullptr;
    CHECK(failure(mori_shmem_ptr_p2p, context, first, 1 - pe, &there) == "");
    auto* peer = static_cast<std::byte*>(there);
    REQUIRE(peer != nullptr);
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    CHECK(peer[8191] == std::byte{7});
    if (pe == 0) {
      CHECK(survives([&] { first[8191] = peer[8191]; }));
      CHECK_FALSE(survives([&] { first[8192] = std::byte{1}; }));
      CHECK_FALSE(survives([&] { second[4096] = std::byte{1}; }));
      CHECK_FALSE(survives([&] { peer[8192] = std::byte{1}; }));
    }
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    CHECK(failure(mori_shmem_free, context, first) == "");
    allocate(context, 0);
    if (pe == 0) {
      CHECK_FALSE(survives([&] { first[0] = std::byte{1}; }));
      CHECK_FALSE(survives([&] { peer[0] = std::byte{1}; }));
      CHECK(survives([&] { second[0] = std::byte{1}; }));
    }
    CHECK(stats_of(context).committed_bytes == 4096);
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    // Device operations and host calls work as in any other mode.
    const uint64_t value = 77 + static_cast<uint64_t>(pe);
    CHECK(failure(mori_shmem_put, context, static_cast<void*>(second),
                  static_cast<const void*>(&value), uint64_t{8}, 1 - pe) == "");
    CHECK(failure(mori_shmem_barrier_all, context) == "");
    uint64_t seen = 0;
    std::memcpy(&seen, second, sizeof seen);
    CHECK(seen == 78 - static_cast<uint64_t>(pe));
  });
}

TEST_CASE("static: pages that two allocations share go with the second") {
  run_pes(with_heap(2, MORI_SHMEM_HEAP_STATIC, 16 * mib), [](mori_shmem* context, int) {
    std::byte* a = allocate(context, 2048);
    std::byte* b = allocate(context, 2048);
    CHECK(stats_of(context).committed_bytes == 4096);
    CHECK(failure(mori_shmem_free, context, a) == "");
    allocate(context, 0);
    CHECK(stats_of(context).committed_bytes == 4096);
    CHECK(failure(mori_shmem_free, context, b) == "");
    allocate(context, 0);
    CHECK(stats_of(context).committed_bytes == 0);
    CHECK(stats_of(context).free_block_count == 1);
  });
}

TEST_CASE("a heap filled to its last byte, in pieces, and whole again") {
  run_pes(with_heap(2, MORI_SHMEM_HEAP_STATIC, 64 << 10), [](mori_shmem* context, int) {
    const uint64_t room = stats_of(context).size_bytes;
    CHECK(room == (64 << 10) - header_bytes);
    std::vector<std::byte*> blocks;
    for (uint64_t i = 0; i < room / 256; ++i) {
      blocks.push_back(allocate(context, 256));
      std::memset(blocks.back(), static_cast<int>(i), 256);
    }
    CHECK(stats_of(context).free_bytes == 0);
    void* more = nullptr;
    CHECK(contains(failure(mori_shmem_malloc, context, uint64_t{1}, &more),
                   "MORI_E_NO_MEMORY: heap exhausted: 1 bytes asked for (alignment 256), 0 of "
                   "57344 free, largest free block 0"));
    for (size_t i = 0; i < blocks.size(); i += 2)
      CHECK(failure(mori_shmem_free, context, blocks[i]) == "");
    CHECK(stats_of(context).largest_free_bytes == 256);
    CHECK(stats_of(context).free_block_count == blocks.size() / 2);
    CHECK(contains(failure(mori_shmem_malloc, context, uint64_t{257}, &more),
                   "largest free block 256"));
    for (size_t i = 1; i < blocks.size(); i += 2) {
      CHECK(blocks[i][255] == static_cast<std::byte>(i));
      CHECK(failure(mori_shmem_free, context, blocks[i]) == "");
    }
    CHECK(allocate(context, room) == blocks[0]);
  });
}

TEST_CASE("kinds of memory: known ones, unknown ones, and PEs that disagree") {
  run_pes({.pe_count = 2}, [](mori_shmem* context, int pe) {
    void* memory = nullptr;
    for (const uint32_t flags : {0u, 1u, 3u}) {
      CHECK(failure(mori_shmem_malloc_with_flags, context, uint64_t{64}, flags, &memory) == "");
      CHECK(memory != nullptr);
    }
    for (const uint32_t flags : {2u, 4u, 1u << 31})
      CHECK(contains(failure(mori_shmem_malloc_with_flags, context, uint64_t{64}, flags, &memory),
                     "MORI_E_UNSUPPORTED: malloc: flags " + std::to_string(flags)));
    CHECK(memory == nullptr);
    const uint32_t mine = pe == 0 ? 0 : 3;
    CHECK(failure(mori_shmem_malloc_with_flags, context, uint64_t{64}, mine, &memory) ==
          "MORI_E_MISMATCH: malloc: flags 0 asked for on PE 0, 3 on PE 1");
  });
}

TEST_CASE("names of the modes in the environment, their default sizes, and misspelt ones") {
  const auto created = [](const char* mode) {
    const variable name("MORI_SHMEM_MODE", mode);
    mori_shmem_heap_report report{};
    run_pes(with_heap(1, MORI_SHMEM_HEAP_DEFAULT, 0),
            [&](mori_shmem* context, int) { report = stats_of(context); });
    return std::pair(report.heap_mode, report.size_bytes + header_bytes);
  };
  const uint64_t gib = 1024 * mib;
  CHECK(created("static") == std::pair(int32_t{MORI_SHMEM_HEAP_STATIC}, 4 * gib));
  CHECK(created("static_heap") == std::pair(int32_t{MORI_SHMEM_HEAP_STATIC}, 4 * gib));
  CHECK(created("vmm") == std::pair(int32_t{MORI_SHMEM_HEAP_VMM}, 16 * gib));
  CHECK(created("vmm_heap") == std::pair(int32_t{MORI_SHMEM_HEAP_VMM}, 16 * gib));
  CHECK(created("isolation") == std::pair(int32_t{MORI_SHMEM_HEAP_ISOLATION}, 4 * gib));

  const auto refused = [](const char* name, const char* value) {
    const variable set(name, value);
    mori_shmem_unique_id id{};
    REQUIRE(failure(mori_shmem_unique_id_create, &id) == "");
    const mori_shmem_options with = options(0, 1);
    mori_shmem* context = nullptr;
    return failure(mori_shmem_create, &id, &with, &context);
  };
  CHECK(refused("MORI_SHMEM_MODE", "static-heap") ==
        "MORI_E_INVALID: MORI_SHMEM_MODE='static-heap' is none of static, vmm, isolation");
  CHECK(contains(refused("MORI_SHMEM_VMM_CHUNK_SIZE", "3M"), "3145728 bytes, expected a power"));
  CHECK(contains(refused("MORI_SHMEM_VMM_CHUNK_SIZE", "1M"), "2097152 .. 17592186044416"));
  CHECK(contains(refused("MORI_SHMEM_HEAP_TYPE", "cached"), "neither uncached nor normal"));
  CHECK(refused("MORI_SHMEM_SECURITY", "none") ==
        "MORI_E_INVALID: MORI_SHMEM_SECURITY='none' is neither mac nor trusted");
}
