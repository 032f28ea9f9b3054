// stream.hpp - one proven byte stream of a link: frames out, frames in, without a
// socket. Whoever owns the socket asks gather() what to send and room() where to
// put what comes; so payloads go straight from and to the memory of transfers,
// and a simulator can run the same code over pipes of its own. Not thread-safe.
#pragma once

#include <mori/base/result.hpp>

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/frame.hpp"
#include "wire/message.hpp"

namespace mori::io_core::protocol {

// Where a payload goes, in order; a null address means that it is not kept.
using payload_place = std::vector<iovec>;

class stream {
 public:
  // Takes what arrives. A failure ends the stream.
  class handler {
   public:
    // payload_bytes > 0: fills `place` with that many bytes of room; an empty place discards.
    virtual base::status on_message(stream& from, wire::message_kind kind, wire::byte_room body,
                                    uint32_t payload_bytes, payload_place& place) = 0;
    // The payload of the last message is complete.
    virtual base::status on_payload(stream& from, bool authentic) = 0;

   protected:
    ~handler() = default;
  };

  // Counts of output that still refers to a transfer's or region's memory.
  using pin_count = uint32_t;

  explicit stream(const wire::agreement& agreed);
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { drop_output(); }

  // --- Out. begin_frame() gives room for any body; end_frame() seals what was written there.
  wire::byte_room begin_frame();
  void end_frame(wire::message_kind kind, size_t body_bytes, uint32_t payload_bytes = 0);
  // All of the frame's payload, in pieces, then finish_payload(). The bytes are borrowed until they
  // are sent; *pins counts this.
  void add_payload(const std::byte* from, uint64_t bytes, pin_count* pins);
  void finish_payload();

  // What to send next, at most about a quarter MiB; then on_sent() with what the socket took.
  size_t gather(std::span<iovec> out);
  void on_sent(uint64_t bytes);
  uint64_t queued_bytes() const { return queued_bytes_; }
  bool wants_write() const { return queued_bytes_ > 0; }
  // Nothing is sent any more and no memory referred to.
  void drop_output();

  // --- In.
  size_t room(std::span<iovec> out);
  base::status on_received(uint64_t bytes, handler& to);
  // What comes of the current payload is not kept.
  void discard_payload();
  bool in_payload() const { return stage_ != stage::frame; }
  uint64_t received_bytes() const { return received_bytes_; }

  wire::security_mode mode() const { return sealer_.mode(); }

 private:
  enum class stage { frame, payload, tag };
  struct item {
    const std::byte* from = nullptr;  // null: bytes of out_ at `offset`
    uint64_t offset = 0;              // absolute, see out_base_
    uint64_t bytes = 0;
    uint64_t authenticated = 0;  // of a payload
    pin_count* pins = nullptr;
    bool is_tag = false;
  };

  std::byte* owned_room(size_t bytes);
  void push_owned(size_t bytes);
  void authenticate(item& what, uint64_t most);
  size_t buffered() const { return end_ - begin_; }
  base::status drain(handler& to);
  base::status drain_frame(handler& to, bool& more);
  void drain_payload();
  void place_bytes(uint64_t bytes);
  void copy_to_place(const std::byte* from, uint64_t bytes);
  void make_room(size_t wanted);

  wire::sealer sealer_;
  std::vector<std::byte> out_;  // frames and tags; [out_base_, out_end_) in absolute offsets
  uint64_t out_base_ = 0;
  uint64_t out_head_ = 0;  // before this everything was sent
  uint64_t out_end_ = 0;
  std::vector<item> items_;
  size_t item_head_ = 0;
  uint64_t queued_bytes_ = 0;

  wire::opener opener_;
  std::vector<std::byte> in_;
  size_t begin_ = 0;
  size_t end_ = 0;
  stage stage_ = stage::frame;
  payload_place place_;
  size_t place_index_ = 0;
  uint64_t place_offset_ = 0;
  uint64_t payload_left_ = 0;
  std::array<std::byte, wire::tag_bytes> tag_{};
  size_t tag_filled_ = 0;
  std::vector<std::byte> scratch_;
  uint64_t received_bytes_ = 0;
};

}  // namespace mori::io_core::protocol
