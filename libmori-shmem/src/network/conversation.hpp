// conversation.hpp - one data connection as a state machine: commands for the peer go in,
// frames come out; frames of the peer go in and change this PE's memory. No socket and no
// clock: proxy.cpp drives it over TCP, the tests through a simulator.
//
// The connection keeps the order of what is said, so neither side numbers anything: the
// answers of the target are those to the initiator's commands, oldest first. Of those
// there are at most `window` unanswered ones, which bounds what either side has to keep.
#pragma once

#include "network/own_memory.hpp"
#include "network/record.hpp"

#include <mori/shmem_device.h>

#include <deque>
#include <optional>

namespace mori::shmem_core {

// Where a command came from.
struct origin {
  uint32_t ring = 0;
  uint64_t index = 0;
};

// Hears of commands that are complete, in their order.
class completions {
 public:
  virtual ~completions() = default;
  virtual void on_answer(const origin& of, uint64_t value) = 0;
  virtual void on_complete(const origin& of) = 0;
};

class conversation {
 public:
  static constexpr size_t window = 4096;

  struct heap_range {
    uint64_t base = 0;
    uint64_t bytes = 0;  // the same on all PEs
  };

  // Bulk is received in place if it needs no proof first.
  conversation(own_memory& memory, const heap_range& heap, completions& done,
               bool receives_in_place = true)
      : memory_(memory), heap_(heap), done_(done), receives_in_place_(receives_in_place) {}

  bool has_room() const { return commands_.size() < window; }
  // MORI_E_INVALID: the command makes no sense; nothing was taken.
  base::status add(const mori_shmem_command_v1& what, const origin& from);

  // A frame to send, of one or two pieces. They are valid until the next call on this object or on
  // its memory.
  struct frame_text {
    link::byte_span text;
    link::byte_span bulk;  // may be empty
  };
  bool wants_to_speak() const;
  base::result<frame_text> next_frame();

  // What it changes in this PE's memory is done after the memory's flush(), and what next_frame()
  // says comes after that.
  base::status on_frame(link::byte_span payload, uint32_t bulk_bytes = 0);
  // Where the bulk of that frame goes, and that it is there.
  std::byte* bulk_place();
  base::status on_bulk();

  // Commands that are not complete.
  size_t command_count() const { return commands_.size(); }
  // The oldest of them.
  const mori_shmem_command_v1& oldest() const { return commands_.front().what; }
  size_t answer_count() const { return answers_.size(); }

  void say_goodbye() { goodbye_due_ = true; }
  bool peer_has_left() const { return peer_has_left_; }

 private:
  struct command_state {
    mori_shmem_command_v1 what;
    origin from;
    uint64_t moved_bytes = 0;  // of a put: said; of a get: received
  };
  struct answer {
    record_kind kind;
    uint64_t value = 0;    // done: a count; before: the word
    uint64_t address = 0;  // data: what is still to be said
    uint64_t bytes = 0;
  };

  base::status check(const mori_shmem_command_v1& what) const;
  bool has_request() const { return said_ < commands_.size(); }
  // True: the frame is full.
  base::result<bool> say_answers();
  base::result<bool> say_requests();
  base::result<bool> say_put(command_state& command);
  base::result<bool> say_data(record header, uint64_t address);
  void say_signal(const mori_shmem_command_v1& what);
  bool is_full() const { return text_.size() >= full_text_bytes; }

  base::status await_bulk(const record& said, uint32_t bytes);
  base::status on_record(const record& said, link::byte_span data);
  base::status on_request(const record& said, link::byte_span data);
  base::status on_answer(const record& said, link::byte_span data);
  base::status on_data(const record& said, link::byte_span data);
  base::status check_data(const record& said, uint64_t bytes) const;
  base::status check_target(const record& said, uint64_t bytes) const;
  base::status expect(record_kind answer) const;
  void applied();
  void finish_oldest();

  own_memory& memory_;
  const heap_range heap_;
  completions& done_;
  std::deque<command_state> commands_;  // oldest first
  size_t said_ = 0;                     // of them: wholly said
  std::deque<answer> answers_;
  const bool receives_in_place_;
  record awaiting_;  // of it, bulk is on its way
  uint64_t bulk_address_ = 0;
  link::byte_vector bulk_buffer_;
  bool requests_first_ = false;
  bool goodbye_due_ = false;
  bool peer_has_left_ = false;
  link::byte_vector text_;
  link::byte_span bulk_;
};

// The answer that ends a command.
record_kind awaited_answer(const mori_shmem_command_v1& command);

}  // namespace mori::shmem_core
