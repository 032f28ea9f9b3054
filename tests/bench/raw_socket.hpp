// raw_socket.hpp - what a program with nothing but a TCP socket gets between the two
// processes of a benchmark: one connection, round trips that block or spin, and one stream of
// blocking sends and receives that walks through the same memory as what it is compared with.
#pragma once

#include "clock.hpp"
#include "processes.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace mori_bench {

class raw_socket {
 public:
  // Side 0 listens, on a port that it stores before the meeting; side 1 connects.
  raw_socket(int side, std::uint16_t& port, meeting& with) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const int first = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (side == 0) {
      if (::bind(first, plain, size) != 0 || ::listen(first, 1) != 0 ||
          ::getsockname(first, plain, &size) != 0)
        give_up("no port for a socket");
      port = address.sin_port;
      with.wait();
      descriptor_ = ::accept4(first, nullptr, nullptr, SOCK_CLOEXEC);
      ::close(first);
    } else {
      with.wait();
      address.sin_port = port;
      if (::connect(first, plain, size) != 0) give_up("a socket does not connect");
      descriptor_ = first;
    }
    const int on = 1;
    if (descriptor_ < 0 || ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
      give_up("no socket");
  }
  ~raw_socket() { ::close(descriptor_); }
  raw_socket(const raw_socket&) = delete;
  raw_socket& operator=(const raw_socket&) = delete;

  void send(const std::byte* from, std::size_t bytes) const {
    while (bytes > 0) {
      const ssize_t sent = ::send(descriptor_, from, bytes, MSG_NOSIGNAL);
      if (sent <= 0) give_up("a raw send failed");
      from += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
  }

  // Spinning, it asks again and again instead of sleeping in the kernel.
  void receive(std::byte* to, std::size_t bytes, bool spin) const {
    while (bytes > 0) {
      const ssize_t got = ::recv(descriptor_, to, bytes, spin ? MSG_DONTWAIT : 0);
      if (got < 0 && spin && errno == EAGAIN) continue;
      if (got <= 0) give_up("a raw receive failed");
      to += got;
      bytes -= static_cast<std::size_t>(got);
    }
  }

  // Nanoseconds of the median round trip on side 0, of `bytes` there and 8 back: a write and its
  // acknowledgement.
  double round_trip(int side, std::byte* memory, std::size_t bytes, std::uint64_t count,
                    bool spin) const {
    stamps times;
    const std::uint64_t warm_up = count / 10 + 1;
    for (std::uint64_t n = 0; n < warm_up + count; ++n) {
      if (n == warm_up) times.begin();
      if (side == 0) {
        send(memory, bytes);
        receive(answer_, sizeof answer_, spin);
      } else {
        receive(memory, bytes, spin);
        send(answer_, sizeof answer_);
      }
      times.take();
    }
    return times.median_ns();
  }

  // Nanoseconds that `total` bytes take from side 0 to side 1, in pieces that walk through
  // `extent` bytes on either side; the answer to the last is waited for.
  double stream(int side, std::byte* memory, std::size_t extent, std::size_t total) const {
    constexpr std::size_t piece = std::size_t{1} << 20;
    const std::size_t step = piece < extent ? piece : extent;
    const std::uint64_t start = now_ns();
    for (std::size_t done = 0, at = 0; done < total; done += step) {
      if (side == 0)
        send(memory + at, step);
      else
        receive(memory + at, step, false);
      at = at + 2 * step <= extent ? at + step : 0;
    }
    if (side == 0)
      receive(answer_, sizeof answer_, false);
    else
      send(answer_, sizeof answer_);
    return static_cast<double>(now_ns() - start);
  }

 private:
  int descriptor_ = -1;
  mutable std::byte answer_[8]{};
};

}  // namespace mori_bench
