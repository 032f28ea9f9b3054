// runtime_kernels.hpp - small kernels for the runtime's tests, written as every kernel is.
#pragma once

#include <mori/device/kernel.hpp>

namespace mori::device_test {

using namespace mori::device;

// rounds times: each block adds one to its cell, all meet, block 0 checks all cells.
struct lockstep_args {
  u64* cells;        // one per block
  u64 rounds;
  u64* wrong_count;  // rounds in which block 0 saw another count than its own
};

MORI_DEVICE void lockstep(const grid& g, const lockstep_args& args) {
  const bool leads = g.this_block().rank() == 0;
  for (u64 round = 1; round <= args.rounds; ++round) {
    if (leads) args.cells[g.block_index()] = round;
    if (!g.sync()) return;
    if (leads && g.block_index() == 0)
      for (u32 i = 0; i < g.block_count(); ++i)
        if (args.cells[i] != round) ++*args.wrong_count;
    if (!g.sync()) return;
  }
}

// Block 0 leaves before the barrier: the others must not wait for ever.
struct deserter_args {
  u32* met_count;
};

MORI_DEVICE void deserter(const grid& g, const deserter_args& args) {
  if (g.block_index() == 0) return;
  if (g.sync() && g.this_block().rank() == 0)
    fetch_add<scope::device, order::relaxed>(args.met_count, 1u);
}

// y[i] = a * x[i] + y[i], through bfloat16: bitwise the same for all variants.
struct saxpy_args {
  const float* x;
  float* y;
  u64 count;
  float a;
};

MORI_DEVICE void saxpy(const grid& g, const saxpy_args& args) {
  for (u64 i = g.lane_index(); i < args.count; i += g.lane_count())
    args.y[i] = to_float(from_float<bfloat16>(args.a * args.x[i] + args.y[i]));
}

}  // namespace mori::device_test
