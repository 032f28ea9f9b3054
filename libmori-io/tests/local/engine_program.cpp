// engine_program.cpp - one engine with one region in a process of its own, through the C
// ABI, for tests of what engines of one node do with each other. One command a line on stdin,
// one answer a line on stdout.
//
// usage: engine_program [--user N]
#include "become.hpp"
#include "subject_text.hpp"

#include <mori/io.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <vector>

namespace io_test = mori::io_test;

namespace {

template <class Function>
std::string outcome(Function&& call) {
  mori_error error = MORI_ERROR_INIT;
  const mori_status status = call(&error);
  return status == MORI_OK ? "ok" : std::string(mori_io_status_name(status)) + " " + error.message;
}

// What a call with room and size gives, as a word.
template <class Function>
std::string bytes_of(Function&& call) {
  uint64_t size = 0;
  std::string failed = outcome([&](mori_error* e) { return call(nullptr, &size, e); });
  if (failed != "ok") return failed;
  std::vector<std::byte> bytes(size);
  failed = outcome([&](mori_error* e) { return call(bytes.data(), &size, e); });
  return failed == "ok" ? io_test::hex(bytes) : failed;
}

class session {
 public:
  ~session() { mori_io_destroy(io_); }

  std::string obey(const std::string& line) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "create") return create(in);
    if (what == "backend") return backend(in);
    if (what == "memory") return memory(in);
    if (what == "desc")
      return bytes_of(
          [&](void* to, uint64_t* size, mori_error* e) { return mori_io_desc(io_, to, size, e); });
    if (what == "memory-desc")
      return bytes_of([&](void* to, uint64_t* size, mori_error* e) {
        return mori_io_memory_desc(io_, region_, to, size, e);
      });
    if (what == "know") return know(in);
    if (what == "join") return join(in);
    if (what == "run") return run(in);
    if (what == "inbound") return inbound();
    if (what == "stats") return stats();
    if (what == "fill") return fill(in);
    if (what == "sum") return sum();
    if (what == "deregister")
      return outcome([&](mori_error* e) { return mori_io_memory_deregister(io_, region_, e); });
    if (what == "counts") return counts(in);
    if (what == "hide") return ::prctl(PR_SET_DUMPABLE, 0) == 0 ? "ok" : "failed";
    return "what is " + what + "?";
  }

 private:
  // What peers wrote was written under the engine's lock, which any question takes; that it is over
  // is known from their process, of which a race detector knows nothing.
  std::string sum() {
    mori_io_stats stats{};
    stats.struct_size = sizeof stats;
    mori_io_backend_stats(io_, MORI_IO_BACKEND_TCP, &stats, nullptr);
    return std::to_string(io_test::sum(memory_, bytes_));
  }
  static uint64_t number(std::istream& in) {
    uint64_t value = 0;
    in >> value;
    return value;
  }

  std::string create(std::istream& in) {
    std::string key;
    in >> key;
    mori_io_options with{};
    with.struct_size = sizeof with;
    with.in_key = key.c_str();
    with.in_host = "127.0.0.1";
    with.control_timeout_ns = 5'000'000'000;
    return outcome([&](mori_error* e) { return mori_io_create(&with, &io_, e); });
  }

  std::string backend(std::istream& in) {
    std::string name;
    in >> name;
    const int32_t which = name == "XGMI" ? MORI_IO_BACKEND_XGMI : MORI_IO_BACKEND_TCP;
    return outcome([&](mori_error* e) { return mori_io_backend_create(io_, which, nullptr, e); });
  }

  // memory KIND BYTES
  std::string memory(std::istream& in) {
    std::string kind;
    in >> kind;
    bytes_ = number(in);
    if (kind == "segment") {
      void* made = nullptr;
      const auto failed =
          outcome([&](mori_error* e) { return mori_io_alloc(io_, bytes_, &made, e); });
      if (failed != "ok") return failed;
      memory_ = static_cast<std::byte*>(made);
    } else {
      plain_.resize(bytes_);
      memory_ = plain_.data();
    }
    return outcome([&](mori_error* e) {
      return mori_io_memory_register(io_, memory_, bytes_, MORI_IO_LOCATION_CPU, -1, 0, &region_,
                                     e);
    });
  }

  std::string know(std::istream& in) {
    std::string text;
    in >> text;
    const auto desc = io_test::unhex(text);
    return outcome(
        [&](mori_error* e) { return mori_io_remote_register(io_, desc.data(), desc.size(), e); });
  }

  // join DESCRIPTOR PINNED
  std::string join(std::istream& in) {
    std::string text, pinned;
    in >> text >> pinned;
    const auto desc = io_test::unhex(text);
    mori_io_session_options with{};
    with.struct_size = sizeof with;
    if (pinned == "XGMI") with.backend = MORI_IO_BACKEND_XGMI;
    if (pinned == "TCP") with.backend = MORI_IO_BACKEND_TCP;
    mori_io_session_destroy(session_);
    session_ = nullptr;
    return outcome([&](mori_error* e) {
      return mori_io_session_create(io_, region_, desc.data(), desc.size(), &with, &session_, e);
    });
  }

  // run READ OFFSET BYTES UID QUIET: the same offset on both sides
  std::string run(std::istream& in) {
    const bool is_read = number(in) != 0;
    const uint64_t offset = number(in), bytes = number(in);
    mori_io_request what{};
    what.struct_size = sizeof what;
    what.operation = is_read ? MORI_IO_READ : MORI_IO_WRITE;
    what.piece_count = 1;
    what.in_local_offsets = &offset;
    what.in_remote_offsets = &offset;
    what.in_sizes_bytes = &bytes;
    what.uid = number(in);
    what.disable_notification = number(in) != 0 ? 1 : 0;
    mori_io_transfer* made = nullptr;
    const auto failed =
        outcome([&](mori_error* e) { return mori_io_submit(session_, &what, &made, e); });
    if (failed != "ok") return failed;
    const auto ended =
        outcome([&](mori_error* e) { return mori_io_transfer_wait(&made, 1, 20'000'000'000, e); });
    mori_io_transfer_release(made);
    return ended;
  }

  // All notifications that are there: their uids.
  std::string inbound() {
    std::string all;
    for (;;) {
      mori_io_inbound one{};
      one.struct_size = sizeof one;
      const auto got = outcome([&](mori_error* e) { return mori_io_inbound_next(io_, &one, e); });
      if (got != "ok") break;
      all += std::to_string(one.uid) + ",";
    }
    return all + ".";
  }

  std::string stats() const {
    mori_io_stats stats{};
    stats.struct_size = sizeof stats;
    const auto failed =
        outcome([&](mori_error* e) { return mori_io_session_stats(session_, &stats, e); });
    if (failed != "ok") return failed;
    return fmt::format("{} {} failovers {}: {}", stats.backend,
                       stats.is_alive != 0 ? "alive" : "dead", stats.failover_count,
                       static_cast<const char*>(stats.reason));
  }

  // Notifications that came by each backend.
  std::string counts(std::istream&) const {
    std::string all;
    for (const int32_t each : {MORI_IO_BACKEND_XGMI, MORI_IO_BACKEND_TCP}) {
      mori_io_stats stats{};
      stats.struct_size = sizeof stats;
      mori_io_backend_stats(io_, each, &stats, nullptr);
      all += std::to_string(stats.inbound_count) + " ";
    }
    return all;
  }

  std::string fill(std::istream& in) {
    io_test::fill(memory_, bytes_, number(in));
    return "ok";
  }

  mori_io* io_ = nullptr;
  mori_io_session* session_ = nullptr;
  std::vector<std::byte> plain_;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
  uint32_t region_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count == 3) {
    io_test::become(arguments[2], arguments[0]);
    return 5;
  }
  session here;
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") std::cout << here.obey(line) << std::endl;
  return 0;
}
