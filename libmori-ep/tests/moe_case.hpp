// moe_case.hpp - random input of one dispatch and one combine on all ranks, what the
// reference says they must give, and the comparison, bit by bit. Says nothing of how the
// calls are made: see moe_call.hpp.
#pragma once

#include "kernels/reference.hpp"

#include <mori/ep.h>

#include <random>
#include <string>
#include <vector>

namespace ep_test {

namespace ref = mori::ep_reference;
using engine = std::mt19937_64;

// minimum .. maximum
uint64_t pick(engine& random, uint64_t minimum, uint64_t maximum);
inline bool chance(engine& random, uint64_t one_in) { return pick(random, 1, one_in) == 1; }

uint64_t elem_bytes(int32_t dtype);

struct call_shape {
  int32_t dtype = MORI_EP_F32;
  uint64_t hidden_dim = 0;
  bool has_weights = false;
  bool has_scales = false;
  bool count_experts = false;
};

// What all ranks give, and what the reference says they get.
struct dispatch_case {
  call_shape with;
  ref::shape shape;
  std::vector<ref::source> ranks;
  std::vector<ref::received> expected;

  // Indices of `rank` as they are passed (dispatch and combine).
  const int32_t* indices(int rank) const { return ranks[static_cast<size_t>(rank)].indices.data(); }
};

ref::shape shape_of(const mori_ep_config& config, int rank_count, const call_shape& with);
// Random tokens and routing: idle and full ranks, skew, unrouted slots, repeated experts.
dispatch_case random_dispatch(engine& random, const mori_ep_config& config, int rank_count,
                              const call_shape& with);
// After a change of the ranks' input.
void expect_again(dispatch_case& c);

// What one rank has after mori_ep_dispatch.
struct dispatched {
  std::string failed;  // see failure()
  mori_ep_dispatch_result result;
  ref::received got;
};
// "" if each rank has what the reference says.
std::string difference(const dispatch_case& c, const std::vector<dispatched>& got);

enum class input_kind { external, in_place, registered };

struct combine_case {
  call_shape with;
  input_kind input = input_kind::external;
  std::vector<ref::expert_output> outputs;
  std::vector<ref::combined> expected;
  std::vector<void*> token_buffers;  // dispatch's output on each rank, for in_place
};
combine_case random_combine(engine& random, const dispatch_case& c, const call_shape& with);

struct combined {
  std::string failed;
  ref::combined got;
};
std::string difference(const combine_case& with, const std::vector<combined>& got);

}  // namespace ep_test
