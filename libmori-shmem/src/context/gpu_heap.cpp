// gpu_heap.cpp - see gpu_heap.hpp.
#include "context/gpu_heap.hpp"

#include "context/agreement.hpp"

#include <mori/base/env.hpp>
#include <mori/base/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <bit>

namespace mori::shmem_core {
namespace {

constexpr uint64_t share_timeout_ns = 20 * base::ns_per_s;

// Of a local PE among those of its node.
uint64_t place_of(link::group& group, int pe) {
  const auto local = group.local_ranks();
  return static_cast<uint64_t>(std::ranges::find(local, pe) - local.begin());
}

bool is_local(link::group& group, int pe) {
  return std::ranges::find(group.local_ranks(), pe) != group.local_ranks().end();
}

}  // namespace

struct gpu_heap::card {
  std::array<uint8_t, 16> uuid;
  int32_t process_id;
  uint32_t exports_descriptors;
  uint32_t reserved[2];
};

base::result<std::unique_ptr<gpu_heap>> gpu_heap::create(link::group& group, const settings& with,
                                                         base::deadline until) {
  auto made = std::make_unique<gpu_heap>();
  made->peers_.resize(static_cast<size_t>(group.size()));
  MORI_CHECK(agree(group, made->open_device(with), until));
  MORI_CHECK(made->show_cards(group, with, until));
  MORI_CHECK(agree(group, made->allocate(group, with), until));
  for (int pe = 0; pe < group.size(); ++pe)
    made->peers_[static_cast<size_t>(pe)].reason =
        is_local(group, pe) ? with.disable_p2p ? "P2P is disabled" : "P2P: heaps cannot be shared"
                            : fmt::format("P2P: PE {} is on node {}, this PE on node {}", pe,
                                          group.node_of(pe), group.node_of(group.rank()));
  if (!with.disable_p2p)
    MORI_CHECK(made->by_descriptor_ ? made->import_by_descriptor(group, until)
                                    : made->import_by_handle(group, until));
  MORI_CHECK(made->prove(group, until));
  return made;
}

gpu_heap::~gpu_heap() {
  for (const uint64_t address : opened_) gpu_->close_ipc(address);
}

base::status gpu_heap::open_device(const settings& with) {
  MORI_TRY(gpu_, device::gpu::current(with.backend));
  return {};
}

// Which PEs share this device: of all nodes, which may be parts of one machine. And whether all
// can pass descriptors: all take the same way, since its exchanges are of all.
base::status gpu_heap::show_cards(link::group& group, const settings& with, base::deadline until) {
  const card mine{gpu_->facts().uuid,
                  static_cast<int32_t>(getpid()),
                  gpu_->facts().exports_descriptors ? 1u : 0u,
                  {}};
  MORI_TRY(const auto cards, exchange(group, mine, until));
  by_descriptor_ = true;
  int on_this_device = 0, processes = 0;
  for (const card& theirs : cards) {
    by_descriptor_ = by_descriptor_ && theirs.exports_descriptors != 0;
    if (theirs.uuid != mine.uuid) continue;
    ++on_this_device;
    if (theirs.process_id != mine.process_id) ++processes;
  }
  // Also under MPS: its limits say how many multiprocessors a client uses, not that nobody else
  // uses them.
  sharer_count_ = with.gpu_sharer_count != 0 ? with.gpu_sharer_count : on_this_device;
  const bool has_limit = base::env_text("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").has_value();
  if (processes != 0 && gpu_->facts().backend == MORI_BACKEND_NVIDIA && !has_limit)
    base::log(MORI_LOG_WARN,
              "PE {}: {} PEs in several processes share {}; without MPS and "
              "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100/N they are time-sliced, and waits for each "
              "other take milliseconds",
              group.rank(), on_this_device, gpu_->facts().name);
  return {};
}

base::status gpu_heap::allocate(link::group& group, const settings& with) {
  alignment_ = std::bit_ceil(heap_boundary_bytes(with.heap_bytes));
  bytes_ = with.heap_bytes;
  if (by_descriptor_) {
    MORI_TRY(const uint64_t granule, gpu_->granule_bytes());
    stride_ = (bytes_ + std::max(granule, alignment_) - 1) / std::max(granule, alignment_) *
              std::max(granule, alignment_);
    const uint64_t count = with.disable_p2p ? 1 : group.local_ranks().size();
    MORI_TRY(range_, device::address_range::reserve(gpu_, stride_ * count, alignment_));
    const uint64_t own = with.disable_p2p ? 0 : place_of(group, group.rank()) * stride_;
    MORI_TRY(own_mapping_, device::mapped_memory::create_in(gpu_, bytes_, {range_, own}));
    base_ = own_mapping_.address();
    return {};
  }
  // No alignment can be asked for here: allocations are checked for theirs.
  MORI_TRY(own_buffer_, device::device_buffer::allocate(gpu_, bytes_));
  base_ = own_buffer_.address();
  return {};
}

// Each PE in turn passes its descriptor to all of its node.
base::status gpu_heap::import_by_descriptor(link::group& group, base::deadline until) {
  base::unique_fd own;
  auto exported = own_mapping_.export_descriptor();
  if (exported) own = std::move(*exported);
  MORI_CHECK(agree(group, exported ? base::status() : base::status(exported.error()), until));
  base::status outcome;
  // One turn per PE of the largest node would do; turns of other nodes cost nothing here.
  for (const int owner : group.local_ranks()) {
    peer_access& peer = peers_[static_cast<size_t>(owner)];
    const auto share_until = base::deadline::after(std::min(until.left_ns(), share_timeout_ns));
    auto passed = group.share_descriptor(owner, own.get(), share_until);
    if (!passed) {
      peer.reason = "P2P: " + passed.error().text;
      outcome = std::move(passed.error());
      break;
    }
    if (owner == group.rank()) continue;
    auto mapping = device::mapped_memory::import_in(gpu_, passed->get(), bytes_,
                                                    {range_, place_of(group, owner) * stride_});
    if (!mapping) {
      peer.reason = "P2P: " + mapping.error().text;
      continue;
    }
    peer.base = mapping->address();
    imported_.push_back(std::move(*mapping));
  }
  if (!outcome)
    base::log(MORI_LOG_WARN, "PE {} cannot share its heap: {}", group.rank(), outcome.error().text);
  return {};
}

base::status gpu_heap::import_by_handle(link::group& group, base::deadline until) {
  struct offer {
    device::ipc_handle handle;
    int32_t process_id;
    int32_t ordinal;
    uint64_t address;
  };
  offer mine{{}, static_cast<int32_t>(getpid()), gpu_->facts().ordinal, base_};
  auto exported = gpu_->export_ipc(base_);
  if (exported) mine.handle = *exported;
  MORI_CHECK(agree(group, exported ? base::status() : base::status(exported.error()), until));
  MORI_TRY(const auto offers, exchange(group, mine, until));
  for (const int pe : group.local_ranks()) {
    if (pe == group.rank()) continue;
    const offer& theirs = offers[static_cast<size_t>(pe)];
    peer_access& peer = peers_[static_cast<size_t>(pe)];
    if (theirs.process_id == mine.process_id) {
      // The own process's memory cannot be imported: its address serves as it is.
      const auto enabled = gpu_->enable_peer(theirs.ordinal);
      if (enabled)
        peer.base = theirs.address;
      else
        peer.reason = "P2P: " + enabled.error().text;
      continue;
    }
    auto opened = gpu_->import_ipc(theirs.handle);
    if (opened) {
      peer.base = *opened;
      opened_.push_back(*opened);
    } else {
      peer.reason = "P2P: " + opened.error().text;
    }
  }
  return {};
}

// Reads each PE's nonce through the mapping; a mapping that fails this does not count.
base::status gpu_heap::prove(link::group& group, base::deadline until) {
  const uint64_t nonce = random_nonce();
  MORI_CHECK(agree(group, gpu_->copy_now(base_, device::address_of(&nonce), sizeof nonce), until));
  MORI_TRY(const auto nonces, exchange(group, nonce, until));
  for (int pe = 0; pe < group.size(); ++pe) {
    peer_access& peer = peers_[static_cast<size_t>(pe)];
    if (pe == group.rank()) {
      peer = {base_, MORI_SHMEM_TRANSPORT_P2P, "own heap"};
      continue;
    }
    if (peer.base == 0) continue;
    uint64_t seen = 0;
    const auto read = gpu_->copy_now(device::address_of(&seen), peer.base, sizeof seen);
    if (read && seen == nonces[static_cast<size_t>(pe)]) {
      peer.transport = MORI_SHMEM_TRANSPORT_P2P;
      peer.reason = fmt::format("P2P: GPU memory by {}, proven by a nonce",
                                by_descriptor_ ? "descriptor" : "IPC handle");
      continue;
    }
    peer.base = 0;
    peer.reason = read ? "P2P: the nonce read through the mapping is not the peer's"
                       : "P2P: " + read.error().text;
  }
  if (by_descriptor_) find_stride(group.local_ranks(), group.rank(), stride_);
  MORI_TRY(const auto answers, exchange(group, static_cast<uint8_t>(maps_all()), until));
  all_mapped_ = std::ranges::all_of(answers, [](uint8_t yes) { return yes != 0; });
  return {};
}

}  // namespace mori::shmem_core
