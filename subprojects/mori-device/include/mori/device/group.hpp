// group.hpp - who executes an operation together: one_lane, wave or block. Each
// has rank(), size() and sync() and the same small set of collectives, so that
// device functions are written once over `Group`:
//
//   broadcast(value, root)  reduce_add(value)  exclusive_scan(value) -> {before, total}
//   any(flag)               whether the flag of any lane is set; a block meets in it
//   publish(group)          before a flag tells a peer of the group's stores
//
// and wave also has ballot(flag) and shuffle(value, lane). Values are integers,
// floats or plain structs of 4 to 16 bytes. All lanes of the group must call, in the same
// order; a block's collectives use a few words of shared memory and two barriers.
//
// On the host a wave has one lane and a block is one worker thread: everything
// here folds to nothing. The wave's size is a function, not a constant: 64
// lanes on AMD gfx9, 32 on NVIDIA, 1 on the host; ballot() is 64 bits wide for all.
#pragma once

#include <mori/device/core.hpp>

#if defined(MORI_TARGET_AMD)
#include <mori/device/lane_amd.hpp>
#elif defined(MORI_TARGET_NVIDIA)
#include <mori/device/lane_nvidia.hpp>
#else
#include <mori/device/lane_host.hpp>
#endif

namespace mori::device {

template <class T>
struct scan_result {
  T before;  // sum over the lanes of lower rank
  T total;   // sum over all lanes
};

// A single lane: what a thread-scope operation runs as.
struct one_lane {
  static constexpr bool single = true;
  MORI_HOT u32 rank() const { return 0; }
  MORI_HOT u32 size() const { return 1; }
  MORI_HOT void sync() const {}
  template <class T>
  MORI_HOT T broadcast(T value, u32 = 0) const {
    return value;
  }
  MORI_HOT bool any(bool flag) const { return flag; }
  template <class T>
  MORI_HOT T reduce_add(T value) const {
    return value;
  }
  template <class T>
  MORI_HOT scan_result<T> exclusive_scan(T value) const {
    return {T{}, value};
  }
};

// The lanes that the hardware issues together. All of them must take part.
struct wave {
  static constexpr bool single = lane::wave_is_single;
  MORI_HOT u32 rank() const { return lane::wave_rank(); }
  MORI_HOT u32 size() const { return lane::wave_size(); }
  MORI_HOT void sync() const { lane::wave_sync(); }

  // Bit i is the flag of lane i.
  MORI_HOT u64 ballot(bool flag) const { return lane::ballot(flag); }
  MORI_HOT bool any(bool flag) const { return ballot(flag) != 0; }
  // The value of lane `source`, which may differ from lane to lane.
  template <class T>
  MORI_HOT T shuffle(T value, u32 source) const {
    return lane::over_words(value, [source](u32 word) { return lane::shuffle(word, source); });
  }
  // The value of lane `root`, the same root for all lanes.
  template <class T>
  MORI_HOT T broadcast(T value, u32 root = 0) const {
    return lane::over_words(value, [root](u32 word) { return lane::broadcast(word, root); });
  }
  // In a fixed order (butterfly), so floats give the same sum in each run.
  template <class T>
  MORI_HOT T reduce_add(T value) const {
    for (u32 step = size() / 2; step > 0; step /= 2)
      value = static_cast<T>(value + shuffle(value, rank() ^ step));
    return value;
  }
  template <class T>
  MORI_HOT scan_result<T> exclusive_scan(T value) const {
    T upto = value;
    for (u32 step = 1; step < size(); step *= 2) {
      const T other = shuffle(upto, rank() >= step ? rank() - step : rank());
      if (rank() >= step) upto = static_cast<T>(upto + other);
    }
    return {static_cast<T>(upto - value), broadcast(upto, size() - 1)};
  }
};

// The lanes that share MORI_SHARED memory: 1-dimensional, a multiple of the wave size.
struct block {
  static constexpr bool single = lane::wave_is_single;
  MORI_HOT u32 rank() const { return lane::block_rank(); }
  MORI_HOT u32 size() const { return lane::block_size(); }
  MORI_HOT void sync() const { lane::block_sync(); }
  MORI_HOT u32 wave_index() const { return rank() / lane::wave_size(); }
  MORI_HOT u32 wave_count() const { return size() / lane::wave_size(); }

  MORI_DEVICE bool any(bool flag) const { return lane::block_any(flag); }
  template <class T>
  MORI_DEVICE T broadcast(T value, [[maybe_unused]] u32 root = 0) const {
    if constexpr (single) {
      return value;
    } else {
      MORI_SHARED T slot;
      if (rank() == root) slot = value;
      sync();
      const T result = slot;
      sync();  // nobody overwrites the slot before all have read it
      return result;
    }
  }
  template <class T>
  MORI_DEVICE T reduce_add(T value) const {
    return exclusive_scan(value).total;
  }
  template <class T>
  MORI_DEVICE scan_result<T> exclusive_scan(T value) const {
    if constexpr (single) {
      return {T{}, value};
    } else {
      MORI_SHARED T totals[lane::max_waves];
      const scan_result<T> mine = wave{}.exclusive_scan(value);
      if (wave{}.rank() == 0) totals[wave_index()] = mine.total;
      sync();
      T before{}, total{};
      for (u32 i = 0; i < wave_count(); ++i) {
        const T part = totals[i];
        if (i < wave_index()) before = static_cast<T>(before + part);
        total = static_cast<T>(total + part);
      }
      sync();
      return {static_cast<T>(before + mine.before), total};
    }
  }
};

// What the lanes of the group stored before is ordered, at system scope, before what lane 0 stores
// after. See atomic.hpp.
template <class Group>
MORI_HOT void publish(const Group& group) {
  if constexpr (!Group::single) {
    lane::drain_stores();
    group.sync();
  }
  if (group.rank() == 0) fence<scope::system, order::release>();
}

}  // namespace mori::device
