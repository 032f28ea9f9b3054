// engine_sessions_test.cpp - what happens around transfers of two engines of this
// process: memory taken back while sessions are being made, an engine that ends in
// order, a large transfer that shares the link with urgent small ones.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "pair.hpp"

using namespace mori_io_test;

namespace {

// All records that wait, of that level or a more serious one.
std::string logged(int32_t level) {
  std::string all;
  mori_log_record record{};
  record.struct_size = sizeof record;
  while (mori_io_log_next(&record, nullptr) == MORI_OK)
    if (record.level <= level) all += std::string(record.message) + "\n";
  return all;
}

// Region of its own memory of mori_io_alloc.
struct segment {
  mori_io* io = nullptr;
  void* memory = nullptr;
  uint64_t bytes = 0;
  uint32_t region = 0;
  segment(mori_io* of, uint64_t size) : io(of), bytes(size) {
    MUST(mori_io_alloc(io, bytes, &memory, error));
    MUST(mori_io_memory_register(io, memory, bytes, MORI_IO_LOCATION_CPU, -1, 0, &region, error));
  }
  ~segment() {
    if (region != 0) (void)mori_io_memory_deregister(io, region, nullptr);
    (void)mori_io_free(io, memory, nullptr);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(memory); }
};

mori_io_session* session_on(const side& of, const std::vector<uint8_t>& desc) {
  mori_io_session* made = nullptr;
  (void)mori_io_session_create(of.io, of.region, desc.data(), desc.size(), nullptr, &made, nullptr);
  return made;
}

}  // namespace

TEST_CASE("memory taken back while sessions are being made: none of them lives") {
  engine_pair pair(4096);
  for (mori_io* each : {pair.a.io, pair.b.io})
    MUST(mori_io_backend_create(each, MORI_IO_BACKEND_XGMI, nullptr, error));
  uint64_t made_count = 0;
  for (int round = 0; round < 150; ++round) {
    segment of(pair.b.io, 4096);
    const std::vector<uint8_t> desc = pair.b.memory_desc(of.region);
    mori_io_session* const first = session_on(pair.a, desc);
    REQUIRE(first != nullptr);
    if (stats_of(first).backend !=
        MORI_IO_BACKEND_XGMI) {  // the proof took too long: a busy machine
      mori_io_session_destroy(first);
      continue;
    }
    REQUIRE(run(first, request(MORI_IO_WRITE, 0, 0, 8)).status == MORI_OK);
    std::atomic<int> rounds{0};
    std::vector<mori_io_session*> made{first};
    std::thread maker([&] {
      for (;; ++rounds) {
        mori_io_session* const one = session_on(pair.a, desc);
        if (one == nullptr || stats_of(one).backend != MORI_IO_BACKEND_XGMI) {
          mori_io_session_destroy(one);
          return;
        }
        made.push_back(one);
      }
    });
    while (rounds < 1 + round % 5) std::this_thread::yield();
    MUST(mori_io_memory_deregister(pair.b.io, of.region, error));
    of.region = 0;
    std::fill_n(of.data(), 4096, uint8_t{0x5A});
    maker.join();
    for (mori_io_session* each : made) {
      CHECK(stats_of(each).is_alive == 0);
      CHECK(run(each, request(MORI_IO_WRITE, 0, 0, 4096)).status == MORI_E_NOT_FOUND);
      mori_io_session_destroy(each);
    }
    made_count += made.size();
    REQUIRE(std::all_of(of.data(), of.data() + 4096, [](uint8_t b) { return b == 0x5A; }));
  }
  CHECK(made_count > 20);
}

TEST_CASE("an engine that ends in order is no warning to its peers, at work or idle") {
  for (const bool at_work : {false, true}) {
    CAPTURE(at_work);
    (void)logged(MORI_LOG_DEBUG);
    mori_io_options stalled = options_of("b");
    if (at_work) stalled.progress = MORI_IO_PROGRESS_CALLER;
    engine_pair pair(options_of("a"), stalled);
    mori_io_transfer* made = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 100));
    while (report_of(made).is_done == 0) MUST(mori_io_progress(pair.b.io, 1'000'000, error));
    mori_io_transfer_release(made);
    made = at_work ? submit(pair.session, request(MORI_IO_WRITE, 0, 0, 100)) : nullptr;
    mori_io_destroy(std::exchange(pair.b.io, nullptr));
    if (at_work) {
      const failed outcome = wait_for(made);
      CHECK(outcome.status == MORI_E_PEER_DEAD);
      CHECK_MESSAGE(outcome.text.find("engine 'b' has ended") != std::string::npos, outcome.text);
      mori_io_transfer_release(made);
    }
    const uint64_t until = now_ns() + 5 * second_ns;
    while (stats_of(pair.session).is_alive == 1 && now_ns() < until)
      MUST(mori_io_progress(pair.a.io, 1'000'000, error));
    CHECK(stats_of(pair.session).is_alive == 0);
    const std::string warnings = logged(MORI_LOG_WARN);
    CHECK_MESSAGE(warnings.empty(), warnings);
  }
}

// Both engines progress through this thread, so what counts is turns of their loops, not time:
// a transfer of 64 MiB is cut into slices, and a link that has had its share goes on in the
// next turn.
TEST_CASE("urgent small transfers overtake a large one on the same link") {
  constexpr uint64_t large = 64 << 20;
  mori_io_backend_options tcp{};
  tcp.struct_size = sizeof tcp;
  tcp.stream_count = 4;
  mori_io_options with = options_of("a"), other = options_of("b");
  with.security = other.security = MORI_IO_SECURITY_TRUSTED;
  with.progress = other.progress = MORI_IO_PROGRESS_CALLER;
  engine_pair pair(with, other, large + 4096, &tcp);
  fill_pattern(pair.a.memory, 1);
  mori_io_session_options urgent{};
  urgent.struct_size = sizeof urgent;
  urgent.priority = MORI_IO_PRIORITY_LATENCY;
  mori_io_session* const quick = pair.a.session_to(pair.b, &urgent);
  const auto turn = [&] {
    MUST(mori_io_progress(pair.a.io, 0, error));
    MUST(mori_io_progress(pair.b.io, 0, error));
  };
  // Turns until it has ended, and its handle back.
  const auto turns_of = [&](mori_io_transfer* what) {
    int count = 0;
    for (const uint64_t until = now_ns() + 60 * second_ns;
         report_of(what).is_done == 0 && now_ns() < until; ++count)
      turn();
    CHECK(report_of(what).status == MORI_OK);
    mori_io_transfer_release(what);
    return count;
  };
  (void)turns_of(submit(pair.session, request(MORI_IO_WRITE, 0, 0, large)));  // all streams are up
  for (const int32_t operation : {MORI_IO_WRITE, MORI_IO_READ}) {
    CAPTURE(operation);
    mori_io_transfer* const bulk = submit(pair.session, request(operation, 0, 0, large));
    int overtaken = 0, most_turns = 0;
    while (report_of(bulk).is_done == 0) {
      turn();
      const int turns = turns_of(submit(quick, request(operation, large, large, 8)));
      if (report_of(bulk).is_done == 1) break;
      ++overtaken;
      most_turns = std::max(most_turns, turns);
    }
    mori_io_transfer_release(bulk);
    MESSAGE("small ones meanwhile: ", overtaken, ", each in ", most_turns, " turns at most");
    CHECK(overtaken >= 4);
    CHECK(most_turns <= 4);
  }
  CHECK(std::equal(pair.a.memory.begin(), pair.a.memory.begin() + large, pair.b.memory.begin()));
  mori_io_session_destroy(quick);
}

// The target reads as fast as it can and says nothing before the end: an initiator that ends a turn
// with work to do, and its sockets free, has nothing to wake it.
TEST_CASE("the loop does not sleep while a large transfer has something to send") {
  constexpr uint64_t large = 64 << 20;
  mori_io_options with = options_of("a"), other = options_of("b");
  with.security = other.security = MORI_IO_SECURITY_TRUSTED;
  with.progress = MORI_IO_PROGRESS_CALLER;
  mori_io_backend_options tcp{};
  tcp.struct_size = sizeof tcp;
  tcp.chunk_bytes = 64 * 1024;  // all that is queued goes at once
  engine_pair pair(with, other, large, &tcp);
  for (int round = 0; round < 3; ++round) {
    mori_io_transfer* const made = submit(pair.session, request(MORI_IO_WRITE, 0, 0, large));
    int asleep = 0;
    for (const uint64_t until = now_ns() + 60 * second_ns;
         report_of(made).is_done == 0 && now_ns() < until;) {
      const uint64_t begin = now_ns();
      MUST(mori_io_progress(pair.a.io, second_ns / 4, error));
      asleep += now_ns() - begin > second_ns / 5 ? 1 : 0;
    }
    CHECK(report_of(made).status == MORI_OK);
    CHECK(asleep < 12);  // each turn but a few if it did; some where the machine has no time for us
    mori_io_transfer_release(made);
  }
}
