// queue_pair.hpp - reliable connected queue pairs and the completion queue that
// several of them share. endpoint.hpp puts some together into a connection that
// survives errors.
//
// Invariants:
// * A completion queue never overflows: every queue pair reserves its room at create.
// * Work of one queue pair completes in the order in which it was posted. Only what asked for it
//   is reported; the rest is retired by the next that is.
// * Numbers of work are never used again, so a completion of before a reset is recognised.
// * Errors are not reported one by one: the queue pair is then broken, and unfinished() says what
//   had not completed. Each of these may or may not have been executed.
//
// A completion queue and its queue pairs belong to one thread at a time.
#pragma once

#include <mori/base/clock.hpp>
#include <mori/link/bytes.hpp>
#include <mori/link/verbs/device.hpp>

namespace mori::link::verbs {

namespace abi {
struct cq;
struct qp;
struct wc;
struct comp_channel;
}  // namespace abi

enum class operation : uint8_t { write, write_immediate, read, fetch_add, compare_swap };

struct segment {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t key = 0;
};

inline constexpr size_t max_work_segments = 4;

// One work request.
struct work {
  operation what = operation::write;
  bool is_reported = false;   // its completion is wanted
  bool is_inline = false;     // bytes are copied when it is posted; one segment, for writes
  bool is_replayable = true;  // doing it twice is doing it once; never set for atomics and
                              // write_immediate, where it is ignored
  uint8_t segment_count = 0;
  uint64_t id = 0;  // the caller's
  segment local[max_work_segments];
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  uint32_t immediate = 0;
  uint64_t operand = 0;  // added, or swapped in
  uint64_t compare = 0;

  bool may_repeat() const {
    return is_replayable && (what == operation::write || what == operation::read);
  }
};

struct completion {
  uint64_t id = 0;
  bool is_received = false;  // a peer's write_immediate; then `immediate` and `bytes` count
  uint32_t immediate = 0;
  uint32_t bytes = 0;
  mori_status status = MORI_OK;  // of an endpoint: work that failed for good
};

class queue_pair;

class completion_queue {
 public:
  struct options {
    uint32_t capacity = 4096;
    bool has_events = false;  // wait() then sleeps in the kernel
  };
  static base::result<std::shared_ptr<completion_queue>> create(std::shared_ptr<device> of,
                                                                const options& with);
  ~completion_queue();
  completion_queue(const completion_queue&) = delete;
  completion_queue& operator=(const completion_queue&) = delete;

  // What has completed, at most room. Fewer, even none: look again later.
  size_t poll(std::span<completion> to);

  // Asks for an event: fd() becomes readable with the next completion. Those that came before the
  // call raise none, so poll() once more after it. MORI_E_STATE without has_events.
  base::status arm();
  int fd() const;
  void take_events();
  // Sleeps until something can be polled. False: the deadline.
  base::result<bool> wait(base::deadline until);

  uint32_t capacity() const { return capacity_; }
  uint32_t reserved() const { return reserved_; }
  const std::shared_ptr<device>& of() const { return of_; }
  abi::cq* made() const { return made_; }

 private:
  friend class queue_pair;
  explicit completion_queue(std::shared_ptr<device> of);
  base::result<uint16_t> enter(queue_pair& who, uint32_t room);
  void leave(uint16_t slot, uint32_t room);
  bool refill();
  void take_all();

  const std::shared_ptr<device> of_;  // shared with all that was made of it
  abi::comp_channel* channel_ = nullptr;
  abi::cq* made_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t reserved_ = 0;
  std::vector<queue_pair*> members_;  // by slot; null: free
  std::vector<abi::wc> batch_;        // taken from the device, [next_, filled_) not looked at yet
  size_t next_ = 0;
  size_t filled_ = 0;
};

// Where a queue pair can be found. Travels in an endpoint's description.
struct queue_address {
  uint32_t number = 0;
  uint32_t first_packet = 0;  // 24 bits, random
};
struct port_address {
  std::array<uint8_t, 16> gid{};
  uint16_t lid = 0;
  uint16_t mtu = 0;
  uint8_t reads_served = 0;
  bool is_ethernet = false;
};

class queue_pair {
 public:
  struct options {
    uint32_t send_count = 256;  // work requests in flight
    uint32_t receive_count = 0;
    uint32_t inline_bytes = 0;  // wished; inline_bytes() says what there is
    uint32_t chain_count = 16;  // posted with one doorbell, 1 .. 64
  };
  static base::result<std::unique_ptr<queue_pair>> create(std::shared_ptr<completion_queue> queue,
                                                          const options& with);
  ~queue_pair();
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;

  const queue_address& address() const { return address_; }
  base::status connect(const port_address& to_port, const queue_address& to);

  // Posts what fits, in order, and says how many: fewer means that the send queue is full. An
  // error took none of those behind it and says what is wrong with the first.
  base::result<size_t> post(std::span<const work> what);
  // Room for `count` more immediates of the peer.
  base::status post_receives(uint32_t count);

  uint32_t in_flight() const { return static_cast<uint32_t>(posted_ - retired_); }
  uint32_t room() const { return options_.send_count - in_flight(); }
  uint32_t inline_bytes() const { return inline_bytes_; }

  // --- Errors.
  bool is_broken() const { return broken_.has_value(); }
  const base::failure& why() const { return *broken_; }
  // What failed was the request itself (a bad key, a bad range), and not the connection: unfinished
  // work begins with the culprit.
  bool is_refused() const { return is_refused_; }
  // Stops it: all that is in flight comes back unfinished.
  void stop(const base::failure& why);
  // Nothing that was posted to send is in flight any more.
  bool is_drained() const { return is_broken() && drained_ == posted_; }
  // Something has completed since it was connected.
  bool has_progress() const { return retired_ > epoch_begin_; }
  // Oldest first; all of it when it is drained. Inline bytes are in `bytes`.
  struct remains {
    std::vector<work> works;
    std::vector<std::byte> bytes;
  };
  remains unfinished() const;
  // Makes it as new: no request of before will touch memory any more, on either side, once the peer
  // has reset too. Unfinished work is forgotten.
  base::status reset();

  // Work requests, doorbells and signalled completions so far.
  struct counts {
    uint64_t posted = 0, doorbells = 0, signalled = 0;
  };
  const counts& counted() const { return counted_; }

 private:
  friend class completion_queue;
  queue_pair(std::shared_ptr<completion_queue> queue, const options& with);
  base::status create();
  base::status make_ready();
  base::status check(const work& what) const;
  base::result<size_t> post_chain(std::span<const work> what);
  bool on_completion(const abi::wc& what, completion& to);
  void on_receive(const abi::wc& what);
  void keep_inline(work& what, uint64_t number);
  void on_error(const abi::wc& what, uint64_t number);
  uint32_t total_room() const { return options_.send_count + options_.receive_count; }
  work& slot(uint64_t number) { return slots_[number % options_.send_count]; }
  const work& slot(uint64_t number) const { return slots_[number % options_.send_count]; }

  const std::shared_ptr<completion_queue> queue_;  // shared with other queue pairs
  options options_;
  abi::qp* made_ = nullptr;
  uint16_t slot_ = 0;
  queue_address address_;
  uint32_t inline_bytes_ = 0;
  std::vector<work> slots_;              // of what is in flight, by number
  std::vector<std::byte> inline_store_;  // its inline bytes, for replay
  uint64_t posted_ = 0;
  uint64_t retired_ = 0;  // completed in order
  uint64_t drained_ = 0;  // reported back, once broken
  uint64_t last_signalled_ = 0;
  uint64_t epoch_begin_ = 0;  // numbers below are of before the last reset
  uint32_t receives_ = 0;
  uint32_t receive_epoch_ = 0;
  std::optional<base::failure> broken_;
  bool is_refused_ = false;
  bool has_failed_ = false;  // a completion said so
  counts counted_;
};

}  // namespace mori::link::verbs
