// kernel.hpp - how a kernel is written. In a header under a library's kernels/
// folder, with no #if and no vendor word:
//
//   struct fill_args { mori::device::u32* out; mori::device::u64 count; mori::device::u32 value; };
//
//   MORI_DEVICE void fill(const mori::device::grid& g, const fill_args& args) {
//     for (u64 i = g.lane_index(); i < args.count; i += g.lane_count()) args.out[i] = args.value;
//     if (!g.sync()) return;
//     ...
//   }
//
// and in one .cpp beside it, which is compiled once for each processor:
//
//   MORI_KERNEL(mori_x_fill, fill_args, fill)
//
// On GPUs this defines the entry point `mori_x_fill`; on the host a registration
// record of the same name and the variant's suffix. Host code names it with
// MORI_KERNEL_DECLARE / MORI_KERNEL_HANDLE of runtime.hpp. How it is built:
// README.md of this crate.
//
// Rules
//  * Arguments are a plain struct (addresses, integers), passed by value.
//  * Names are prefixed by the library: entry points share one flat name space.
//  * Block-wide calls are reached by all lanes of the block, or by none.
//  * Give rows to blocks or waves (`row = g.block_index(); row += g.block_count()`) and
//    elements to the lanes inside (`i = b.rank(); i += b.size()`): on the host the
//    inner step is the constant 1, and the loop is vectorised.
//  * A block has up to 1024 lanes, fewer where a kernel needs many registers: the
//    runtime that launches it asks the driver, the kernel asks b.size().
//  * No static data, no standard header, no function outside namespace mori:
//    variants for different instruction sets are kept apart by renaming that namespace.
#pragma once

#include <mori/device/convert.hpp>
#include <mori/device/copy.hpp>
#include <mori/device/grid.hpp>

#define MORI_KERNEL_JOIN_INNER(a, b) a##b
#define MORI_KERNEL_JOIN(a, b) MORI_KERNEL_JOIN_INNER(a, b)

#if defined(MORI_TARGET_HOST)

// Suffix of the instruction set that this pass compiles for; see meson.build.
#if !defined(MORI_HOST_VARIANT)
#define MORI_HOST_VARIANT _base
#endif

#define MORI_KERNEL(name, args_type, body)                                                     \
  static void MORI_KERNEL_JOIN(name, _run)(const void* args, const mori_device_launch* launch, \
                                           unsigned block_index) {                             \
    body(::mori::device::grid(*launch, block_index), *static_cast<const args_type*>(args));    \
  }                                                                                            \
  extern "C" {                                                                                 \
  extern const mori_device_host_kernel MORI_KERNEL_JOIN(name, MORI_HOST_VARIANT);              \
  const mori_device_host_kernel MORI_KERNEL_JOIN(name, MORI_HOST_VARIANT) = {                  \
      #name, sizeof(args_type), MORI_KERNEL_JOIN(name, _run)};                                 \
  }                                                                                            \
  static_assert(true, "a semicolon may follow")

#else

#define MORI_KERNEL(name, args_type, body)                                          \
  extern "C" MORI_GLOBAL void name(const MORI_ARGUMENT args_type args,              \
                                   const MORI_ARGUMENT mori_device_launch launch) { \
    if (launch.block_count == 0) return; /* the runtime's first launch */           \
    body(::mori::device::grid(launch, ::mori::device::lane::grid_rank()), args);    \
  }                                                                                 \
  static_assert(true, "a semicolon may follow")

#endif
