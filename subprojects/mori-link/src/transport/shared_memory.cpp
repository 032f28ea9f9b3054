// shared_memory.cpp - memfds mapped by several processes of one host.
#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/transport.hpp>

#include <sys/mman.h>

#include <cerrno>

namespace mori::link {
namespace {

class shared_memory final : public transport {
 public:
  const char* name() const override { return "shared memory"; }

  answer viable() const override {
    const base::unique_fd probe(::memfd_create("mori-probe", MFD_CLOEXEC));
    if (!probe) return {false, base::fail_os(errno, "memfd_create").text};
    return {true, "memfd_create works"};
  }

  // Descriptors travel over abstract unix sockets, which a network namespace
  // separates. Whether memory is really shared, a nonce read through it proves.
  answer reachable(const place& from, const place& to) const override {
    if (from.node_id != to.node_id)
      return {false, fmt::format("on another node ('{}', not '{}')", to.node_id, from.node_id)};
    if (from.host_key != 0 && to.host_key != 0 && from.host_key != to.host_key)
      return {false, "same node id, but another kernel or network namespace"};
    return {true, "same node"};
  }
};

}  // namespace

const transport& shared_memory_transport() {
  static const auto* const one = new shared_memory;
  return *one;
}

std::span<const transport* const> transports() {
  static const transport* const all[] = {&shared_memory_transport(), &verbs_transport(),
                                         &tcp_transport()};
  return all;
}

}  // namespace mori::link
