// member.hpp - one rank's part in a group, without sockets and clock: puts
// collective.hpp and liveness.hpp together and turns their outcome into frames.
// group/engine.hpp drives it over sockets; the tests drive many of them in a
// simulator.
#pragma once

#include <deque>
#include <vector>

#include "protocol/collective.hpp"
#include "protocol/liveness.hpp"

namespace mori::link {

class member {
 public:
  member(const topology& shape, const liveness_options& options, uint64_t now_ns);

  // Inputs. Frames of a link come in the order in which they were sent.
  void on_frame(int link, uint16_t kind, byte_span payload, uint64_t now_ns);
  void on_closed(int link, const std::string& reason);
  void on_nonsense(int link, const std::string& what);
  void on_tick(uint64_t now_ns);
  uint64_t next_due_ns() const { return alive_.next_due_ns(); }

  // Begins a collective, or says why there can be none. Its end: running().
  base::status start(collective_kind kind, byte_span mine);
  bool running() const { return work_.running(); }
  const base::status& outcome() const { return work_.outcome(); }
  byte_span block(int rank) const { return work_.block(rank); }
  // The caller's deadline passed: ends the collective here and everywhere.
  void give_up(uint64_t waited_ns);

  void abort(const std::string& why);
  void leave();
  const group_fault* fault() const { return alive_.fault(); }
  const std::vector<int>& departures() const { return alive_.departures(); }

  // Outputs. Small frames, in order; then parts of collectives, as room allows.
  struct outbound {
    int link = 0;
    message_kind kind = message_kind::heartbeat;
    byte_vector payload;
  };
  std::vector<outbound> take_outbox() { return std::exchange(outbox_, {}); }
  std::optional<collective::part> peek_part(int link) const { return work_.peek(link); }
  void commit_part(int link);
  // Nothing more will be sent over it: its rank is dead or has left.
  bool finished(int link) const;

 private:
  void on_heartbeat(int link, byte_span payload);
  void on_news(int link, message_kind kind, byte_span payload);
  void on_collective_failed(int link, const notice& news);
  void spread(const notice& news, int except_link);
  void spread_failure(uint64_t sequence, const base::failure& why);
  void settle();
  int late_rank() const;

  topology shape_;
  collective work_;
  liveness alive_;
  std::vector<outbound> outbox_;
  std::set<uint64_t> failures_seen_;
  struct progress {
    uint64_t begun = 0;  // last collective that the neighbour began
    int32_t late = -1;   // whom it thinks it waits for
  };
  std::vector<progress> progress_;  // by link
};

}  // namespace mori::link
