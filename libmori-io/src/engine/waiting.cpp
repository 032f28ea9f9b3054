// waiting.cpp - see waiting.hpp.
#include "engine/waiting.hpp"

#include <vector>

#include "engine/engine.hpp"

namespace mori::io_core {
namespace {

constexpr size_t most_watched = 64;
// With several engines: how long one is driven before the next.
constexpr uint64_t slice_ns = base::ns_per_ms;

// What is waited for. Those before `next` are done and succeeded.
struct waiting_list {
  std::vector<transfer_table::ref> all;
  size_t next = 0;
  size_t failed = SIZE_MAX;
  uint64_t failures_seen = UINT64_MAX;

  bool check(size_t index) {
    transfer_record& of = *all[index];
    if (!of.is_done.load(std::memory_order_acquire)) return false;
    if (of.status.load(std::memory_order_relaxed) != MORI_OK) failed = index;
    return true;
  }
  bool is_over() {
    while (next < all.size() && failed == SIZE_MAX && check(next)) ++next;
    if (failed != SIZE_MAX || next == all.size()) return true;
    const uint64_t failures = failure_count.load(std::memory_order_relaxed);
    if (failures == failures_seen) return false;
    failures_seen = failures;
    for (size_t i = next + 1; i < all.size() && failed == SIZE_MAX; ++i) check(i);
    return failed != SIZE_MAX;
  }
  uint64_t in_flight() const {
    uint64_t count = 0;
    for (const transfer_table::ref& each : all)
      count += each->is_done.load(std::memory_order_acquire) ? 0 : 1;
    return count;
  }
  bool has_one_engine() const {
    for (const transfer_table::ref& each : all)
      if (each->owner != all.front()->owner) return false;
    return true;
  }
};

base::status wait_for(waiting_list& list, uint64_t timeout_ns) {
  const base::deadline until = base::deadline::after(timeout_ns);
  const bool is_one = list.has_one_engine();
  for (size_t at = 0; !list.is_over() && !until.passed(); ++at) {
    const size_t index = is_one ? list.next : list.next + at % (list.all.size() - list.next);
    if (list.all[index]->is_done.load(std::memory_order_acquire)) continue;
    const std::shared_ptr<engine> by = list.all[index]->owner;
    const auto watched = std::span<const transfer_table::ref>(list.all).subspan(list.next).first(
        std::min(most_watched, list.all.size() - list.next));
    const base::deadline slice = base::deadline::after(slice_ns);
    by->wait([&] { return list.is_over(); },
             is_one || slice.when_ns() > until.when_ns() ? until : slice, watched);
  }
  if (list.failed != SIZE_MAX) {
    transfer_record& of = *list.all[list.failed];
    const std::lock_guard guard(of.text_lock);
    return base::failure{of.status.load(std::memory_order_relaxed), 0, of.text};
  }
  if (list.next == list.all.size()) return {};
  return base::fail(MORI_E_TIMEOUT, "{} of {} transfers are in flight after {} ms",
                    list.in_flight(), list.all.size(), timeout_ns / base::ns_per_ms);
}

}  // namespace

std::atomic<uint64_t> failure_count{0};

base::status wait_for_transfers(std::span<const mori_io_transfer* const> which,
                                uint64_t timeout_ns) {
  if (which.empty()) return {};
  // Its vector is kept for the next wait of this thread.
  thread_local waiting_list list;
  list.all.clear();
  list.next = 0;
  list.failed = SIZE_MAX;
  list.failures_seen = UINT64_MAX;
  for (const mori_io_transfer* each : which) {
    auto pinned = transfers().pin(each);
    if (!pinned) {
      list.all.clear();
      return pinned.error();
    }
    list.all.push_back(std::move(*pinned));
  }
  base::status outcome = wait_for(list, timeout_ns);
  list.all.clear();
  return outcome;
}

void cancel_transfer(const transfer_table::ref& which) {
  const std::shared_ptr<engine> by = which->owner;
  by->cancel(*which);
}

}  // namespace mori::io_core
