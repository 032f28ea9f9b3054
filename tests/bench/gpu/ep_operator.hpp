// ep_operator.hpp - libmori-ep as the benchmark uses it: the C calls on a stream, with
// the benchmark's inputs, throwing where a call fails. ep_gpu.cu measures with it.
#pragma once

#include "ep_kernels.hpp"

#include <mori/ep.h>
#include <mori/shmem.hpp>

namespace mori_bench {

// What a launch is asked for; 0: the library's choice.
struct ep_launch {
  int blocks = 0;
  int warps = 0;
};

inline mori_ep_config ep_config_of(const ep_shape& of, const ep_launch& launch) {
  auto config = mori::detail::sized<mori_ep_config>();
  config.hidden_dim = of.hidden;
  config.max_token_elem_bytes = sizeof(std::uint16_t);
  config.scale_dim = scale_dim;
  config.scale_elem_bytes = sizeof(float);
  config.max_input_token_count = of.tokens;
  config.expert_per_rank_count = of.experts_per_rank();
  config.expert_per_token_count = top_k;
  config.block_count = launch.blocks;
  config.warp_per_block_count = launch.warps;
  return config;
}

inline std::uint64_t ep_symmetric_bytes(const ep_shape& of, const ep_launch& launch) {
  const mori_ep_config config = ep_config_of(of, launch);
  auto need = mori::detail::sized<mori_ep_memory>();
  mori::detail::call(mori_ep_memory_query, &config, of.ranks, &need).value();
  return need.symmetric_bytes;
}

class ep_operator {
 public:
  ep_operator(mori_shmem* context, const ep_shape& of, const ep_launch& launch,
              const ep_inputs& inputs, const std::int32_t* indices, cudaStream_t stream)
      : of_(of), inputs_(inputs), indices_(indices), stream_(stream) {
    const mori_ep_config config = ep_config_of(of, launch);
    mori::detail::call(mori_ep_create, context, &config, &handle_).value();
  }
  ep_operator(const ep_operator&) = delete;
  ep_operator& operator=(const ep_operator&) = delete;
  ~ep_operator() { mori_ep_destroy(handle_); }

  void dispatch(std::int32_t dtype) {
    const bool f8 = dtype == MORI_EP_F8_E4M3FN;
    auto args = mori::detail::sized<mori_ep_dispatch_args>();
    args.input = f8 ? static_cast<const void*>(inputs_.f8) : inputs_.bf16;
    args.weights = inputs_.weights;
    args.scales = f8 ? inputs_.scales : nullptr;
    args.indices = indices_;
    args.token_count = of_.tokens;
    args.dtype = dtype;
    args.stream = stream_;
    received_ = mori::detail::sized<mori_ep_dispatch_result>();
    mori::detail::call(mori_ep_dispatch, handle_, &args, &received_).value();
  }

  // bf16 rows in receive order: dispatch's own `out`, or another buffer of as many rows.
  void combine(const void* input) {
    auto args = mori::detail::sized<mori_ep_combine_args>();
    args.input = input;
    args.weights = received_.weights;
    args.indices = indices_;
    args.token_count = of_.tokens;
    args.input_row_count = of_.capacity();
    args.dtype = MORI_EP_BF16;
    args.input_mode = MORI_EP_INPUT_EXTERNAL;
    args.stream = stream_;
    combined_ = mori::detail::sized<mori_ep_combine_result>();
    mori::detail::call(mori_ep_combine, handle_, &args, &combined_).value();
  }

  // Waits for the last dispatch. The buffer is pinned: host and device may use it.
  std::uint64_t positions(std::int32_t* to) const {
    std::uint64_t count = 0;
    mori::detail::call(mori_ep_src_token_positions, handle_, to, of_.capacity(), &count).value();
    return count;
  }
  void check() const { mori::detail::call(mori_ep_check, handle_).value(); }

  const mori_ep_dispatch_result& received() const { return received_; }
  const mori_ep_combine_result& combined() const { return combined_; }

 private:
  const ep_shape of_;
  const ep_inputs inputs_;
  const std::int32_t* const indices_;
  const cudaStream_t stream_;
  mori_ep* handle_ = nullptr;
  mori_ep_dispatch_result received_{};
  mori_ep_combine_result combined_{};
};

}  // namespace mori_bench
