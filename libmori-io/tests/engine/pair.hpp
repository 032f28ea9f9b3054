// pair.hpp - two engines of one process through the C ABI, each with memory and a
// session to the other's, for tests that say what they transfer and nothing else.
#pragma once

#include <mori/io.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string>
#include <vector>

namespace mori_io_test {

inline constexpr uint64_t second_ns = 1'000'000'000;

struct failed {
  mori_status status = MORI_OK;
  std::string text;
};

// Calls f(&error); the status and what the record says.
template <class Function>
failed ask(Function&& f) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = f(&error);
  return {status, status == MORI_OK ? "" : error.message};
}

#define MUST(call)                                                                          \
  do {                                                                                      \
    const auto must_outcome = mori_io_test::ask([&](mori_error* error) { return (call); }); \
    REQUIRE_MESSAGE(must_outcome.status == MORI_OK, must_outcome.text);                     \
  } while (0)

inline mori_io_options options_of(const char* key) {
  mori_io_options made{};
  made.struct_size = sizeof made;
  made.in_key = key;
  made.in_host = "127.0.0.1";
  return made;
}

struct side {
  mori_io* io = nullptr;
  std::vector<uint8_t> memory;
  uint32_t region = 0;

  explicit side(const mori_io_options& with, uint64_t bytes = 1 << 20,
                const mori_io_backend_options* tcp = nullptr)
      : memory(bytes) {
    MUST(mori_io_create(&with, &io, error));
    MUST(mori_io_backend_create(io, MORI_IO_BACKEND_TCP, tcp, error));
    MUST(mori_io_memory_register(io, memory.data(), memory.size(), MORI_IO_LOCATION_CPU, -1, 0,
                                 &region, error));
  }
  side(const side&) = delete;
  side& operator=(const side&) = delete;
  ~side() { mori_io_destroy(io); }

  std::vector<uint8_t> desc() const {
    uint64_t bytes = 0;
    MUST(mori_io_desc(io, nullptr, &bytes, error));
    std::vector<uint8_t> packed(bytes);
    MUST(mori_io_desc(io, packed.data(), &bytes, error));
    return packed;
  }
  std::vector<uint8_t> memory_desc() const { return memory_desc(region); }
  std::vector<uint8_t> memory_desc(uint32_t id) const {
    uint64_t bytes = 0;
    MUST(mori_io_memory_desc(io, id, nullptr, &bytes, error));
    std::vector<uint8_t> packed(bytes);
    MUST(mori_io_memory_desc(io, id, packed.data(), &bytes, error));
    return packed;
  }
  void know(const side& other) const {
    const auto packed = other.desc();
    MUST(mori_io_remote_register(io, packed.data(), packed.size(), error));
  }
  mori_io_session* session_to(const side& other,
                              const mori_io_session_options* with = nullptr) const {
    const auto packed = other.memory_desc();
    mori_io_session* made = nullptr;
    MUST(mori_io_session_create(io, region, packed.data(), packed.size(), with, &made, error));
    return made;
  }
};

// One piece; more through the vectors.
struct request {
  mori_io_request raw{};
  std::vector<uint64_t> local, remote, sizes;

  request(int32_t operation, uint64_t local_offset, uint64_t remote_offset, uint64_t bytes,
          uint64_t uid = 1)
      : local{local_offset}, remote{remote_offset}, sizes{bytes} {
    raw.struct_size = sizeof raw;
    raw.operation = operation;
    raw.uid = uid;
  }
  const mori_io_request* get() {
    raw.piece_count = sizes.size();
    raw.in_local_offsets = local.data();
    raw.in_remote_offsets = remote.data();
    raw.in_sizes_bytes = sizes.data();
    return &raw;
  }
};

inline mori_io_transfer* submit(mori_io_session* on, request what) {
  mori_io_transfer* made = nullptr;
  MUST(mori_io_submit(on, what.get(), &made, error));
  return made;
}

inline failed wait_for(mori_io_transfer* what, uint64_t timeout_ns = 20 * second_ns) {
  return ask([&](mori_error* error) { return mori_io_transfer_wait(&what, 1, timeout_ns, error); });
}

// Submits, waits, releases.
inline failed run(mori_io_session* on, request what) {
  mori_io_transfer* const made = submit(on, std::move(what));
  const failed outcome = wait_for(made);
  mori_io_transfer_release(made);
  return outcome;
}

inline mori_io_transfer_report report_of(const mori_io_transfer* what) {
  mori_io_transfer_report report{};
  report.struct_size = sizeof report;
  MUST(mori_io_transfer_info(what, &report, error));
  return report;
}

inline mori_io_stats stats_of(const mori_io_session* of) {
  mori_io_stats stats{};
  stats.struct_size = sizeof stats;
  MUST(mori_io_session_stats(of, &stats, error));
  return stats;
}

inline uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * second_ns + static_cast<uint64_t>(now.tv_nsec);
}

// Waits for the notification; its fields, or status MORI_E_AGAIN in `struct_size`.
inline bool pop_inbound(mori_io* io, const char* peer, uint64_t uid, mori_io_inbound& out,
                        uint64_t timeout_ns = 5 * second_ns) {
  out = {};
  out.struct_size = sizeof out;
  const uint64_t until = now_ns() + timeout_ns;
  do {
    if (mori_io_inbound_pop(io, peer, uid, &out, nullptr) == MORI_OK) return true;
    MUST(mori_io_progress(io, 100'000, error));
  } while (now_ns() < until);
  return false;
}

inline void fill_pattern(std::vector<uint8_t>& to, uint8_t seed) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<uint8_t>(i * 7 + i / 251 * 13 + seed);
}

// Engines "a" and "b" that know each other, with a session from a to b.
struct engine_pair {
  side a, b;
  mori_io_session* session = nullptr;

  explicit engine_pair(uint64_t bytes = 1 << 20)
      : engine_pair(options_of("a"), options_of("b"), bytes) {}
  engine_pair(const mori_io_options& with_a, const mori_io_options& with_b,
              uint64_t bytes = 1 << 20, const mori_io_backend_options* tcp = nullptr)
      : a(with_a, bytes, tcp), b(with_b, bytes, tcp) {
    a.know(b);
    b.know(a);
    session = a.session_to(b);
  }
  ~engine_pair() { mori_io_session_destroy(session); }
};

}  // namespace mori_io_test
