// xgmi_path.cpp - see xgmi_path.hpp.
#include "transport/xgmi_path.hpp"

#include <algorithm>
#include <vector>

namespace mori::io_core::transport {
namespace {

using local::position;
using local::work;

position at_of(const job& what) { return {what.cursor.piece, what.cursor.bytes}; }
void keep(job& what, const position& at) {
  what.cursor.piece = at.piece;
  what.cursor.bytes = at.bytes;
}

// --- Host memory on both sides: copied by the calling thread.
class host_path final : public xgmi_path {
 public:
  // The region outlives its paths, which is why it is held.
  host_path(std::shared_ptr<const memory::region> mine, remote_host theirs)
      : mine_(std::move(mine)), theirs_(std::move(theirs)) {}
  std::string text() const override { return theirs_.text; }

  base::status start(job& what) override {
    if (!what.is_read && theirs_.mapping != nullptr && !theirs_.mapping->is_writable())
      return base::fail(MORI_E_INVALID, "the memory is offered for reading only");
    return {};
  }

  base::result<job_state> advance(job& what, uint64_t budget_bytes) override {
    const work all{what.is_read, what.pieces, mine_->begin, theirs_.address};
    position at = at_of(what);
    base::status outcome;
    if (theirs_.attachment != nullptr)
      outcome = theirs_.attachment->move(all, at, budget_bytes);
    else
      local::move_mapped(all, at, budget_bytes);
    local::skip(all, at, 0);
    keep(what, at);
    if (!outcome) return std::move(outcome.error());
    return local::is_over(all, at) ? job_state::done : job_state::more;
  }

  void cancel(job&) override {}

 private:
  std::shared_ptr<const memory::region> mine_;
  const remote_host theirs_;
};

// --- One device copies: submitted at once, a flight of the copier at a time.
class device_path final : public xgmi_path {
 public:
  explicit device_path(device_sides sides) : sides_(std::move(sides)) {}
  std::string text() const override { return sides_.text; }

  base::status start(job& what) override {
    what.cursor.word[0] = 0;  // the flight's slot, from 1
    return {};
  }

  base::result<job_state> advance(job& what, uint64_t) override {
    local::gpu_copier::flight flight = flight_of(what);
    auto is_over = sides_.by->is_over(flight);
    remember(what, flight);
    if (!is_over) return std::move(is_over.error());
    if (!*is_over) return job_state::waiting;
    const std::vector<copy_entry>& copies = next_copies(what);
    if (copies.empty()) return job_state::done;
    auto started = sides_.by->start(copies, flight);
    remember(what, flight);
    if (!started) return std::move(started.error());
    what.cursor.piece += *started;
    return job_state::waiting;
  }

  void cancel(job& what) override {
    local::gpu_copier::flight flight = flight_of(what);
    (void)sides_.by->wait(flight);
    remember(what, flight);
  }

 private:
  static local::gpu_copier::flight flight_of(const job& what) {
    return {static_cast<uint32_t>(what.cursor.word[0] - 1)};
  }
  static void remember(job& what, const local::gpu_copier::flight& flight) {
    what.cursor.word[0] = uint64_t{flight.slot + 1};
  }

  // Of one flight at most. The thread's own, so that nothing is allocated for a job.
  const std::vector<copy_entry>& next_copies(const job& what) const {
    thread_local std::vector<copy_entry> copies;
    copies.clear();
    const auto left = what.pieces.subspan(what.cursor.piece);
    for (const piece& each : left.first(std::min(left.size(), local::gpu_copier::table_entries))) {
      const uint64_t here = sides_.local + each.local_offset;
      const uint64_t there = sides_.remote + each.remote_offset;
      copies.push_back(what.is_read ? copy_entry{here, there, each.bytes}
                                    : copy_entry{there, here, each.bytes});
    }
    return copies;
  }

  const device_sides sides_;
};

// --- Staged: a device and a thread take turns on pinned slots.
class staged_path final : public xgmi_path {
 public:
  explicit staged_path(staged_sides sides) : sides_(std::move(sides)) {}
  std::string text() const override { return sides_.text; }

  base::status start(job& what) override {
    auto made = std::make_unique<progress>();
    made->device_pieces.reserve(what.pieces.size());
    for (const piece& each : what.pieces)
      made->device_pieces.push_back(
          {sides_.device + (sides_.device_is_local ? each.local_offset : each.remote_offset),
           each.bytes});
    if (what.is_read == sides_.device_is_local)
      made->into = std::make_unique<local::staged_sink>(sides_.pool, made->device_pieces);
    else
      made->out = std::make_unique<local::staged_source>(sides_.pool, made->device_pieces);
    what.cursor.pointer[0] = made.release();
    return {};
  }

  base::result<job_state> advance(job& what, uint64_t budget_bytes) override {
    auto* const of = static_cast<progress*>(what.cursor.pointer[0]);
    auto state = of->into != nullptr ? fill(what, *of->into, budget_bytes)
                                     : drain(what, *of->out, budget_bytes);
    if (!state || *state == job_state::done) cancel(what);
    return state;
  }

  // Streams wait for what the device still does.
  void cancel(job& what) override {
    delete static_cast<progress*>(what.cursor.pointer[0]);
    what.cursor.pointer[0] = nullptr;
  }

 private:
  struct progress {
    std::vector<local::gpu_piece> device_pieces;
    std::unique_ptr<local::staged_sink> into;
    std::unique_ptr<local::staged_source> out;
  };

  base::result<job_state> fill(job& what, local::staged_sink& into, uint64_t budget) {
    while (!into.is_filled() && budget > 0) {
      MORI_TRY(const auto room, into.room());
      if (room.empty()) return job_state::waiting;
      const uint64_t bytes = std::min<uint64_t>(room.size(), budget);
      MORI_CHECK(move_host(what, room.data(), bytes, true));
      MORI_CHECK(into.commit(bytes));
      budget -= bytes;
    }
    MORI_TRY(const bool is_over, into.is_over());
    if (is_over) return job_state::done;
    return into.is_filled() ? job_state::waiting : job_state::more;
  }

  base::result<job_state> drain(job& what, local::staged_source& out, uint64_t budget) {
    while (!out.is_over() && budget > 0) {
      MORI_TRY(const auto ready, out.ready());
      if (ready.empty()) return job_state::waiting;
      const uint64_t bytes = std::min<uint64_t>(ready.size(), budget);
      MORI_CHECK(move_host(what, const_cast<std::byte*>(ready.data()), bytes, false));
      out.consume(bytes);
      budget -= bytes;
    }
    return out.is_over() ? job_state::done : job_state::more;
  }

  // The next bytes of the host's side, between it and a slot.
  base::status move_host(job& what, std::byte* slot, uint64_t bytes, bool to_slot) {
    thread_local std::vector<piece> pieces;
    pieces.clear();
    position at = at_of(what);
    for (uint64_t done = 0; done < bytes; ++at.piece, at.bytes = 0) {
      const piece& each = what.pieces[at.piece];
      const uint64_t take = std::min(each.bytes - at.bytes, bytes - done);
      const uint64_t offset = sides_.device_is_local ? each.remote_offset : each.local_offset;
      if (take > 0) pieces.push_back({done, offset + at.bytes, take});
      done += take;
      if (take + at.bytes < each.bytes) {
        at.bytes += take;
        break;
      }
    }
    const uint64_t host =
        sides_.device_is_local ? sides_.theirs.address : reinterpret_cast<uintptr_t>(sides_.host);
    const work all{to_slot, pieces, slot, host};
    position done;
    if (sides_.theirs.attachment != nullptr)
      MORI_CHECK(sides_.theirs.attachment->move(all, done, UINT64_MAX));
    else
      local::move_mapped(all, done, UINT64_MAX);
    keep(what, at);
    return {};
  }

  const staged_sides sides_;
};

}  // namespace

std::shared_ptr<xgmi_path> make_host_path(std::shared_ptr<const memory::region> mine,
                                          remote_host theirs) {
  return std::make_shared<host_path>(std::move(mine), std::move(theirs));
}

std::shared_ptr<xgmi_path> make_device_path(device_sides sides) {
  return std::make_shared<device_path>(std::move(sides));
}

std::shared_ptr<xgmi_path> make_staged_path(staged_sides sides) {
  return std::make_shared<staged_path>(std::move(sides));
}

}  // namespace mori::io_core::transport
