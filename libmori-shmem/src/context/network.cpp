// network.cpp - see network.hpp.
#include "context/network.hpp"

#include "context/agreement.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace mori::shmem_core {
namespace {

// Whose heap is mapped where: [at * pe_count + of].
base::result<std::vector<uint8_t>> exchange_maps(link::group& group, const heap_memory& memory,
                                                 base::deadline until) {
  const auto count = static_cast<size_t>(group.size());
  std::vector<uint8_t> mine, all(count * count);
  for (const peer_access& peer : memory.peers()) mine.push_back(peer.base != 0 ? 1 : 0);
  MORI_CHECK(group.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                             until));
  return all;
}

// All PEs find the same fault.
base::status agree_on_security(link::group& group, bool authenticates_bulk, base::deadline until) {
  const auto name = [](uint8_t mac) { return mac != 0 ? "mac" : "trusted"; };
  const uint8_t mine = authenticates_bulk ? 1 : 0;
  std::vector<uint8_t> all(static_cast<size_t>(group.size()));
  MORI_CHECK(group.allgather(std::as_bytes(std::span(&mine, 1)),
                             std::as_writable_bytes(std::span(all)), until));
  const auto other = std::ranges::find_if(all, [&](uint8_t each) { return each != all.front(); });
  if (other == all.end()) return {};
  return base::fail(MORI_E_INVALID, "MORI_SHMEM_SECURITY is {} on PE 0 and {} on PE {}",
                    name(all.front()), name(*other), other - all.begin());
}

// A pair is connected if either does not map the other.
std::vector<int> unmapped_peers(const std::vector<uint8_t>& maps, int own_pe, int pe_count) {
  const auto is_mapped = [&](int at, int of) {
    return maps[static_cast<size_t>(at) * static_cast<size_t>(pe_count) +
                static_cast<size_t>(of)] != 0;
  };
  std::vector<int> peers;
  for (int pe = 0; pe < pe_count; ++pe)
    if (pe != own_pe && (!is_mapped(own_pe, pe) || !is_mapped(pe, own_pe))) peers.push_back(pe);
  return peers;
}

}  // namespace

base::result<std::unique_ptr<network>> network::create(link::group& group, const settings& with,
                                                       heap_memory& memory, const hooks& use,
                                                       base::deadline until) {
  MORI_TRY(const auto maps, exchange_maps(group, memory, until));
  if (std::ranges::all_of(maps, [](uint8_t mapped) { return mapped != 0; }))
    return std::unique_ptr<network>();
  MORI_CHECK(agree_on_security(group, with.authenticates_bulk, until));
  const std::vector<int> peers = unmapped_peers(maps, with.pe, with.pe_count);
  const int lanes = with.queue_pair_per_pe_count;
  auto links = group.open_links(peers, lanes, until);
  MORI_CHECK(agree(group, links ? base::status() : base::status(links.error()), until));

  auto made = std::make_unique<network>();
  const auto finish = [&]() -> base::status {
    base::unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake) return base::fail_os(errno, "no eventfd for the network");
    plan what;
    what.shape.ring_count = static_cast<uint64_t>(lanes);
    what.shape.pe_count = static_cast<uint64_t>(with.pe_count);
    what.wake_fd = wake.get();
    MORI_TRY(network_site site, use.open_site(what));
    proxy_options options;
    options.own_pe = with.pe;
    options.pe_count = with.pe_count;
    options.lane_count = lanes;
    options.rings = std::move(site.rings);
    options.links = std::move(*links);
    options.heap = {memory.heap_base(), with.heap_bytes};
    options.asleep = reinterpret_cast<uint32_t*>(options.rings.front().asleep);
    options.authenticates_bulk = with.authenticates_bulk;
    options.spin_ns = site.spin_ns;
    options.longest_nap_ns = site.longest_nap_ns;
    options.driver = site.driver;
    options.is_ended = use.is_ended;
    options.has_left = use.has_left;
    options.raise = use.raise;
    MORI_TRY(made->proxy_,
             proxy::start(std::move(options), std::move(site.memory), std::move(wake)));
    return {};
  };
  MORI_CHECK(agree(group, finish(), until));
  for (const int pe : peers)
    if (memory.peers()[static_cast<size_t>(pe)].base == 0)
      memory.note_network(pe,
                          fmt::format("TCP: {} data connection{}", lanes, lanes == 1 ? "" : "s"));
  return made;
}

}  // namespace mori::shmem_core
