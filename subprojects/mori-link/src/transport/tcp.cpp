// tcp.cpp - the transport that always works where there is a network at all.
#include <mori/link/tcp/address.hpp>
#include <mori/link/transport.hpp>

namespace mori::link {
namespace {

class tcp_sockets final : public transport {
 public:
  const char* name() const override { return "tcp"; }

  answer viable() const override {
    const auto addresses = tcp::host_addresses();
    if (!addresses) return {false, addresses.error().text};
    return {true, fmt::format("{} addresses", addresses->size())};
  }

  answer reachable(const place&, const place&) const override {
    return {true, "members of a group are connected by it"};
  }
};

}  // namespace

const transport& tcp_transport() {
  static const auto* const one = new tcp_sockets;
  return *one;
}

}  // namespace mori::link
