// channel.hpp - framed, authenticated messages over one non-blocking stream
// socket (TCP, or a unix socket on one host). It owns the descriptor, runs the
// handshake first and then gives every frame a sequence number and a MAC, so
// that injected, dropped or reordered bytes end the connection.
//
//   frame: length u32 | bulk length u32 | kind u16 | 0 u16 | sequence u64 | payload | MAC 16 bytes
//          | bulk | tag 16 bytes, if bulk is authenticated
//
// Bulk is data that may be large: it is sent from where it lies and received where its reader says.
// Both ends agree beforehand on whether it is authenticated (Poly1305, a key for each frame).
//
// It never waits: whoever owns it polls `fd()` for reading, and for writing
// while `wants_write()`. Not thread-safe. The group's engine is the first user.
#pragma once

#include <mori/base/unique_fd.hpp>
#include <mori/link/handshake.hpp>

#include <initializer_list>
#include <optional>

struct msghdr;

namespace mori::link::tcp {

struct channel_limits {
  uint32_t max_payload_bytes = 4096;    // longer frames end the connection, unread
  size_t max_queue_bytes = 256 * 1024;  // unsent bytes at which send() says MORI_E_AGAIN
};

struct frame {
  uint16_t kind = 0;
  byte_span payload;        // valid until the next call on the channel
  uint32_t bulk_bytes = 0;  // what follows it, to be placed before anything else is read
};

// What is sent behind a frame.
struct bulk_source {
  byte_span bytes;
  bool stays = false;  // where it is until it has been sent: wants_write() is false
};

class channel {
 public:
  static constexpr size_t header_bytes = 20;
  static constexpr size_t mac_bytes = 16;

  channel(base::unique_fd fd, const handshake_options& handshake, const channel_limits& limits);

  int fd() const { return fd_.get(); }
  bool established() const { return handshake_.done(); }
  const hello& peer() const { return handshake_.peer(); }
  void set_limits(const channel_limits& limits) { limits_ = limits; }
  // The most bulk of a frame, by default none.
  void allow_bulk(uint32_t max_bytes, bool is_authenticated);

  // Reads what is there (bounded per call). Errors are final.
  base::status on_readable();
  // The other side has closed, or the connection was reset; frames that came
  // before are still to be had. The text says which.
  bool ended() const { return ended_; }
  const std::string& end_reason() const { return end_reason_; }

  // Oldest complete frame; nothing while the handshake lasts.
  base::result<std::optional<frame>> next();

  // Where the bulk of the frame that next() gave goes. Until bulk_is_over() has said true,
  // on_readable() fills it and next() gives nothing.
  void place_bulk(std::byte* to);
  bool has_bulk_due() const { return bulk_in_.is_due; }
  // An error: it is not authentic.
  base::result<bool> bulk_is_over();
  // Whether the last on_readable() left off before the socket was empty.
  bool may_have_more() const { return may_have_more_; }

  // Queues a frame and sends as much as the socket takes. Only once
  // established. MORI_E_AGAIN: the queue is full, nothing was taken. A
  // connection that broke is not an error here: reading finds it out.
  base::status send(uint16_t kind, std::initializer_list<byte_span> parts,
                    const bulk_source& bulk = {});
  // As send, over a unix socket, together with a duplicate of `passed`.
  base::status send_descriptor(uint16_t kind, byte_span payload, int passed);
  // The descriptor that came with a frame; asked for by expect_descriptor().
  void expect_descriptor() { wants_descriptor_ = true; }
  base::unique_fd take_descriptor() { return std::move(received_); }

  base::status on_time(uint64_t now_ns) const { return handshake_.on_time(now_ns); }

  bool wants_write() const { return !is_clear() && !broken_; }
  size_t queued_bytes() const { return queue_.size() - head_; }
  bool has_room() const { return queued_bytes() < limits_.max_queue_bytes && bulk_out_.empty(); }
  void on_writable();
  // No more frames will be sent: tells the other side once the queue is empty.
  void finish_sending();

 private:
  bool is_clear() const { return queued_bytes() == 0 && bulk_out_.empty(); }
  size_t make_room();
  size_t read_once(size_t room);
  size_t receive(msghdr& message);
  base::status feed_handshake();
  void write_or_queue(std::span<const byte_span> pieces, bool last_stays = false);
  size_t write_now(std::span<const byte_span> pieces, int passed);
  void note_end(int os_errno);
  size_t unread() const { return filled_ - taken_; }

  base::unique_fd fd_;
  handshake handshake_;
  channel_limits limits_;
  byte_vector incoming_;  // [taken_, filled_) was received and not handed out
  size_t taken_ = 0;
  size_t filled_ = 0;
  byte_vector queue_;
  size_t head_ = 0;     // bytes at the front of queue_ that were sent
  byte_span bulk_out_;  // what is left of bulk that stays, behind queue_
  uint64_t send_sequence_ = 0;
  uint64_t receive_sequence_ = 0;
  struct {
    std::byte* to = nullptr;  // null: not placed yet
    size_t bytes = 0, left = 0;
    uint64_t sequence = 0;
    bool is_due = false;
  } bulk_in_;
  uint32_t max_bulk_bytes_ = 0;
  bool is_bulk_authenticated_ = true;
  bool may_have_more_ = false;
  base::unique_fd received_;
  bool wants_descriptor_ = false;
  bool ended_ = false;
  bool broken_ = false;  // writing failed; what is unread may still be read
  bool finishing_ = false;
  std::string end_reason_;
};

}  // namespace mori::link::tcp
