// place.cpp - where this process runs; see transport.hpp.
#include <mori/link/transport.hpp>

#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>

#include "wire/keyed_hash.hpp"

namespace mori::link {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace

place this_place(const std::string& node_id) {
  const std::string boot_id = first_line("/proc/sys/kernel/random/boot_id");
  char name[128] = {};  // "net:[4026531840]"
  const ssize_t size = ::readlink("/proc/self/ns/net", name, sizeof name - 1);
  place here;
  here.node_id = !node_id.empty() ? node_id : !boot_id.empty() ? boot_id : "unknown host";
  if (boot_id.empty() || size <= 0) return here;
  std::array<uint8_t, 16> hash{};
  const byte_span parts[] = {as_bytes(boot_id), as_bytes(name)};
  keyed_hash({}, "mori-link host", parts, hash);
  std::memcpy(&here.host_key, hash.data(), sizeof here.host_key);
  return here;
}

}  // namespace mori::link
