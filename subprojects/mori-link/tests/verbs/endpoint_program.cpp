// endpoint_program.cpp - one of two nodes that talk over RDMA, for tests/rdma. Node 0 writes and
// reads node 1's memory and compares; descriptions and the memory's keys travel over TCP.
//
// usage: endpoint_program 0|1 PEER_ADDRESS SCENARIO
//   plain       random writes, reads and atomics, byte-exact at the end
//   break       the same while both sides begin anew at random times
//   killed      node 1 dies in the middle; node 0 says so in its time
#include <mori/link/verbs/endpoint.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

using namespace mori;
using namespace mori::link::verbs;

namespace {

constexpr uint16_t port_number = 7471;
constexpr size_t slot_bytes = 9000, slot_count = 60;
constexpr size_t counter_at = slot_bytes * slot_count;
constexpr uint64_t patience_ns = 60 * base::ns_per_s;

[[noreturn]] void end_badly(const std::string& text) {
  std::printf("FAULT: %s\n", text.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}
void expect(bool condition, const char* text) {
  if (!condition) end_badly(text);
}

// Messages of a kind and bytes over TCP.
class wire {
 public:
  wire(bool listens, const char* peer) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port_number);
    const int one = 1;
    if (listens) {
      const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
      ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      expect(::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "bind");
      expect(::listen(listener, 1) == 0, "listen");
      fd_ = ::accept(listener, nullptr, nullptr);
    } else {
      ::inet_pton(AF_INET, peer, &at.sin_addr);
      const auto until = base::deadline::after(patience_ns);
      for (;;) {
        fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) break;
        ::close(fd_);
        expect(!until.passed(), "no connection to the peer");
        ::poll(nullptr, 0, 50);
      }
    }
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  void send(char kind, link::byte_span bytes) {
    link::byte_writer out;
    out.u8(static_cast<uint8_t>(kind));
    out.u32(static_cast<uint32_t>(bytes.size()));
    out.raw(bytes);
    (void)!::send(fd_, out.view().data(), out.view().size(), MSG_NOSIGNAL);
  }
  // A message, when a whole one is there.
  bool receive(char& kind, link::byte_vector& bytes) {
    std::byte some[4096];
    const ssize_t got = ::recv(fd_, some, sizeof some, MSG_DONTWAIT);
    if (got > 0) incoming_.insert(incoming_.end(), some, some + got);
    is_closed_ |= got == 0;
    link::byte_reader in(incoming_);
    kind = static_cast<char>(in.u8());
    const uint32_t size = in.u32();
    const link::byte_span body = in.raw(size);
    if (!in.good()) return false;
    bytes.assign(body.begin(), body.end());
    incoming_.erase(incoming_.begin(), incoming_.begin() + 5 + size);
    return true;
  }
  bool is_closed() const { return is_closed_; }

 private:
  int fd_ = -1;
  bool is_closed_ = false;
  link::byte_vector incoming_;
};

class node {
 public:
  node(bool is_target, const char* peer) : wire_(is_target, peer), memory_(counter_at + 8) {
    const settings with;
    const auto ports = judge_ports(read_inventory(), with);
    expect(!ports.empty() && ports[0].is_usable, "no RDMA device");
    auto opened = device::open(ports[0], with);
    if (!opened) end_badly(opened.error().text);
    of_ = *opened;
    keys_ = of_->register_memory(memory_.data(), memory_.size(),
                                 local_write | remote_write | remote_read | remote_atomic)
                .value();
    queue_ = completion_queue::create(of_, {}).value();
    endpoint::options how;
    how.queue_pair_count = 2;
    how.each.send_count = 8;
    how.drain_ns = 2 * base::ns_per_s;
    how.max_recoveries = 3;
    end_ = endpoint::create(queue_, how).value();
    link::byte_writer out;
    out.u64(reinterpret_cast<uintptr_t>(memory_.data()));
    out.u32(keys_->remote_key());
    wire_.send('k', out.view());
  }

  void turn() {
    end_->step(base::now_ns());
    if (auto news = end_->take_description()) wire_.send('d', *news);
    char kind = 0;
    link::byte_vector bytes;
    while (wire_.receive(kind, bytes)) {
      link::byte_reader in(bytes);
      if (kind == 'd') {
        if (auto taken = end_->on_description(bytes); !taken) last_problem_ = taken.error().text;
      } else if (kind == 'k') {
        their_address_ = in.u64();
        their_key_ = in.u32();
      } else if (kind == 'e') {
        is_over_ = true;
      }
    }
    completion some[8];
    const size_t count = queue_->poll(some);
    for (size_t i = 0; i < count; ++i) ++completed_;
    while (auto failed = end_->take_failed()) {
      ++failed_;
      failed_status_ = failed->status;
    }
    if (count == 0) ::sched_yield();
  }

  template <class Done>
  bool until(Done&& done) {
    const auto end = base::deadline::after(patience_ns);
    while (!done()) {
      if (end.passed()) return false;
      turn();
    }
    return true;
  }

  void serve() {
    if (!until([&] { return is_over_ || wire_.is_closed(); })) end_badly("the peer did not end");
    std::printf("node 1: served, %llu recoveries\n",
                static_cast<unsigned long long>(end_->recovery_count()));
  }
  void serve_and_die() {
    expect(until([&] { return end_->at() == endpoint::state::ready; }), "never connected");
    const auto soon = base::deadline::after(700 * base::ns_per_ms);
    while (!soon.passed()) turn();
    std::printf("node 1: dies\n");
    std::fflush(stdout);
    ::execlp("busybox", "busybox", "ip", "link", "set", "eth0", "down", nullptr);
  }

  work make(operation what, std::byte* at, size_t there, uint32_t bytes, uint32_t key) const {
    work made;
    made.what = what;
    made.is_reported = true;
    made.segment_count = 1;
    made.local[0] = {reinterpret_cast<uintptr_t>(at), bytes, key};
    made.remote_address = their_address_ + there;
    made.remote_key = their_key_;
    return made;
  }
  void post(const work& what, uint16_t pair) {
    const bool taken = until([&] {
      auto posted = end_->post(pair, std::span(&what, 1));
      if (!posted) end_badly(posted.error().text);
      ++(*posted > 0 ? posted_ : full_);
      return *posted > 0;
    });
    expect(taken, "the send queue stays full");
  }

  // Writes random parts of all slots, changes some again, adds to the counter, reads all back.
  void drive(uint32_t seed, bool breaks) {
    expect(until([&] { return their_key_ != 0 && end_->at() == endpoint::state::ready; }),
           "never connected");
    std::mt19937 random(seed);
    std::vector<std::byte> source(counter_at + 8), expected(counter_at), back(counter_at);
    const auto keys = of_->register_memory(source.data(), source.size(), local_write).value();
    const auto back_keys = of_->register_memory(back.data(), back.size(), local_write).value();
    for (std::byte& each : source) each = static_cast<std::byte>(random());
    for (size_t slot = 0; slot < slot_count; ++slot) {
      const size_t at = slot * slot_bytes;
      const auto bytes = static_cast<uint32_t>(random() % (slot_bytes + 1));
      post(make(operation::write, source.data() + at, at, bytes, keys->local_key()),
           static_cast<uint16_t>(random() % 2));
      std::copy_n(source.begin() + static_cast<long>(at), bytes,
                  expected.begin() + static_cast<long>(at));
      if (breaks && random() % 10 == 0)
        end_->restart(base::fail(MORI_E_UNAVAILABLE, "a test wants it"));
    }
    finish();
    uint64_t adds = 0;
    for (; !breaks && adds < 40; ++adds) {
      work add =
          make(operation::fetch_add, source.data() + counter_at, counter_at, 8, keys->local_key());
      add.operand = 7;
      post(add, 0);
      finish();
      uint64_t old = 0;
      std::memcpy(&old, source.data() + counter_at, 8);
      expect(old == 7 * adds, "an atomic was not applied exactly once");
    }
    for (size_t slot = 0; slot < slot_count; ++slot)
      post(make(operation::read, back.data() + slot * slot_bytes, slot * slot_bytes, slot_bytes,
                back_keys->local_key()),
           static_cast<uint16_t>(slot % 2));
    finish();
    if (failed_ != 0) end_badly(fmt::format("{} of the work failed", failed_));
    expect(back == expected, "the bytes differ");
    wire_.send('e', {});
    std::printf("node 0: %llu done, byte-exact, %llu recoveries, seed %u\n",
                static_cast<unsigned long long>(completed_),
                static_cast<unsigned long long>(end_->recovery_count()), seed);
  }
  void finish() {
    if (!until([&] { return completed_ + failed_ >= posted_; }))
      end_badly(fmt::format("{} of {} done, {} failed: {}", completed_, posted_, failed_,
                            end_->at() == endpoint::state::failed ? end_->why().text : "slow"));
  }

  // Writes until the peer is found dead.
  void outlive() {
    expect(until([&] { return their_key_ != 0 && end_->at() == endpoint::state::ready; }),
           "never connected");
    const uint64_t began = base::now_ns();
    const auto end = base::deadline::after(patience_ns);
    while (end_->at() == endpoint::state::ready && !end.passed()) {
      const work what = make(operation::write, memory_.data(), 0, 4096, keys_->local_key());
      const auto posted = end_->post(0, std::span(&what, 1));
      if (posted) posted_ += *posted;
      turn();
    }
    expect(!end.passed(), "the death was not noticed");
    const double noticed = static_cast<double>(base::now_ns() - began) / 1e9;
    const std::string text = end_->why().text;
    end_->fail(base::fail(MORI_E_PEER_DEAD, "node 1 is given up"));
    finish();
    expect(failed_ > 0 && failed_status_ == MORI_E_PEER_DEAD, "what was in flight did not fail");
    std::printf("node 0: %llu done, %llu failed, noticed after %.1f s: %s\n",
                static_cast<unsigned long long>(completed_),
                static_cast<unsigned long long>(failed_), noticed, text.c_str());
  }

 private:
  wire wire_;
  std::vector<std::byte> memory_;
  std::shared_ptr<device> of_;
  std::shared_ptr<memory> keys_;
  std::shared_ptr<completion_queue> queue_;
  std::unique_ptr<endpoint> end_;
  uint64_t their_address_ = 0;
  uint32_t their_key_ = 0;
  uint64_t posted_ = 0, full_ = 0, completed_ = 0, failed_ = 0;
  mori_status failed_status_ = MORI_OK;
  bool is_over_ = false;
  std::string last_problem_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fputs("usage: endpoint_program 0|1 PEER_ADDRESS plain|break|killed\n", stderr);
    return 2;
  }
  const std::string scenario = words[3];
  const bool is_target = words[1][0] == '1';
  node me(is_target, words[2]);
  if (is_target) {
    if (scenario == "killed") me.serve_and_die();
    me.serve();
    return 0;
  }
  const char* const given = std::getenv("MORI_TEST_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                         : std::random_device()();
  if (scenario == "killed")
    me.outlive();
  else
    me.drive(seed, scenario == "break");
  return 0;
}
