// atomic.hpp - scoped atomics and fences, one interface over three languages:
//
//   load<S, O>(p)              store<S, O>(p, v)         exchange<S, O>(p, v)
//   fetch_add/and/or/xor<S, O>(p, v)                     fence<S, O>()
//   compare_exchange<S, O>(p, expected, desired)         (strong; expected is updated)
//
// on naturally aligned integers of 4 or 8 bytes. S is a scope, O an order.
//
// How data reaches another PE (the rule that every kernel follows):
//   1. all lanes store their part of the data;
//   2. each lane that stored executes fence<scope::system, order::release>();
//   3. the group meets (group.sync());
//   4. one lane stores the flag.
// and on the other side: one lane loads the flag with acquire, the group meets,
// each lane executes fence<scope::system, order::acquire>().
//
// Why the fence comes before the flag and in each lane: a release *store*
// orders only what its own lane did or had been told of by synchronisation. The
// group barrier synchronises at block scope only; what the other lanes wrote has
// to be pushed out at system scope by somebody. See atomic_amd.hpp and
// atomic_nvidia.hpp for what that means on each GPU, and atomic_host.hpp for
// the streaming stores of the host, which a release store does not order.
#pragma once

#include <mori/device/core.hpp>

#if defined(MORI_TARGET_AMD)
#include <mori/device/atomic_amd.hpp>
#elif defined(MORI_TARGET_NVIDIA)
#include <mori/device/atomic_nvidia.hpp>
#else
#include <mori/device/atomic_host.hpp>
#endif
