// local_socket.cpp - see local_socket.hpp.
#include "tcp/local_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace mori::link::tcp {
namespace {

constexpr int backlog = 4096;

struct named {
  sockaddr_un address{};
  socklen_t size = 0;
};

named in_kernel_form(const local_name& name) {
  std::string text(1, '\0');  // abstract
  text += "mori-link.";
  for (const uint8_t byte : name) text += fmt::format("{:02x}", byte);
  named out;
  out.address.sun_family = AF_UNIX;
  std::memcpy(out.address.sun_path, text.data(), text.size());
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return out;
}

base::unique_fd open_socket() {
  return base::unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

base::result<base::unique_fd> listen_locally(const local_name& name) {
  base::unique_fd fd = open_socket();
  if (!fd) return base::fail_os(errno, "no unix socket");
  const named where = in_kernel_form(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where.address), where.size) != 0)
    return base::fail_os(errno, "cannot bind a unix socket");
  if (::listen(fd.get(), backlog) != 0) return base::fail_os(errno, "cannot listen");
  return fd;
}

base::result<base::unique_fd> connect_locally(const local_name& name) {
  base::unique_fd fd = open_socket();
  if (!fd) return base::fail_os(errno, "no unix socket");
  const named where = in_kernel_form(name);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where.address), where.size) == 0)
    return fd;
  if (errno == EAGAIN || errno == EINTR)
    return base::fail(MORI_E_AGAIN, "its unix socket has too many callers");
  if (errno == ECONNREFUSED)
    return base::fail(MORI_E_UNAVAILABLE,
                      "its unix socket cannot be reached from here: another network namespace?");
  return base::fail_os(errno, "cannot connect to its unix socket");
}

}  // namespace mori::link::tcp
