// verbs_absent.cpp - answers for RDMA verbs in a build without them.
#include <mori/link/transport.hpp>

namespace mori::link {
namespace {

class verbs_absent final : public transport {
 public:
  const char* name() const override { return "verbs"; }
  answer viable() const override { return {false, "not in this build"}; }
  answer reachable(const place&, const place&) const override { return viable(); }
};

}  // namespace

const transport& verbs_transport() {
  static const auto* const one = new verbs_absent;
  return *one;
}

}  // namespace mori::link
