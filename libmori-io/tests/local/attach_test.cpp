// attach_test.cpp - memory of real processes, attached: every byte, every way to be denied,
// and every way in which the process can turn out to be another one.
#include "local/attach.hpp"

#include "subject.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>

using namespace mori;
using namespace mori::io_core::local;
using io_test::subject;

namespace {

constexpr uint64_t page = 4096;

uint64_t seed() {
  if (const char* given = std::getenv("MORI_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const uint64_t fresh = std::random_device{}();
  return fresh;
}

std::unique_ptr<attachment> attach(const process_card& card,
                                   const attach_calls& calls = kernel_attach_calls) {
  auto made = attachment::open(card, calls);
  REQUIRE_MESSAGE(made, made.error().text);
  return std::move(*made);
}

std::string refusal(const process_card& card, mori_status status,
                    const attach_calls& calls = kernel_attach_calls) {
  const auto made = attachment::open(card, calls);
  REQUIRE(!made);
  CHECK(made.error().status == status);
  return made.error().text;
}

int no_pidfd(pid_t, unsigned) {
  errno = ENOSYS;
  return -1;
}
attach_calls without_pidfd() {
  attach_calls calls = kernel_attach_calls;
  calls.pidfd_open = no_pidfd;
  return calls;
}

// How process_vm_* behave in a test: at most so many bytes of a call, and what happens when.
struct {
  uint64_t most_bytes = UINT64_MAX;
  int calls = 0;
  uint64_t largest = 0;
  size_t most_vectors = 0;
  int fail_at = 0;
  int fail_with = 0;
  subject* kill_at_failure = nullptr;
} script;

template <class Call>
ssize_t scripted(Call call, pid_t pid, const iovec* here, unsigned long here_count,
                 const iovec* there, unsigned long there_count) {
  uint64_t asked = 0;
  for (unsigned long i = 0; i < here_count; ++i) asked += here[i].iov_len;
  if (asked == 16 && here_count == 1) return call(pid, here, 1, there, 1, 0);  // a proof
  script.largest = std::max(script.largest, asked);
  script.most_vectors = std::max<size_t>(script.most_vectors, std::max(here_count, there_count));
  if (++script.calls == script.fail_at) {
    if (script.kill_at_failure != nullptr) {
      script.kill_at_failure->kill();
    } else {
      errno = script.fail_with;
      return -1;
    }
  }
  if (asked <= script.most_bytes) return call(pid, here, here_count, there, there_count, 0);
  // Stops inside a vector, as the kernel does at a page's end.
  const iovec first_here{here[0].iov_base, std::min<size_t>(here[0].iov_len, script.most_bytes)};
  const iovec first_there{there[0].iov_base,
                          std::min<size_t>(there[0].iov_len, first_here.iov_len)};
  const iovec cut{first_here.iov_base, first_there.iov_len};
  return call(pid, &cut, 1, &first_there, 1, 0);
}
ssize_t scripted_readv(pid_t pid, const iovec* here, unsigned long here_count, const iovec* there,
                       unsigned long there_count, unsigned long) {
  return scripted(::process_vm_readv, pid, here, here_count, there, there_count);
}
ssize_t scripted_writev(pid_t pid, const iovec* here, unsigned long here_count, const iovec* there,
                        unsigned long there_count, unsigned long) {
  return scripted(::process_vm_writev, pid, here, here_count, there, there_count);
}
attach_calls scripted_calls() {
  script = {};
  attach_calls calls = kernel_attach_calls;
  calls.readv = scripted_readv;
  calls.writev = scripted_writev;
  return calls;
}

uint64_t sum(const std::vector<std::byte>& of) { return io_test::sum(of.data(), of.size()); }

struct whole {
  piece all;
  work what;
  position at;
  whole(bool is_read, std::vector<std::byte>& local, uint64_t remote)
      : all{0, 0, local.size()}, what{is_read, {&all, 1}, local.data(), remote} {}
};

// Pieces that overlap neither here nor there: some empty, some of a byte, some that follow the one
// before on one side or on both.
std::vector<piece> random_pieces(std::mt19937_64& random, uint64_t local_bytes,
                                 uint64_t remote_bytes, size_t count) {
  std::vector<piece> all;
  uint64_t local = 0, remote = 0;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 3 != 0) local += random() % 100;
    if (random() % 3 != 0) remote += random() % 100;
    const uint64_t bytes = random() % 8 == 0 ? 0 : random() % 8 == 0 ? 1 : random() % 5000;
    if (local + bytes > local_bytes || remote + bytes > remote_bytes) break;
    all.push_back({local, remote, bytes});
    local += bytes;
    remote += bytes;
  }
  std::ranges::shuffle(all, random);
  return all;
}

}  // namespace

TEST_CASE("attach: sizes 0, 1, odd, pages and more, both ways") {
  subject other;
  const auto attached = attach(other.card());
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4097}, page, uint64_t{1} << 20,
                               (uint64_t{8} << 20) + 3}) {
    CAPTURE(bytes);
    const uint64_t there = other.number("map", bytes + page);
    REQUIRE(there != 0);
    other.ask("fill", there, bytes + page, 7);
    std::vector<std::byte> here(bytes);
    whole read(true, here, there + 1);
    const auto got = attached->move(read.what, read.at, UINT64_MAX);
    CHECK_MESSAGE(got, got.error().text);
    CHECK(is_over(read.what, read.at));
    CHECK(sum(here) == other.number("sum", there + 1, bytes));
    io_test::fill(here.data(), bytes, 8);
    whole write(false, here, there + 3);
    CHECK(attached->move(write.what, write.at, UINT64_MAX));
    CHECK(sum(here) == other.number("sum", there + 3, bytes));
    other.ask("unmap", there, bytes + page);
  }
}

TEST_CASE("attach: scattered pieces, by budgets and by calls that stop short") {
  subject other;
  const uint64_t local_bytes = 9 << 20, remote_bytes = 11 << 20;
  const uint64_t there = other.number("map", remote_bytes);
  std::mt19937_64 random(seed());
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    INFO("repeat with MORI_TEST_SEED=", seed());
    const bool is_read = round % 2 == 0;
    const auto attached = attach(other.card(), scripted_calls());
    if (round % 3 != 0) script.most_bytes = 1 + random() % 100'000;
    std::vector<std::byte> here(local_bytes), expected(is_read ? local_bytes : remote_bytes);
    io_test::fill(here.data(), local_bytes, 1);
    other.ask("fill", there, remote_bytes, 2);
    std::vector<std::byte> theirs(remote_bytes);
    io_test::fill(theirs.data(), remote_bytes, 2);
    expected = is_read ? here : theirs;
    const auto pieces = random_pieces(random, local_bytes, remote_bytes, 4000);
    REQUIRE(pieces.size() > 1500);
    for (const piece& each : pieces) {
      const std::byte* const from =
          is_read ? theirs.data() + each.remote_offset : here.data() + each.local_offset;
      std::copy_n(from, each.bytes,
                  expected.data() + (is_read ? each.local_offset : each.remote_offset));
    }
    const work what{is_read, pieces, here.data(), there};
    position at;
    int calls = 0;
    for (; !is_over(what, at) && calls < 1'000'000; ++calls) {
      const auto moved = attached->move(what, at, 1 + random() % 1'000'000);
      REQUIRE_MESSAGE(moved, moved.error().text);
    }
    CHECK(script.most_vectors <= 1024);
    if (is_read)
      CHECK((here == expected));
    else
      CHECK(other.number("sum", there, remote_bytes) == sum(expected));
  }
}

TEST_CASE("attach: more than 4 GiB in one transfer, in batches of at most 64 MiB") {
  subject other;
  const uint64_t block = uint64_t{4} << 20;
  const uint64_t there = other.number("map", block);
  other.ask("fill", there, block, 3);
  const auto attached = attach(other.card(), scripted_calls());
  std::vector<std::byte> here(block);
  const std::vector<piece> pieces(1030, {0, 0, block});  // to the same place again and again
  const work what{true, pieces, here.data(), there};
  position at;
  REQUIRE(attached->move(what, at, UINT64_MAX));
  CHECK(is_over(what, at));
  CHECK(script.largest == uint64_t{64} << 20);
  CHECK(script.calls == 65);
  CHECK(sum(here) == other.number("sum", there, block));
}

TEST_CASE("attach: a page that is not there ends it at the byte, and is named") {
  subject other;
  const uint64_t there = other.number("map", 8 * page);
  other.ask("fill", there, 8 * page, 4);
  const auto attached = attach(other.card());
  REQUIRE(other.ask("unmap", there + 5 * page, page) == "ok");
  for (const bool is_read : {true, false}) {
    CAPTURE(is_read);
    std::vector<std::byte> here(8 * page);
    whole all(is_read, here, there);
    const auto outcome = attached->move(all.what, all.at, UINT64_MAX);
    REQUIRE(!outcome);
    CHECK(outcome.error().status == MORI_E_OS);
    CHECK(outcome.error().os_errno == EFAULT);
    CHECK(all.at.piece == 0);
    CHECK(all.at.bytes == 5 * page);
    CHECK(outcome.error().text ==
          fmt::format("cannot {} process {} at {:#x} {} {:#x} here: one of them is not mapped so",
                      is_read ? "read" : "write", other.pid(), there + 5 * page,
                      is_read ? "into" : "from",
                      reinterpret_cast<uintptr_t>(here.data()) + 5 * page));
    if (is_read) CHECK(io_test::sum(here.data(), 5 * page) == other.number("sum", there, 5 * page));
  }
}

TEST_CASE("attach: memory of this process that is not there") {
  subject other;
  const uint64_t there = other.number("map", page);
  const auto attached = attach(other.card());
  void* const guarded = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(guarded != MAP_FAILED);
  const piece all{0, 0, page};
  const work what{true, {&all, 1}, static_cast<std::byte*>(guarded), there};
  position at;
  const auto outcome = attached->move(what, at, UINT64_MAX);
  REQUIRE(!outcome);
  CHECK(outcome.error().os_errno == EFAULT);
  CHECK(at.bytes == 0);
  ::munmap(guarded, page);
}

TEST_CASE("attach: the process ended, before and while bytes move") {
  for (const bool has_pidfd : {true, false}) {
    CAPTURE(has_pidfd);
    subject other;
    const process_card card = other.card();
    const uint64_t there = other.number("map", uint64_t{256} << 20);
    attach_calls calls = scripted_calls();
    if (!has_pidfd) calls.pidfd_open = no_pidfd;
    const auto attached = attach(card, calls);
    script.fail_at = 3;
    script.kill_at_failure = &other;
    std::vector<std::byte> here(uint64_t{256} << 20);
    whole all(true, here, there);
    const auto outcome = attached->move(all.what, all.at, UINT64_MAX);
    REQUIRE(!outcome);
    CHECK(outcome.error().status == MORI_E_PEER_DEAD);
    CHECK(outcome.error().text == fmt::format("process {} has ended", card.pid));
    CHECK(all.at.bytes == uint64_t{128} << 20);
    CHECK(attached->prove().error().status == MORI_E_PEER_DEAD);
    CHECK(refusal(card, has_pidfd ? MORI_E_PEER_DEAD : MORI_E_NOT_FOUND, calls)
              .find(std::to_string(card.pid)) != std::string::npos);
  }
}

TEST_CASE("attach: errors of the kernel in the middle have their meaning") {
  subject other;
  const uint64_t there = other.number("map", page);
  const struct {
    int error;
    mori_status status;
    std::string text;
  } cases[] = {
      {EPERM, MORI_E_UNAVAILABLE,
       fmt::format(
           "attaching to process {} is denied: a security policy forbids it, or the process "
           "may not be dumped",
           other.pid())},
      {ESRCH, MORI_E_PEER_DEAD, fmt::format("process {} has ended", other.pid())},
      {ENOSYS, MORI_E_UNAVAILABLE, "this kernel cannot attach to memory of processes"},
      {ENOMEM, MORI_E_NO_MEMORY,
       fmt::format("cannot attach to process {}: Cannot allocate memory", other.pid())},
  };
  for (const auto& each : cases) {
    const auto attached = attach(other.card(), scripted_calls());
    script.fail_at = 1;
    script.fail_with = each.error;
    std::vector<std::byte> here(page);
    whole all(false, here, there);
    const auto outcome = attached->move(all.what, all.at, UINT64_MAX);
    REQUIRE(!outcome);
    CHECK(outcome.error().status == each.status);
    CHECK(outcome.error().os_errno == each.error);
    CHECK(outcome.error().text == each.text);
  }
}

TEST_CASE("attach: a number that was dealt again is another process") {
  subject first, second;
  const process_card of_first = first.card(), of_second = second.card();
  // The number of the second with the time of the first, as if it had been recycled.
  process_card recycled = of_first;
  recycled.pid = of_second.pid;
  recycled.start_time -= 1000;
  for (const attach_calls& calls : {kernel_attach_calls, without_pidfd()})
    CHECK(refusal(recycled, MORI_E_PEER_DEAD, calls) ==
          fmt::format("process {} began at tick {}, not {}: it is another one", of_second.pid,
                      of_second.start_time, of_first.start_time - 1000));
  // Even in the same tick: the nonce is not there.
  recycled.start_time = of_second.start_time;
  CHECK(refusal(recycled, MORI_E_PEER_DEAD)
            .starts_with(fmt::format("process {} does not have the nonce at {:#x}: ", of_second.pid,
                                     recycled.nonce_address)));
  recycled = of_second;
  recycled.nonce[15] ^= 1;
  CHECK(refusal(recycled, MORI_E_PEER_DEAD)
            .starts_with(fmt::format("process {} does not have the nonce", of_second.pid)));
  // No such process at all.
  first.kill();
  CHECK(refusal(of_first, MORI_E_PEER_DEAD) == fmt::format("process {} has ended", of_first.pid));
  CHECK(refusal(of_first, MORI_E_NOT_FOUND, without_pidfd()) ==
        fmt::format("there is no process {}", of_first.pid));
  recycled.pid = 0;
  CHECK(refusal(recycled, MORI_E_PROTOCOL) == "0 is no process");
}

TEST_CASE("attach: a changed start time is found before each batch") {
  subject other;
  process_card card = other.card();
  const uint64_t there = other.number("map", page);
  const auto attached = attach(card, without_pidfd());
  std::vector<std::byte> here(page);
  whole all(true, here, there);
  CHECK(attached->move(all.what, all.at, UINT64_MAX));
  other.kill();
  all.at = {};
  const auto outcome = attached->move(all.what, all.at, UINT64_MAX);
  REQUIRE(!outcome);
  CHECK(outcome.error().text == fmt::format("process {} has ended", card.pid));
  CHECK(all.at.bytes == 0);
}

TEST_CASE("attach: the same process that runs another program is another one") {
  subject other;
  const process_card card = other.card();
  const auto attached = attach(card);
  CHECK(other.ask("exec") == "ok");
  const process_card after = other.card();  // of the new program
  CHECK(after.pid == card.pid);
  CHECK(after.start_time == card.start_time);
  const auto outcome = attached->prove();
  REQUIRE(!outcome);
  CHECK(outcome.error().status == MORI_E_PEER_DEAD);
  CHECK(outcome.error().text.find("it runs another program now") != std::string::npos);
  CHECK(attachment::open(after));
}

TEST_CASE("attach: a child of fork() has another nonce, and not its parent's") {
  subject other;
  CHECK(other.ask("child") == "0");
}

TEST_CASE("attach: another host, another pid namespace") {
  const auto own = own_process();
  REQUIRE(own);
  process_card card = *own;
  card.boot_id[0] ^= 1;
  CHECK(refusal(card, MORI_E_UNAVAILABLE) ==
        fmt::format("process {} runs on another host", card.pid));
  if (::geteuid() != 0) return;  // making a namespace needs the right to
  subject inside({"--pid-namespace"});
  card = inside.card();
  CHECK(card.pid == 1);
  CHECK(card.boot_id == own->boot_id);
  CHECK(refusal(card, MORI_E_UNAVAILABLE) ==
        fmt::format("process 1 is in another pid namespace ({}, this process in {})",
                    card.pid_namespace, own->pid_namespace));
  // From inside too.
  CHECK(inside.ask("attach", io_test::card_text(*own)) ==
        fmt::format("{} process {} is in another pid namespace ({}, this process in {})",
                    int{MORI_E_UNAVAILABLE}, own->pid, own->pid_namespace, card.pid_namespace));
}

TEST_CASE("attach: as an unprivileged user, and denied to another one") {
  if (::geteuid() != 0) return;
  subject first({"--user", "65534"}), second({"--user", "65534"}), third({"--user", "65533"});
  const std::string card = io_test::card_text(second.card());
  REQUIRE(first.ask("attach", card) == "ok");
  const uint64_t here = first.number("map", 100'000), there = second.number("map", 100'000);
  second.ask("fill", there, 100'000, 5);
  CHECK(first.ask("move", 1, here, there, 100'000) == "ok");
  CHECK(first.ask("sum", here, 100'000) == second.ask("sum", there, 100'000));
  first.ask("fill", here, 100'000, 6);
  CHECK(first.ask("move", 0, here, there, 100'000) == "ok");
  CHECK(first.ask("sum", here, 100'000) == second.ask("sum", there, 100'000));
  CHECK(
      third.ask("attach", card) ==
      fmt::format("{} attaching to process {} is denied: it is user 65534's, this process is user "
                  "65533's",
                  int{MORI_E_UNAVAILABLE}, second.pid()));
  // A process that hides itself.
  REQUIRE(second.ask("hide") == "ok");
  const std::string hidden = fmt::format(
      "{} attaching to process {} is denied: a security policy forbids it, or the "
      "process may not be dumped",
      int{MORI_E_UNAVAILABLE}, second.pid());
  CHECK(first.ask("move", 1, here, there, 100'000) == hidden);
  CHECK(first.ask("attach", card) == hidden);
}

TEST_CASE("attach: a policy that forbids it") {
  subject first, second;
  REQUIRE(first.ask("forbid") == "ok");
  CHECK(first.ask("attach", io_test::card_text(second.card())) ==
        fmt::format("{} attaching to process {} is denied: a security policy forbids it, or the "
                    "process may not be dumped",
                    int{MORI_E_UNAVAILABLE}, second.pid()));
}

TEST_CASE("attach: the start time is found whatever a process calls itself") {
  CHECK(parse_start_time("12 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20") == 777);
  CHECK(parse_start_time("12 (a) (b ) 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20") ==
        777);
  CHECK(parse_start_time("12 (a) S 1 2 3") == 0);
  CHECK(parse_start_time("") == 0);
}
