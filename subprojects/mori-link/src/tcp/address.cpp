// address.cpp - see address.hpp.
#include <mori/link/tcp/address.hpp>

#include <mori/base/clock.hpp>
#include <mori/base/env.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

namespace mori::link::tcp {
namespace {

constexpr int backlog = 4096;  // the kernel cuts it to net.core.somaxconn

struct socket_address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

socket_address to_kernel(const address& from) {
  socket_address out;
  if (from.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    std::memcpy(&in.sin_addr, from.bytes.data(), sizeof in.sin_addr);
    std::memcpy(&out.storage, &in, sizeof in);
    out.size = sizeof in;
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(from.port);
    std::memcpy(&in.sin6_addr, from.bytes.data(), sizeof in.sin6_addr);
    std::memcpy(&out.storage, &in, sizeof in);
    out.size = sizeof in;
  }
  return out;
}

// Nothing for families and scopes that mean nothing on another host.
std::optional<address> from_kernel(const sockaddr* from) {
  address out;
  if (from == nullptr) return std::nullopt;
  if (from->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, from, sizeof in);
    std::memcpy(out.bytes.data(), &in.sin_addr, sizeof in.sin_addr);
    return out;
  }
  if (from->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, from, sizeof in);
  if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) return std::nullopt;
  out.family = 6;
  std::memcpy(out.bytes.data(), &in.sin6_addr, sizeof in.sin6_addr);
  return out;
}

// Smaller is better: routable IPv4, routable IPv6, IPv4 link-local, loopback.
int preference(const address& a) {
  if (a.family == 6) {
    const bool loopback = a.bytes[15] == 1 && std::all_of(a.bytes.begin(), a.bytes.end() - 1,
                                                          [](uint8_t byte) { return byte == 0; });
    return loopback ? 4 : 1;
  }
  if (a.bytes[0] == 127) return 3;
  return a.bytes[0] == 169 && a.bytes[1] == 254 ? 2 : 0;
}

void be_neighbourly(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

base::result<listener> listen_on(int family) {
  base::unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return base::fail_os(errno, "no socket");
  address any;
  any.family = family == AF_INET6 ? 6 : 4;
  const int off = 0;
  if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  socket_address where = to_kernel(any);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&where.storage), where.size) != 0)
    return base::fail_os(errno, "cannot bind a listening socket");
  if (::listen(fd.get(), backlog) != 0) return base::fail_os(errno, "cannot listen");
  where.size = sizeof where.storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where.storage), &where.size) != 0)
    return base::fail_os(errno, "listening socket has no name");
  uint16_t port = 0;  // at the same place in both families
  std::memcpy(&port,
              reinterpret_cast<const char*>(&where.storage) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return listener{std::move(fd), ntohs(port)};
}

}  // namespace

std::string address::text() const {
  char buffer[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes.data(), buffer, sizeof buffer);
  return family == 4 ? fmt::format("{}:{}", buffer, port) : fmt::format("[{}]:{}", buffer, port);
}

base::result<std::vector<address>> host_addresses() {
  const auto wanted = base::env_text("MORI_SOCKET_IFNAME");
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return base::fail_os(errno, "cannot list network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<address> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0) continue;
    if (wanted && *wanted != each->ifa_name) continue;
    if (const auto one = from_kernel(each->ifa_addr)) found.push_back(*one);
  }
  if (found.empty() && wanted)
    return base::fail(MORI_E_NOT_FOUND,
                      "MORI_SOCKET_IFNAME='{}': no such interface is up with an address", *wanted);
  if (found.empty())
    return base::fail(MORI_E_UNAVAILABLE, "no network interface is up, not even loopback");
  // In the kernel's order within each rank of preference. (std::stable_sort makes clang warn of a
  // deprecated function inside libstdc++ 12.)
  std::vector<address> ordered;
  for (int rank = 0; ordered.size() < found.size(); ++rank)
    for (const address& a : found)
      if (preference(a) == rank) ordered.push_back(a);
  found = std::move(ordered);
  // Loopback keeps a seat: processes of one host may have nothing else in common.
  if (found.size() > max_addresses) {
    const auto loopback =
        std::ranges::find_if(found, [](const address& a) { return preference(a) >= 3; });
    if (loopback != found.end() &&
        loopback - found.begin() >= static_cast<ptrdiff_t>(max_addresses))
      std::swap(found[max_addresses - 1], *loopback);
    found.resize(max_addresses);
  }
  return found;
}

base::result<listener> listen_anywhere() {
  auto both = listen_on(AF_INET6);  // takes IPv4 as well
  return both ? std::move(both) : listen_on(AF_INET);
}

base::result<base::unique_fd> start_connecting(const address& to) {
  const int family = to.family == 4 ? AF_INET : AF_INET6;
  base::unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return base::fail_os(errno, "no socket");
  be_neighbourly(fd.get());
  const socket_address where = to_kernel(to);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.size) != 0 &&
      errno != EINPROGRESS && errno != EINTR)
    return base::fail_os(errno, "cannot connect to {}", to.text());
  return fd;
}

int connect_outcome(int fd) {
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return EINPROGRESS;
  int problem = 0;
  socklen_t size = sizeof problem;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size);
  return problem;
}

base::result<base::unique_fd> accept_one(int listening_fd) {
  for (;;) {
    base::unique_fd fd(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      be_neighbourly(fd.get());  // means nothing on a unix socket
      return fd;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return base::unique_fd();
    // Errors of the connection that was to be accepted are not the listener's.
    const bool of_connection = errno == EINTR || errno == ECONNABORTED || errno == EPROTO ||
                               errno == ENETDOWN || errno == EHOSTUNREACH || errno == ENETUNREACH;
    if (!of_connection) return base::fail_os(errno, "cannot accept a connection");
  }
}

void limit_unanswered(int fd, uint64_t limit_ns) {
  const auto limit_ms =
      static_cast<unsigned>(std::min<uint64_t>(limit_ns / base::ns_per_ms, INT32_MAX));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

void write_address(byte_writer& out, const address& where) {
  out.u8(where.family);
  out.raw(std::as_bytes(std::span(where.bytes)));
  out.u16(where.port);
}

address read_address(byte_reader& in) {
  address where;
  where.family = in.u8();
  const byte_span bytes = in.raw(where.bytes.size());
  if (!bytes.empty()) std::memcpy(where.bytes.data(), bytes.data(), bytes.size());
  where.port = in.u16();
  return where;
}

}  // namespace mori::link::tcp
