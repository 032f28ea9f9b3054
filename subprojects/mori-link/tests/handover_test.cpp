// Handing out open files: who knows the secret gets what the owner answers, nobody
// else gets anything, and nobody is made to wait for ever.
#include <mori/link/handover.hpp>

#include <mori/base/sanitizer.hpp>

#include "tcp/local_socket.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace base = mori::base;
using namespace mori::link;

namespace {

base::deadline soon() { return base::deadline::after(10 * base::ns_per_s); }

std::string text_of(byte_span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
byte_vector bytes_of(std::string_view text) {
  const byte_span view = as_bytes(text);
  return {view.begin(), view.end()};
}

// Answers "file" with a memfd that holds "told", "bytes" with bytes alone.
base::result<handed> answer(byte_span question) {
  const std::string asked = text_of(question);
  if (asked == "bytes") return handed{bytes_of("only these"), {}};
  if (asked == "long") return handed{byte_vector(max_handover_bytes), {}};
  if (asked != "file") return base::fail(MORI_E_NOT_FOUND, "no such memory: '{}'", asked);
  base::unique_fd made(::memfd_create("handover test", MFD_CLOEXEC));
  REQUIRE(::write(made.get(), "told", 4) == 4);
  return handed{bytes_of("with it"), std::move(made)};
}

std::unique_ptr<handover_desk> open_desk(handover_desk::answerer how = answer) {
  auto made = handover_desk::open(std::move(how));
  REQUIRE(made);
  return std::move(*made);
}

std::unique_ptr<handover_visit> visit(const desk_address& at) {
  auto made = handover_visit::start(at, -1, soon());
  REQUIRE_MESSAGE(made, made.error().text);
  return std::move(*made);
}

}  // namespace

TEST_CASE("handover: files, bytes and refusals, one question after the other") {
  const auto desk = open_desk();
  const auto here = visit(desk->address());
  for (int round = 0; round < 3; ++round) {
    auto file = here->ask(as_bytes("file"), soon());
    REQUIRE_MESSAGE(file, file.error().text);
    CHECK(text_of(file->bytes) == "with it");
    char told[8] = {};
    REQUIRE(::pread(file->fd.get(), told, sizeof told, 0) == 4);
    CHECK(std::string(told) == "told");
    CHECK((::fcntl(file->fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    auto bytes = here->ask(as_bytes("bytes"), soon());
    REQUIRE(bytes);
    CHECK(text_of(bytes->bytes) == "only these");
    CHECK(!bytes->fd);
    const auto refused = here->ask(as_bytes("else"), soon());
    REQUIRE(!refused);
    CHECK(refused.error().status == MORI_E_NOT_FOUND);
    CHECK(refused.error().text == "no such memory: 'else'");
  }
  CHECK(here->ask(as_bytes("long"), soon())->bytes.size() == max_handover_bytes);
}

TEST_CASE("handover: another secret, another name, a question that is too long") {
  const auto desk = open_desk();
  desk_address wrong = desk->address();
  wrong.secret[31] ^= 1;
  const auto refused = handover_visit::start(wrong, -1, soon());
  REQUIRE(!refused);
  CHECK(refused.error().status == MORI_E_AUTH);
  desk_address nowhere = desk->address();
  nowhere.name[0] ^= 1;
  const auto missing = handover_visit::start(nowhere, -1, soon());
  REQUIRE(!missing);
  CHECK(missing.error().status == MORI_E_UNAVAILABLE);
  const auto here = visit(desk->address());
  const auto longer = here->ask(byte_vector(max_handover_bytes + 1), soon());
  REQUIRE(!longer);
  CHECK(longer.error().text == "a frame of 4097 bytes, the limit is 4096");
  CHECK(here->ask(as_bytes("bytes"), soon()));
}

TEST_CASE("handover: waits end by deadline, by wake and with the desk") {
  std::atomic<bool> may_answer = false;
  auto desk = open_desk([&](byte_span) -> base::result<handed> {
    while (!may_answer) std::this_thread::yield();
    return base::fail(MORI_E_STATE, "at last");
  });
  const base::unique_fd wake(::eventfd(0, EFD_CLOEXEC));
  auto here = handover_visit::start(desk->address(), wake.get(), soon());
  REQUIRE(here);
  const auto late = (*here)->ask(as_bytes("x"), base::deadline::after(base::ns_per_ms));
  REQUIRE(!late);
  CHECK(late.error().status == MORI_E_TIMEOUT);
  const uint64_t one = 1;
  REQUIRE(::write(wake.get(), &one, sizeof one) == sizeof one);
  const auto woken = (*here)->ask(as_bytes("x"), soon());
  REQUIRE(!woken);
  CHECK(woken.error().status == MORI_E_CANCELLED);
  may_answer = true;
  const auto there = visit(desk->address());
  desk.reset();
  const auto gone = there->ask(as_bytes("x"), soon());
  REQUIRE(!gone);
  CHECK(gone.error().status == MORI_E_PEER_DEAD);
}

TEST_CASE("handover: strangers and silent visitors keep nobody out") {
  const auto desk = open_desk();
  std::vector<base::unique_fd> strangers;
  for (size_t i = 0; i < 200; ++i) {
    auto one = tcp::connect_locally(desk->address().name);
    REQUIRE(one);
    strangers.push_back(std::move(*one));
  }
  std::vector<std::unique_ptr<handover_visit>> silent;
  for (size_t i = 0; i < handover_desk::max_visitors + 8; ++i) {
    silent.push_back(visit(desk->address()));
    REQUIRE(silent.back()->ask(as_bytes("bytes"), soon()));
  }
  // The oldest made room; the youngest is still served.
  CHECK(!silent.front()->ask(as_bytes("bytes"), soon()));
  CHECK(silent.back()->ask(as_bytes("file"), soon()));
}

TEST_CASE("handover: to another process") {
  if (base::under_tsan) return;  // the child of a process with threads
  const auto desk = open_desk();
  const desk_address at = desk->address();
  const pid_t child = fork();
  if (child == 0) {
    auto made = handover_visit::start(at, -1, soon());
    if (!made) _exit(2);
    auto file = (*made)->ask(as_bytes("file"), soon());
    char told[8] = {};
    const bool right = file && ::pread(file->fd.get(), told, sizeof told, 0) == 4;
    _exit(right && std::string(told) == "told" ? 0 : 3);
  }
  int state = 1;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(state == 0);
}
