// socket.cpp - see socket.hpp.
#include "transport/socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace mori::io_core::transport {
namespace {

constexpr int backlog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr size_t most_pieces = 64;

uint16_t port_of(const sockaddr_storage& of) {
  uint16_t port = 0;  // at the same place in both families
  std::memcpy(&port, reinterpret_cast<const char*>(&of) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

void set_port(sockaddr_storage& of, uint16_t port) {
  port = htons(port);
  std::memcpy(reinterpret_cast<char*>(&of) + offsetof(sockaddr_in, sin_port), &port, sizeof port);
}

link::tcp::address to_address(const sockaddr_storage& from) {
  link::tcp::address out;
  out.port = port_of(from);
  if (from.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &from, sizeof in);
    std::memcpy(out.bytes.data(), &in.sin_addr, sizeof in.sin_addr);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in, &from, sizeof in);
    out.family = 6;
    std::memcpy(out.bytes.data(), &in.sin6_addr, sizeof in.sin6_addr);
  }
  return out;
}

// The port that it got is written to `where`.
base::result<base::unique_fd> listen_on(sockaddr_storage& where, bool both_families) {
  const int family = where.ss_family;
  socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  base::unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return base::fail_os(errno, "no socket");
  const int on = 1, only = both_families ? 0 : 1;
  // A port of an engine that has ended is free at once.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 ||
      ::listen(fd.get(), backlog) != 0)
    return base::fail_os(errno, "cannot listen on {}", to_address(where).text());
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &size);
  return fd;
}

base::result<listening> listen_everywhere(uint16_t port) {
  listening made;
  sockaddr_storage any{};
  any.ss_family = AF_INET6;
  set_port(any, port);
  auto fd = listen_on(any, true);
  if (!fd && fd.error().os_errno != EADDRINUSE && fd.error().os_errno != EACCES) {
    any = {};
    any.ss_family = AF_INET;  // a host without IPv6
    set_port(any, port);
    fd = listen_on(any, false);
  }
  if (!fd) return fd.error();
  made.port = port_of(any);
  made.sockets.push_back(std::move(*fd));
  MORI_TRY(made.told, link::tcp::host_addresses());
  for (link::tcp::address& each : made.told) each.port = made.port;
  return made;
}

}  // namespace

base::result<listening> listen_at(const std::string& host, uint16_t port) {
  if (host.empty() || host == "0.0.0.0" || host == "::") return listen_everywhere(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (problem != 0)
    return base::fail(MORI_E_NOT_FOUND, "in_host '{}' is no address and no known name: {}", host,
                      ::gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  listening made;
  base::failure last = base::fail(MORI_E_NOT_FOUND, "in_host '{}' has no usable address", host);
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    sockaddr_storage where{};
    std::memcpy(&where, each->ai_addr, each->ai_addrlen);
    set_port(where, made.port != 0 ? made.port : port);
    auto fd = listen_on(where, false);
    if (!fd) {
      last = fd.error();
      continue;
    }
    made.port = port_of(where);
    made.told.push_back(to_address(where));
    made.sockets.push_back(std::move(*fd));
  }
  if (!made.sockets.empty()) return made;
  if (last.os_errno == EADDRNOTAVAIL) last.status = MORI_E_NOT_FOUND;
  return last;
}

movement send_from(int fd, protocol::stream& from) {
  std::array<iovec, most_pieces> pieces;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = from.gather(pieces);
  if (message.msg_iovlen == 0) return {};
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return {moved::closed, 0, errno, false};
  }
  from.on_sent(static_cast<uint64_t>(sent));
  return {moved::some, static_cast<uint64_t>(sent), 0, false};
}

movement receive_into(int fd, protocol::stream& to) {
  std::array<iovec, most_pieces> room;
  const size_t count = to.room(room);
  uint64_t asked = 0;
  for (size_t i = 0; i < count; ++i) asked += room[i].iov_len;
  const ssize_t got = ::readv(fd, room.data(), static_cast<int>(count));
  if (got == 0) return {moved::closed, 0, 0, false};
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return {moved::closed, 0, errno, false};
  }
  return {moved::some, static_cast<uint64_t>(got), 0, static_cast<uint64_t>(got) < asked};
}

}  // namespace mori::io_core::transport
