// topology.hpp - who is connected to whom: rank r sends to r + 2^k and receives
// from r - 2^k (mod n) in round k, so a collective takes ceil(log2 n) rounds.
// A connection has a number at each end: link k leads out, link rounds + k in.
// collective.hpp and liveness.hpp speak of links, never of sockets.
#pragma once

#include <cstdint>

namespace mori::link {

class topology {
 public:
  topology(int rank, int size) : rank_(rank), size_(size) {
    while ((int64_t{1} << rounds_) < size) ++rounds_;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  int rounds() const { return rounds_; }
  int link_count() const { return 2 * rounds_; }
  bool leads_out(int link) const { return link < rounds_; }
  int out_link(int round) const { return round; }
  int in_link(int round) const { return rounds_ + round; }
  int round_of(int link) const { return leads_out(link) ? link : link - rounds_; }

  int rank_at(int link) const {
    const int64_t distance = int64_t{1} << round_of(link);
    const int64_t other = leads_out(link) ? rank_ + distance : rank_ - distance + size_;
    return static_cast<int>(other % size_);
  }

 private:
  int rank_;
  int size_;
  int rounds_ = 0;
};

}  // namespace mori::link
