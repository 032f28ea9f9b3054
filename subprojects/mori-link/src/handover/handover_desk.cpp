// handover_desk.cpp - the side that hands out; see handover.hpp. One thread, which sleeps in
// poll(). The asking side is in handover_visit.cpp.
#include <mori/link/handover.hpp>

#include "bootstrap/acceptor.hpp"
#include "handover/question.hpp"
#include "tcp/local_socket.hpp"
#include "wire/keyed_hash.hpp"

#include <mori/base/log.hpp>
#include <mori/base/quiet_signals.hpp>

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>

namespace mori::link {
namespace {

class desk final : public handover_desk {
 public:
  desk(base::unique_fd listener, base::unique_fd wake, const desk_address& address, answerer answer)
      : address_(address),
        answer_(std::move(answer)),
        wake_(std::move(wake)),
        entrance_(std::move(listener),
                  {.secret = address.secret, .max_payload_bytes = max_handover_bytes}) {
    const base::quiet_signals quiet;
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "mori-handover");
  }
  ~desk() override {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  const desk_address& address() const override { return address_; }

 private:
  struct visitor {
    std::unique_ptr<tcp::channel> channel;
    uint64_t due_ns = 0;
    size_t slot = SIZE_MAX;
  };

  void run() {
    tcp::poll_list list;
    for (;;) {
      list.clear();
      const size_t stop = list.add(wake_.get(), false);
      entrance_.watch(list);
      uint64_t due = entrance_.next_due_ns();
      for (visitor& v : visitors_) {
        v.slot = list.add(v.channel->fd(), v.channel->wants_write());
        due = std::min(due, v.due_ns);
      }
      list.wait(due);
      if (list.readable(stop)) return;
      step(list, base::now_ns());
    }
  }

  void step(const tcp::poll_list& list, uint64_t now_ns) {
    entrance_.step(list, now_ns);
    std::erase_if(visitors_, [&](visitor& v) { return !advance(v, list, now_ns); });
    for (auto& arrival : entrance_.take_arrivals()) {
      if (arrival.channel->peer().purpose != connection_purpose::descriptor ||
          arrival.kind != question_kind::asked || !reply(*arrival.channel, arrival.payload))
        continue;
      if (visitors_.size() >= max_visitors) visitors_.pop_front();
      visitors_.push_back({std::move(arrival.channel), now_ns + patience_ns, SIZE_MAX});
    }
  }

  // False: done with this visitor.
  bool advance(visitor& v, const tcp::poll_list& list, uint64_t now_ns) {
    if (now_ns >= v.due_ns) return false;
    if (list.writable(v.slot)) v.channel->on_writable();
    if (!list.readable(v.slot)) return true;
    if (!v.channel->on_readable()) return false;
    for (;;) {
      auto question = v.channel->next();
      if (!question) return false;
      if (!question->has_value()) return !v.channel->ended();
      if ((*question)->kind != question_kind::asked) return false;
      const byte_vector asked((*question)->payload.begin(), (*question)->payload.end());
      if (!reply(*v.channel, asked)) return false;
      v.due_ns = now_ns + patience_ns;
    }
  }

  bool reply(tcp::channel& to, byte_span question) {
    auto answer = answer_(question);
    if (!answer) {
      base::log(MORI_LOG_INFO, "refused to hand out memory: {}", answer.error().text);
      const byte_vector refusal = encode_refusal(answer.error());
      return static_cast<bool>(to.send(question_kind::refused, {refusal}));
    }
    // A socket that is full means a visitor that does not read: it may come again.
    if (answer->fd)
      return static_cast<bool>(
          to.send_descriptor(question_kind::granted, answer->bytes, answer->fd.get()));
    return static_cast<bool>(to.send(question_kind::granted, {answer->bytes}));
  }

  const desk_address address_;
  const answerer answer_;
  base::unique_fd wake_;
  acceptor entrance_;
  std::deque<visitor> visitors_;
  std::thread thread_;
};

}  // namespace

base::result<std::unique_ptr<handover_desk>> handover_desk::open(answerer answer) {
  desk_address address;
  random_bytes(address.name);
  random_bytes(address.secret);
  MORI_TRY(base::unique_fd listener, tcp::listen_locally(address.name));
  base::unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return base::fail_os(errno, "no event descriptor");
  return std::unique_ptr<handover_desk>(
      std::make_unique<desk>(std::move(listener), std::move(wake), address, std::move(answer)));
}

}  // namespace mori::link
