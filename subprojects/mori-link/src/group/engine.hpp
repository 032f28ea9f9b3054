// engine.hpp - runs a `member` over sockets: one thread that sleeps in ppoll()
// until a neighbour says something or a heartbeat is due. Callers of
// collectives hand their first part to the sockets themselves (one thread
// switch less) and then sleep until the thread has the outcome. One lock
// guards everything; it is never held while waiting or in the fault handler.
#pragma once

#include <mori/link/group.hpp>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "bootstrap/joiner.hpp"
#include "group/descriptor.hpp"
#include "protocol/member.hpp"

namespace mori::link {

class engine {
 public:
  static base::result<std::shared_ptr<engine>> create(joined_group&& joined);

  explicit engine(joined_group&& joined);

  void run();  // the thread's body; ends after stop() or leave()

  base::status collective(collective_kind kind, byte_span mine, std::span<std::byte> all,
                          base::deadline until);
  base::result<base::unique_fd> share(int owner_rank, int fd, std::span<const int> local_ranks,
                                      base::deadline until);
  base::result<std::vector<peer_link>> open_links(std::span<const int> peers, int lane_count,
                                                  base::deadline until);
  void on_fault(std::function<void(const group_fault&)> handler);
  std::unique_ptr<group_fault> fault() const;
  void on_leave(std::function<void(int)> handler);
  void abort(const std::string& why);
  // Orderly: waits until neighbours have taken the news, at most half a second.
  void leave();
  // Without a word.
  void stop();

  const std::vector<enrolment>& table() const { return table_; }
  const topology& shape() const { return shape_; }

 private:
  void serve(std::unique_lock<std::mutex>& held);
  struct link_state {
    std::unique_ptr<tcp::channel> channel;  // null: closed
    size_t slot = SIZE_MAX;
    bool finishing = false;
  };

  base::status open_events();
  void watch();
  uint64_t next_due_ns() const;
  void step(uint64_t now_ns);
  void read_link(int link, uint64_t now_ns);
  void close_ended();
  void pump();
  void send_parts();
  void note_changes();
  void deliver(std::unique_lock<std::mutex>& held);
  bool may_end(uint64_t now_ns) const;
  void wake_thread();
  base::result<base::unique_fd> give(int fd, std::span<const int> local_ranks,
                                     base::deadline until);
  base::failure usage_failure() const;

  const topology shape_;
  const std::vector<enrolment> table_;
  const uint64_t job_;
  const std::array<uint8_t, 32> secret_;
  const uint64_t heartbeat_timeout_ns_;

  std::mutex call_lock_;  // one collective at a time; taken before lock_
  mutable std::mutex lock_;
  std::condition_variable changed_;
  member member_;
  std::vector<link_state> links_;
  std::unique_ptr<descriptor_desk> desk_;
  uint64_t share_sequence_ = 0;
  bool offer_taken_ = false;
  base::unique_fd wake_;     // eventfd: the thread has something to look at
  base::unique_fd faulted_;  // eventfd: readable once there is a fault or an end
  tcp::poll_list list_;      // of the thread
  size_t wake_slot_ = SIZE_MAX;
  std::function<void(const group_fault&)> fault_handler_;
  std::function<void(int)> leave_handler_;
  size_t departures_delivered_ = 0;
  bool fault_signalled_ = false;
  bool fault_delivered_ = false;
  bool stopping_ = false;
  bool leaving_ = false;
  bool ended_ = false;
  uint64_t leave_by_ns_ = UINT64_MAX;
};

}  // namespace mori::link
