// kernels.hpp - the kernels as the host names them. Defined in kernels/; see
// mori/device/kernel.hpp. Read operator.hpp next.
#pragma once

#include <mori/ep.h>
#include <mori/device/runtime.hpp>

#include <array>

MORI_KERNEL_DECLARE(mori_ep_intra_node_dispatch);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_f32);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_bf16);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_f16);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_e4m3fn);
MORI_KERNEL_DECLARE(mori_ep_intra_node_combine_e4m3fnuz);

namespace mori::ep_core {

// Made anew at each call: a few words on the stack.
inline std::array<device::kernel, 6> all_kernels() {
  return {MORI_KERNEL_HANDLE(mori_ep_intra_node_dispatch),
          MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f32),
          MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_bf16),
          MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f16),
          MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fn),
          MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fnuz)};
}

inline device::kernel dispatch_kernel_handle() {
  return MORI_KERNEL_HANDLE(mori_ep_intra_node_dispatch);
}

inline device::kernel combine_kernel_handle(int32_t dtype) {
  switch (dtype) {
    case MORI_EP_BF16: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_bf16);
    case MORI_EP_F16: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f16);
    case MORI_EP_F8_E4M3FN: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fn);
    case MORI_EP_F8_E4M3FNUZ: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_e4m3fnuz);
    default: return MORI_KERNEL_HANDLE(mori_ep_intra_node_combine_f32);
  }
}

}  // namespace mori::ep_core
