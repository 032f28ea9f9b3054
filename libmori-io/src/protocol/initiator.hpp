// initiator.hpp - the asking end of a link: gives transfers sequence numbers, cuts
// them into slices, spreads these over the streams, and knows of each what the
// target is sure to have done. It outlives connections: after a loss it asks the
// target what was delivered, and repeats only the rest. Bytes move through the
// streams (stream.hpp), time comes as an argument; the engine owns the sockets.
// Its other end is target.hpp.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "protocol/journal.hpp"
#include "protocol/ring.hpp"
#include "protocol/schedule.hpp"
#include "protocol/stream.hpp"
#include "protocol/transfer.hpp"

namespace mori::io_core::protocol {

// Transfers of one slice up to this size go on the control stream.
inline constexpr uint64_t control_bytes = 64 * 1024;

class initiator final : private stream::handler {
 public:
  class host {
   public:
    // The caller may know: its memory is not touched any more.
    virtual void on_outcome(transfer& what, mori_status status, std::string_view text) = 0;
    // The link does not refer to it any more.
    virtual void on_released(transfer& what) = 0;
    // What ask_attach() asked for may be used, until this generation ends or it is revoked.
    virtual void on_attached(uint32_t region) = 0;
    // The target takes this region back, or has it no longer; answer_revoke() once nothing uses it.
    virtual void on_revoke(uint32_t region) = 0;

   protected:
    ~host() = default;
  };

  struct options {
    std::string peer;  // its key, for messages
    uint64_t chunk_bytes = 1 << 20;
    uint64_t peer_timeout_ns = 10'000'000'000;
    uint64_t cancel_patience_ns = 1'000'000'000;
    uint64_t down_patience_ns = 50'000'000;  // the same, while there is no connection
    uint32_t max_retry_count = 32;
  };

  initiator(host& to, options with);

  // --- From the engine.
  void submit(transfer& what, uint64_t now_ns);
  // Ends it with `status` unless it has ended; at once where the target does not matter.
  void cancel(transfer& what, mori_status status, uint64_t now_ns);
  void answer_revoke(uint32_t region);
  // Answered by on_attached() or on_revoke(); on a link that is ready.
  void ask_attach(const wire::attach& what);
  // For transfers that have not begun.
  void set_chunk_bytes(uint64_t bytes) { options_.chunk_bytes = bytes; }
  // Everything ends with this, on a link that is down or is now given up.
  void fail_all(mori_status status, std::string_view text);
  // In order: the target may forget this link.
  void say_goodbye();

  // --- From whoever owns the connections. A failure of receive() or on_time() means: close all
  // streams, call on_lost(), connect again; MORI_E_PEER_DEAD: fail_all() instead.
  uint64_t next_generation() { return ++generation_; }
  uint64_t generation() const { return generation_; }
  void on_control(stream& control, uint64_t now_ns);
  void add_data(stream& data);
  void on_lost(std::string_view why);
  base::status receive(stream& from, uint64_t bytes, uint64_t now_ns);
  // Fills the streams with what is due; call after anything happened.
  void pump(uint64_t now_ns);
  base::status on_time(uint64_t now_ns);
  uint64_t next_time_ns() const;  // when on_time() wants to be called

  bool is_ready() const { return ready_; }
  // The target has ended in order; until the next generation.
  bool has_heard_goodbye() const { return heard_goodbye_; }
  bool is_connected() const { return !lanes_.empty(); }
  // Slices wait for data streams.
  bool wants_data() const { return !bulk_.empty(); }
  size_t stream_count() const { return lanes_.size(); }
  bool has_work() const { return count_ > 0; }
  uint64_t count() const { return count_; }  // transfers that it refers to
  uint64_t last_heard_ns() const { return heard_ns_; }

  // Goes by the control stream; a flow holds either small ones or others.
  static bool is_small(const transfer& what) {
    return what.at == phase::notifying || what.moved_elsewhere ||
           (what.total_bytes <= control_bytes && what.pieces.size() <= wire::max_segments);
  }

  // f(transfer&) for each; it may cancel that one.
  template <class Function>
  void for_each(Function&& f) {
    for (transfer *each = first_, *after = nullptr; each != nullptr; each = after) {
      after = each->link_after;
      f(*each);
    }
  }

 private:
  struct read_slice {
    transfer* of = nullptr;  // null: cancelled, its bytes are not kept
    uint64_t sequence = 0;
    uint32_t index = 0;
    cut from;
    uint64_t bytes = 0;
  };
  struct lane {
    stream* on = nullptr;
    ring<read_slice> reads;  // asked for on it, in order
    transfer* receiving = nullptr;
  };

  base::status on_message(stream& from, wire::message_kind kind, wire::byte_room body,
                          uint32_t payload_bytes, payload_place& place) override;
  base::status on_payload(stream& from, bool authentic) override;
  base::status on_data(lane& on, wire::byte_room body, uint32_t payload_bytes,
                       payload_place& place);
  base::status on_resume_answer(wire::byte_span body);
  base::status on_error(lane& on, wire::byte_span body);
  base::status on_cancel_answer(wire::byte_span body);
  base::status on_goodbye(wire::byte_span body);
  void on_slice_read(transfer& what);

  transfer* at(uint64_t sequence) const;
  lane* lane_of(const stream& which);
  lane* idlest_data();
  bool number(transfer& what);
  bool send_slice(lane& on, transfer& what);
  void start_slice(stream& on, transfer& what, wire::slice_writer& writer);
  void send_bytes(stream& on, transfer& what, wire::slice_writer& writer, cut begin);
  void send_notification(stream& on, transfer& what);
  void pump_control();
  void pump_bulk();
  void settle(transfer& what, mori_status status);
  void finish(transfer& what, mori_status status, std::string_view text);
  void release(transfer& what);
  void drop_reads(transfer& what);
  void restart(transfer& what);
  void replay();
  void drain_settled();
  uint64_t cancel_patience_ns() const;
  bool give_up_cancels(uint64_t now_ns);
  std::string unknown_delivery(std::string_view why) const;
  schedule& schedule_of(const transfer& what) { return is_small(what) ? small_ : bulk_; }

  host& host_;
  options options_;
  schedule small_;                 // by the control stream
  schedule bulk_;                  // by the data streams
  std::vector<transfer*> window_;  // by sequence, a power of two long
  uint64_t floor_ = 1;
  uint64_t next_ = 1;
  uint64_t count_ = 0;
  transfer* first_ = nullptr;  // all that it refers to
  transfer* last_ = nullptr;
  std::vector<transfer*> replay_;
  std::vector<transfer*> settled_;
  std::vector<transfer*> cancelling_;
  std::deque<lane> lanes_;  // [0]: control
  uint64_t generation_ = 0;
  bool ready_ = false;
  bool heard_goodbye_ = false;
  uint64_t heard_ns_ = 0;
  uint64_t asked_ns_ = 0;  // when the unanswered heartbeat was sent; 0: there is none
  uint64_t busy_since_ns_ = 0;
  uint64_t now_ns_ = 0;
};

}  // namespace mori::io_core::protocol
