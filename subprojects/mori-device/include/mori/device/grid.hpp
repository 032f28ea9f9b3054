// grid.hpp - all blocks of a launch: which one am I, and how all of them meet. On
// the host the grid is the worker pool, block i its worker i.
//
//   sync()             all blocks wait for all
//   sync_after(body)   the last block to come runs body() while the others wait
//   finish(body)       the last block to come runs body(), the others are done
//
// So what one block has to do between two phases (an exchange with peers, say)
// costs one meeting, not two, and none at the end of a kernel.
//
// A launch must have all its blocks resident at once (the runtime clamps the
// count), since they wait for each other. A wait gives up, with false, when the
// context is aborted or the budget has passed; the kernel then has to return.
#pragma once

#include <mori/device/launch.hpp>
#include <mori/device/wait.hpp>

namespace mori::device {

class grid {
 public:
  MORI_HOT grid(const mori_device_launch& launch, u32 block_index)
      : launch_(&launch), block_index_(block_index) {}

  MORI_HOT u32 block_index() const { return block_index_; }
  MORI_HOT u32 block_count() const { return launch_->block_count; }
  MORI_HOT block this_block() const { return {}; }
  MORI_HOT wave this_wave() const { return {}; }

  // Waves and lanes over the whole grid.
  MORI_HOT u32 wave_index() const {
    return block_index_ * block{}.wave_count() + block{}.wave_index();
  }
  MORI_HOT u32 wave_count() const { return block_count() * block{}.wave_count(); }
  MORI_HOT u64 lane_index() const { return u64{block_index_} * block{}.size() + block{}.rank(); }
  MORI_HOT u64 lane_count() const { return u64{block_count()} * block{}.size(); }

  MORI_HOT wait_limits limits() const {
    return {launch_->abort_word, launch_->fault, launch_->wait_budget_ns, launch_->spin_count, 0};
  }

  // All lanes of all blocks meet; what they stored before is seen by all after.
  [[nodiscard]] MORI_DEVICE bool sync() const {
    return sync_after([this] { return block{}.broadcast(is_ended(limits()) ? 0u : 1u) != 0; });
  }

  // The last block to come, which sees what all stored, runs body(): all its lanes, the same
  // answer on each. False ends the kernel (the context has ended then): the others give up too.
  template <class Body>
  [[nodiscard]] MORI_DEVICE bool sync_after(Body body) const {
    const block b;
    const arrival mine = arrive();
    if (mine.is_last != 0) {
      if (!body()) return false;
      b.sync();
      if (b.rank() == 0) begin_next<order::release>();
      return true;
    }
    u32 met = 0;
    if (b.rank() == 0) met = wait_for_next(mine.generation) ? 1 : 0;
    return b.broadcast(met) != 0;
  }

  template <class Body>
  MORI_DEVICE void finish(Body body) const {
    if (arrive().is_last == 0) return;
    // Nobody waits for it; the end of the kernel comes before the next one reads the words.
    if (block{}.rank() == 0) begin_next<order::relaxed>();
    body();
  }

 private:
  struct arrival {
    u32 is_last;
    u32 generation;
  };

  MORI_HOT mori_device_grid_barrier* words() const {
    return pointer<mori_device_grid_barrier>(launch_->barrier);
  }
  MORI_HOT doorbell bell() const { return {&words()->doorbell, &words()->waiter_count}; }

  // The block's lanes meet first; lane 0 then speaks for them all (see atomic.hpp).
  MORI_DEVICE arrival arrive() const {
    const block b;
    lane::drain_stores();
    b.sync();
    arrival mine{1, 0};
    if (b.rank() == 0 && block_count() > 1) {
      mine.generation = load<scope::device, order::relaxed>(&words()->generation);
      const u32 before = fetch_add<scope::device, order::acq_rel>(&words()->arrived, 1u);
      mine.is_last = before + 1 == block_count() ? 1 : 0;
    }
    return b.broadcast(mine);
  }

  // The count starts again, then the next generation begins: nothing is reset between launches. On
  // the host a full barrier, which ring_doorbell() asks for.
  template <order O>
  MORI_DEVICE void begin_next() const {
    if (block_count() == 1) return;
    store<scope::device, order::relaxed>(&words()->arrived, 0u);
    constexpr order ordered = block::single ? order::seq_cst : O;
    fetch_add<scope::device, ordered>(&words()->generation, 1u);
    ring_doorbell(bell());
  }

  MORI_DEVICE bool wait_for_next(u32 generation) const {
    const wait_subject subject{MORI_SHMEM_OP_BARRIER, launch_->pe, u64{generation} + 1};
    return wait_until<scope::device>(
               &words()->generation, [generation](u32 now) { return now != generation; }, limits(),
               subject, bell())
        .met;
  }

  const mori_device_launch* launch_;
  u32 block_index_;
};

}  // namespace mori::device
