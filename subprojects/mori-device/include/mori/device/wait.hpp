// wait.hpp - the only way that device code waits: bounded, polite, and ended by
// an abort. wait_until() polls one word with system-scope acquire loads until a
// predicate holds. It gives up when the budget has passed (the first
// fault of the context is then recorded), and at once when the abort word is set
// or a fault is already there. Nothing here can wait for ever.
//
// How it is polite:
//   host    spins `spin_count` polls, yields a few times, then sleeps on a
//           doorbell (a futex word) for at most about 1 ms at a time, so that a
//           ring that was missed costs no more than that; where a network
//           changes the word, it serves the network meanwhile;
//   GPUs    poll for about half a millisecond, then sleep between polls, up to
//           about a microsecond at a time.
//
// How a writer wakes a sleeper: after its store it calls ring_doorbell(), which
// costs one load when nobody sleeps. Needed order (store, then load of
// waiter_count; sleeper: increment, then load of the word): both sides have a full
// barrier between the two, so at least one sees the other. The writer must
// therefore store by an atomic read-modify-write or have executed a
// sequentially consistent fence.
#pragma once

#include <mori/base.h>
#include <mori/shmem_device.h>
#include <mori/device/group.hpp>

#if defined(MORI_TARGET_AMD)
#include <mori/device/pause_amd.hpp>
#elif defined(MORI_TARGET_NVIDIA)
#include <mori/device/pause_nvidia.hpp>
#else
#include <mori/device/pause_host.hpp>
#endif

namespace mori::device {

// A futex word and the number of threads that sleep on it; null where nobody rings. Beside it, who
// can do something for the word's change meanwhile: the address of a mori_shmem_driver_v1, or 0.
// All of it is unused on GPUs.
struct doorbell {
  u32* word;
  u32* waiter_count;
  u64 driver = 0;
  bool sleeps_there = false;  // every change comes through the driver
};

// What bounds a wait. Addresses may be 0: no abort word, nowhere to record a fault.
struct wait_limits {
  u64 abort_word;  // address of u64
  u64 fault;       // address of mori_shmem_fault
  u64 budget_ns;
  u64 spin_count;
  u64 peer_left;  // address of u32[pe_count]: entries of PEs that have left are not 0
  bool timeout_is_fault = true;
};

// What the fault says when the budget passes.
struct wait_subject {
  i32 operation;  // MORI_SHMEM_OP_*
  i32 pe;         // whom we wait for, -1: nobody in particular
  u64 awaited;
};

template <class T>
struct wait_result {
  T seen;  // the value last read
  T met;   // 1 if the predicate held for it, else 0; a T, so that the struct has no padding
};

struct fault_record {
  i32 status;
  i32 operation;
  i32 pe;
  u64 awaited;
  u64 seen;
};

// Records the first fault of a context; later ones are dropped. On GPUs the record is in host
// memory, which is slow to read, so the abort word, which is near, is set too: is_ended() looks
// at nothing else there. (Two kernels of one GPU may claim the record at once; the host never
// claims it, since atomics of both sides on one word are not promised over every bus.)
MORI_COLD void record_fault(const wait_limits& limits, const fault_record& what) {
  if (limits.fault == 0) return;
  auto* fault = pointer<mori_shmem_fault>(limits.fault);
  u64 free = 0;
  if (!compare_exchange<scope::system, order::acquire, u64>(&fault->claimed, free, 1)) return;
  fault->status = what.status;
  fault->operation = what.operation;
  fault->pe = what.pe;
  fault->reserved = 0;
  fault->awaited = what.awaited;
  fault->seen = what.seen;
  store<scope::system, order::release, u64>(&fault->claimed, 2);
#if !defined(MORI_TARGET_HOST)
  if (limits.abort_word != 0)
    store<scope::system, order::relaxed, u64>(pointer<u64>(limits.abort_word), 1);
#endif
}

// Whether the PE that a wait names is known to have left: it will never come.
MORI_HOT bool has_left(const wait_limits& limits, i32 pe) {
  return limits.peer_left != 0 && pe >= 0 &&
         load<scope::system, order::acquire>(pointer<const u32>(limits.peer_left) + pe) != 0;
}

// True once the context is aborted or has faulted. S says how fresh the answer is: at block scope
// a GPU may answer from its nearest cache, which it empties with each acquire, at a tenth of the
// cost; good enough before an operation, not in a wait.
template <scope S = scope::system>
MORI_HOT bool is_ended(const wait_limits& limits) {
  if (limits.abort_word != 0 && load<S, order::relaxed>(pointer<const u64>(limits.abort_word)) != 0)
    return true;
#if defined(MORI_TARGET_HOST)
  return limits.fault != 0 &&
         load<S, order::relaxed>(&pointer<const mori_shmem_fault>(limits.fault)->claimed) != 0;
#else
  return false;
#endif
}

// The same with a look at the record itself, which on GPUs is in host memory: that is where a host
// that ends a context is heard however busy the device's queues are. For waits, now and then.
MORI_HOT bool is_ended_by_anyone(const wait_limits& limits) {
  return is_ended(limits) ||
         (limits.fault != 0 && load<scope::system, order::relaxed>(
                                   &pointer<const mori_shmem_fault>(limits.fault)->claimed) != 0);
}

MORI_HOT void ring_doorbell(const doorbell& bell) { pause::ring(bell.word, bell.waiter_count); }

// Wakes a thread of the host that serves what was just published by a sequentially consistent
// store; one load when it is awake.
MORI_HOT void wake_thread(u32* asleep, i32 event) { pause::wake_thread(asleep, event); }

// Stores a word that somebody may sleep on, ordered as O. On the host an exchange: the full barrier
// that ring_doorbell() asks for.
template <order O>
MORI_HOT void store_signal(u64* word, u64 value) {
#if defined(MORI_TARGET_HOST)
  exchange<scope::system, order::acq_rel>(word, value);
#else
  store<scope::system, O>(word, value);
#endif
}

// One lane waits. Kept out of line of the first poll: the common case is "already there". A GPU's
// acquire empties the cache that all blocks of a multiprocessor share, so a wait that has become
// long (is_brief() no more) polls without, and acquires once the word has come.
template <scope S, class T, class Met>
MORI_COLD wait_result<T> wait_slowly(const T* word, Met met, const wait_limits& limits,
                                     const wait_subject& subject, const doorbell& bell) {
  pause::state pauses(limits.spin_count, bell.word, bell.waiter_count,
                      {bell.driver, bell.sleeps_there});
  u64 start_ns = 0;
  for (;;) {
    // Read before the word: what a PE stored before it left still counts.
    const bool clock_due = pauses.is_clock_due();
    const bool left = clock_due && has_left(limits, subject.pe);
    T seen = pauses.is_brief() ? load<S, order::acquire>(word) : load<S, order::relaxed>(word);
    if (met(seen)) {
      if (pauses.is_brief()) return {seen, true};
      seen = load<S, order::acquire>(word);
      if (met(seen)) return {seen, true};
    }
    if (clock_due) {
      if (is_ended_by_anyone(limits)) return {seen, false};
      const u64 now_ns = pause::now_ns();
      if (start_ns == 0) start_ns = now_ns;
      const bool expired = now_ns - start_ns >= limits.budget_ns;
      if (left || expired) {
        if (left || limits.timeout_is_fault)
          record_fault(limits, {left ? MORI_E_PEER_DEAD : MORI_E_TIMEOUT, subject.operation,
                                subject.pe, subject.awaited, static_cast<u64>(seen)});
        return {seen, false};
      }
    }
    pauses.next([&] { return met(load<S, order::acquire>(word)); });
  }
}

// One lane waits until met(value of *word); S is the scope of whoever writes the word.
template <scope S = scope::system, class T, class Met>
MORI_HOT wait_result<T> wait_until(const T* word, Met met, const wait_limits& limits,
                                   const wait_subject& subject, const doorbell& bell) {
  const T seen = load<S, order::acquire>(word);
  if (met(seen)) return {seen, true};
  return wait_slowly<S>(word, met, limits, subject, bell);
}

// A group waits: lane 0 polls, and what it acquired holds for all lanes, which meet after it.
template <class Group, class T, class Met>
MORI_HOT wait_result<T> group_wait_until(const Group& group, const T* word, Met met,
                                         const wait_limits& limits, const wait_subject& subject,
                                         const doorbell& bell) {
  if constexpr (Group::single) {
    return wait_until(word, met, limits, subject, bell);
  } else {
    wait_result<T> result{};
    if (group.rank() == 0) result = wait_until(word, met, limits, subject, bell);
    result = group.broadcast(result);
    // A block has met in the broadcast.
    if constexpr (!same_type<Group, block>) group.sync();
    return result;
  }
}

}  // namespace mori::device
