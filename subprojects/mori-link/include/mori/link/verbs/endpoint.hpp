// endpoint.hpp - several queue pairs to one peer that are one connection, and its
// recovery. The two sides tell each other where they are in descriptions: plain,
// versioned bytes that travel over any channel of the caller's, in order.
//
//   waiting --(peer's description of the same generation)--> ready
//   ready   --(an error here, or the peer begins anew)-----> draining
//   draining --(all work has come back, or drain_ns)-------> waiting, next generation
//   any     --(too many recoveries without progress)-------> failed
//
// Recovery: all queue pairs are stopped and drained, reset, and described anew;
// both sides do so, each at its own error or at the other's news. Once both have
// reset, nothing of the old generation can touch memory on either side; then what
// had not completed is posted again if doing it twice is doing it once, and fails
// if not. Work that the device refused (a bad key) fails and is not tried again.
//
// Belongs to the thread of its completion queue.
#pragma once

#include <mori/link/verbs/queue_pair.hpp>

#include <deque>

namespace mori::link::verbs {

class endpoint {
 public:
  static constexpr uint16_t max_queue_pairs = 64;
  struct options {
    uint16_t queue_pair_count = 1;
    queue_pair::options each;
    uint32_t max_recoveries = 8;  // in a row, without anything completing in between
    uint64_t drain_ns = 5 * base::ns_per_s;
  };
  enum class state { waiting, ready, draining, failed };

  static base::result<std::unique_ptr<endpoint>> create(std::shared_ptr<completion_queue> queue,
                                                        const options& with);

  state at() const { return state_; }
  const base::failure& why() const { return why_; }  // of the last recovery, or of the end
  uint32_t generation() const { return generation_; }

  // What has to reach the peer, once each.
  std::optional<byte_vector> take_description();
  // MORI_E_PROTOCOL, MORI_E_VERSION: not a description, or another number of queue pairs. One of an
  // older generation is ignored. A way that cannot be had ends the endpoint.
  base::status on_description(byte_span theirs);

  // As queue_pair::post; takes nothing while it is not ready. MORI_E_*: it has failed.
  base::result<size_t> post(uint16_t queue_pair, std::span<const work> what);
  queue_pair& at(uint16_t index) { return *pairs_[index]; }
  uint16_t count() const { return static_cast<uint16_t>(pairs_.size()); }

  // Notices errors and goes on with the recovery. Cheap when there is nothing to do.
  void step(uint64_t now_ns);
  // Gives the connection up for a reason of the caller's; or begins it anew.
  void fail(const base::failure& why);
  void restart(const base::failure& why);

  // Work that failed for good, wanted or not: it may or may not have been executed.
  std::optional<completion> take_failed();
  uint64_t recovery_count() const { return recovery_count_; }

 private:
  struct description {
    uint32_t generation = 0;
    port_address port;
    std::vector<queue_address> queues;
    std::string reason;
  };

  endpoint(std::shared_ptr<completion_queue> queue, const options& with)
      : queue_(std::move(queue)), options_(with) {}
  static base::result<description> parse(byte_span bytes);
  byte_vector describe() const;
  void begin_draining(const base::failure& why, uint64_t now_ns);
  bool is_drained() const;
  void put_aside(queue_pair& of, std::deque<queue_pair::remains>& kept);
  void begin_anew();
  base::status connect(const description& theirs);
  void replay();
  void note_failed(const work& what, mori_status status);
  void fail_all(const base::failure& why);

  const std::shared_ptr<completion_queue> queue_;  // shared with other endpoints
  const options options_;
  std::vector<std::unique_ptr<queue_pair>> pairs_;
  std::vector<std::deque<queue_pair::remains>> kept_;  // by queue pair: to be posted again
  std::deque<completion> failed_;
  std::optional<description> theirs_;  // of a generation that this side has not come to
  state state_ = state::waiting;
  base::failure why_;
  uint32_t generation_ = 1;
  bool tells_ = true;
  uint64_t drain_until_ns_ = 0;
  uint32_t recoveries_ = 0;  // in a row
  uint64_t recovery_count_ = 0;
};

}  // namespace mori::link::verbs
