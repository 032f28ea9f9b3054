// verbs.cpp - whether RDMA can be used here: a library and a usable port.
#include <mori/link/transport.hpp>
#include <mori/link/verbs/device.hpp>

#include "verbs/library.hpp"

namespace mori::link {
namespace {

class rdma_verbs final : public transport {
 public:
  const char* name() const override { return "verbs"; }

  answer viable() const override {
    const auto ports = verbs::ports_here();
    if (!ports) return {false, ports.error().text};
    if (ports->empty()) return {false, "no RDMA device here"};
    std::string reasons;
    bool any = false;
    for (const verbs::port_choice& each : *ports) {
      any |= each.is_usable;
      if (!reasons.empty()) reasons += "; ";
      reasons += fmt::format("{} port {}: {}", each.device, each.port, each.reason);
    }
    if (!any) return {false, reasons};
    if (const auto opened = verbs::abi::library(); !opened) return {false, opened.error().text};
    return {true, reasons};
  }

  answer reachable(const place&, const place&) const override {
    const answer here = viable();
    if (!here.yes) return here;
    return {true, "if the peer has a device on the same fabric"};
  }
};

}  // namespace

const transport& verbs_transport() {
  static const auto* const one = new rdma_verbs;
  return *one;
}

}  // namespace mori::link
