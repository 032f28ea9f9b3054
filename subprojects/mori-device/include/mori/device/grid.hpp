// grid.hpp - all blocks of a launch: which one am I, and a barrier over all of
// them. On the host the grid is the worker pool, block i its worker i.
//
// A launch must have all its blocks resident at once (the runtime clamps the
// count), since sync() waits for all of them. It gives up, with false, when the
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
    const block b;
    // What the other lanes stored is pushed out by themselves; see atomic.hpp.
    if constexpr (!block::single) fence<scope::device, order::release>();
    b.sync();
    u32 met = 0;
    if (b.rank() == 0) met = meet() ? 1 : 0;
    met = b.broadcast(met);
    if constexpr (!block::single) fence<scope::device, order::acquire>();
    return met != 0;
  }

 private:
  // The last to arrive resets the count and opens the next generation.
  MORI_DEVICE bool meet() const {
    if (block_count() == 1) return !is_ended(limits());
    auto* words = pointer<mori_device_grid_barrier>(launch_->barrier);
    const doorbell bell{&words->doorbell, &words->waiter_count};
    const u32 generation = load<scope::device, order::relaxed>(&words->generation);
    const u32 before = fetch_add<scope::device, order::acq_rel>(&words->arrived, 1u);
    if (before + 1 == block_count()) {
      store<scope::device, order::relaxed>(&words->arrived, 0u);
      fetch_add<scope::system, order::seq_cst>(&words->generation, 1u);
      ring_doorbell(bell);
      return !is_ended(limits());
    }
    const wait_subject subject{MORI_SHMEM_OP_BARRIER, launch_->pe, u64{generation} + 1};
    return wait_until(
               &words->generation, [generation](u32 now) { return now != generation; }, limits(),
               subject, bell)
        .met;
  }

  const mori_device_launch* launch_;
  u32 block_index_;
};

}  // namespace mori::device
