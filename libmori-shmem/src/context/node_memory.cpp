// node_memory.cpp - see node_memory.hpp.
#include "context/node_memory.hpp"

#include "context/agreement.hpp"

#include <mori/base/log.hpp>

#include <algorithm>
#include <cstring>

namespace mori::shmem_core {
namespace {

// Passing a descriptor on one machine takes milliseconds; where it cannot work
// (another network namespace) the fallback must not cost the whole join timeout.
constexpr uint64_t share_timeout_ns = 20 * base::ns_per_s;

struct mapped {
  link::segment segment;
  uint64_t own_offset = 0;
};

base::result<mapped> map_private(const settings& with, uint64_t stride) {
  MORI_TRY(base::unique_fd fd, link::segment::create_file(stride, with.heap_directory));
  MORI_TRY(link::segment segment,
           link::segment::map(std::move(fd), stride, heap_boundary_bytes(with.heap_bytes)));
  return mapped{std::move(segment), 0};
}

// Collective over the node. A failure here may be the network namespace or a
// full tmpfs; the caller falls back.
base::result<mapped> map_shared(link::group& group, const settings& with, uint64_t stride,
                                base::deadline until) {
  const auto local = group.local_ranks();
  const uint64_t bytes = stride * local.size();
  base::unique_fd created;
  base::status outcome;
  if (local.front() == group.rank()) {
    auto made = link::segment::create_file(bytes, with.heap_directory);
    if (made)
      created = std::move(*made);
    else
      outcome = std::move(made.error());
  }
  // The node's PEs learn whether there is a descriptor to wait for.
  MORI_TRY(
      const auto statuses,
      exchange(group, outcome ? static_cast<mori_status>(MORI_OK) : outcome.error().status, until));
  if (!outcome) return std::move(outcome.error());
  const mori_status first = statuses[static_cast<size_t>(local.front())];
  if (first != MORI_OK)
    return base::fail(first, "PE {} could not create the node's heap file", local.front());
  const auto share_until = base::deadline::after(std::min(until.left_ns(), share_timeout_ns));
  MORI_TRY(base::unique_fd fd, group.share_descriptor(local.front(), created.get(), share_until));
  MORI_TRY(link::segment segment,
           link::segment::map(std::move(fd), bytes, heap_boundary_bytes(with.heap_bytes)));
  const auto own = std::ranges::find(local, group.rank()) - local.begin();
  return mapped{std::move(segment), static_cast<uint64_t>(own) * stride};
}

// Whether sharing worked for every PE of this node; all of them ask.
base::result<bool> node_shares(link::group& group, bool mine, base::deadline until) {
  MORI_TRY(const auto all, exchange(group, static_cast<uint8_t>(mine), until));
  return std::ranges::all_of(group.local_ranks(),
                             [&](int pe) { return all[static_cast<size_t>(pe)] != 0; });
}

}  // namespace

base::status node_memory::allow(uint64_t offset, uint64_t bytes, bool access) {
  base::status outcome;
  for (uint64_t heap = 0; heap < segment_.size_bytes(); heap += stride_) {
    auto done = segment_.allow(heap + offset, bytes, access);
    if (!done) outcome = std::move(done);
  }
  return outcome;
}

base::status node_memory::begin(const settings& with) {
  MORI_CHECK(reserve(0, heap_header_bytes));
  if (with.heap_mode != MORI_SHMEM_HEAP_ISOLATION) return {};
  return allow(heap_header_bytes, stride_ - heap_header_bytes, false);
}

base::result<std::unique_ptr<node_memory>> node_memory::create(link::group& group,
                                                               const settings& with,
                                                               base::deadline until) {
  const uint64_t boundary = heap_boundary_bytes(with.heap_bytes);
  const uint64_t stride = (with.heap_bytes + boundary - 1) / boundary * boundary;
  auto made = std::make_unique<node_memory>();
  made->stride_ = stride;
  made->peers_.resize(static_cast<size_t>(group.size()));

  bool shared = false;
  std::string why_not = "P2P is disabled";
  if (!with.disable_p2p) {
    auto attempt = map_shared(group, with, stride, until);
    why_not =
        attempt ? "another PE of the node could not map the shared heap" : attempt.error().text;
    if (!attempt) {
      // A lost PE is no reason to fall back: the group is broken.
      if (const auto fault = group.fault()) return base::failure{fault->status, 0, fault->text};
      base::log(MORI_LOG_WARN, "PE {} cannot share its heap: {}", group.rank(), why_not);
    }
    MORI_TRY(shared, node_shares(group, static_cast<bool>(attempt), until));
    if (shared) {
      made->segment_ = std::move(attempt->segment);
      made->own_offset_ = attempt->own_offset;
    }
  }
  base::status outcome;
  if (!shared) {
    auto own = map_private(with, stride);
    if (own) {
      made->segment_ = std::move(own->segment);
      made->own_offset_ = own->own_offset;
    } else {
      outcome = std::move(own.error());
    }
  }
  if (outcome) outcome = made->begin(with);
  MORI_CHECK(agree(group, outcome, until));

  made->sync().nonce = random_nonce();
  MORI_TRY(const auto nonces, exchange(group, made->sync().nonce, until));
  const auto local = group.local_ranks();
  for (int pe = 0; pe < group.size(); ++pe) {
    peer_access& peer = made->peers_[static_cast<size_t>(pe)];
    const auto at = std::ranges::find(local, pe);
    if (pe == group.rank()) {
      peer = {reinterpret_cast<uint64_t>(made->own_heap()), MORI_SHMEM_TRANSPORT_P2P, "own heap"};
    } else if (at == local.end()) {
      peer.reason = fmt::format("P2P: PE {} is on node {}, this PE on node {}", pe,
                                group.node_of(pe), group.node_of(group.rank()));
    } else if (!shared) {
      peer.reason = "P2P: " + why_not;
    } else {
      const std::byte* heap =
          made->segment_.data() + static_cast<uint64_t>(at - local.begin()) * stride;
      uint64_t seen = 0;
      std::memcpy(&seen, heap, sizeof seen);
      if (seen == nonces[static_cast<size_t>(pe)])
        peer = {reinterpret_cast<uint64_t>(heap), MORI_SHMEM_TRANSPORT_P2P,
                "P2P: shared memory of one node, proven by a nonce"};
      else
        peer.reason = "P2P: the nonce read through the mapping is not the peer's";
    }
  }
  made->find_stride(local, group.rank(), stride);
  MORI_TRY(const auto answers, exchange(group, static_cast<uint8_t>(made->maps_all()), until));
  made->all_mapped_ = std::ranges::all_of(answers, [](uint8_t yes) { return yes != 0; });
  return made;
}

}  // namespace mori::shmem_core
