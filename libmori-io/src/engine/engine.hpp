// engine.hpp - an engine: registered memory, peers, sessions, transfers, and the one
// loop that moves them. One lock (core_) covers links, sessions and transfers; it
// is held for short turns, never while waiting. Who polls the sockets has the
// driver role (driver.hpp). Files: engine.cpp (life), memory.cpp, sessions.cpp,
// submission.cpp, completion.cpp, network.cpp (connections), peers.cpp, turn.cpp
// (the loop), report.cpp.
#pragma once

#include <mori/base/log.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/completions.hpp"
#include "engine/driver.hpp"
#include "engine/inbox.hpp"
#include "engine/peer.hpp"
#include "engine/records.hpp"
#include "engine/settings.hpp"
#include "transport/socket.hpp"

namespace mori::io_core {

class engine final : public std::enable_shared_from_this<engine>, public protocol::initiator::host {
 public:
  static base::result<std::shared_ptr<engine>> create(const settings& with);
  ~engine();
  void shut_down();

  // --- Itself and its backends.
  base::result<link::byte_vector> describe() const;
  base::status create_backend(int32_t backend, const backend_settings& with);
  base::status remove_backend(int32_t backend);
  base::result<mori_io_stats> backend_stats(int32_t backend);
  std::string metrics();

  // --- Peers.
  base::status register_peer(const wire::engine_desc& what);
  base::status deregister_peer(std::string_view key);

  // --- Memory.
  base::result<uint32_t> register_memory(void* begin, uint64_t bytes, int32_t location,
                                         int32_t device, int32_t access);
  base::status deregister_memory(uint32_t id);
  base::result<link::byte_vector> describe_memory(uint32_t id) const;
  // MORI_E_STATE: a region lies in there.
  base::status check_unregistered(const void* begin, uint64_t bytes) const;

  // --- Sessions and transfers.
  base::result<mori_io_session*> create_session(uint32_t local_id, wire::memory_desc remote,
                                                const mori_io_session_options& options);
  mori_io_stats session_stats(session_record& of);
  base::result<transfer_table::ref> submit(const session_table::ref& of,
                                           const mori_io_request& request);
  void cancel(transfer_record& what);

  // --- What was brought about.
  base::result<int> event_fd();
  uint64_t take_completions(mori_io_completion* out, uint64_t room);
  bool pop_inbound(std::string_view key, uint64_t uid, mori_io_inbound& out);
  bool next_inbound(mori_io_inbound& out);

  // Drives, or sleeps while another thread does, until done() or the deadline.
  // False: the deadline. `watched`: whose ends are waited for.
  template <class Done>
  bool wait(Done&& done, base::deadline until, std::span<const transfer_table::ref> watched = {});
  base::status progress(uint64_t timeout_ns);

  bool is_ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  friend class guest_host;
  // Holds core_; what others submitted meanwhile is done before it is let go.
  class section {
   public:
    explicit section(engine& of) : of_(of) { of_.core_.lock(); }
    ~section() { of_.leave_core(); }
    section(const section&) = delete;
    section& operator=(const section&) = delete;

   private:
    engine& of_;
  };
  struct direct_backend {
    std::shared_ptr<transport::backend> made;
    bool disable_notification = false;
  };
  struct deadline_entry {
    uint64_t when_ns = 0;
    transfer_record* of = nullptr;
    uint64_t stamp = 0;
    bool operator<(const deadline_entry& other) const { return when_ns > other.when_ns; }
  };

  explicit engine(const settings& with);
  base::status open();
  void run();
  base::status check_alive() const;
  base::status wait_for_revoked(uint32_t id);

  // --- protocol::initiator::host
  void on_outcome(protocol::transfer& what, mori_status status, std::string_view text) override;
  void on_released(protocol::transfer& what) override;
  void on_revoke(uint32_t region) override;
  void on_attached(uint32_t region) override;

  // --- For guests (guest_host).
  std::shared_ptr<const memory::region> find_region(uint32_t id) const;
  void on_delivered(const guest& from, const protocol::delivery& what);
  void on_revoked(const guest& from, uint32_t region);

  // --- turn.cpp
  void turn(uint64_t timeout_ns);
  int poll(uint64_t timeout_ns, void* events, int room);
  void work_off();  // core_ held: all that is due now
  void leave_core();
  void kick();
  void run_timers();
  void run_deadlines();
  uint64_t next_due_ns();

  // --- submission.cpp
  base::status check_request(const session_record& of, const mori_io_request& request) const;
  base::status fill(transfer_record& to, const session_record& of, const mori_io_request& request);
  base::status reserve_room();
  void take_submitted();
  void route(transfer_record& what);
  void hold(transfer_record& what, peer& at);
  void ask_attach(const session_record& of);
  void start_job(transfer_record& what);
  bool advance_job(transfer_record& what, uint64_t budget);
  void run_jobs();
  void stop_job(transfer_record& what);
  void fail_over(transfer_record& what, const base::failure& why);
  void release_held(peer& of);

  // --- completion.cpp
  void complete(transfer_record& what, mori_status status, std::string_view text);
  void release(transfer_record& what);
  void end_transfer(transfer_record& what, mori_status status, std::string_view text);
  void signal_event();
  void settle_event();

  // --- network.cpp
  base::status watch(connection& what, uint32_t interest);
  connection& add_connection(base::unique_fd fd, connection::state at);
  void drop_connection(connection& what);
  void dial(peer& to, bool is_control, uint16_t index);
  void accept_strangers();
  void watch_listeners(uint32_t interest) const;
  void pause_accepting(const base::failure& why);
  void on_event(connection& what, uint32_t events);
  void on_dialed(connection& what);
  void on_greeting(connection& what);
  void on_answering(connection& what);
  void open_responder(connection& what);
  base::status check_room(const wire::identity& who) const;
  void decide(connection& what);
  void on_proven_peer(connection& what);
  void on_proven_guest(connection& what);
  void on_bytes(connection& what);
  bool flush(connection& what);
  void watch_for_more(connection& what);
  template <class Link>
  void leave_for_next_turn(Link& what, auto&& pump);
  void flush(peer& what);
  void flush(guest& what);
  void on_broken(connection& what, const base::failure& why);
  bool send_handshake(connection& what);

  // --- peers.cpp
  peer* find_peer(std::string_view key);
  void need(peer& what);  // it has work: connect if it is not
  void lose(peer& what, const base::failure& why);
  void fail_peer(peer& what, mori_status status, const std::string& text);
  void retire(const std::shared_ptr<peer>& what, const std::string& text);
  void tend(peer& what);
  void lose_guest(guest& what, std::string_view why);
  void forget_old_guests();
  template <class Function>
  void for_each_transfer(Function&& f);

  // --- sessions.cpp
  struct choice {
    int32_t backend = MORI_IO_BACKEND_AUTO;
    std::shared_ptr<transport::path> path;
    std::shared_ptr<transport::backend> direct;
    std::string reason;
  };
  choice choose(const session_record& of);
  base::result<mori_io_session*> open_session(const session_table::ref& made);
  base::result<mori_io_session*> publish_session(const session_table::ref& made, choice& chosen);
  void adopt(session_record& of, choice&& chosen);
  base::status add_direct(int32_t backend, std::shared_ptr<transport::backend> made,
                          const backend_settings& with);
  void reconsider_sessions();
  void move_on(transfer_record& what, int32_t from);
  bool notifies_by(int32_t backend) const;
  bool direct_of_node();

  const settings settings_;
  wire::key_pair keys_;
  const wire::instance_id instance_ = wire::fresh_instance();
  wire::engine_desc desc_;
  base::unique_fd epoll_, kick_fd_, event_fd_;
  std::vector<base::unique_fd> listeners_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> stopping_{false};

  // --- Driving.
  driver_role role_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> own_thread_drives_{false};
  std::atomic<uint64_t> kicks_{0};
  uint64_t kicks_seen_ = 0;                       // the driver's
  std::atomic<uint64_t> planned_ns_{UINT64_MAX};  // when the driver wakes by itself
  std::atomic<transfer_record*> submitted_{nullptr};
  std::atomic<uint64_t> in_flight_{0};
  std::atomic<uint32_t> blocked_{0};  // threads that wait for in_flight_ to fall

  // --- Memory.
  mutable std::shared_mutex regions_lock_;
  std::map<uint32_t, std::shared_ptr<memory::region>> regions_;
  uint32_t last_region_ = 0;

  inbox inbox_;
  completions completions_;
  std::atomic<bool> event_wanted_{false};
  std::mutex event_lock_;
  bool event_raised_ = false;

  // --- Under core_.
  mutable std::mutex core_;
  uint64_t now_ns_ = 0;
  bool driver_holds_ = false;  // core_ is held by the driver
  std::unordered_map<uint64_t, std::unique_ptr<connection>> connections_;
  std::vector<std::unique_ptr<connection>> dropped_;
  uint64_t last_ticket_ = 0;
  std::vector<connection*> strangers_;     // unproven, oldest first
  int handshakes_left_ = 0;                // in this turn
  uint64_t accept_again_ns_ = UINT64_MAX;  // listeners are not watched until then
  uint64_t accept_said_ns_ = 0;            // when the log was told last
  uint64_t guest_count_ = 0;               // that have a control stream
  std::map<std::string, std::shared_ptr<peer>, std::less<>> peers_;
  std::unique_ptr<protocol::target::host> guest_host_;
  std::map<wire::instance_id, std::unique_ptr<guest>> guests_;
  std::vector<session_record*> opening_;  // being made, without a handle yet
  std::vector<peer*> dirty_;
  std::vector<peer*> tended_;  // of run_timers(), kept so that no turn allocates
  std::vector<guest*> dirty_guests_;
  std::vector<transfer_record*> jobs_;
  size_t next_job_ = 0;
  bool jobs_wait_ = false;  // all of them for devices
  std::vector<deadline_entry> deadlines_;
  uint64_t last_stamp_ = 0;
  bool has_tcp_ = false;
  backend_settings tcp_;
  std::array<direct_backend, backend_count> direct_;
  std::array<statistics, backend_count> counted_;
  std::array<std::string, backend_count> reasons_;
  // Region -> guests that have not confirmed that they no longer use it.
  std::map<uint32_t, std::vector<wire::instance_id>> revocations_;
  peer* revoking_ = nullptr;   // whose bytes are looked at
  guest* speaking_ = nullptr;  // the same for guests
};

template <class Function>
void engine::for_each_transfer(Function&& f) {
  std::vector<transfer_record*> direct(jobs_);
  for (const auto& [key, each] : peers_) {
    direct.insert(direct.end(), each->holding.begin(), each->holding.end());
    each->link.for_each([&](protocol::transfer& what) { f(static_cast<transfer_record&>(what)); });
  }
  for (transfer_record* each : direct) f(*each);
}

template <class Done>
bool engine::wait(Done&& done, base::deadline until, std::span<const transfer_table::ref> watched) {
  if (done()) return true;
  role_.want();
  waiter me;
  bool came = false;
  while (!(came = done()) && !until.passed()) {
    if (role_.take()) {
      do {
        turn(std::min(until.left_ns(), 100 * base::ns_per_ms));
      } while (!(came = done()) && !until.passed());
      role_.note_foreground(base::now_ns());
      role_.leave();
      break;
    }
    role_.add_sleeper(me);
    for (const transfer_table::ref& each : watched)
      each->watcher.store(&me, std::memory_order_seq_cst);
    if (own_thread_drives_.load(std::memory_order_seq_cst)) kick();
    if (role_.is_taken() && !done())
      sleep_on(me.signal, 0, std::min(until.left_ns(), 5 * base::ns_per_ms));
    role_.remove_sleeper(me);
    me.signal.store(0, std::memory_order_relaxed);
  }
  role_.want_no_more();
  // Another one that waits may have lost the race for the role to us.
  if (!role_.is_taken()) role_.rouse_one();
  return came;
}

}  // namespace mori::io_core
