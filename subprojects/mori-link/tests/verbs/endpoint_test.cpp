// endpoint_test.cpp - the contract of devices, queue pairs and endpoints, on a real RDMA device;
// tests/rdma runs this in a machine that has one.
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "connection.hpp"

using namespace mori;
using namespace mori::test;

namespace {

uint64_t processor_ms() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto ms = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_usec) / 1000;
  };
  return ms(used.ru_utime) + ms(used.ru_stime);
}

// "up" or "down", of the interface below the device.
bool set_interface(const char* state) {
  const char* const words[] = {"ip", "link", "set", "dummy0", state, nullptr};
  pid_t tool = -1;
  int status = 1;
  return ::posix_spawnp(&tool, words[0], nullptr, nullptr, const_cast<char* const*>(words),
                        environ) == 0 &&
         ::waitpid(tool, &status, 0) == tool && status == 0;
}

endpoint::options of_pairs(uint16_t count) {
  endpoint::options made;
  made.queue_pair_count = count;
  return made;
}

endpoint::options of_sends(uint32_t count, uint32_t chained = 16) {
  endpoint::options made;
  made.each.send_count = count;
  made.each.chain_count = chained;
  return made;
}

uint32_t seed_of_this_run() {
  const char* const given = std::getenv("MORI_TEST_SEED");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                          : std::random_device()();
}

}  // namespace

TEST_CASE("writes and reads are byte-exact at every size") {
  const auto of = open_device();
  connection pair(of);
  constexpr size_t room = 200'100;
  buffer mine(of, room), theirs(of, room);
  for (const uint32_t bytes : {0u, 1u, 7u, 8u, 1023u, 4095u, 4096u, 4097u, 65539u, 200'000u}) {
    CAPTURE(bytes);
    for (const operation what : {operation::write, operation::read}) {
      mine.fill(bytes + 1);
      theirs.fill(bytes + 2);
      const auto before_mine = mine.bytes, before_theirs = theirs.bytes;
      const completion done = pair.run(move(what, mine, 3, theirs, 5, bytes, bytes + 77));
      CHECK(done.status == MORI_OK);
      CHECK(done.id == bytes + 77);
      CHECK(done.bytes == bytes);
      auto expected_mine = before_mine, expected_theirs = before_theirs;
      if (what == operation::write)
        std::copy_n(before_mine.begin() + 3, bytes, expected_theirs.begin() + 5);
      else
        std::copy_n(before_theirs.begin() + 5, bytes, expected_mine.begin() + 3);
      CHECK((mine.bytes == expected_mine));
      CHECK((theirs.bytes == expected_theirs));
    }
  }
}

TEST_CASE("segments are gathered and scattered in order") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 4096), theirs(of, 4096);
  mine.fill(1);
  work what = move(operation::write, mine, 0, theirs, 100, 10);
  what.segment_count = 3;
  what.local[1] = {mine.address(1000), 1, mine.keys->local_key()};
  what.local[2] = {mine.address(500), 300, mine.keys->local_key()};
  CHECK(pair.run(what).bytes == 311);
  std::vector<std::byte> expected(mine.bytes.begin(), mine.bytes.begin() + 10);
  expected.push_back(mine.bytes[1000]);
  expected.insert(expected.end(), mine.bytes.begin() + 500, mine.bytes.begin() + 800);
  CHECK(std::equal(expected.begin(), expected.end(), theirs.bytes.begin() + 100));
  const auto written = theirs.bytes;
  mine.fill(9);
  what.what = operation::read;
  CHECK(pair.run(what).status == MORI_OK);
  CHECK((theirs.bytes == written));
  CHECK(mine.bytes[1000] == expected[10]);
  CHECK(std::equal(expected.begin() + 11, expected.end(), mine.bytes.begin() + 500));
}

TEST_CASE("inline bytes are taken when they are posted") {
  const auto of = open_device();
  endpoint::options with;
  with.each.inline_bytes = 64;
  connection pair(of, with);
  REQUIRE(pair.a().at(0).inline_bytes() == 64);
  buffer theirs(of, 64);
  std::array<std::byte, 65> bytes;
  bytes.fill(std::byte{7});
  work what;
  what.is_inline = what.is_reported = true;
  what.segment_count = 1;
  what.local[0] = {reinterpret_cast<uintptr_t>(bytes.data()), 64, 0};  // no key is needed
  what.remote_address = theirs.address();
  what.remote_key = theirs.keys->remote_key();
  pair.post(what);
  bytes.fill(std::byte{8});
  CHECK(pair.next().status == MORI_OK);
  for (const std::byte each : theirs.bytes) CHECK(each == std::byte{7});
  what.local[0].bytes = 65;
  const auto refused = pair.a().post(0, std::span(&what, 1));
  REQUIRE(!refused);
  CHECK(refused.error().status == MORI_E_INVALID);
  CHECK(refused.error().text == "65 inline bytes in 1 segments; 64 in one of a write can be");
  CHECK(pair.a().at(0).in_flight() == 0);
}

TEST_CASE("atomics return the old value and apply exactly once") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 8), theirs(of, 16);
  std::memset(theirs.bytes.data(), 0, 16);
  work add = move(operation::fetch_add, mine, 0, theirs, 8, 8);
  add.operand = 3;
  for (uint64_t i = 0; i < 300; ++i) {
    REQUIRE(pair.run(add).status == MORI_OK);
    REQUIRE(mine.word() == 3 * i);
  }
  CHECK(theirs.word(1) == 900);
  CHECK(theirs.word(0) == 0);
  work swap = move(operation::compare_swap, mine, 0, theirs, 8, 8);
  swap.compare = 900;
  swap.operand = 5;
  CHECK(pair.run(swap).status == MORI_OK);
  CHECK(mine.word() == 900);
  CHECK(pair.run(swap).status == MORI_OK);
  CHECK(mine.word() == 5);
  CHECK(theirs.word(1) == 5);
  swap.remote_address += 4;
  const auto refused = pair.a().post(0, std::span(&swap, 1));
  REQUIRE(!refused);
  CHECK(refused.error().status == MORI_E_INVALID);
}

TEST_CASE("an immediate comes after the bytes of before") {
  const auto of = open_device();
  endpoint::options with;
  with.each.receive_count = 4;
  connection pair(of, with);
  buffer mine(of, 65536), theirs(of, 65536);
  REQUIRE(pair.b().at(0).post_receives(4));
  const auto more = pair.b().at(0).post_receives(1);
  REQUIRE(!more);
  CHECK(more.error().status == MORI_E_AGAIN);
  for (uint32_t round = 1; round <= 4; ++round) {
    mine.fill(round);
    std::vector<work> works = {move(operation::write, mine, 0, theirs, 0, 65528),
                               move(operation::write_immediate, mine, 65528, theirs, 65528, 8)};
    works[0].is_reported = works[1].is_reported = false;
    works[1].immediate = 0xdead0000 + round;
    pair.post(works);
    const completion seen = pair.next(1);
    CHECK(seen.is_received);
    CHECK(seen.immediate == 0xdead0000 + round);
    CHECK(seen.bytes == 8);
    CHECK((theirs.bytes == mine.bytes));
  }
}

TEST_CASE("a full send queue takes no more, and frees itself without being asked") {
  const auto of = open_device();
  endpoint::options with;
  with.each.send_count = 8;
  connection pair(of, with);
  buffer mine(of, 4096 * 100), theirs(of, 4096 * 100);
  mine.fill(5);
  std::vector<work> works;
  for (size_t i = 0; i < 100; ++i) {
    works.push_back(move(operation::write, mine, 4096 * i, theirs, 4096 * i, 4096, i));
    works.back().is_reported = i == 99;
  }
  CHECK(pair.a().post(0, works).value() == 8);
  CHECK(pair.a().at(0).room() == 0);
  CHECK(pair.a().post(0, std::span(works).subspan(8)).value() == 0);
  pair.post(std::span(works).subspan(8));
  CHECK(pair.next().id == 99);
  CHECK((theirs.bytes == mine.bytes));
  CHECK(pair.waiting() == 0);
}

TEST_CASE("doorbells and signals are as few as can be") {
  const auto of = open_device();
  endpoint::options with;
  with.each.send_count = 256;
  with.each.chain_count = 16;
  connection pair(of, with);
  buffer mine(of, 64), theirs(of, 64);
  std::vector<work> works(64, move(operation::write, mine, 0, theirs, 0, 64));
  for (work& each : works) each.is_reported = false;
  works.back().is_reported = true;
  CHECK(pair.a().post(0, works).value() == 64);
  CHECK(pair.next().status == MORI_OK);
  const queue_pair::counts& counted = pair.a().at(0).counted();
  CHECK(counted.posted == 64);
  CHECK(counted.doorbells == 4);
  CHECK(counted.signalled == 1);
}

TEST_CASE("waiting for an event sleeps") {
  const auto of = open_device();
  connection pair(of, {}, true);
  buffer mine(of, 64), theirs(of, 64);
  const uint64_t before = processor_ms();
  const uint64_t began = base::now_ns();
  const auto late = pair.a_queue().wait(base::deadline::after(500 * base::ns_per_ms));
  REQUIRE(late);
  CHECK(!*late);
  CHECK(base::now_ns() - began >= 500 * base::ns_per_ms);
  CHECK(processor_ms() - before < 100);
  const work what = move(operation::write, mine, 0, theirs, 0, 64);
  CHECK(pair.a().post(0, std::span(&what, 1)).value() == 1);
  const auto came = pair.a_queue().wait(base::deadline::after(10 * base::ns_per_s));
  REQUIRE(came);
  CHECK(*came);
  CHECK(pair.next().status == MORI_OK);
  const auto without = completion_queue::create(of, {16, false}).value();
  CHECK(without->arm().error().status == MORI_E_STATE);
}

TEST_CASE("a bad key fails its own work, and the connection recovers") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 4096), theirs(of, 4096);
  mine.fill(3);
  std::vector<work> works;
  for (uint64_t i = 0; i < 16; ++i)
    works.push_back(move(operation::write, mine, 256 * i, theirs, 256 * i, 256, i));
  works[5].remote_key ^= 0x5a5a00;
  pair.post(works);
  std::vector<mori_status> seen(16, MORI_E_INTERNAL);
  for (size_t i = 0; i < 16; ++i) {
    const completion done = pair.next();
    REQUIRE(done.id < 16);
    seen[done.id] = done.status;
  }
  for (uint64_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    CHECK(seen[i] == (i == 5 ? MORI_E_NOT_FOUND : MORI_OK));
    const bool same = std::equal(mine.bytes.begin() + 256 * static_cast<long>(i),
                                 mine.bytes.begin() + 256 * static_cast<long>(i + 1),
                                 theirs.bytes.begin() + 256 * static_cast<long>(i));
    CHECK(same == (i != 5));
  }
  CHECK(pair.a().why().text.find("the peer's memory is not registered") != std::string::npos);
  CHECK(pair.settle());
  CHECK(pair.a().generation() == 2);
  CHECK(pair.b().generation() == 2);
  CHECK(pair.b().why().text.find("began anew") != std::string::npos);
}

TEST_CASE("guessed keys are refused, reported, and reach nothing") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 4096), theirs(of, 4096);
  theirs.fill(1);
  const auto before = theirs.bytes;
  const uint32_t seed = seed_of_this_run();
  INFO("MORI_TEST_SEED=", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 12; ++i) {
    work guess = move(i % 2 == 0 ? operation::write : operation::read, mine, 0, theirs, 0, 4096);
    const uint32_t real = guess.remote_key;
    guess.remote_key = static_cast<uint32_t>(random());
    if (i < 4) guess.remote_key = real ^ (1u << (8 * i));  // near misses
    if (guess.remote_key == real || guess.remote_key == mine.keys->remote_key()) continue;
    CAPTURE(guess.remote_key);
    CHECK(pair.run(guess).status == MORI_E_NOT_FOUND);
  }
  CHECK((theirs.bytes == before));
  CHECK(pair.run(move(operation::write, mine, 0, theirs, 0, 4096)).status == MORI_OK);
}

TEST_CASE("a region that was deregistered is unreachable, one byte beyond it too") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 8192), theirs(of, 8192);
  work what = move(operation::write, mine, 0, theirs, 0, 64);
  CHECK(pair.run(what).status == MORI_OK);
  what.remote_address = theirs.address(8192 - 63);
  CHECK(pair.run(what).status == MORI_E_NOT_FOUND);
  what.remote_address = theirs.address();
  theirs.keys.reset();
  theirs.fill(4);
  const auto before = theirs.bytes;
  CHECK(pair.run(what).status == MORI_E_NOT_FOUND);
  CHECK((theirs.bytes == before));
}

TEST_CASE("rights of a registration are kept to") {
  const auto of = open_device();
  connection pair(of);
  buffer mine(of, 64), readable(of, 64, remote_read), writable(of, 64, local_write | remote_write);
  CHECK(pair.run(move(operation::read, mine, 0, readable, 0, 64)).status == MORI_OK);
  CHECK(pair.run(move(operation::write, mine, 0, readable, 0, 64)).status == MORI_E_NOT_FOUND);
  CHECK(pair.run(move(operation::write, mine, 0, writable, 0, 64)).status == MORI_OK);
  CHECK(pair.run(move(operation::read, mine, 0, writable, 0, 64)).status == MORI_E_NOT_FOUND);
  // Results need local_write; this side says no by itself.
  const auto failed = pair.run(move(operation::read, readable, 0, mine, 0, 64));
  CHECK(failed.status == MORI_E_NOT_FOUND);
  CHECK(pair.a().why().text.find("the local memory is not registered") != std::string::npos);
}

TEST_CASE("the peer's queue pairs are destroyed and come back") {
  const auto of = open_device();
  endpoint::options with;
  with.queue_pair_count = 2;
  connection pair(of, with);
  buffer mine(of, 8192), theirs(of, 8192);
  mine.fill(8);
  pair.destroy_b();
  const work first = move(operation::write, mine, 0, theirs, 0, 4096, 1);
  work add = move(operation::fetch_add, mine, 4096, theirs, 4096, 8, 2);
  add.operand = 1;
  pair.post(first);
  pair.post(std::span(&add, 1), 1);
  // No answer: a has to notice by itself.
  CHECK(pair.until([&] { return pair.a().generation() == 2; }));
  CHECK(pair.a().why().status == MORI_E_PEER_DEAD);
  CHECK(pair.a().why().text.find("the peer does not answer") != std::string::npos);
  pair.renew_b();
  (void)pair.b().on_description(endpoint::create(completion_queue::create(of, {1024}).value(), with)
                                    .value()
                                    ->take_description()
                                    .value());
  // The write is done again, the atomic is not.
  std::vector<mori_status> seen(3, MORI_E_INTERNAL);
  pair.a().restart(base::fail(MORI_E_UNAVAILABLE, "a test"));
  for (int i = 0; i < 2; ++i) {
    const completion done = pair.next();
    seen.at(done.id) = done.status;
  }
  CHECK(seen[1] == MORI_OK);
  CHECK(seen[2] == MORI_E_UNAVAILABLE);
  CHECK(std::equal(mine.bytes.begin(), mine.bytes.begin() + 4096, theirs.bytes.begin()));
}

TEST_CASE("a peer that never answers is given up after the recoveries that are allowed") {
  const auto of = open_device();
  endpoint::options with;
  with.max_recoveries = 2;
  connection pair(of, with);
  buffer mine(of, 64), theirs(of, 64);
  auto other_queue = completion_queue::create(of, {1024}).value();
  auto lost = endpoint::create(other_queue, with).value();
  // Describes a queue pair that will not be there.
  const auto description = lost->take_description().value();
  lost.reset();
  auto queue = completion_queue::create(of, {1024}).value();
  auto end = endpoint::create(queue, with).value();
  (void)end->take_description();
  std::optional<completion> failed;
  const work what = move(operation::write, mine, 0, theirs, 0, 64, 42);
  REQUIRE(end->on_description(description));
  REQUIRE(end->post(0, std::span(&what, 1)).value() == 1);
  uint32_t generation = 1;
  const auto until = base::deadline::after(30 * base::ns_per_s);
  while (!failed && !until.passed()) {
    completion some[4];
    CHECK(queue->poll(some) == 0);
    end->step(base::now_ns());
    if (end->at() == endpoint::state::waiting) {
      auto again = description;  // the same queue pair in the generation that is asked for
      generation = end->generation();
      again[6] = static_cast<std::byte>(generation);
      REQUIRE(end->on_description(again));
    }
    failed = end->take_failed();
  }
  REQUIRE(failed);
  CHECK(failed->id == 42);
  CHECK(failed->status == MORI_E_PEER_DEAD);
  CHECK(end->at() == endpoint::state::failed);
  CHECK(end->why().text.find("given up after 2 recoveries without progress") == 0);
  CHECK(end->post(0, std::span(&what, 1)).error().status == MORI_E_PEER_DEAD);
}

TEST_CASE("descriptions that are none, damaged, or of somebody else") {
  const auto of = open_device();
  connection pair(of);
  auto queue = completion_queue::create(of, {1024}).value();
  auto end = endpoint::create(queue, {}).value();
  auto two = endpoint::create(queue, of_pairs(2)).value();
  const auto good = end->take_description().value();
  CHECK(!end->take_description());
  for (size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const auto parsed = pair.a().on_description(std::span(good).first(size));
    REQUIRE(!parsed);
    CHECK(parsed.error().status == MORI_E_PROTOCOL);
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  CHECK(pair.a().on_description(longer).error().status == MORI_E_PROTOCOL);
  auto newer = good;
  newer[4] = std::byte{2};
  CHECK(pair.a().on_description(newer).error().status == MORI_E_VERSION);
  const auto other = pair.a().on_description(two->take_description().value());
  CHECK(other.error().text == "the peer has 2 queue pairs, here are 1");
  CHECK(pair.a().at() == endpoint::state::ready);
}

TEST_CASE("limits of registrations and queues are named") {
  const auto of = open_device();
  std::vector<std::byte> bytes(4096);
  CHECK(of->register_memory(bytes.data(), 0, remote_read).error().status == MORI_E_INVALID);
  CHECK(of->register_memory(nullptr, 64, remote_read).error().status == MORI_E_INVALID);
  CHECK(of->register_memory(bytes.data(), UINT64_MAX, remote_read).error().status ==
        MORI_E_INVALID);
  // Nothing is mapped in the first page.
  const auto unmapped = of->register_memory(reinterpret_cast<void*>(64), 64, remote_read);
  REQUIRE(!unmapped);
  CHECK(unmapped.error().os_errno != 0);
  const auto limit = of->limits().max_completion_count;
  CHECK(completion_queue::create(of, {limit + 1}).error().text.find(fmt::format("{}", limit)) !=
        std::string::npos);
  CHECK(!completion_queue::create(of, {0}));
  const auto small = completion_queue::create(of, {16}).value();
  CHECK(endpoint::create(small, of_sends(17)).error().text ==
        "the completion queue has 16 entries, 0 are reserved and 17 more wanted");
  CHECK(small->reserved() == 0);
  {
    const auto made = endpoint::create(small, of_sends(16)).value();
  }
  CHECK(small->reserved() == 0);
  CHECK(!endpoint::create(small, of_pairs(0)));
  CHECK(!endpoint::create(small, of_pairs(65)));
  CHECK(!endpoint::create(small, of_sends(0)));
  CHECK(!endpoint::create(small, of_sends(1, 65)));
}

TEST_CASE("the limit of locked memory is a status with a hint") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit few{65536, 65536};
    if (::setrlimit(RLIMIT_MEMLOCK, &few) != 0 || ::setuid(65534) != 0) ::_exit(10);
    const auto ports = judge_ports(read_inventory(), {});
    const auto of = device::open(ports.at(0), {});
    if (!of) ::_exit(11);
    std::vector<std::byte> bytes(1 << 20);
    const auto made = (*of)->register_memory(bytes.data(), bytes.size(), remote_read);
    if (made) ::_exit(12);
    const bool told = made.error().text.find("ulimit -l") != std::string::npos;
    ::_exit(made.error().status == MORI_E_NO_MEMORY && told ? 0 : 13);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("borrowed registrations are shared while they live, and no longer") {
  const auto of = open_device();
  std::vector<std::byte> bytes(1 << 16);
  auto whole = of->borrow_memory(bytes.data(), bytes.size()).value();
  auto part = of->borrow_memory(bytes.data() + 5000, 100).value();
  CHECK(whole == part);
  CHECK(of->borrowed_count() == 1);
  whole.reset();
  CHECK(of->borrow_memory(bytes.data(), 1).value() == part);
  part.reset();
  CHECK(of->borrowed_count() == 0);
  const auto fresh = of->borrow_memory(bytes.data() + 5000, 100).value();
  CHECK(of->borrowed_count() == 1);
  CHECK(fresh->size_bytes() < bytes.size());
}

TEST_CASE("a dma-buf that is none is refused") {
  const auto of = open_device();
  const auto made = of->register_dmabuf(0, 0, 4096, 0x100000, remote_read);
  REQUIRE(!made);
  CHECK((made.error().status == MORI_E_UNSUPPORTED || made.error().os_errno != 0));
  MESSAGE("dma-buf: ", made.error().text);
}

TEST_CASE("a GID that is not there") {
  settings with;
  with.gid_index = 200;
  const auto ports = judge_ports(read_inventory(), with);
  REQUIRE(ports.size() == 1);
  CHECK(!ports[0].is_usable);
  CHECK(ports[0].reason.find("has no GID 200") != std::string::npos);
  CHECK(!device::open(ports[0], with));
  // One that sysfs no longer tells of, but that was chosen: connecting says so.
  auto choice = judge_ports(read_inventory(), {}).at(0);
  choice.gid.index = 201;
  const auto of = device::open(choice, {}).value();
  auto one = endpoint::create(completion_queue::create(of, {1024}).value(), {}).value();
  auto two = endpoint::create(completion_queue::create(of, {1024}).value(), {}).value();
  const auto connected = one->on_description(two->take_description().value());
  REQUIRE(!connected);
  CHECK(connected.error().text.find("GID 201") != std::string::npos);
  CHECK(one->at() == endpoint::state::failed);
}

TEST_CASE("random work on several queue pairs survives restarts at any time") {
  const auto of = open_device();
  const uint32_t seed = seed_of_this_run();
  INFO("MORI_TEST_SEED=", seed);
  std::mt19937 random(seed);
  endpoint::options with;
  with.queue_pair_count = 3;
  with.each.send_count = 16;
  with.each.inline_bytes = 32;
  connection pair(of, with);
  constexpr size_t slots = 120, slot_bytes = 5000;
  buffer mine(of, slots * slot_bytes), theirs(of, slots * slot_bytes);
  mine.fill(seed);
  theirs.fill(seed + 1);
  auto expected_mine = mine.bytes, expected_theirs = theirs.bytes;
  size_t done = 0;
  uint64_t recoveries = 0;
  std::vector<bool> seen(slots);
  for (size_t i = 0; i < slots; ++i) {
    const size_t at = i * slot_bytes;
    const auto bytes = static_cast<uint32_t>(random() % (slot_bytes + 1));
    const bool is_read = random() % 3 == 0;
    work what = move(is_read ? operation::read : operation::write, mine, at, theirs, at, bytes, i);
    what.is_inline = !is_read && bytes <= 32;
    const auto from = is_read ? expected_theirs.begin() : expected_mine.begin();
    std::copy_n(
        from + static_cast<long>(at), bytes,
        (is_read ? expected_mine.begin() : expected_theirs.begin()) + static_cast<long>(at));
    pair.post(std::span(&what, 1), static_cast<uint16_t>(random() % 3));
    if (random() % 12 == 0) {
      endpoint& who = random() % 2 == 0 ? pair.a() : pair.b();
      who.restart(base::fail(MORI_E_UNAVAILABLE, "a test"));
      ++recoveries;
    }
  }
  for (; done < slots; ++done) {
    const completion one = pair.next();
    CHECK(one.status == MORI_OK);
    REQUIRE(one.id < slots);
    CHECK(!seen[one.id]);
    seen[one.id] = true;
  }
  CHECK((mine.bytes == expected_mine));
  CHECK((theirs.bytes == expected_theirs));
  CHECK(pair.a().recovery_count() <= recoveries);
}

TEST_CASE("a port that goes down is told, and told again when it is up") {
  const auto of = open_device();
  connection pair(of);
  const auto look_until = [&](bool good) {
    const auto until = base::deadline::after(10 * base::ns_per_s);
    while (static_cast<bool>(of->check()) != good && !until.passed()) {
      pollfd one{of->event_fd(), POLLIN, 0};
      ::poll(&one, 1, 1000);
      of->look();
    }
    return static_cast<bool>(of->check()) == good;
  };
  REQUIRE(set_interface("down"));
  CHECK(look_until(false));
  CHECK(of->check().error().text == "port 1 of rxe0 is down");
  std::vector<std::byte> bytes(64);
  CHECK(of->register_memory(bytes.data(), 64, remote_read).error().status == MORI_E_UNAVAILABLE);
  // An endpoint that would have to begin anew gives up with that reason.
  pair.a().restart(base::fail(MORI_E_UNAVAILABLE, "a test"));
  CHECK(pair.until([&] { return pair.a().at() == endpoint::state::failed; }));
  CHECK(pair.a().why().text == "port 1 of rxe0 is down");
  CHECK(judge_ports(read_inventory(), {}).at(0).reason == "port 1 is DOWN, not ACTIVE");
  REQUIRE(set_interface("up"));
  CHECK(look_until(true));
}
