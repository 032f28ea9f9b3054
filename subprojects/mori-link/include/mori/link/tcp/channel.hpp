// channel.hpp - framed, authenticated messages over one non-blocking stream
// socket (TCP, or a unix socket on one host). It owns the descriptor, runs the
// handshake first and then gives every frame a sequence number and a MAC, so
// that injected, dropped or reordered bytes end the connection.
//
//   frame: length u32 | kind u16 | 0 u16 | sequence u64 | payload | MAC 16 bytes
//
// It never waits: whoever owns it polls `fd()` for reading, and for writing
// while `wants_write()`. Not thread-safe. The group's engine is the first user.
#pragma once

#include <mori/base/unique_fd.hpp>
#include <mori/link/handshake.hpp>

#include <initializer_list>
#include <optional>

namespace mori::link::tcp {

struct channel_limits {
  uint32_t max_payload_bytes = 4096;    // longer frames end the connection, unread
  size_t max_queue_bytes = 256 * 1024;  // unsent bytes at which send() says MORI_E_AGAIN
};

struct frame {
  uint16_t kind = 0;
  byte_span payload;  // valid until the next call on the channel
};

class channel {
 public:
  static constexpr size_t header_bytes = 16;
  static constexpr size_t mac_bytes = 16;

  channel(base::unique_fd fd, const handshake_options& handshake, const channel_limits& limits);

  int fd() const { return fd_.get(); }
  bool established() const { return handshake_.done(); }
  const hello& peer() const { return handshake_.peer(); }
  void set_limits(const channel_limits& limits) { limits_ = limits; }

  // Reads what is there (bounded per call). Errors are final.
  base::status on_readable();
  // The other side has closed, or the connection was reset; frames that came
  // before are still to be had. The text says which.
  bool ended() const { return ended_; }
  const std::string& end_reason() const { return end_reason_; }

  // Oldest complete frame; nothing while the handshake lasts.
  base::result<std::optional<frame>> next();

  // Queues a frame and sends as much as the socket takes. Only once
  // established. MORI_E_AGAIN: the queue is full, nothing was taken. A
  // connection that broke is not an error here: reading finds it out.
  base::status send(uint16_t kind, std::initializer_list<byte_span> parts);
  // As send, over a unix socket, together with a duplicate of `passed`.
  base::status send_descriptor(uint16_t kind, byte_span payload, int passed);
  // The descriptor that came with a frame; asked for by expect_descriptor().
  void expect_descriptor() { wants_descriptor_ = true; }
  base::unique_fd take_descriptor() { return std::move(received_); }

  base::status on_time(uint64_t now_ns) const { return handshake_.on_time(now_ns); }

  bool wants_write() const { return head_ < queue_.size() && !broken_; }
  size_t queued_bytes() const { return queue_.size() - head_; }
  bool has_room() const { return queued_bytes() < limits_.max_queue_bytes; }
  void on_writable();
  // No more frames will be sent: tells the other side once the queue is empty.
  void finish_sending();

 private:
  size_t make_room();
  size_t read_once(size_t room);
  base::status feed_handshake();
  void write_or_queue(std::span<const byte_span> pieces);
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
  size_t head_ = 0;  // bytes at the front of queue_ that were sent
  uint64_t send_sequence_ = 0;
  uint64_t receive_sequence_ = 0;
  base::unique_fd received_;
  bool wants_descriptor_ = false;
  bool ended_ = false;
  bool broken_ = false;  // writing failed; what is unread may still be read
  bool finishing_ = false;
  std::string end_reason_;
};

}  // namespace mori::link::tcp
