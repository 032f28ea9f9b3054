// protocol_test.cpp - links under a seeded simulator (link_simulator.hpp): loss at
// each byte, delays, damage, cancels, deadlines, a target that dies or starts
// again. A failing random case names its seed; MORI_TEST_SEED repeats that one.
#include <mori/io_types.h>

#include <algorithm>
#include <cstdlib>

#include "link_simulator.hpp"

using namespace mori::io_core;
using namespace mori::io_core::protocol;
using wire::security_mode;

TEST_CASE("writes and reads arrive whole, in every mode") {
  for (const security_mode mode :
       {security_mode::mac, security_mode::encrypt, security_mode::trusted}) {
    CAPTURE(static_cast<int>(mode));
    simulation world(1, mode, 16);
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{17}, uint64_t{16 * 1024},
                                 uint64_t{16 * 1024 + 1}, uint64_t{64 * 1024}, block_bytes}) {
      world.submit(world.make(false, bytes, 3));
      world.submit(world.make(true, bytes, 3));
    }
    world.run();
    for (const auto& each : world.owners) {
      CHECK(each->status == MORI_OK);
      world.check_end(*each);
    }
    CHECK(world.losses == 0);
  }
}

TEST_CASE("more pieces than one slice holds") {
  simulation world(2);
  subject& write = world.make(false, 100'000, 5000);
  subject& read = world.make(true, 100'000, 2049);
  world.submit(write);
  world.submit(read);
  world.run();
  for (subject* each : {&write, &read}) {
    CHECK(each->status == MORI_OK);
    CHECK(each->slice_count >= 3);
    world.check_end(*each);
  }
}

// All of a small exchange, with the connection cut after each byte that arrives at either side.
TEST_CASE("a loss at each byte") {
  uint64_t total = 0;
  for (uint64_t cut = 0; cut == 0 || cut < total; ++cut) {
    CAPTURE(cut);
    simulation world(3, security_mode::mac, 3);
    world.cut_at = cut;
    world.submit(world.make(false, 100));
    world.submit(world.make(true, 100));
    world.submit(world.make(false, 0));
    world.run();
    if (cut == 0) total = world.moved;
    CHECK(world.losses == (cut == 0 ? 0 : 1));
    for (const auto& each : world.owners) {
      REQUIRE(each->status == MORI_OK);
      world.check_end(*each);
    }
  }
  CHECK(total > 700);
}

TEST_CASE("a loss at many bytes of a transfer in slices over several streams") {
  uint64_t total = 0;
  for (uint64_t cut = 0; cut == 0 || cut < total; cut += 1009) {
    CAPTURE(cut);
    simulation world(4, security_mode::trusted, 2);
    world.cut_at = cut;
    world.submit(world.make(false, block_bytes, 2));
    world.submit(world.make(true, block_bytes, 2));
    world.run();
    if (cut == 0) total = world.moved;
    for (const auto& each : world.owners) {
      REQUIRE(each->status == MORI_OK);
      world.check_end(*each);
    }
  }
}

TEST_CASE("the acknowledgement is lost after delivery and the block reused: its bytes stand") {
  simulation world(5);
  subject& write = world.make(false, 1000);
  world.submit(write);
  while (write.notifications == 0) world.step();
  REQUIRE(write.outcomes == 0);  // delivered, and the initiator does not know
  world.lose("cut before the acknowledgement");
  world.run();
  CHECK(write.status == MORI_OK);
  CHECK(write.retry_count == 0);
  world.check_end(write);
}

TEST_CASE("damaged bytes end the connection, not the transfer") {
  simulation world(6);
  subject& write = world.make(false, 5000);
  world.submit(write);
  for (int i = 0; i < 3; ++i) {
    while (world.lanes.empty() || world.lanes[0]->forward.bytes.empty()) world.step();
    world.lanes[0]->forward.bytes.front() ^= std::byte{1};
    const int before = world.losses;
    while (world.losses == before) world.step();
  }
  world.run();
  CHECK(write.status == MORI_OK);
  CHECK(world.losses == 3);
  world.check_end(write);
}

TEST_CASE("bytes that come twice end the connection, not the transfer") {
  simulation world(7);
  world.burst = 64;
  subject& write = world.make(false, 5000);
  world.submit(write);
  while (world.lanes.empty() || world.lanes[0]->forward.bytes.size() < 32) world.step();
  auto& under_way = world.lanes[0]->forward.bytes;
  const std::vector<std::byte> again(under_way.begin(), under_way.begin() + 32);
  under_way.insert(under_way.begin(), again.begin(), again.end());
  world.run();
  CHECK(world.losses >= 1);
  CHECK(write.status == MORI_OK);
  world.check_end(write);
}

TEST_CASE("the target refuses: unknown region, wrong capability, range, access") {
  simulation world(8);
  world.sink->access = MORI_IO_ACCESS_READ;
  subject& access = world.make(false, 10);
  subject& unknown = world.make(false, 10);
  unknown.remote_region = 8;
  subject& capability = world.make(true, 10);
  capability.capability[15] ^= 1;
  subject& range = world.make(true, 10);
  range.piece_store[0].remote_offset = world.remote.size() - 9;
  subject& good = world.make(true, 10);
  for (const auto& each : world.owners) world.submit(*each);
  world.run();
  CHECK(access.status == MORI_E_AUTH);
  CHECK(access.text == "region 7 of the target may not be written");
  CHECK(unknown.status == MORI_E_NOT_FOUND);
  CHECK(unknown.text == "the target has no region 8; it may be deregistered");
  CHECK(capability.status == MORI_E_AUTH);
  CHECK(capability.text == "the capability does not fit region 7 of the target");
  CHECK(range.status == MORI_E_INVALID);
  CHECK(range.text == "bytes 1048567 + 10 are outside region 7 of 1048576 bytes");
  CHECK(good.status == MORI_OK);
  CHECK(world.losses == 0);
}

TEST_CASE("a cancel before anything was sent, and after all was delivered") {
  simulation world(9);
  subject& unsent = world.make(false, 100);
  world.submit(unsent);
  world.asking.cancel(unsent, MORI_E_CANCELLED, world.now);
  CHECK(unsent.outcomes == 1);
  CHECK(unsent.status == MORI_E_CANCELLED);
  subject& late = world.make(false, 100);
  world.submit(late);
  while (late.notifications == 0) world.step();
  world.asking.cancel(late, MORI_E_CANCELLED, world.now);
  world.run();
  CHECK(late.status == MORI_OK);
  world.check_end(late);
}

TEST_CASE("a cancel in the middle: nothing is written after the outcome") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    simulation world(seed, seed % 2 == 0 ? security_mode::mac : security_mode::trusted);
    subject& write = world.make(false, block_bytes);
    subject& read = world.make(true, block_bytes);
    world.submit(write);
    world.submit(read);
    const uint64_t until = 200 + seed * 4001;
    while (world.moved < until && world.step() && world.asking.has_work()) {
    }
    const auto cancel = [&](subject& of) {
      if (of.releases > 0) return;
      world.asking.cancel(of, MORI_E_CANCELLED, world.now);
    };
    cancel(write);
    cancel(read);
    while (write.outcomes == 0 || read.outcomes == 0) world.step();
    // Whatever was decided holds: both blocks are the caller's and the target's again.
    std::memset(world.remote.data(), 0x33, block_bytes);
    std::memset(world.local.data() + block_bytes, 0x44, block_bytes);
    for (int i = 0; i < 400; ++i) world.step();
    if (write.status == MORI_E_CANCELLED)
      CHECK(std::all_of(world.remote.begin(), world.remote.begin() + block_bytes,
                        [](std::byte b) { return b == std::byte{0x33}; }));
    if (read.status == MORI_E_CANCELLED)
      CHECK(std::all_of(world.local.begin() + block_bytes, world.local.begin() + 2 * block_bytes,
                        [](std::byte b) { return b == std::byte{0x44}; }));
    CHECK(write.notifications == (write.status == MORI_OK ? 1 : 0));
  }
}

TEST_CASE("a cancel that nobody answers ends with the link, and says that delivery is unknown") {
  simulation world(10);
  subject& write = world.make(false, 1000);
  world.submit(write);
  while (world.lanes.empty() || !world.asking.is_ready()) world.step();
  world.asking.pump(world.now);
  world.asking.cancel(write, MORI_E_TIMEOUT, world.now);
  CHECK(write.outcomes == 0);
  CHECK(world.asking.next_time_ns() == world.now + 100'000'000);
  CHECK(world.asking.on_time(world.now + 99'999'999));
  const auto impatient = world.asking.on_time(world.now + 100'000'000);
  REQUIRE(!impatient);
  CHECK(impatient.error().status == MORI_E_TIMEOUT);
  CHECK(impatient.error().text == "engine 'target' did not answer a cancel for 100 ms");
  world.asking.on_lost("closed");
  CHECK(write.status == MORI_E_TIMEOUT);
  CHECK(write.text == "delivery unknown: engine 'target' did not say whether it stopped; closed");
  CHECK(write.releases == 1);
}

TEST_CASE("silence is noticed, but only once an answer was asked for") {
  simulation world(11);
  subject& write = world.make(false, 1000);
  world.submit(write);
  while (world.lanes.empty() || !world.asking.is_ready()) world.step();
  world.asking.pump(world.now);
  // A process that was stopped itself for long asks first.
  world.now += 5'000'000'000;
  CHECK(world.asking.on_time(world.now));
  CHECK(world.asking.on_time(world.now + 749'000'000));
  const auto silent = world.asking.on_time(world.now + 750'000'000);
  REQUIRE(!silent);
  CHECK(silent.error().status == MORI_E_PEER_DEAD);
  CHECK(silent.error().text.find("engine 'target' has been silent for ") == 0);
  CHECK(silent.error().text.find("1000 ms are allowed") != std::string::npos);
  world.asking.fail_all(MORI_E_PEER_DEAD, silent.error().text);
  CHECK(write.status == MORI_E_PEER_DEAD);
  CHECK(write.releases == 1);
  CHECK(!world.asking.has_work());
}

TEST_CASE("everything fails when the target has started again") {
  simulation world(12);
  std::vector<subject*> all;
  for (const bool is_read : {false, true})
    for (const uint64_t bytes : {uint64_t{10}, block_bytes})
      all.push_back(&world.make(is_read, bytes));
  for (subject* each : all) world.submit(*each);
  for (int i = 0; i < 5; ++i) world.step();
  world.asking.fail_all(MORI_E_PEER_DEAD, "engine 'target' was started again");
  for (const subject* each : all) {
    CHECK(each->outcomes == 1);
    CHECK(each->releases == 1);
    if (each->status != MORI_OK) CHECK(each->text == "engine 'target' was started again");
  }
  CHECK(!world.asking.has_work());
}

TEST_CASE("a region that is taken out: coming bytes go nowhere, leaving ones end the link") {
  simulation world(13, security_mode::mac);
  world.burst = 2000;
  subject& write = world.make(false, block_bytes);
  world.submit(write);
  while (world.lanes.size() < 2 || !world.lanes[1]->right.in_payload()) world.step();
  world.sink->revoked = true;
  CHECK(!world.serving.drop_region(7));
  std::fill(world.remote.begin(), world.remote.end(), std::byte{0x66});
  world.run();
  CHECK(write.status == MORI_E_NOT_FOUND);
  CHECK(write.text == "region 7 of the target was deregistered");
  CHECK(std::ranges::all_of(world.remote, [](std::byte b) { return b == std::byte{0x66}; }));

  world.sink->revoked = false;
  subject& read = world.make(true, block_bytes);
  world.submit(read);
  while (world.lanes.size() < 2 || !world.lanes[1]->left.in_payload()) world.step();
  world.sink->revoked = true;
  CHECK(world.serving.drop_region(7));
  world.lose("region taken out");
  world.run();
  CHECK(read.status == MORI_E_NOT_FOUND);
}

TEST_CASE("revoking a region is answered") {
  simulation world(14);
  subject& write = world.make(false, 10);
  world.submit(write);
  world.run();
  world.serving.revoke(7);
  for (int i = 0; i < 20 && world.revoked.empty(); ++i) world.step();
  CHECK(world.revokes == std::vector<uint32_t>{7});
  CHECK(world.revoked == std::vector<uint32_t>{7});
}

TEST_CASE("a region may be attached until it is taken back, and by who knows its capability") {
  simulation world(15);
  subject& write = world.make(false, 10);
  world.submit(write);
  world.run();
  const auto ask = [&](const wire::attach& what) {
    world.attached.clear();
    world.revokes.clear();
    world.asking.ask_attach(what);
    for (int i = 0; i < 20 && world.attached.empty() && world.revokes.empty(); ++i) world.step();
    return world.attached == std::vector<uint32_t>{what.region} && world.revokes.empty();
  };
  wire::attach what{.region = 7, .operation = MORI_IO_WRITE};
  CHECK(!world.serving.has_attached(7));
  CHECK(!ask(what));
  CHECK(world.revokes == std::vector<uint32_t>{7});
  CHECK(!world.serving.has_attached(7));
  what.capability = world.sink->write_capability;
  CHECK(ask(what));
  CHECK(world.serving.has_attached(7));
  what.operation = MORI_IO_READ;  // which has another capability
  CHECK(!ask(what));
  what.capability = world.sink->read_capability;
  CHECK(ask(what));
  what.region = 8;
  CHECK(!ask(what));
  what.region = 7;
  // A generation's word ends with it.
  world.lose("cut");
  CHECK(!world.serving.has_attached(7));
  subject& next = world.make(false, 10);
  world.submit(next);
  world.run();
  world.sink->revoked = true;
  CHECK(!ask(what));
  CHECK(world.revokes == std::vector<uint32_t>{7});
}

TEST_CASE("transfers that come in part are counted, and too many are refused") {
  simulation world(16, security_mode::mac, 16);
  for (int i = 0; i < 10; ++i) world.submit(world.make(false, block_bytes, 1));
  world.run();
  CHECK(world.assembly_count == 0);
  for (const auto& each : world.owners) CHECK(each->status == MORI_OK);
  world.max_assembly_count = 0;
  subject& large = world.make(false, block_bytes);
  subject& small = world.make(false, 100);
  world.submit(large);
  world.submit(small);
  world.run();
  CHECK(large.status == MORI_E_NO_MEMORY);
  CHECK(large.text == "0 transfers of the target have come in part, 0 may");
  CHECK(large.notifications == 0);
  CHECK(small.status == MORI_OK);
  CHECK(world.assembly_count == 0);
  // What a lost link leaves behind is let go.
  world.max_assembly_count = 100;
  world.submit(world.make(false, block_bytes));
  while (world.assembly_count == 0) world.step();
  world.lose("cut");
  CHECK(world.assembly_count == 0);
  world.run();
  CHECK(world.owners.back()->status == MORI_OK);
}

TEST_CASE("a cancel while the link is down ends soon and does not claim to know") {
  simulation world(17);
  subject& write = world.make(false, block_bytes);
  world.submit(write);
  while (world.assembly_count == 0) world.step();
  world.lose("cut");
  REQUIRE(!world.asking.is_connected());
  REQUIRE(write.outcomes == 0);
  const uint64_t now = world.now;
  world.asking.cancel(write, MORI_E_CANCELLED, now);
  CHECK(world.asking.next_time_ns() == now + 50'000'000);
  CHECK(world.asking.on_time(now + 49'999'999));
  CHECK(write.outcomes == 0);
  CHECK(world.asking.on_time(now + 50'000'000));
  CHECK(write.outcomes == 1);
  CHECK(write.releases == 1);
  CHECK(write.status == MORI_E_CANCELLED);
  CHECK(write.text ==
        "delivery unknown: engine 'target' did not say whether it stopped; there is no connection");
  CHECK(!world.asking.has_work());
  subject& next = world.make(false, 100);
  world.submit(next);
  world.run();
  CHECK(next.status == MORI_OK);
  CHECK(write.notifications == 0);
}

TEST_CASE("a write whose bytes went another way ends when the target knows of it, or fails") {
  simulation world(18);
  subject& told = world.make(false, 1000);
  told.moved_elsewhere = true;
  std::memcpy(world.remote.data() + told.pieces[0].remote_offset,
              world.local.data() + told.pieces[0].local_offset, 1000);
  world.submit(told);
  CHECK(told.outcomes == 0);
  world.run();
  CHECK(told.status == MORI_OK);
  CHECK(told.outcomes == 1);
  CHECK(told.notifications == 1);
  subject& untold = world.make(false, 1000);
  untold.moved_elsewhere = true;
  world.submit(untold);
  world.asking.fail_all(MORI_E_PEER_DEAD, "gone for good");
  CHECK(untold.outcomes == 1);
  CHECK(untold.status == MORI_E_PEER_DEAD);
  CHECK(untold.text == "gone for good");
  CHECK(untold.notifications == 0);
}

TEST_CASE("a session with a million slices does not hold up another") {
  schedule queue;
  flow busy, quick;
  std::vector<transfer> many(100);
  transfer one;
  for (transfer& each : many) {
    each.priority = 1;
    each.of = &busy;
    queue.push_back(each);
  }
  one.priority = 1;
  one.of = &quick;
  for (int i = 0; i < 5; ++i) queue.charge(*queue.peek(), 1 << 20);
  queue.push_back(one);
  int before = 0;
  while (queue.peek() != &one && before < 100) {
    queue.charge(*queue.peek(), 1 << 20);
    ++before;
  }
  CHECK(before <= 5);
}

TEST_CASE("latency transfers come first and bulk ones still move") {
  schedule queue;
  std::array<flow, 3> flows;
  std::array<std::vector<transfer>, 3> all;
  for (size_t rank = 0; rank < 3; ++rank) {
    all[rank] = std::vector<transfer>(200);
    for (transfer& each : all[rank]) {
      each.priority = static_cast<uint8_t>(rank);
      each.of = &flows[rank];
      queue.push_back(each);
    }
  }
  std::array<int, 3> served{};
  for (int i = 0; i < 105; ++i) {
    transfer* const next = queue.peek();
    ++served[next->priority];
    queue.charge(*next, 100);
    queue.pop(*next);
  }
  CHECK(served == std::array<int, 3>{80, 20, 5});
}

TEST_CASE("random transfers, losses, damage and cancels") {
  uint64_t first = 1000, last = 1150;
  if (const char* given = std::getenv("MORI_TEST_SEED"))
    first = std::strtoull(given, nullptr, 10), last = first + 1;
  for (uint64_t seed = first; seed < last; ++seed) {
    INFO("repeat with MORI_TEST_SEED=", seed, " io_protocol_test -tc='random transfers*'");
    const security_mode modes[] = {security_mode::mac, security_mode::encrypt,
                                   security_mode::trusted};
    simulation world(seed, modes[seed % 3], 24);
    world.burst = 1 + world.random() % 60'000;
    std::vector<subject*> cancelled;
    for (int i = 0; i < 24; ++i) {
      const uint64_t largest = world.random() % 4 == 0 ? block_bytes : 3000;
      subject& of = world.make(world.random() % 2 == 0, world.random() % (largest + 1),
                               1 + world.random() % 5);
      of.notifies = of.is_read || world.random() % 4 != 0;
      world.submit(of);
      for (uint64_t steps = world.random() % 4; steps > 0; --steps) world.step();
      if (world.random() % 6 == 0) world.lose("random loss");
      if (world.random() % 8 == 0 && of.releases == 0) {
        world.asking.cancel(of, MORI_E_CANCELLED, world.now);
        cancelled.push_back(&of);
      }
      if (world.random() % 12 == 0 && !world.lanes.empty() &&
          modes[seed % 3] == security_mode::mac && !world.lanes[0]->forward.bytes.empty())
        world.lanes[0]->forward.bytes.front() ^= std::byte{0x10};
    }
    world.run();
    for (const auto& each : world.owners) {
      const bool was_cancelled = std::ranges::count(cancelled, each.get()) > 0;
      const bool tampered = each->status == MORI_E_PROTOCOL;
      CHECK((each->status == MORI_OK || tampered ||
             (was_cancelled && each->status == MORI_E_CANCELLED)));
      world.check_end(*each);
      if (each->status == MORI_E_CANCELLED && !each->is_read) CHECK(each->notifications == 0);
    }
  }
}
