// proxy.hpp - the thread that serves one context's network peers: takes commands from
// the rings, speaks with peers over TCP, changes this PE's memory as they ask, and
// publishes what is complete. The protocol is in ring_reader and conversation; here are
// sockets, sleep and faults.
//
// The thread sleeps when there is nothing to do. Where producers cannot wake it (a GPU), it
// naps and looks. A fault ends its service; the connections stay until stop().
//
// A host thread that waits may take the driver's seat and do the work itself: what it waits for
// then needs no other thread here. Meanwhile the proxy's thread does not listen to the
// connections, only to producers that wake it. step() is under a lock that nobody holds asleep.
#pragma once

#include "network/conversation.hpp"
#include "network/ring_reader.hpp"

#include <mori/base/clock.hpp>
#include <mori/base/unique_fd.hpp>
#include <mori/link/group.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mori::shmem_core {

struct proxy_options {
  int own_pe = 0;
  int pe_count = 1;
  int lane_count = 1;                     // connections per peer; ring i uses lane i % lane_count
  std::vector<mori_shmem_ring_v1> rings;  // as they are reached from the host
  std::vector<link::peer_link> links;
  conversation::heap_range heap;
  bool authenticates_bulk = true;          // the same on all PEs
  uint32_t* asleep = nullptr;              // the word of all rings
  uint64_t spin_ns = 0;                    // how long to look on before sleeping
  uint64_t longest_nap_ns = 0;             // 0: sleeps until woken
  mori_shmem_driver_v1* driver = nullptr;  // filled in; null: waiting threads do not serve

  std::function<bool()> is_ended;  // the context has a fault
  std::function<bool(int pe)> has_left;
  std::function<void(base::failure, int32_t operation, int pe)> raise;
};

class proxy final : public completions {
 public:
  static base::result<std::unique_ptr<proxy>> start(proxy_options options,
                                                    std::unique_ptr<own_memory> memory,
                                                    base::unique_fd wake_event);
  ~proxy() override;
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  // After a fault: until this PE's memory, and what commands name, is not touched any more. Any
  // thread; bounded.
  void await_rest();

  // Lets commands come to their end, says goodbye and ends the thread, within the time given. Late
  // producers find a ring that nobody serves.
  void stop(uint64_t budget_ns);

 private:
  struct line {
    int pe = 0;
    std::unique_ptr<link::tcp::channel> channel;  // null: closed
    std::unique_ptr<conversation> talk;
    uint64_t closed_at_ns = 0;
    std::string close_reason;
    bool is_active = false;    // in active_
    bool polls_write = false;  // as epoll knows it
    bool has_ended = false;    // its end has been dealt with
  };

  proxy(proxy_options&& options, std::unique_ptr<own_memory> memory, base::unique_fd wake_event);
  base::status open_pollers();
  base::status open_lines();
  base::status start_thread();
  void run();
  void serve();
  bool serve_once();
  bool is_stop_due();

  static int32_t drive(uint64_t self, int32_t what) noexcept;
  bool take_seat();
  void leave_seat();
  bool step_unless_busy();
  void wait_in_seat();
  void clear_seat_event();
  void wake();

  bool step();
  bool take_commands();
  bool can_take(size_t ring);
  bool take_one(size_t ring);
  bool poll_lines();
  void read(line& of);
  base::status hear(line& of);
  base::status hear_frame(line& of, const link::tcp::frame& said);
  bool speak(line& of);
  void activate(line& of);
  void publish();
  void watch_ends();
  void watch_end(line& of, uint64_t now_ns);
  void close(line& of, const std::string& reason);
  bool serves() const { return !has_failed_ && !options_.is_ended(); }
  void sleep();
  bool has_published_command();
  uint64_t nap_limit_ns();
  bool is_idle() const;
  void part();

  line* line_to(int pe, size_t ring);
  void fail(base::failure why, int32_t operation, int pe);
  void lose(line& of, const std::string& what);

  void on_answer(const origin& of, uint64_t value) override;
  void on_complete(const origin& of) override;

  proxy_options options_;
  std::unique_ptr<own_memory> memory_;
  base::unique_fd wake_event_;
  base::unique_fd poller_;         // the connections, and seat_event_
  base::unique_fd thread_poller_;  // wake_event_, and poller_ unless the seat is taken
  base::unique_fd seat_event_;     // the thread has done what the driver may wait for
  std::vector<ring_reader> rings_;
  std::vector<std::unique_ptr<line>> lines_;
  std::vector<line*> line_of_;  // by pe * lane_count + lane
  std::vector<line*> active_;   // may have something to say
  std::vector<line*> ending_;   // closed, or the peer has left
  int completing_pe_ = 0;       // whose frames are being read
  uint64_t nap_ns_ = 0;
  bool has_failed_ = false;
  bool has_ended_ = false;
  std::mutex mutex_;  // of all that step() touches
  std::atomic<bool> is_seat_taken_ = false;
  std::atomic<uint64_t> stop_by_ns_ = UINT64_MAX;
  std::atomic<bool> is_at_rest_ = false;
  std::thread thread_;
};

}  // namespace mori::shmem_core
