// intra_node.cpp - entry points of the IntraNode kernels. Compiled once per
// processor and, for the host, once per instruction set.
#include "kernels/combine.hpp"
#include "kernels/dispatch.hpp"

MORI_KERNEL(mori_ep_intra_node_dispatch, mori::ep_core::dispatch_args, mori::ep_core::dispatch);
MORI_KERNEL(mori_ep_intra_node_combine_f32, mori::ep_core::combine_args,
            mori::ep_core::combine<float>);
MORI_KERNEL(mori_ep_intra_node_combine_bf16, mori::ep_core::combine_args,
            mori::ep_core::combine<mori::device::bfloat16>);
MORI_KERNEL(mori_ep_intra_node_combine_f16, mori::ep_core::combine_args,
            mori::ep_core::combine<mori::device::float16>);
MORI_KERNEL(mori_ep_intra_node_combine_e4m3fn, mori::ep_core::combine_args,
            mori::ep_core::combine<mori::device::float8_e4m3fn>);
MORI_KERNEL(mori_ep_intra_node_combine_e4m3fnuz, mori::ep_core::combine_args,
            mori::ep_core::combine<mori::device::float8_e4m3fnuz>);
