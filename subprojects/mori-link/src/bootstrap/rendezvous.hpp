// rendezvous.hpp - the root's part of a join: holds the listening socket of the
// unique id, collects enrolments, sends everyone the table, waits until all are
// connected to their neighbours and lets them go; or tells all the same
// failure. Its own rank takes part by calls instead of frames. Never blocks.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/acceptor.hpp"
#include "bootstrap/roster.hpp"
#include "protocol/message.hpp"

namespace mori::link {

class rendezvous {
 public:
  // listener: from take_listener. own: the root's enrolment, which sets the
  // size that others are compared with.
  rendezvous(base::unique_fd listener, const acceptor_options& options, const enrolment& own);

  void watch(tcp::poll_list& list);
  void step(const tcp::poll_list& list, uint64_t now_ns);
  uint64_t next_due_ns() const;

  void own_ready();
  // The root gives up (its deadline, its own trouble): everyone gets to know.
  void fail(base::failure why);
  std::string missing_text() const;

  const byte_vector* table() const { return table_ ? &*table_ : nullptr; }
  bool open() const { return open_; }
  const base::failure* failure() const { return failure_ ? &*failure_ : nullptr; }
  // Nothing is left to be sent, and after a failure all guests have gone.
  bool settled() const;
  // Every rank has been here; who comes late after a failure should hear of it.
  bool all_came() const { return static_cast<int>(guests_.size()) + 1 >= roster_.size(); }

 private:
  struct guest {
    std::unique_ptr<tcp::channel> channel;
    int rank = -1;
    int process_id = 0;
    bool ready = false;
    size_t slot = SIZE_MAX;
  };
  void welcome(acceptor::arrival arrival);
  void serve(guest& g, const tcp::poll_list& list);
  void on_frame(guest& g, const tcp::frame& said);
  void on_gone(guest& g);
  void tell(guest& g, message_kind kind, byte_span payload);
  void tell_all(message_kind kind, byte_span payload);
  void proceed();

  acceptor entrance_;
  roster roster_;
  uint32_t table_limit_bytes_;
  int own_rank_;
  std::vector<guest> guests_;
  std::optional<byte_vector> table_;
  std::optional<base::failure> failure_;
  bool own_ready_ = false;
  bool open_ = false;
  bool news_ = false;  // somebody came since the last waiting message
  uint64_t next_news_ns_ = 0;
};

// Payload of failed and give_up.
byte_vector encode_failure(const base::failure& why);
base::failure decode_failure(byte_span payload);

}  // namespace mori::link
