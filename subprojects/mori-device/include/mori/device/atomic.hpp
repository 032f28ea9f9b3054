// atomic.hpp - scoped atomics and fences, one interface over three languages:
//
//   load<S, O>(p)              store<S, O>(p, v)         exchange<S, O>(p, v)
//   fetch_add/and/or/xor<S, O>(p, v)                     fence<S, O>()
//   compare_exchange<S, O>(p, expected, desired)         (strong; expected is updated)
//
// on naturally aligned integers of 4 or 8 bytes. S is a scope, O an order.
//
// How data reaches another PE (the rule that every kernel follows):
//   1. all lanes of the group store their part of the data;
//   2. publish(group): the lanes meet, then lane 0 executes a release fence at system
//      scope (group.hpp);
//   3. lane 0 stores the flag, or meets lane 0s of other groups, one of which stores it.
// and on the other side: one lane loads the flag with acquire at system scope, then
// the group meets.
//
// Why one lane's fence covers what the others stored: synchronisation is
// transitive on all three processors. The meeting orders the other lanes'
// stores before the fence, at block scope, and the fence orders all that came before
// it, not its own lane's stores alone, before the flag. The same chain runs
// backwards at the reader: its acquire empties the caches that the lanes of the group
// share, and the meeting comes before their loads. A release *store* would do as well
// as a fence and a store, but for the streaming stores of the host, which it
// does not order. See atomic_amd.hpp, atomic_nvidia.hpp and atomic_host.hpp for
// what that means on each.
#pragma once

#include <mori/device/core.hpp>

#if defined(MORI_TARGET_AMD)
#include <mori/device/atomic_amd.hpp>
#elif defined(MORI_TARGET_NVIDIA)
#include <mori/device/atomic_nvidia.hpp>
#else
#include <mori/device/atomic_host.hpp>
#endif
