// group.hpp - a group of processes or threads ("ranks") that found each other
// through a unique id: collectives on small data, node layout, descriptor
// passing and liveness. This is the whole contract that shmem builds on.
//
// Topology: rank r keeps connections to r +- 2^k (mod n), so that collectives
// take ceil(log2 n) rounds and news of a death reaches everyone in as many
// hops. One thread of the group's own does all its I/O and its heartbeats.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/base/result.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/tcp/channel.hpp>
#include <mori/link/unique_id.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mori::link {

struct group_options {
  unique_id id{};
  int rank = 0;
  int size = 0;
  uint64_t join_timeout_ns = 300 * base::ns_per_s;
  uint64_t heartbeat_timeout_ns = 10 * base::ns_per_s;  // silence that counts as death
  std::string node_id;  // ranks with equal ids may share memory; empty: boot id
};

// First thing that went wrong; sticky.
struct group_fault {
  mori_status status = MORI_OK;  // MORI_E_PEER_DEAD, MORI_E_ABORTED
  int rank = -1;                 // whom it concerns
  std::string text;              // "PE 3 (pid 1234) closed its connection"
};

// A connection of this rank with another, beside those of the group itself.
struct peer_link {
  int rank = -1;
  int lane = 0;
  std::unique_ptr<tcp::channel> channel;  // established; may hold frames already
};

class group {
 public:
  // Collective; returns on every rank or fails on every rank within the
  // join timeout. The process that made the id must host one of the ranks.
  static base::result<std::unique_ptr<group>> join(const group_options& options);
  virtual ~group() = default;  // leaves without a word if leave() was not called

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int node_of(int rank) const = 0;  // index by first rank of the node
  virtual int node_count() const = 0;
  virtual std::span<const int> local_ranks() const = 0;  // ascending, own rank included
  virtual int process_id_of(int rank) const = 0;

  // Collectives: one at a time (serialised inside), same order on all ranks.
  // `mine` has the same size everywhere (verified: MORI_E_MISMATCH); at most
  // 1 MiB; `all` has size() times that, in rank order.
  virtual base::status allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                                 base::deadline until) = 0;
  virtual base::status barrier(base::deadline until) = 0;

  // Collective over local_ranks(): every caller gets an own descriptor of the
  // owner's fd (its own rank a duplicate). Passed over an authenticated
  // abstract unix socket, never by name. fd is ignored on other ranks.
  virtual base::result<base::unique_fd> share_descriptor(int owner_rank, int fd,
                                                         base::deadline until) = 0;

  // Collective: connects this rank with each of `peers`, which name it likewise, by lane_count
  // TCP connections that are authenticated as the group's own. The caller owns and serves them.
  virtual base::result<std::vector<peer_link>> open_links(std::span<const int> peers,
                                                          int lane_count, base::deadline until) = 0;

  // Called at most once, on the group's thread, with the first fault. Set it
  // right after join; a fault that is already there is delivered at once.
  virtual void on_fault(std::function<void(const group_fault&)> handler) = 0;
  virtual std::unique_ptr<group_fault> fault() const = 0;  // null: none

  // Called on the group's thread for every rank that left in order, once each;
  // ranks that left before are delivered at once. No fault.
  virtual void on_leave(std::function<void(int rank)> handler) = 0;

  // Tells all ranks that this one gives up: they get MORI_E_ABORTED. Any
  // collective in progress ends. Never blocks.
  virtual void abort(const std::string& why) = 0;

  // Ends membership in order: later the others see "has left", which only
  // matters to those that still wait for this rank. Joins the thread; bounded
  // by a second.
  virtual void leave() = 0;
};

}  // namespace mori::link
