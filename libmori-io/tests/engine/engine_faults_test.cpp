// engine_faults_test.cpp - what becomes of transfers when the other process is killed,
// stopped or started again, when connections break under load, and when many threads
// use one engine. Real processes, over TCP.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "pair.hpp"

using namespace mori_io_test;

namespace {

// Engine "b" in another process.
class target_process {
 public:
  explicit target_process(uint64_t bytes, int fill = 0) {
    int to[2], from[2];
    REQUIRE(pipe(to) == 0);
    REQUIRE(pipe(from) == 0);
    log_ = memfd_create("log", MFD_CLOEXEC);
    REQUIRE(log_ >= 0);
    const std::string size = std::to_string(bytes), value = std::to_string(fill);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      dup2(log_, 2);
      for (int fd = 3; fd < 256; ++fd) close(fd);
      execl(MORI_TARGET_PROGRAM, MORI_TARGET_PROGRAM, size.c_str(), value.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    FILE* const lines = fdopen(from[0], "r");
    engine_desc = read_line(lines);
    memory_desc = read_line(lines);
    fclose(lines);
  }
  ~target_process() {
    close(in_);
    close(log_);
    if (pid_ > 0) end(SIGKILL);
  }
  // Returns when the process has stopped, where that is what it shall do.
  void send(int signal) {
    REQUIRE(kill(pid_, signal) == 0);
    int how = 0;
    if (signal == SIGSTOP) REQUIRE(waitpid(pid_, &how, WUNTRACED) == pid_);
  }
  void end(int signal) {
    if (signal != SIGKILL) kill(pid_, SIGCONT);  // which would let it answer before it dies
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // It may have no descriptor beyond those that it has; false: as many as before.
  void limit_descriptors(bool limited) {
    rlimit now{};
    REQUIRE(prlimit(pid_, RLIMIT_NOFILE, nullptr, &now) == 0);
    int free = 0;
    while (access(fmt("/proc/%d/fd/%d", pid_, free).c_str(), F_OK) == 0) ++free;
    now.rlim_cur = limited ? static_cast<rlim_t>(free) : now.rlim_max;
    REQUIRE(prlimit(pid_, RLIMIT_NOFILE, &now, nullptr) == 0);
  }
  uint64_t cpu_ns() const {
    clockid_t clock{};
    timespec used{};
    REQUIRE(clock_getcpuclockid(pid_, &clock) == 0);
    REQUIRE(clock_gettime(clock, &used) == 0);
    return static_cast<uint64_t>(used.tv_sec) * second_ns + static_cast<uint64_t>(used.tv_nsec);
  }
  // What it has written to stderr.
  std::string log() const {
    std::string all(1 << 20, '\0');
    const ssize_t size = pread(log_, all.data(), all.size(), 0);
    all.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return all;
  }

  std::vector<uint8_t> engine_desc, memory_desc;

 private:
  static std::string fmt(const char* format, int a, int b) {
    char text[64];
    snprintf(text, sizeof text, format, a, b);
    return text;
  }
  static std::vector<uint8_t> read_line(FILE* from) {
    std::vector<uint8_t> bytes;
    unsigned value = 0;
    while (std::fscanf(from, "%2x", &value) == 1) {
      bytes.push_back(static_cast<uint8_t>(value));
      const int next = std::getc(from);
      if (next == '\n') break;
      std::ungetc(next, from);
    }
    return bytes;
  }
  pid_t pid_ = -1;
  int in_ = -1;
  int log_ = -1;
};

struct remote_pair {
  side a;
  target_process b;
  mori_io_session* session = nullptr;
  explicit remote_pair(const mori_io_options& with, uint64_t bytes = 1 << 20)
      : a(with, bytes), b(bytes) {
    join(b);
  }
  ~remote_pair() { mori_io_session_destroy(session); }
  void join(const target_process& other) {
    mori_io_session_destroy(session);
    session = nullptr;
    MUST(mori_io_remote_register(a.io, other.engine_desc.data(), other.engine_desc.size(), error));
    MUST(mori_io_session_create(a.io, a.region, other.memory_desc.data(), other.memory_desc.size(),
                                nullptr, &session, error));
  }
};

// Lets the other threads get on; what is waited for is checked by the caller.
void pause_ms(int ms) { poll(nullptr, 0, ms); }

// Sockets of this process that are connected over TCP.
std::vector<int> connected_sockets() {
  std::vector<int> found;
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
      found.push_back(fd);
  }
  return found;
}

}  // namespace

TEST_CASE("a peer that is killed is noticed within two seconds") {
  remote_pair pair(options_of("a"), 64 << 20);
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 1000)).status == MORI_OK);
  pair.b.send(SIGSTOP);
  mori_io_transfer* const small = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 8));
  mori_io_transfer* const large = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 64 << 20));
  const uint64_t begin = now_ns();
  pair.b.end(SIGKILL);
  for (mori_io_transfer* each : {small, large}) {
    const failed outcome = wait_for(each);
    CHECK(outcome.status == MORI_E_PEER_DEAD);
    // Gone, or reset once more while it was being connected to.
    CHECK_MESSAGE(outcome.text.find("engine 'b' ") != std::string::npos, outcome.text);
    mori_io_transfer_release(each);
  }
  CHECK(now_ns() - begin < 5 * second_ns);
  CHECK(stats_of(pair.session).is_alive == 0);
  // One that takes its place is used as soon as it is known.
  target_process again(64 << 20);
  pair.join(again);
  CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, 1000)).status == MORI_OK);
  CHECK(stats_of(pair.session).is_alive == 1);
}

TEST_CASE("a target without descriptors sleeps, serves who is connected, and later who comes") {
  remote_pair pair(options_of("a"), 8 << 20);
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{8} << 20})
    REQUIRE(run(pair.session, request(MORI_IO_WRITE, 0, 0, bytes)).status == MORI_OK);
  pair.b.limit_descriptors(true);
  mori_io_options patient = options_of("late");
  patient.peer_timeout_ns = patient.control_timeout_ns = 60 * second_ns;
  side late(patient);
  MUST(mori_io_remote_register(late.io, pair.b.engine_desc.data(), pair.b.engine_desc.size(),
                               error));
  mori_io_session* session = nullptr;
  MUST(mori_io_session_create(late.io, late.region, pair.b.memory_desc.data(),
                              pair.b.memory_desc.size(), nullptr, &session, error));
  mori_io_transfer* const waiting = submit(session, request(MORI_IO_WRITE, 0, 0, 100));
  CHECK(wait_for(waiting, second_ns / 5).status == MORI_E_TIMEOUT);
  const uint64_t before = pair.b.cpu_ns();
  CHECK(wait_for(waiting, 3 * second_ns / 2).status == MORI_E_TIMEOUT);
  const uint64_t used = pair.b.cpu_ns() - before;
  MESSAGE("processor time in 1.5 s: ", used / 1000, " us");
  CHECK(used < second_ns / 5);
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{8} << 20})
    CHECK(run(pair.session, request(MORI_IO_WRITE, 0, 0, bytes)).status == MORI_OK);
  const std::string log = pair.b.log();
  const size_t said = log.find("cannot accept a connection");
  CHECK_MESSAGE(said != std::string::npos, log);
  CHECK_MESSAGE(log.find("cannot accept a connection", said + 1) == std::string::npos, log);
  pair.b.limit_descriptors(false);
  const failed served = wait_for(waiting);
  CHECK_MESSAGE(served.status == MORI_OK, served.text);
  mori_io_transfer_release(waiting);
  mori_io_session_destroy(session);
}

TEST_CASE("a peer that is stopped: short, and the transfers go on; long, and they fail") {
  mori_io_options with = options_of("a");
  with.peer_timeout_ns = 2 * second_ns;
  remote_pair pair(with, 8 << 20);
  fill_pattern(pair.a.memory, 5);
  const std::vector<uint8_t> before = pair.a.memory;
  pair.b.send(SIGSTOP);
  mori_io_transfer* const patient = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 8 << 20));
  CHECK(wait_for(patient, second_ns / 4).status == MORI_E_TIMEOUT);
  pair.b.send(SIGCONT);
  CHECK(wait_for(patient).status == MORI_OK);
  mori_io_transfer_release(patient);
  std::fill(pair.a.memory.begin(), pair.a.memory.end(), 0);
  CHECK(run(pair.session, request(MORI_IO_READ, 0, 0, 8 << 20)).status == MORI_OK);
  CHECK(pair.a.memory == before);

  pair.b.send(SIGSTOP);
  const uint64_t begin = now_ns();
  const failed silent = run(pair.session, request(MORI_IO_READ, 0, 0, 8 << 20));
  CHECK(silent.status == MORI_E_PEER_DEAD);
  CHECK(silent.text.find("2000 ms are allowed") != std::string::npos);
  CHECK(now_ns() - begin < 8 * second_ns);
  pair.b.send(SIGCONT);
  CHECK(run(pair.session, request(MORI_IO_READ, 0, 0, 100)).status == MORI_OK);
}

TEST_CASE("connections that break under load: all transfers succeed, each is told once") {
  engine_pair pair(8 << 20);
  constexpr uint64_t count = 300;
  std::atomic<bool> stop{false};
  std::thread breaker([&] {
    // Fewer than a transfer may be repeated, however slow the machine.
    for (uint64_t round = 0; !stop && round < 30; ++round) {
      const std::vector<int> open = connected_sockets();
      if (!open.empty()) shutdown(open[round % open.size()], SHUT_RDWR);
      pause_ms(20);
    }
  });
  std::vector<mori_io_transfer*> all;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bytes = i % 7 == 0 ? 1 << 20 : 1 + i * 37;
    all.push_back(submit(
        pair.session, request(i % 3 == 0 ? MORI_IO_READ : MORI_IO_WRITE, 0, 0, bytes, 1000 + i)));
    if (i % 10 == 0) pause_ms(2);
  }
  for (mori_io_transfer* each : all) {
    const failed outcome = wait_for(each, 60 * second_ns);
    CHECK_MESSAGE(outcome.status == MORI_OK, outcome.text);
    mori_io_transfer_release(each);
  }
  stop = true;
  breaker.join();
  mori_io_inbound inbound;
  for (uint64_t i = 0; i < count; ++i) {
    CAPTURE(i);
    REQUIRE(pop_inbound(pair.b.io, "a", 1000 + i, inbound));
  }
  CHECK(mori_io_inbound_next(pair.b.io, &inbound, nullptr) == MORI_E_AGAIN);
}

TEST_CASE("eight threads on sessions of their own, each write told exactly once") {
  constexpr int threads = 8, each_count = 200;
  engine_pair pair(1 << 20);
  std::atomic<int> failures{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      const auto packed = pair.b.memory_desc();
      mori_io_session* session = nullptr;
      if (mori_io_session_create(pair.a.io, pair.a.region, packed.data(), packed.size(), nullptr,
                                 &session, nullptr) != MORI_OK) {
        ++failures;
        return;
      }
      for (int i = 0; i < each_count; ++i) {
        const auto offset = static_cast<uint64_t>(t) * 65536;
        request what(MORI_IO_WRITE, offset, offset, 1 + static_cast<uint64_t>(i) * 97,
                     static_cast<uint64_t>(t * each_count + i));
        mori_io_transfer* made = nullptr;
        if (mori_io_submit(session, what.get(), &made, nullptr) != MORI_OK) ++failures;
        if (i % 3 == 0 && mori_io_transfer_wait(&made, 1, 20 * second_ns, nullptr) != MORI_OK)
          ++failures;
        mori_io_transfer_release(made);
      }
      mori_io_session_destroy(session);
    });
  for (std::thread& each : all) each.join();
  CHECK(failures == 0);
  std::map<uint64_t, int> told;
  mori_io_inbound inbound{};
  inbound.struct_size = sizeof inbound;
  const uint64_t until = now_ns() + 20 * second_ns;
  int count = 0;
  while (count < threads * each_count && now_ns() < until) {
    if (mori_io_inbound_next(pair.b.io, &inbound, nullptr) == MORI_OK) {
      ++told[inbound.uid];
      ++count;
    } else {
      pause_ms(1);
    }
  }
  CHECK(count == threads * each_count);
  CHECK(told.size() == static_cast<size_t>(threads * each_count));
  CHECK(mori_io_inbound_next(pair.b.io, &inbound, nullptr) == MORI_E_AGAIN);
}

TEST_CASE("ten thousand sessions, and each works") {
  engine_pair pair(1 << 20);
  std::vector<mori_io_session*> all;
  for (int i = 0; i < 10'000; ++i) all.push_back(pair.a.session_to(pair.b));
  std::vector<mori_io_transfer*> flying;
  for (size_t i = 0; i < all.size(); ++i) {
    request what(MORI_IO_WRITE, i, i, 1, i);
    what.raw.disable_notification = 1;
    flying.push_back(submit(all[i], what));
  }
  MUST(mori_io_transfer_wait(flying.data(), flying.size(), 60 * second_ns, error));
  for (mori_io_transfer* each : flying) mori_io_transfer_release(each);
  for (mori_io_session* each : all) mori_io_session_destroy(each);
}

TEST_CASE("a peer that is deregistered: its transfers end, and it can be registered again") {
  mori_io_options stalled = options_of("b");
  stalled.progress = MORI_IO_PROGRESS_CALLER;
  engine_pair pair(options_of("a"), stalled);
  mori_io_transfer* const made = submit(pair.session, request(MORI_IO_WRITE, 0, 0, 100, 6));
  MUST(mori_io_remote_deregister(pair.a.io, "b", error));
  const failed ended = wait_for(made, 0);
  CHECK(ended.status == MORI_E_CANCELLED);
  CHECK(ended.text == "transfer 6 with engine 'b': engine 'b' was deregistered");
  mori_io_transfer_release(made);
  CHECK(ask([&](mori_error* e) { return mori_io_remote_deregister(pair.a.io, "b", e); }).text ==
        "engine 'b' is not registered");
  pair.a.know(pair.b);
  mori_io_session* const fresh = pair.a.session_to(pair.b);
  mori_io_transfer* const again = submit(fresh, request(MORI_IO_WRITE, 0, 0, 100));
  for (int i = 0; i < 2000 && report_of(again).is_done == 0; ++i)
    MUST(mori_io_progress(pair.b.io, 1'000'000, error));
  CHECK(report_of(again).status == MORI_OK);
  mori_io_transfer_release(again);
  mori_io_session_destroy(fresh);
}
