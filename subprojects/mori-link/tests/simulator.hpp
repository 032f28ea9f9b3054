// simulator.hpp - many `member`s in one thread and in virtual time: frames take
// random time on each link (in order within a link), ranks die, freeze and
// thaw, and nothing but the seed decides what happens.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "protocol/member.hpp"

namespace mori::link::testing {

inline constexpr uint64_t ms = base::ns_per_ms;

// MORI_TEST_SEED repeats one run; the message of a failed check names it.
inline uint64_t first_seed() {
  const char* given = std::getenv("MORI_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}
inline uint64_t seed_count(uint64_t usual) {
  return std::getenv("MORI_TEST_SEED") != nullptr ? 1 : usual;
}

struct simulator_options {
  int size = 1;
  uint64_t seed = 1;
  uint64_t heartbeat_timeout_ns = 1000 * ms;
  uint64_t max_delay_ns = 20 * ms;
};

class simulator {
 public:
  struct node {
    std::unique_ptr<member> self;
    bool alive = true;
    uint64_t frozen_until_ns = 0;
    bool in_call = false;
    std::vector<base::status> outcomes;  // of its collectives, in order
    std::vector<byte_vector> blocks;     // of the last allgather, by rank
    std::function<void()> on_outcome;
    std::vector<uint64_t> arrives_ns;  // by link: when its last frame gets there
  };

  explicit simulator(const simulator_options& options) : options_(options), random_(options.seed) {
    liveness_options alive;
    alive.heartbeat_timeout_ns = options.heartbeat_timeout_ns;
    for (int rank = 0; rank < options.size; ++rank) alive.process_ids.push_back(1000 + rank);
    for (int rank = 0; rank < options.size; ++rank) {
      shapes_.emplace_back(rank, options.size);
      nodes_.emplace_back();
      nodes_.back().self = std::make_unique<member>(shapes_.back(), alive, now_ns_);
      nodes_.back().arrives_ns.resize(static_cast<size_t>(shapes_.back().link_count()));
      tick(rank);
    }
  }

  node& at(int rank) { return nodes_[static_cast<size_t>(rank)]; }
  uint64_t now_ns() const { return now_ns_; }
  uint64_t random_up_to(uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random_);
  }
  std::string repeat() const {
    return "repeat with MORI_TEST_SEED=" + std::to_string(options_.seed) +
           " size=" + std::to_string(options_.size);
  }

  void after(uint64_t delay_ns, std::function<void()> what) {
    events_.push({now_ns_ + delay_ns, order_++, std::move(what)});
  }

  void start(int rank, collective_kind kind, byte_vector mine) {
    after_thaw(rank, [this, rank, kind, mine = std::move(mine)] {
      node& n = at(rank);
      const auto begun = n.self->start(kind, mine);
      n.in_call = true;
      if (!begun) return finish_call(rank, begun);
      settle(rank);
    });
  }

  void act(int rank, const std::function<void(member&)>& what) {
    after_thaw(rank, [this, rank, what] {
      what(*at(rank).self);
      settle(rank);
    });
  }

  // The connections of a dead process close; what it sent before still comes.
  void kill(int rank) {
    node& n = at(rank);
    if (!n.alive) return;
    n.alive = false;
    close_links(rank, "closed its connection");
  }
  void freeze(int rank, uint64_t for_ns) { at(rank).frozen_until_ns = now_ns_ + for_ns; }
  // As kill, after the goodbye.
  void leave(int rank) {
    act(rank, [](member& m) { m.leave(); });
    after_thaw(rank, [this, rank] { kill(rank); });
  }

  // Runs until `done` or the virtual time is over; false: it was over.
  bool run_until(const std::function<bool()>& done, uint64_t for_ns) {
    const uint64_t end = now_ns_ + for_ns;
    while (!done()) {
      if (events_.empty() || events_.top().when_ns > end) return done();
      const auto what = events_.top().what;
      now_ns_ = events_.top().when_ns;
      events_.pop();
      what();
    }
    return true;
  }

 private:
  struct event {
    uint64_t when_ns;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const event& other) const {
      return when_ns != other.when_ns ? when_ns > other.when_ns : order > other.order;
    }
  };

  void after_thaw(int rank, std::function<void()> what) {
    node& n = at(rank);
    const uint64_t wait = n.frozen_until_ns > now_ns_ ? n.frozen_until_ns - now_ns_ : 0;
    after(wait, [this, rank, what = std::move(what)] {
      if (!at(rank).alive) return;
      if (at(rank).frozen_until_ns > now_ns_) return after_thaw(rank, what);
      what();
    });
  }

  void tick(int rank) {
    after_thaw(rank, [this, rank] {
      at(rank).self->on_tick(now_ns_);
      settle(rank);
      const uint64_t due = at(rank).self->next_due_ns();
      after(due > now_ns_ ? due - now_ns_ : 1, [this, rank] { tick(rank); });
    });
  }

  int peer_link(int rank, int link) const {
    const topology& shape = shapes_[static_cast<size_t>(rank)];
    return shape.leads_out(link) ? shape.in_link(link) : shape.round_of(link);
  }

  // In order on each link, whatever the delays; a frozen rank reads later.
  void deliver(int rank, int link, std::function<void(member&, int)> what) {
    uint64_t& arrives = at(rank).arrives_ns[static_cast<size_t>(link)];
    arrives = std::max(arrives + 1, now_ns_ + 1 + random_up_to(options_.max_delay_ns));
    const int to = shapes_[static_cast<size_t>(rank)].rank_at(link);
    after(arrives - now_ns_, [this, to, at_link = peer_link(rank, link), what = std::move(what)] {
      hand_over(to, at_link, what);
    });
  }

  void hand_over(int to, int at_link, const std::function<void(member&, int)>& what) {
    node& n = at(to);
    if (!n.alive) return;
    if (n.frozen_until_ns > now_ns_)
      return after(n.frozen_until_ns - now_ns_,
                   [this, to, at_link, what] { hand_over(to, at_link, what); });
    what(*n.self, at_link);
    settle(to);
  }

  void close_links(int rank, const std::string& reason) {
    for (int link = 0; link < shapes_[static_cast<size_t>(rank)].link_count(); ++link)
      deliver(rank, link, [reason](member& m, int at_link) { m.on_closed(at_link, reason); });
  }

  void settle(int rank) {
    node& n = at(rank);
    const topology& shape = shapes_[static_cast<size_t>(rank)];
    for (int link = 0; link < shape.rounds(); ++link)
      while (const auto part = n.self->peek_part(link)) {
        byte_vector bytes = part->header;
        bytes.insert(bytes.end(), part->data.begin(), part->data.end());
        send(rank, link, message_kind::part_of_collective, std::move(bytes));
        n.self->commit_part(link);
      }
    for (auto& message : n.self->take_outbox())
      send(rank, message.link, message.kind, std::move(message.payload));
    if (n.in_call && !n.self->running()) finish_call(rank, n.self->outcome());
  }

  void send(int rank, int link, message_kind kind, byte_vector bytes) {
    deliver(rank, link, [this, kind, bytes = std::move(bytes)](member& m, int at_link) {
      m.on_frame(at_link, static_cast<uint16_t>(kind), bytes, now_ns_);
    });
  }

  void finish_call(int rank, const base::status& outcome) {
    node& n = at(rank);
    n.in_call = false;
    n.outcomes.push_back(outcome);
    n.blocks.clear();
    for (int other = 0; outcome && other < options_.size; ++other) {
      const byte_span block = n.self->block(other);
      n.blocks.emplace_back(block.begin(), block.end());
    }
    if (n.on_outcome) n.on_outcome();
  }

  simulator_options options_;
  std::mt19937_64 random_;
  uint64_t now_ns_ = base::ns_per_s;
  uint64_t order_ = 0;
  std::vector<topology> shapes_;
  std::vector<node> nodes_;
  std::priority_queue<event> events_;
};

}  // namespace mori::link::testing
