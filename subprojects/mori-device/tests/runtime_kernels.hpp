// runtime_kernels.hpp - small kernels for the runtime's tests, written as every kernel is.
#pragma once

#include <mori/device/kernel.hpp>

namespace mori::device_test {

using namespace mori::device;

// rounds times: each block adds one to its cell, all meet, block 0 checks all cells.
struct lockstep_args {
  u64* cells;  // one per block
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

// Rows of y = narrow(a * x + y), one row per block in turn, then copied to `out`: floating
// point, conversion and both copies must give the same bits in all variants.
struct rows_args {
  const float* x;
  float* y;
  float16* out;
  float16* streamed;
  u64 row_count;
  u64 row_elements;
  float a;
};

MORI_DEVICE void rows(const grid& g, const rows_args& args) {
  const block b;
  for (u64 row = g.block_index(); row < args.row_count; row += g.block_count()) {
    const float* x = args.x + row * args.row_elements;
    float* y = args.y + row * args.row_elements;
    float16* out = args.out + row * args.row_elements;
    for (u64 i = b.rank(); i < args.row_elements; i += b.size()) {
      y[i] = to_float(from_float<bfloat16>(args.a * x[i] + y[i])) +
             to_float(from_float<float8_e4m3fn>(x[i])) + to_float(from_float<float8_e5m2>(y[i]));
      out[i] = from_float<float16>(y[i]);
    }
    b.sync();
    copy_streaming(b, args.streamed + row * args.row_elements, out,
                   args.row_elements * sizeof(float16));
    fence<scope::system, order::release>();
  }
}

// Collectives of wave and block, checked inside: wrong_count stays 0.
struct collectives_args {
  u32* wrong_count;
};

template <class Group>
MORI_DEVICE u32 wrong_collectives(const Group& group) {
  const u32 n = group.size();
  const u32 me = group.rank();
  u32 wrong = 0;
  const scan_result<u32> scan = group.exclusive_scan(me + 1);
  wrong += scan.before != me * (me + 1) / 2;
  wrong += scan.total != n * (n + 1) / 2;
  wrong += group.reduce_add(u64{me} << 32) != (u64{n} * (n - 1) / 2) << 32;
  wrong += group.broadcast(me * 3 + 1, n - 1) != (n - 1) * 3 + 1;
  wrong += group.broadcast(static_cast<double>(me) + 0.5) != 0.5;
  return wrong;
}

MORI_DEVICE void collectives(const grid& g, const collectives_args& args) {
  const wave w = g.this_wave();
  u32 wrong =
      wrong_collectives(one_lane{}) + wrong_collectives(w) + wrong_collectives(g.this_block());
  wrong += w.ballot(w.rank() % 2 == 0) != (0x5555'5555'5555'5555u & (~u64{0} >> (64 - w.size())));
  wrong += w.shuffle(w.rank(), w.size() - 1 - w.rank()) != w.size() - 1 - w.rank();
  wrong += g.this_block().wave_index() * w.size() + w.rank() != g.this_block().rank();
  if (wrong != 0) fetch_add<scope::device, order::relaxed>(args.wrong_count, wrong);
}

}  // namespace mori::device_test
