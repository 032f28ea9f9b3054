// engine_test.cpp - transfers between two engines of this process over TCP, through
// the C ABI: sizes, batches, notifications, completions, misuse, ends.
#include <poll.h>

#include <algorithm>
#include <random>

#include "pair.hpp"

using namespace mori_io_test;

TEST_CASE("writes and reads of many sizes arrive whole, in every mode") {
  for (const int32_t mode :
       {MORI_IO_SECURITY_MAC, MORI_IO_SECURITY_ENCRYPT, MORI_IO_SECURITY_TRUSTED}) {
    CAPTURE(mode);
    mori_io_options left = options_of("a"), right = options_of("b");
    left.security = right.security = mode;
    engine_pair pair(left, right, 8 << 20);
    uint64_t uid = 1;
    for (const uint64_t bytes :
         {uint64_t{0}, uint64_t{1}, uint64_t{8}, uint64_t{4096}, uint64_t{16384}, uint64_t{16385},
          uint64_t{65536}, uint64_t{65537}, (uint64_t{1} << 20) + 3, uint64_t{8} << 20}) {
      CAPTURE(bytes);
      fill_pattern(pair.a.memory, static_cast<uint8_t>(bytes));
      std::fill(pair.b.memory.begin(), pair.b.memory.end(), 0);
      const failed written = run(pair.session, request(MORI_IO_WRITE, 0, 0, bytes, ++uid));
      REQUIRE_MESSAGE(written.status == MORI_OK, written.text);
      CHECK(std::equal(pair.a.memory.begin(), pair.a.memory.begin() + static_cast<long>(bytes),
                       pair.b.memory.begin()));
      CHECK(std::all_of(pair.b.memory.begin() + static_cast<long>(bytes), pair.b.memory.end(),
                        [](uint8_t b) { return b == 0; }));
      fill_pattern(pair.b.memory, static_cast<uint8_t>(bytes + 1));
      const failed read = run(pair.session, request(MORI_IO_READ, 0, 0, bytes, ++uid));
      REQUIRE_MESSAGE(read.status == MORI_OK, read.text);
      CHECK(std::equal(pair.a.memory.begin(), pair.a.memory.begin() + static_cast<long>(bytes),
                       pair.b.memory.begin()));
      mori_io_inbound inbound;
      for (const auto& [operation, name] :
           {std::pair(MORI_IO_WRITE, uid - 1), std::pair(MORI_IO_READ, uid)}) {
        REQUIRE(pop_inbound(pair.b.io, "a", name, inbound));
        CHECK(inbound.size_bytes == bytes);
        CHECK(inbound.operation == operation);
        CHECK(inbound.memory_id == pair.b.region);
        CHECK(mori_io_inbound_pop(pair.b.io, "a", name, &inbound, nullptr) == MORI_E_AGAIN);
      }
    }
    const mori_io_stats stats = stats_of(pair.session);
    CHECK(stats.success_count == 20);
    CHECK(stats.retry_count == 0);
    CHECK(stats.is_alive == 1);
    CHECK(stats.backend == MORI_IO_BACKEND_TCP);
    CHECK(stats.latency_p50_ns > 0);
    CHECK(stats.latency_p50_ns <= stats.latency_max_ns);
  }
}

TEST_CASE("a batch of shuffled pieces, some empty") {
  engine_pair pair;
  fill_pattern(pair.a.memory, 3);
  request batch(MORI_IO_WRITE, 0, 0, 0);
  std::vector<uint64_t> order(1000);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  for (size_t i = 0; i < order.size(); ++i) {
    batch.local.push_back(i * 1000);
    batch.remote.push_back(order[i] * 1000 + 8);
    batch.sizes.push_back(i % 50 == 0 ? 0 : 1 + i % 900);
  }
  REQUIRE(run(pair.session, batch).status == MORI_OK);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto from = pair.a.memory.begin() + static_cast<long>(i * 1000);
    const uint64_t bytes = i % 50 == 0 ? 0 : 1 + i % 900;
    REQUIRE(std::equal(from, from + static_cast<long>(bytes),
                       pair.b.memory.begin() + static_cast<long>(order[i] * 1000 + 8)));
  }
}

TEST_CASE("a million pieces in one call") {
  engine_pair pair(16 << 20);
  fill_pattern(pair.a.memory, 9);
  constexpr uint64_t count = 1'000'000;
  request batch(MORI_IO_WRITE, 0, 0, 0);
  for (auto* each : {&batch.local, &batch.remote, &batch.sizes}) each->resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    batch.local[i] = i * 16;
    batch.remote[i] = (count - 1 - i) * 16;
    batch.sizes[i] = 16;
  }
  REQUIRE(run(pair.session, batch).status == MORI_OK);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < count; ++i)
    wrong += std::memcmp(pair.a.memory.data() + i * 16, pair.b.memory.data() + (count - 1 - i) * 16,
                         16) != 0;
  CHECK(wrong == 0);
}

TEST_CASE("metadata comes with the notification; without notification nothing comes") {
  engine_pair pair;
  request with(MORI_IO_WRITE, 0, 0, 10, 77);
  const std::string metadata(1024, 'm');
  with.raw.in_metadata = metadata.data();
  with.raw.metadata_bytes = 1024;
  CHECK(run(pair.session, with).status == MORI_OK);
  request large(MORI_IO_WRITE, 0, 0, 1 << 20, 78);
  large.raw.in_metadata = "few";
  large.raw.metadata_bytes = 3;
  CHECK(run(pair.session, large).status == MORI_OK);
  request silent(MORI_IO_WRITE, 0, 0, 10, 79);
  silent.raw.disable_notification = 1;
  CHECK(run(pair.session, silent).status == MORI_OK);
  mori_io_inbound inbound;
  REQUIRE(pop_inbound(pair.b.io, "a", 77, inbound));
  CHECK(inbound.metadata_bytes == 1024);
  CHECK(std::memcmp(inbound.metadata, metadata.data(), 1024) == 0);
  inbound = {};
  inbound.struct_size = sizeof inbound;
  REQUIRE(mori_io_inbound_next(pair.b.io, &inbound, nullptr) == MORI_OK);
  CHECK(inbound.uid == 78);
  CHECK(std::string(inbound.peer_key) == "a");
  CHECK(inbound.metadata_bytes == 3);
  CHECK(mori_io_inbound_next(pair.b.io, &inbound, nullptr) == MORI_E_AGAIN);
}

TEST_CASE("completions come in order, and the event descriptor is readable while there are some") {
  engine_pair pair;
  int32_t fd = -1;
  MUST(mori_io_event_fd(pair.a.io, &fd, error));
  pollfd ready{fd, POLLIN, 0};
  CHECK(poll(&ready, 1, 0) == 0);
  for (uint64_t i = 0; i < 5; ++i) {
    request each(MORI_IO_WRITE, i, i, 1, i);
    each.raw.tag = 100 + i;
    each.raw.enqueue_completion = 1;
    MUST(mori_io_submit(pair.session, each.get(), nullptr, error));
  }
  std::vector<mori_io_completion> got;
  while (got.size() < 5) {
    REQUIRE(poll(&ready, 1, 5000) == 1);
    mori_io_completion entries[2];
    uint64_t count = 0;
    MUST(mori_io_completion_next(pair.a.io, entries, 2, &count, error));
    got.insert(got.end(), entries, entries + count);
  }
  for (uint64_t i = 0; i < 5; ++i) {
    CHECK(got[i].tag == 100 + i);
    CHECK(got[i].uid == i);
    CHECK(got[i].size_bytes == 1);
    CHECK(got[i].status == MORI_OK);
    CHECK(got[i].operation == MORI_IO_WRITE);
  }
  CHECK(poll(&ready, 1, 0) == 0);
}

TEST_CASE("misuse is found at once and says value and limit") {
  engine_pair pair(4096);
  const auto refused = [&](request what) {
    mori_io_transfer* made = nullptr;
    const failed outcome = ask(
        [&](mori_error* error) { return mori_io_submit(pair.session, what.get(), &made, error); });
    CHECK(made == nullptr);
    return outcome;
  };
  CHECK(refused(request(MORI_IO_WRITE, 4000, 0, 97)).text ==
        "piece 0: local bytes 4000 + 97 are outside region 1 of 4096");
  CHECK(
      refused(request(MORI_IO_WRITE, 0, UINT64_MAX, 2)).text ==
      "piece 0: remote bytes 18446744073709551615 + 2 are outside region 1 of 4096 of engine 'b'");
  CHECK(refused(request(3, 0, 0, 1)).text ==
        "operation 3 is neither MORI_IO_READ nor MORI_IO_WRITE");
  request metadata(MORI_IO_WRITE, 0, 0, 1);
  metadata.raw.metadata_bytes = 1025;
  CHECK(refused(metadata).text == "metadata_bytes 1025 is more than 1024");
  request priority(MORI_IO_WRITE, 0, 0, 1);
  priority.raw.priority = 3;
  CHECK(refused(priority).status == MORI_E_INVALID);
  CHECK(stats_of(pair.session).transfer_count == 0);
}

TEST_CASE("destroyed, foreign and NULL handles answer MORI_E_STATE") {
  auto* pair = new engine_pair;
  mori_io_transfer* const done = submit(pair->session, request(MORI_IO_WRITE, 0, 0, 1));
  CHECK(wait_for(done).status == MORI_OK);
  mori_io_session* const session = pair->session;
  mori_io* const io = pair->a.io;
  mori_io_destroy(io);
  request what(MORI_IO_WRITE, 0, 0, 1);
  CHECK(mori_io_submit(session, what.get(), nullptr, nullptr) == MORI_E_STATE);
  mori_io_stats stats{};
  stats.struct_size = sizeof stats;
  CHECK(mori_io_session_stats(session, &stats, nullptr) == MORI_E_STATE);
  CHECK(report_of(done).is_done == 1);  // transfers may still be asked
  delete pair;
  CHECK(mori_io_submit(session, what.get(), nullptr, nullptr) == MORI_E_STATE);
  CHECK(ask([&](mori_error* e) { return mori_io_submit(nullptr, what.get(), nullptr, e); }).text ==
        "mori_io_session handle is NULL");
  mori_io_transfer_release(done);
  mori_io_transfer_release(done);
  CHECK(wait_for(done).status == MORI_E_STATE);
  mori_io_session_destroy(reinterpret_cast<mori_io_session*>(uintptr_t{0x12345}));
}

TEST_CASE("an engine that is destroyed with transfers in flight ends them") {
  mori_io_options slow = options_of("b");
  slow.progress = MORI_IO_PROGRESS_CALLER;  // nobody progresses b
  engine_pair pair(options_of("a"), slow, 64 << 20);
  std::vector<mori_io_transfer*> all;
  for (int i = 0; i < 20; ++i)
    all.push_back(submit(pair.session, request(i % 2 == 0 ? MORI_IO_WRITE : MORI_IO_READ, 0, 0,
                                               i < 10 ? 100 : 32 << 20)));
  const uint64_t begin = now_ns();
  mori_io_destroy(pair.a.io);
  CHECK(now_ns() - begin < 2 * second_ns);
  for (mori_io_transfer* each : all) {
    const mori_io_transfer_report report = report_of(each);
    CHECK(report.is_done == 1);
    CHECK(report.status == MORI_E_CANCELLED);
    mori_io_transfer_release(each);
  }
}

TEST_CASE("a region that is deregistered ends its transfers, on both sides") {
  engine_pair pair;
  const auto before = pair.b.memory_desc();
  MUST(mori_io_memory_deregister(pair.b.io, pair.b.region, error));
  const failed gone = run(pair.session, request(MORI_IO_WRITE, 0, 0, 10, 5));
  CHECK(gone.status == MORI_E_NOT_FOUND);
  CHECK(gone.text ==
        "transfer 5 with engine 'b': the target has no region 1; it may be deregistered");
  MUST(mori_io_memory_deregister(pair.a.io, pair.a.region, error));
  request what(MORI_IO_WRITE, 0, 0, 1);
  const failed local =
      ask([&](mori_error* e) { return mori_io_submit(pair.session, what.get(), nullptr, e); });
  CHECK(local.status == MORI_E_STATE);
  CHECK(local.text == "region 1 was deregistered");
  CHECK(stats_of(pair.session).is_alive == 0);
  CHECK(ask([&](mori_error* e) { return mori_io_memory_deregister(pair.a.io, 1, e); }).text ==
        "region 1 is not registered");
}

TEST_CASE("cancel, deadline, back-pressure") {
  mori_io_options limited = options_of("a");
  limited.transfer_count = 4;
  limited.control_timeout_ns = second_ns / 5;
  mori_io_options stalled = options_of("b");
  stalled.progress = MORI_IO_PROGRESS_CALLER;  // accepts, and never answers
  engine_pair pair(limited, stalled);
  request timed(MORI_IO_WRITE, 0, 0, 8, 3);
  timed.raw.timeout_ns = second_ns / 10;
  limited.peer_timeout_ns = 0;
  mori_io_transfer* const late = submit(pair.session, timed);
  const failed expired = wait_for(late);
  CHECK(expired.status == MORI_E_TIMEOUT);
  CHECK(expired.text == "transfer 3 with engine 'b': its timeout of 100 ms has passed");
  mori_io_transfer_release(late);
  std::vector<mori_io_transfer*> four;
  for (int i = 0; i < 4; ++i) four.push_back(submit(pair.session, request(MORI_IO_WRITE, 0, 0, 8)));
  request fifth(MORI_IO_WRITE, 0, 0, 8);
  const failed full =
      ask([&](mori_error* e) { return mori_io_submit(pair.session, fifth.get(), nullptr, e); });
  CHECK(full.status == MORI_E_AGAIN);
  CHECK(full.text == "4 transfers are in flight, 4 are allowed; waited 200 ms");
  CHECK(wait_for(four[0], second_ns / 50).text == "1 of 1 transfers are in flight after 20 ms");
  for (mori_io_transfer* each : four) {
    MUST(mori_io_transfer_cancel(each, error));
    CHECK(wait_for(each).status == MORI_E_CANCELLED);
    mori_io_transfer_release(each);
  }
}

TEST_CASE("a peer that restarts: its old sessions fail, new ones work") {
  engine_pair pair;
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 10)).status == MORI_OK);
  mori_io_destroy(pair.b.io);
  // The first may still meet the farewell; from then on nobody listens.
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 10)).status == MORI_E_PEER_DEAD);
  const failed dead = run(pair.session, request(MORI_IO_WRITE, 0, 0, 10));
  CHECK(dead.status == MORI_E_PEER_DEAD);
  CHECK(dead.text.find("engine 'b' is gone: cannot connect to 127.0.0.1:") != std::string::npos);
  CHECK(stats_of(pair.session).is_alive == 0);
  side again(options_of("b"));
  pair.a.know(again);
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 10)).status == MORI_E_CANCELLED);
  mori_io_session* const fresh = pair.a.session_to(again);
  CHECK(run(fresh, request(MORI_IO_WRITE, 0, 0, 10)).status == MORI_OK);
  mori_io_session_destroy(fresh);
}

TEST_CASE("both engines progress only through callers") {
  mori_io_options left = options_of("a"), right = options_of("b");
  left.progress = right.progress = MORI_IO_PROGRESS_CALLER;
  engine_pair pair(left, right);
  fill_pattern(pair.a.memory, 1);
  mori_io_transfer* const made = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 1 << 20));
  for (int i = 0; i < 5000 && report_of(made).is_done == 0; ++i) {
    MUST(mori_io_progress(pair.a.io, 1000, error));
    MUST(mori_io_progress(pair.b.io, 1000, error));
  }
  CHECK(report_of(made).status == MORI_OK);
  CHECK(pair.a.memory == pair.b.memory);
  mori_io_transfer_release(made);
}

TEST_CASE("TCP is removed: transfers in flight end, new ones say why") {
  mori_io_options slow = options_of("b");
  slow.progress = MORI_IO_PROGRESS_CALLER;
  engine_pair pair(options_of("a"), slow);
  mori_io_transfer* const made = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 10));
  MUST(mori_io_backend_remove(pair.a.io, MORI_IO_BACKEND_TCP, error));
  const mori_io_transfer_report report = report_of(made);
  CHECK(report.is_done == 1);
  CHECK(report.status != MORI_OK);
  mori_io_transfer_release(made);
  const failed later = run(pair.session, request(MORI_IO_WRITE, 0, 0, 10, 4));
  CHECK(later.status == MORI_E_UNAVAILABLE);
  CHECK(later.text.find("no backend reaches: XGMI: was not created") != std::string::npos);
  CHECK(ask([&](mori_error* e) {
          return mori_io_backend_remove(pair.a.io, MORI_IO_BACKEND_TCP, e);
        }).status == MORI_E_NOT_FOUND);
}

TEST_CASE("metrics are Prometheus text") {
  engine_pair pair;
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 10)).status == MORI_OK);
  uint64_t bytes = 0;
  MUST(mori_io_metrics(pair.a.io, nullptr, &bytes, error));
  std::string text(bytes + 100, '\0');
  bytes = text.size();
  MUST(mori_io_metrics(pair.a.io, text.data(), &bytes, error));
  CHECK(text.find("mori_io_written_bytes_total{engine=\"a\",backend=\"TCP\"} 10\n") !=
        std::string::npos);
  CHECK(text[bytes - 1] == '\0');
}
