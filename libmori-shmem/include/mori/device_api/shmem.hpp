// shmem.hpp - the device API of shmem: one-sided operations for kernels, the same
// source on the host, AMD and NVIDIA, and for host code as one lane. It speaks the
// protocol of mori/shmem_device.h and is outside the C ABI: it is inlined
// into its user.
//
// Every function takes the group that executes it first (device::one_lane, wave
// or block), then the PE's state:
//
//   state.hpp     my_pe n_pes ptr ptr_p2p ended_status
//   put.hpp       putmem_nbi put_nbi putmem_signal_nbi p put_size_imm_nbi
//   get.hpp       getmem_nbi getmem get_nbi get
//   atomic.hpp    atomic_fetch atomic_nonfetch atomic_fetch_add atomic_add
//   wait.hpp      wait_until wait_until_equals wait_until_greater_than
//   order.hpp     quiet fence quiet_pe fence_pe
//   barrier.hpp   barrier_all
//   ring.hpp      what the above do where a peer is not mapped
//
// Rules that hold for all: once the context has a fault or is aborted,
// waits end and return the fault, and so do quiet, fence and barrier; on the host the other
// operations do nothing then, on a GPU they still move their bytes; an address (with its
// length) outside the heap, a PE that does not exist or an unknown code touches nothing and is
// recorded as MORI_E_INVALID, a PE that is neither mapped nor reached by a network as
// MORI_E_UNAVAILABLE. Behind a network a lane's operation is a command that the host sends, so a
// group's bulk operation is one command, and a bulk source must stay as it is until quiet().
#pragma once

#include <mori/device_api/atomic.hpp>
#include <mori/device_api/barrier.hpp>
#include <mori/device_api/get.hpp>
#include <mori/device_api/order.hpp>
#include <mori/device_api/put.hpp>
#include <mori/device_api/ring.hpp>
#include <mori/device_api/state.hpp>
#include <mori/device_api/wait.hpp>
