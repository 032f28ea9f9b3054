// stranger.hpp - connections to an engine that are not another engine's: bare
// sockets, a handshake with keys of one's own and then whatever frames the test
// wants, and a tap in between that keeps what passes. For engine_hostile_test.cpp.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <mori/base/unique_fd.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "pair.hpp"
#include "wire/descriptor.hpp"
#include "wire/frame.hpp"
#include "wire/message.hpp"

namespace mori_io_test {

namespace wire = mori::io_core::wire;
using byte_vector = mori::link::byte_vector;
using mori::link::byte_span;

inline byte_span view(const std::vector<uint8_t>& bytes) { return std::as_bytes(std::span(bytes)); }

inline sockaddr_in loopback(uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

// A TCP connection whose calls end after some seconds at most.
class bare_connection {
 public:
  explicit bare_connection(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{5, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const sockaddr_in at = loopback(port);
    is_connected_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  bool is_connected() const { return is_connected_; }
  int fd() const { return fd_.get(); }

  bool send(byte_span bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
    return true;
  }
  // All of `room`, or false: closed, or nothing for seconds.
  bool receive(wire::byte_room room) {
    while (!room.empty()) {
      const ssize_t got = ::recv(fd_.get(), room.data(), room.size(), 0);
      if (got <= 0) return false;
      room = room.subspan(static_cast<size_t>(got));
    }
    return true;
  }
  // Whether the other side closes it in that time; what it says before is dropped.
  bool is_closed_within(uint64_t timeout_ns) {
    const uint64_t until = now_ns() + timeout_ns;
    std::byte dropped[512];
    for (uint64_t now = now_ns(); now < until; now = now_ns()) {
      pollfd watched{fd_.get(), POLLIN, 0};
      if (::poll(&watched, 1, static_cast<int>((until - now) / 1'000'000) + 1) <= 0) continue;
      if (::recv(fd_.get(), dropped, sizeof dropped, MSG_DONTWAIT) <= 0) return true;
    }
    return false;
  }
  void reset_on_close() {
    const linger now{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  mori::base::unique_fd fd_;
  bool is_connected_ = false;
};

// Somebody with the engine's descriptor and keys of his own, beyond the handshake.
class proven_stranger {
 public:
  struct said {
    wire::message_kind kind{};
    byte_vector body;
  };

  explicit proven_stranger(const wire::engine_desc& to, wire::identity who = named("stranger"),
                           const wire::key_pair& keys = wire::key_pair::make())
      : keys_(keys), line_(to.port) {
    who.wanted_instance = to.instance;
    const wire::initiator_options options{
        .self = &keys_, .target_key = to.public_key, .what = std::move(who), .ephemeral = nullptr};
    auto machine = wire::initiator::start(options);
    if (!machine || !line_.send(machine->output())) return;
    machine->on_sent(machine->output().size());
    byte_vector answer(wire::answer_bytes);
    if (!line_.receive(byte_span_of(answer, wire::preamble_bytes, 0))) return;
    const bool whole = answer[6] == std::byte{2};
    if (whole && !line_.receive(byte_span_of(answer, wire::answer_bytes, wire::preamble_bytes)))
      return;
    auto heard = machine->on_bytes(
        byte_span(answer).first(whole ? wire::answer_bytes : wire::preamble_bytes));
    if (!heard) {
      refusal_ = heard.error();
      return;
    }
    if (!line_.send(machine->output())) return;
    out_ = std::make_unique<wire::sealer>(machine->agreed().sending, machine->agreed().mode);
    in_ = std::make_unique<wire::opener>(machine->agreed().receiving, machine->agreed().mode);
  }

  static wire::identity named(const char* key) {
    wire::identity who;
    who.key = key;
    who.instance = wire::fresh_instance();
    who.generation = 1;
    return who;
  }

  bool is_proven() const { return out_ != nullptr; }
  const mori::base::failure& refusal() const { return refusal_; }
  bare_connection& line() { return line_; }

  // encode(room) writes the body and says its size. A payload follows, all of one value; damaged:
  // its tag is wrong.
  template <class Encode>
  void say(wire::message_kind kind, Encode&& encode, uint32_t payload_bytes = 0,
           bool damaged = false) {
    byte_vector frame(wire::max_frame_bytes);
    const size_t size =
        encode(wire::byte_room(frame).subspan(wire::header_bytes, wire::max_body_bytes));
    const wire::frame_head head{static_cast<uint32_t>(size), payload_bytes,
                                static_cast<uint8_t>(kind), wire::frame_flags(kind)};
    (void)line_.send(out_->seal(frame, head));
    if (payload_bytes == 0) return;
    byte_vector payload(payload_bytes, std::byte{0xEE});
    out_->absorb(payload);
    std::array<std::byte, wire::tag_bytes> tag{};
    out_->payload_tag(tag);
    if (damaged) tag[0] ^= std::byte{1};
    (void)line_.send(payload);
    (void)line_.send(tag);
  }
  void resume(uint64_t next = 1) {
    say(wire::message_kind::resume, [&](wire::byte_room room) {
      return wire::encode(room, wire::resume{.generation = 1, .floor = 1, .next = next});
    });
  }
  // A write of `bytes` at `offset`, as one slice with a payload.
  void write(const wire::slice& what, uint64_t offset, uint32_t bytes, bool damaged = false) {
    say(
        wire::message_kind::write,
        [&](wire::byte_room room) {
          wire::slice_writer writer;
          if (!writer.start(room, wire::message_kind::write, what)) return size_t{0};
          (void)writer.add(offset, bytes);
          return writer.finish();
        },
        bytes, damaged);
  }

  // The next frame; none when it is closed instead. Without payloads.
  bool hear(said& what) {
    byte_vector frame(wire::header_bytes);
    if (!line_.receive(frame)) return false;
    const auto head = in_->peek(frame);
    if (!head) return false;
    frame.resize(wire::header_bytes + head->body_bytes + wire::tag_bytes);
    if (!line_.receive(wire::byte_room(frame).subspan(wire::header_bytes))) return false;
    const auto body = in_->open(frame);
    if (!body) return false;
    what.kind = static_cast<wire::message_kind>(head->kind);
    what.body.assign(body->begin(), body->end());
    return true;
  }
  // Skips other kinds.
  bool hear(wire::message_kind kind, said& what) {
    while (hear(what))
      if (what.kind == kind) return true;
    return false;
  }

 private:
  static wire::byte_room byte_span_of(byte_vector& of, size_t end, size_t begin) {
    return wire::byte_room(of).subspan(begin, end - begin);
  }
  wire::key_pair keys_;
  bare_connection line_;
  mori::base::failure refusal_;
  std::unique_ptr<wire::sealer> out_;
  std::unique_ptr<wire::opener> in_;
};

// Between an engine and its target: passes on what comes, and keeps what the
// engine said on its first connection.
class tap {
 public:
  explicit tap(uint16_t target) : target_(target) {
    listener_ = mori::base::unique_fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    auto* where = reinterpret_cast<sockaddr*>(&at);
    const bool good = ::bind(listener_.get(), where, size) == 0 &&
                      ::listen(listener_.get(), 16) == 0 &&
                      ::getsockname(listener_.get(), where, &size) == 0;
    if (good) port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~tap() {
    ended_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }
  byte_vector recorded() const {
    const std::lock_guard guard(lock_);
    return kept_;
  }

 private:
  struct pipe {
    mori::base::unique_fd near;
    std::unique_ptr<bare_connection> far;
  };

  bool pass(int from, int to, bool keep) {
    std::byte bytes[65536];
    const ssize_t got = ::recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (keep) {
      const std::lock_guard guard(lock_);
      kept_.insert(kept_.end(), bytes, bytes + got);
    }
    for (ssize_t at = 0; at < got;) {
      const ssize_t sent = ::send(to, bytes + at, static_cast<size_t>(got - at), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
    }
    return true;
  }

  void run() {
    std::vector<pipe> pipes;
    while (!ended_) {
      std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
      for (const pipe& each : pipes) {
        watched.push_back({each.near.get(), POLLIN, 0});
        watched.push_back({each.far->fd(), POLLIN, 0});
      }
      if (::poll(watched.data(), watched.size(), 20) <= 0) continue;
      for (size_t i = pipes.size(); i-- > 0;) {
        pipe& each = pipes[i];
        const bool alive = pass(each.near.get(), each.far->fd(), i == 0 && !first_gone_) &&
                           pass(each.far->fd(), each.near.get(), false);
        if (alive) continue;
        if (i == 0) first_gone_ = true;
        pipes.erase(pipes.begin() + static_cast<ptrdiff_t>(i));
      }
      if ((watched[0].revents & POLLIN) == 0) continue;
      mori::base::unique_fd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (near) pipes.push_back({std::move(near), std::make_unique<bare_connection>(target_)});
    }
  }

  const uint16_t target_;
  uint16_t port_ = 0;
  mori::base::unique_fd listener_;
  std::atomic<bool> ended_{false};
  bool first_gone_ = false;
  mutable std::mutex lock_;
  byte_vector kept_;
  std::thread thread_;
};

}  // namespace mori_io_test
