// host_call.hpp - one operation of a host call on a GPU's heap, as a kernel of one
// lane: the signal of a put-with-signal, or an atomic. What it found is stored where the
// host reads it after the stream is done.
#pragma once

#include <mori/device/kernel.hpp>
#include <mori/device_api/atomic.hpp>
#include <mori/device_api/put.hpp>

namespace mori::shmem_core {

struct host_call_result {
  device::u64 before;
  device::i32 status;
  device::i32 reserved;
};

struct host_call_args {
  mori_shmem_device_state_v2 state;
  device::u64 target;  // symmetric address of the word
  device::u64 value;
  device::u64 compare;
  device::u64 result;      // address of host_call_result
  device::u32 word_bytes;  // 4 or 8
  device::u32 is_signal;
  device::i32 operation;  // MORI_SHMEM_AMO_* or MORI_SHMEM_SIGNAL_*
  device::i32 pe;
};

template <class T>
MORI_DEVICE host_call_result run_atomic(const host_call_args& args) {
  const auto done = device_api::atomic_fetch(
      device::one_lane{}, args.state,
      device_api::atomic_request<T>{device::pointer<T>(args.target), static_cast<T>(args.value),
                                    args.operation, args.pe, static_cast<T>(args.compare)});
  return {static_cast<device::u64>(done.before), done.status, 0};
}

MORI_DEVICE void host_call(const device::grid& g, const host_call_args& args) {
  if (g.block_index() != 0 || g.this_block().rank() != 0) return;
  host_call_result result{};
  if (args.is_signal != 0)
    result.status = device_api::putmem_signal_nbi(
        device::one_lane{}, args.state, {nullptr, nullptr, 0, args.pe},
        {device::pointer<device::u64>(args.target), args.value, args.operation});
  else
    result = args.word_bytes == 4 ? run_atomic<device::u32>(args) : run_atomic<device::u64>(args);
  *device::pointer<host_call_result>(args.result) = result;
}

}  // namespace mori::shmem_core
