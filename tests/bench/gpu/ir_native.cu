// ir_native.cu - the all-gather of ir_all_gather.py as a native kernel over the device API: what
// the Triton kernel is compared with. Block p brings part p of the own row to all PEs, each with a
// signal, and waits for that part of all rows.
#include <mori/device/kernel.hpp>
#include <mori/device_api/shmem.hpp>

namespace mori::bench {

using namespace mori::device;
namespace api = mori::device_api;

struct all_gather_args {
  api::state state;
  u64 gathered;
  u64 mine;
  u64 signals;
  u64 epoch;
  u64 part_bytes;
};

}  // namespace mori::bench

extern "C" __global__ void mori_bench_all_gather(
    const __grid_constant__ mori::bench::all_gather_args args) {
  using namespace mori::bench;
  const block all;
  const u64 part = blockIdx.x, parts = gridDim.x;
  const u64 me = static_cast<u64>(args.state.my_pe), count = static_cast<u64>(args.state.pe_count);
  for (u64 i = 0; i < count; ++i) {
    const u64 pe = (me + i) % count;
    api::putmem_signal_nbi(
        all, args.state,
        {pointer<void>(args.gathered + (me * parts + part) * args.part_bytes),
         pointer<const void>(args.mine + part * args.part_bytes), args.part_bytes,
         static_cast<i32>(pe)},
        {pointer<u64>(args.signals) + part * count + me, args.epoch, MORI_SHMEM_SIGNAL_SET});
  }
  for (u64 pe = 0; pe < count; ++pe)
    api::wait_until_greater_than(all, args.state, pointer<u64>(args.signals) + part * count + pe,
                                 args.epoch - 1);
}
