// ep.cppm - the names of mori/ep.hpp and of mori/ep.h as the module mori.ep; contexts come from
// mori.shmem. The headers are the source of truth; this unit only exports them and attaches nothing
// to the module, so it adds no ABI. Macros do not travel through a module: include mori/ep.h for
// those. A compiled module fits one compiler and its flags only, so this source is what is
// installed.
module;
#include <mori/ep.hpp>

export module mori.ep;

export {
  using ::MORI_BACKEND_AMD;
  using ::MORI_BACKEND_AUTO;
  using ::MORI_BACKEND_HOST;
  using ::MORI_BACKEND_NVIDIA;
  using ::MORI_E_ABORTED;
  using ::MORI_E_AGAIN;
  using ::MORI_E_AUTH;
  using ::MORI_E_CANCELLED;
  using ::MORI_E_INTERNAL;
  using ::MORI_E_INVALID;
  using ::MORI_E_MISMATCH;
  using ::MORI_E_NO_MEMORY;
  using ::MORI_E_NOT_FOUND;
  using ::MORI_E_OS;
  using ::MORI_E_OVERFLOW;
  using ::MORI_E_PEER_DEAD;
  using ::MORI_E_PROTOCOL;
  using ::MORI_E_STATE;
  using ::MORI_E_TIMEOUT;
  using ::MORI_E_UNAVAILABLE;
  using ::MORI_E_UNSUPPORTED;
  using ::MORI_E_VERSION;
  using ::mori_ep;
  using ::mori_ep_abi_level;
  using ::MORI_EP_BF16;
  using ::mori_ep_check;
  using ::mori_ep_combine;
  using ::mori_ep_combine_args;
  using ::mori_ep_combine_buffer;
  using ::mori_ep_combine_result;
  using ::mori_ep_config;
  using ::mori_ep_create;
  using ::mori_ep_destroy;
  using ::mori_ep_dispatch;
  using ::mori_ep_dispatch_args;
  using ::mori_ep_dispatch_result;
  using ::MORI_EP_F16;
  using ::MORI_EP_F32;
  using ::MORI_EP_F4_E2M1X2;
  using ::MORI_EP_F8_E4M3FN;
  using ::MORI_EP_F8_E4M3FNUZ;
  using ::MORI_EP_F8_E5M2;
  using ::MORI_EP_INPUT_CONFIG;
  using ::MORI_EP_INPUT_EXTERNAL;
  using ::MORI_EP_INPUT_REGISTERED;
  using ::MORI_EP_KERNEL_ASYNC_LL;
  using ::MORI_EP_KERNEL_INTER_NODE;
  using ::MORI_EP_KERNEL_INTER_NODE_V1;
  using ::MORI_EP_KERNEL_INTER_NODE_V1LL;
  using ::MORI_EP_KERNEL_INTRA_NODE;
  using ::MORI_EP_KERNEL_INTRA_NODE_LL;
  using ::mori_ep_log_next;
  using ::mori_ep_log_set_level;
  using ::mori_ep_memory;
  using ::mori_ep_memory_query;
  using ::MORI_EP_QUANT_FP4_BLOCKWISE;
  using ::MORI_EP_QUANT_FP8_BLOCKWISE;
  using ::MORI_EP_QUANT_FP8_DIRECT_CAST;
  using ::MORI_EP_QUANT_NONE;
  using ::mori_ep_reset;
  using ::mori_ep_src_token_positions;
  using ::mori_ep_status_name;
  using ::mori_ep_version;
  using ::mori_error;
  using ::MORI_LOG_DEBUG;
  using ::MORI_LOG_ERROR;
  using ::MORI_LOG_INFO;
  using ::MORI_LOG_OFF;
  using ::mori_log_record;
  using ::MORI_LOG_TRACE;
  using ::MORI_LOG_WARN;
  using ::MORI_OK;
  using ::mori_status;
}
export namespace mori {
using mori::error_info;
using mori::exception;
using mori::result;
}  // namespace mori
export namespace mori::ep {
using mori::ep::batch;
using mori::ep::combined;
using mori::ep::config;
using mori::ep::elem_bytes;
using mori::ep::memory_query;
using mori::ep::op;
using mori::ep::outputs;
using mori::ep::received;
}  // namespace mori::ep
