// io_test.cpp - a program that imports the module and includes no header of ours: two engines move
// bytes over TCP, the target is notified, and a struct of a later release is refused.
#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

import mori.io;

namespace {

constexpr std::size_t size_bytes = 4096;
constexpr std::uint64_t uid = 9;
using buffer = std::array<std::byte, size_bytes>;

mori::io::engine open_engine(const char* key) {
  auto options = mori::io::options(key);
  options.in_host = "127.0.0.1";
  auto engine = mori::io::engine::create(options).value();
  engine.create_backend(MORI_IO_BACKEND_TCP).value();
  return engine;
}

// Notifications make a descriptor readable: it is waited for, ten seconds at most.
std::uint64_t announced(mori::io::engine& target) {
  pollfd event{-1, POLLIN, 0};
  mori_io_event_fd(target.handle(), &event.fd, nullptr);
  poll(&event, 1, 10000);
  return target.pop_inbound("left", uid).value().size_bytes;
}

std::string transfer() {
  static buffer source, sink;
  for (std::size_t i = 0; i < size_bytes; ++i) source[i] = static_cast<std::byte>(7 * i + 1);
  auto left = open_engine("left"), right = open_engine("right");
  const auto local = left.register_memory(std::span(source)).value();
  const auto remote = right.register_memory(std::span(sink)).value();
  left.register_remote(right.desc().value()).value();
  auto session = left.create_session(local, right.memory_desc(remote).value()).value();
  session.write({0, 0, size_bytes}, uid).value().wait().value();
  const std::uint64_t told = announced(right);
  if (told != size_bytes) return std::to_string(told) + " bytes announced";
  return sink == source ? "" : "wrong bytes";
}

std::string refusal() {
  struct {
    mori_io_options today;
    std::uint64_t tomorrow;
  } options{mori::io::options("later"), 1};
  options.today.struct_size = sizeof options;
  const auto made = mori::io::engine::create(options.today);
  if (made) return "a struct of a later release is accepted";
  std::printf("%s\n", std::string(made.error().message).c_str());
  return made.error().status == MORI_E_VERSION ? "" : "another status";
}

}  // namespace

int main() {
  const auto version = mori::io::version();
  std::printf("mori-io %u.%u.%u\n", version.major, version.minor, version.patch);
  std::string fault = version == mori::io::compiled_version ? "" : "another version";
  try {
    if (fault.empty()) fault = transfer();
    if (fault.empty()) fault = refusal();
  } catch (const mori::exception& e) {
    fault = e.what();
  }
  std::printf("%s - import mori.io %s\n", fault.empty() ? "ok" : "not ok", fault.c_str());
  return fault.empty() ? 0 : 1;
}
