// liveness.hpp - who is alive: a state machine without sockets and clock.
// Events and time in, verdicts and notices out.
//
// A neighbour whose connection ends without a word, or that is silent for the
// heartbeat timeout, is dead. Whoever notices tells all its neighbours; each
// rank passes a notice on the first time it sees it. Notices keep their order
// on each connection, so the first death a rank hears of is the one that began
// it, also when others leave because of it. The first fault stays.
#pragma once

#include <mori/link/group.hpp>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "protocol/message.hpp"
#include "protocol/topology.hpp"

namespace mori::link {

struct liveness_options {
  uint64_t heartbeat_timeout_ns = 10 * base::ns_per_s;
  std::vector<int> process_ids;  // by rank
};

// Shortest silence that may count as death: four of the shortest intervals.
inline constexpr uint64_t min_heartbeat_interval_ns = 25 * base::ns_per_ms;

class liveness {
 public:
  liveness(const topology& shape, const liveness_options& options, uint64_t now_ns);

  void on_heard(int link, uint64_t now_ns);
  void on_closed(int link, const std::string& reason);
  // A neighbour sent what makes no sense; it is treated as dead.
  void on_nonsense(int link, const std::string& what);
  // peer_dead, aborted, left.
  void on_notice(int link, const notice& news);

  // To be called at least once per interval; true: heartbeats are due now.
  bool on_tick(uint64_t now_ns);
  uint64_t next_due_ns() const { return next_beat_ns_; }

  void abort(const std::string& why, uint64_t last_sequence);
  void leave(uint64_t last_sequence);

  // Notices to send: to all links but one (-1: to all).
  struct outgoing {
    notice news;
    int except_link = -1;
  };
  std::vector<outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  const group_fault* fault() const { return fault_.rank >= 0 ? &fault_ : nullptr; }
  bool dead(int rank) const { return dead_.contains(rank); }
  bool left(int rank) const { return left_.contains(rank); }
  // Ranks that left, in the order in which this rank heard of it.
  const std::vector<int>& departures() const { return departures_; }
  // The last collective that the rank whose abort is the fault had ended.
  uint64_t ended_before_abort() const { return ended_before_abort_; }
  // A rank that left without taking part in this collective; -1: none.
  int missing_for(uint64_t sequence) const;
  std::string name(int rank) const;  // "PE 3 (pid 1234)"

 private:
  void declare_dead(int rank, const std::string& what);
  void raise(mori_status status, int rank, const std::string& text);
  bool expects_sign_of(int rank) const { return !dead(rank) && !left(rank); }

  topology shape_;
  liveness_options options_;
  uint64_t interval_ns_;
  uint64_t next_beat_ns_;
  uint64_t last_tick_ns_;
  std::vector<uint64_t> heard_ns_;  // by link
  std::set<int> dead_;
  std::set<int> aborted_;
  std::map<int, uint64_t> left_;  // rank -> last collective it took part in
  std::vector<int> departures_;
  std::vector<outgoing> outgoing_;
  group_fault fault_;
  uint64_t ended_before_abort_ = 0;
  bool leaving_ = false;
};

}  // namespace mori::link
