// schedule.hpp - whose slice goes next on a link: deficit round robin between the
// flows of a rank (a session at one priority each), so a session with a million
// slices delays no other; and ranks by weight, so that latency transfers come
// first and bulk ones still move.
#pragma once

#include <array>
#include <cstdint>

#include "protocol/transfer.hpp"

namespace mori::io_core::protocol {

class schedule {
 public:
  static constexpr size_t ranks = 3;  // latency, normal, bulk
  static constexpr std::array<uint32_t, ranks> weights{16, 4, 1};
  static constexpr int64_t quantum_bytes = 256 * 1024;

  // A transfer without `of` has the rank's own flow.
  void push_back(transfer& what) {
    flow& of = flow_of(what);
    what.next = nullptr;
    if (of.last != nullptr)
      of.last->next = &what;
    else
      of.first = &what;
    of.last = &what;
    activate(of, what.priority);
  }

  void push_front(transfer& what) {
    flow& of = flow_of(what);
    what.next = of.first;
    of.first = &what;
    if (of.last == nullptr) of.last = &what;
    activate(of, what.priority);
  }

  bool empty() const {
    for (const ring& each : rings_)
      if (each.first != nullptr) return false;
    return true;
  }

  // The transfer whose slice is next; null when there is none. It stays first in
  // its flow until pop().
  transfer* peek() {
    for (int round = 0; round < 2; ++round) {
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (rings_[rank].first == nullptr || turns_[rank] == 0) continue;
        return pick(rank);
      }
      turns_ = weights;
    }
    return nullptr;
  }

  // What peek() gave has used its turn for a slice of that many bytes.
  void charge(transfer& what, uint64_t bytes) {
    flow& of = flow_of(what);
    of.credit_bytes -= static_cast<int64_t>(bytes);
    if (turns_[what.priority] > 0) --turns_[what.priority];
  }

  // It has sent all that it has to.
  void pop(transfer& what) {
    flow& of = flow_of(what);
    of.first = what.next;
    what.next = nullptr;
    if (of.first == nullptr) {
      of.last = nullptr;
      deactivate_front(of, what.priority);
    }
  }

  // Anywhere in its flow; linear in the flow's length.
  void remove(transfer& what) {
    flow& of = flow_of(what);
    if (of.first == &what) {
      of.first = what.next;
    } else {
      transfer* before = of.first;
      while (before != nullptr && before->next != &what) before = before->next;
      if (before == nullptr) return;
      before->next = what.next;
      if (of.last == &what) of.last = before;
    }
    what.next = nullptr;
    if (of.first == nullptr) {
      of.last = nullptr;
      deactivate(of, what.priority);
    }
  }

 private:
  struct ring {
    flow* first = nullptr;
    flow* last = nullptr;
    flow own;
  };

  flow& flow_of(transfer& what) {
    return what.of != nullptr ? *what.of : rings_[what.priority].own;
  }

  void activate(flow& of, size_t rank) {
    if (of.is_active) return;
    of.is_active = true;
    of.credit_bytes = quantum_bytes;
    append(of, rank);
  }
  void append(flow& of, size_t rank) {
    ring& in = rings_[rank];
    of.next_active = nullptr;
    if (in.last != nullptr)
      in.last->next_active = &of;
    else
      in.first = &of;
    in.last = &of;
  }
  void remove_front(size_t rank) {
    ring& in = rings_[rank];
    in.first = in.first->next_active;
    if (in.first == nullptr) in.last = nullptr;
  }
  void deactivate_front(flow& of, size_t rank) {
    if (rings_[rank].first == &of)
      remove_front(rank);
    else
      return deactivate(of, rank);
    of.is_active = false;
    of.next_active = nullptr;
  }
  void deactivate(flow& of, size_t rank) {
    ring& in = rings_[rank];
    flow* before = nullptr;
    flow* each = in.first;
    while (each != nullptr && each != &of) before = each, each = each->next_active;
    if (each == nullptr) return;
    (before != nullptr ? before->next_active : in.first) = of.next_active;
    if (in.last == &of) in.last = before;
    of.is_active = false;
    of.next_active = nullptr;
  }

  transfer* pick(size_t rank) {
    ring& in = rings_[rank];
    for (;;) {
      flow& front = *in.first;
      if (in.first == in.last) front.credit_bytes = quantum_bytes;
      if (front.credit_bytes > 0) return front.first;
      front.credit_bytes += quantum_bytes;
      remove_front(rank);
      append(front, rank);
    }
  }

  std::array<ring, ranks> rings_;
  std::array<uint32_t, ranks> turns_ = weights;
};

}  // namespace mori::io_core::protocol
